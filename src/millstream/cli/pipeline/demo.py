"""``millstream pipeline demo``: from nothing to a table and a stream of results."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from millstream.cli.command import command
from millstream.cli.pipeline.options import (
    SparkChoice,
    opened,
    server_options,
    spark_options,
)
from millstream.cli.pipeline.shown import print_table
from millstream.client.blocking import connect
from millstream.client.errors import ConnectFailed
from millstream.pipelines import demo as orders
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.preflight import preflight, server_now
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.progress import Progress, as_json
from millstream.pipelines.run import run
from millstream.spark.options import parse as parse_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.pipelines.file.spec import Pipeline

START_SECONDS = 60.0
SHOWN = 10  # rows of each printed table


@command("millstream pipeline demo ORDERS")
@click.argument("stream", default="ORDERS")
@click.option(
    "--events",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="Number of made-up orders for an empty stream.",
)
@server_options
@spark_options
def demo(stream: str, events: int, server: dict[str, str], spark: SparkChoice) -> None:
    """Count the orders in STREAM by minute and region: into a Parquet table and a stream.

    It publishes made-up orders if the stream is absent or empty, and starts a server for the time
    of the demo if none runs. Run it again to take what has come since.
    """
    home = spark.data or Path()
    with _server_at(server, home) as url:
        place = {**server, "url": url}
        if made := orders.fill(server_now(place), stream, events, datetime.now(UTC)):
            _say(spark, f"{made} orders published to {stream} ({stream.lower()}.>)")
        data = Document(f"demo of {stream}", orders.document(stream), home)
        pipeline = parse(data, place)
        preflight(pipeline)
        if why := orders.start_afresh_where_due(server_now(place), stream, pipeline, home):
            _say(spark, f"starting afresh: {why}")
        with opened(spark, pipeline) as session:
            _follow(session, pipeline, stream, spark)
            _show_results(session, place, stream, spark)


def _say(spark: SparkChoice, text: str) -> None:
    click.echo(text, err=spark.as_json)


def _follow(session: "SparkSession", pipeline: "Pipeline", stream: str, spark: SparkChoice) -> None:
    """Print a line for each batch: what it took, how far it is, and where it went."""
    places = {
        "table": f"{orders.table_of(stream)} (Parquet)",
        "stream": f"{orders.result_of(stream)} (stream)",
    }
    with closing(run(session, pipeline, spark.data)) as events:  # type: ignore[type-var]
        for event in events:
            if spark.as_json:
                click.echo(as_json(event))
            elif isinstance(event, Progress):
                click.echo(_line(event, places[event.sink]))
            elif not event.rows:
                click.echo(f"nothing new for {places[event.sink]}")


def _line(event: Progress, place: str) -> str:
    seq = ", ".join(str(last) for last in event.positions.values())
    taken = f"batch {event.batch}: {event.rows} rows   committed seq {seq}   lag {event.lag}"
    return f"{taken}   → {place}"


def _show_results(
    session: "SparkSession", server: dict[str, str], stream: str, spark: SparkChoice
) -> None:
    columns = ("window_start", "region", "orders", "revenue")
    place = (spark.data or Path()) / orders.table_of(stream)
    table = session.read.parquet(str(place.resolve()))
    rows = table.orderBy(table.window_start.desc(), "region").limit(SHOWN).collect()
    told = [[row[name] for name in columns] for row in rows]
    _print(f"{orders.table_of(stream)}, the newest", columns, told, spark)
    result = orders.result_of(stream)
    reader = session.read.format("millstream").options(**server, stream=result)
    records = reader.load()
    last = records.orderBy(records.seq.desc()).limit(SHOWN).collect()
    lines = [[row.seq, row.payload] for row in reversed(last)]
    _print(f"{result}, the last records", ("seq", "payload"), lines, spark)


def _print(title: str, columns: tuple[str, ...], rows: list[list[Any]], spark: SparkChoice) -> None:
    if not spark.as_json:
        print_table(title, columns, rows)
        return
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    click.echo(msgspec.json.encode({"event": "table", "title": title, "rows": named}))


@contextmanager
def _server_at(server: dict[str, str], data: Path) -> Iterator[str]:
    """Return the url to use: of the server named, the one that runs here, or one of our own."""
    given = parse_read({"stream": "x", **server}).server
    try:
        connect(given.url, login=given.login).close()
    except ConnectFailed:
        if "url" in server:
            raise
        with _own_server(data) as started:
            yield started
        return
    yield given.url


@contextmanager
def _own_server(data: Path) -> Iterator[str]:
    """Serve on free ports until the demo is over; its records stay beside the checkpoints."""
    home = data.resolve() / ".millstream" / "demo-data"
    with tempfile.TemporaryDirectory() as ports:
        command = [sys.executable, "-m", "millstream", "serve", "--port", "0", "--http-port", "0"]
        command += ["--data-dir", str(home), "--ports-file-dir", ports]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = _ready(process, Path(ports))
            click.echo(f"no server runs here: started one for the demo, data {home}", err=True)
            yield url
        finally:
            process.terminate()
            process.wait()


def _ready(process: "subprocess.Popen[bytes]", ports: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        for file in ports.glob("*.ports"):
            if text := file.read_text():
                url: str = json.loads(text)["nats"][0]
                return url
        time.sleep(0.05)
    raise PipelineError("no server runs here, and the demo could not start one: millstream serve")
