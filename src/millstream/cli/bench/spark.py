"""``bench spark``: how fast Spark reads a stream of the server."""

import time
from importlib.util import find_spec

import click

from millstream.cli.access.options import connected, json_option
from millstream.cli.access.server import ServerAccess
from millstream.cli.bench.core import as_object, line
from millstream.cli.bench.core_runs import Measured
from millstream.cli.bench.js import _many
from millstream.cli.command import command
from millstream.client.jetstream.inbox import new_inbox


@command("millstream bench spark", "millstream bench spark --msgs 1000000 --json")
@click.option("--msgs", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option("--size", default=128, show_default=True, type=click.IntRange(min=0))
@connected
@json_option
def spark(msgs: int, size: int, access: ServerAccess, as_json: bool) -> None:
    """Measure how fast Spark counts a new stream. The stream is removed at the end."""
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            raise click.ClickException(
                f"bench spark needs {package}: pip install 'millstream[spark]'"
            )
    name = f"BENCH-{new_inbox()[-8:]}"
    with access.jetstream() as js:
        js.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
        try:
            _many(js, name, msgs, size)
            measured = _count(name, msgs, size, access)
        finally:
            js.ask(f"STREAM.DELETE.{name}")
    click.echo(as_object(measured) if as_json else line(measured))


def _count(name: str, msgs: int, size: int, access: ServerAccess) -> Measured:
    from pyspark.sql import SparkSession

    from millstream.spark import register

    session = SparkSession.builder.master("local[*]").appName("millstream bench").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        register(session)
        reader = session.read.format("millstream").option("stream", name)
        if access.url:
            reader = reader.option("url", access.url)
        began = time.perf_counter()
        count = reader.load().count()
        taken = time.perf_counter() - began
    finally:
        session.stop()
    if count != msgs:
        raise click.ClickException(f"Spark counted {count:,} of {msgs:,} records")
    return Measured("spark read", count, size, taken)
