"""``millstream pipeline declared``: a project of Spark Declarative Pipelines."""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import click

from millstream.cli.command import command
from millstream.pipelines.java import check_java
from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.spark.worker_python import worker_python


@command("millstream pipeline declared spec.yml")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only check that the definitions fit together.")
@click.option(
    "--full-refresh-all", is_flag=True, help="Forget all progress and start from the beginning."
)
def declared(spec: Path, dry_run: bool, full_refresh_all: bool) -> int:
    """Run the declarative pipeline of the SPEC file (spark-pipeline.yml) over streams.

    Works as spark-pipelines does, but with this Python and without environment variables.
    """
    if dry_run and full_refresh_all:
        raise click.UsageError("give --dry-run or --full-refresh-all, not both")
    if not spec.is_file():
        raise PipelineError(f"{spec}: no such file")
    for package in ("grpc", "grpc_status", "google.rpc", "yaml"):
        if not _is_there(package):
            raise MissingPackage(package, "a declarative pipeline")
    check_java()
    command = [_program(), "dry-run" if dry_run else "run", "--spec", str(spec.resolve())]
    command += ["--full-refresh-all"] if full_refresh_all else []
    with worker_python() as python:
        chosen = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return subprocess.run(command, env={**chosen, **os.environ}, check=False).returncode


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it is part of
        return False


def _program() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines")
