"""``millstream pipeline``: what Spark does with the streams."""

from importlib.util import find_spec

import click

from millstream.cli.lazy import LazyGroup


class PipelineGroup(LazyGroup):
    """Commands that need Spark's packages, and say so."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; its modules cannot even be imported without pyarrow."""
        for package in ("pyspark", "pyarrow"):
            if find_spec(package) is None:
                fix = "pip install 'millstream[spark,pipelines]'"
                raise click.ClickException(f"a pipeline needs {package}: {fix}")
        return super().get_command(ctx, cmd_name)


pipeline = PipelineGroup(
    purpose="Read, transform and write streams with Spark.",
    places={
        "run": ("millstream.cli.pipeline.run:run", "Run a pipeline file (YAML or Python)."),
        "check": ("millstream.cli.pipeline.run:check", "Check a pipeline file without Spark."),
        "archive": ("millstream.cli.pipeline.ready:archive", "Copy streams into a lake table."),
        "replay": (
            "millstream.cli.pipeline.ready:replay",
            "Publish an archived table to a stream.",
        ),
        "compact": (
            "millstream.cli.pipeline.ready:compact",
            "Merge many files into few sorted ones.",
        ),
        "backfill": ("millstream.cli.pipeline.ready:backfill", "Run a pipeline over past records."),
        "rollup": ("millstream.cli.pipeline.ready:rollup", "Count records and rates by window."),
        "declared": (
            "millstream.cli.pipeline.declared:declared",
            "Run Spark Declarative Pipelines over streams.",
        ),
        "demo": ("millstream.cli.pipeline.demo:demo", "Count orders by minute, from nothing."),
        "audit": ("millstream.cli.pipeline.ready:audit", "Check every record of streams."),
    },
)
