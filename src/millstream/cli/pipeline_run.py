"""``millstream pipeline run`` and ``check``."""

from pathlib import Path

import click

from millstream.cli.options import server_option
from millstream.cli.pipeline_options import SparkChoice, run_pipeline, spark_options
from millstream.pipelines.document import load
from millstream.pipelines.parse import parse
from millstream.pipelines.preflight import preflight
from millstream.pipelines.spec import Pipeline

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@server_option
@spark_options
def run(file: Path, url: str | None, spark: SparkChoice) -> None:
    """Run the pipeline in FILE, a YAML or Python file.

    What it took and wrote is kept under .millstream/checkpoints beside the file, so that the next
    run goes on where this one ended, each record once.
    """
    run_pipeline(loaded(file, url), spark)


@click.command()
@click.argument("file", type=FILE)
@server_option
@click.option("--offline", is_flag=True, help="Ask no server whether the streams are there.")
def check(file: Path, url: str | None, offline: bool) -> None:
    """Check the pipeline in FILE; starts no Spark.

    Streams that the pipeline is to create are created.
    """
    found = loaded(file, url)
    if not offline:
        preflight(found)
    kinds = f"{len(found.sources)} sources, {len(found.steps)} steps, {len(found.sinks)} sinks"
    click.echo(f"{found.name}: {kinds}; well-formed")


def loaded(file: Path, url: str | None) -> Pipeline:
    """Return the pipeline in a file; a url of the command line wins over the file's."""
    return parse(load(file), {"url": url} if url else None)
