"""``millstream pipeline run`` and ``check``."""

from functools import partial
from pathlib import Path

import click

from millstream.cli.command import command
from millstream.cli.pipeline.options import (
    SparkChoice,
    run_pipeline,
    server_options,
    spark_options,
)
from millstream.pipelines.file.document import load
from millstream.pipelines.file.parse import parse
from millstream.pipelines.file.spec import Pipeline
from millstream.pipelines.known_columns import check_columns
from millstream.pipelines.preflight import preflight, sampled_fields

FILE = click.Path(path_type=Path)


@command("millstream pipeline run orders.yaml")
@click.argument("file", type=FILE)
@server_options
@spark_options
def run(file: Path, server: dict[str, str], spark: SparkChoice) -> None:
    """Run the pipeline in FILE, a YAML or Python file.

    The run keeps its position under .millstream/checkpoints beside the file. The next run goes on
    where this one ended and takes each record once.
    """
    run_pipeline(loaded(file, server), spark)


@command("millstream pipeline check orders.yaml")
@click.argument("file", type=FILE)
@server_options
@click.option("--offline", is_flag=True, help="Do not ask the server whether the streams exist.")
def check(file: Path, server: dict[str, str], offline: bool) -> None:
    """Check the pipeline in FILE; starts no Spark.

    Streams that the pipeline is to create are created.
    """
    found = loaded(file, server)
    if offline:
        check_columns(found)
    else:
        preflight(found)
        check_columns(found, partial(sampled_fields, found))
    kinds = f"{len(found.sources)} sources, {len(found.steps)} steps, {len(found.sinks)} sinks"
    click.echo(f"{found.name}: {kinds}; well-formed")


def loaded(file: Path, server: dict[str, str]) -> Pipeline:
    """Return the pipeline in a file; the server of the command line wins over the file's."""
    return parse(load(file), server)
