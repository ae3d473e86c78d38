"""``millstream pipeline archive``, ``replay``, ``rollup``, ``compact``, ``audit``, ``backfill``."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import msgspec

from millstream.cli.command import command
from millstream.cli.pipeline.options import (
    SparkChoice,
    opened,
    run_pipeline,
    server_options,
    spark_options,
)
from millstream.cli.pipeline.run import FILE, loaded
from millstream.cli.pipeline.shown import print_table, show, wants_lines
from millstream.client.streams import StreamReader
from millstream.clock import SystemClock
from millstream.pipelines import ready_made
from millstream.pipelines.audit import Finding
from millstream.pipelines.audit import audit as audited
from millstream.pipelines.checkpoints import folder, short_hash
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.file.spec import Pipeline
from millstream.pipelines.preflight import preflight, server_now
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.progress import Done, as_json
from millstream.pipelines.run import run_tables
from millstream.pipelines.tables.parquet_table import local_path
from millstream.spark.options import parse as parse_read

LAKE = click.Choice(["parquet", "delta"])


def _parsed(
    data: dict[str, Any], server: dict[str, str] | None = None, *, beside: str | None = None
) -> Pipeline:
    """Return a ready-made pipeline; its checkpoints go beside the table that it fills."""
    document = Document(f"pipeline {data['name']}", data)
    pipeline = parse(document, server)
    table = None if beside is None else local_path(beside)
    home = pipeline.home if table is None else table.resolve().parent
    return replace(pipeline, home=home, former=ready_made.former(pipeline.name))


def _schedule(data: dict[str, Any], every: str | None, follow: bool) -> dict[str, Any]:
    if every and follow:
        raise click.UsageError("give --every or --follow, not both")
    return data | {"run": {"every": every} if every else "continuous" if follow else "once"}


@command("millstream pipeline archive ORDERS --to ./lake/orders")
@click.argument("streams")
@click.option("--to", "place", required=True, help="Table to write: a directory or URL.")
@click.option("--format", "form", type=LAKE, default="parquet", show_default=True)
@click.option("--by", type=click.Choice(["day", "hour"]), default="day", show_default=True)
@click.option("--subject", help="Only subjects that match this, such as orders.>.")
@click.option("--every", help="Run again at this interval, such as 10m.  [default: once]")
@click.option("--follow", is_flag=True, help="Run until you interrupt it.")
@server_options
@spark_options
def archive(
    streams: str,
    place: str,
    form: str,
    by: str,
    subject: str | None,
    every: str | None,
    follow: bool,
    server: dict[str, str],
    spark: SparkChoice,
) -> None:
    """Copy STREAMS into a lake table, each record once; the next run goes on from there."""
    options = {"subject": subject} if subject else {}
    data = ready_made.archive(streams, place, form, by, options)
    pipeline = _parsed(_schedule(data, every, follow), server, beside=place)
    ready_made.check_archived(pipeline)
    run_pipeline(pipeline, spark)


@command("millstream pipeline replay ./lake/orders --to ORDERS-AGAIN")
@click.argument("table")
@click.option("--to", "stream", required=True, help="Stream to write to.")
@click.option("--format", "form", type=LAKE, default="parquet", show_default=True)
@click.option("--subject", help="Subject for all records.  [default: each record's own]")
@click.option("--where", default="true", help="Only rows that fulfil this SQL condition.")
@click.option(
    "--speed",
    type=click.FloatRange(0, 1_000_000, min_open=True),
    help="Speed of the replay: 1 as the records came, 60 an hour in a minute.  [default: at once]",
)
@server_options
@spark_options
def replay(
    table: str,
    stream: str,
    form: str,
    subject: str | None,
    where: str,
    speed: float | None,
    server: dict[str, str],
    spark: SparkChoice,
) -> None:
    """Write the records of an archived TABLE to a stream, in order, each once.

    The records appear together, or in parts of 256 MiB. If a replay did not finish, start it again
    and it goes on. With --speed it publishes the records one by one, each when its time comes.
    """
    data = ready_made.replay(table, form, stream, subject, where)
    pipeline = _parsed(data, server, beside=table)
    if speed is None:
        run_pipeline(pipeline, spark)
        return
    preflight(pipeline, local=spark.local)
    with opened(spark, pipeline) as session:
        sent = ready_made.replay_paced(session, pipeline, where, subject, speed)
    click.echo(as_json(Done(f"stream-{stream}", sent, 1)))


@command("millstream pipeline rollup ORDERS --to ./lake/rates")
@click.argument("streams")
@click.option("--to", "table", help="Table for all windows: a directory.")
@click.option("--stream", help="Stream that gets each window when it changes; created if absent.")
@click.option("--window", "size", default="1m", show_default=True, help="Length of a window.")
@click.option(
    "--by", multiple=True, help="Column to group by; repeatable.  [default: stream, subject]"
)
@click.option("--fields", help="Fields of the JSON payload, such as 'amount double, id bigint'.")
@click.option("--value", help="Value for the percentiles, such as amount or length(payload).")
@click.option("--every", help="Run again at this interval, such as 10m.  [default: once]")
@click.option("--follow", is_flag=True, help="Run until you interrupt it.")
@server_options
@spark_options
def rollup(
    streams: str,
    table: str | None,
    stream: str | None,
    size: str,
    by: tuple[str, ...],
    fields: str | None,
    value: str | None,
    every: str | None,
    follow: bool,
    server: dict[str, str],
    spark: SparkChoice,
) -> None:
    """Count the records of STREAMS by window: how many, how fast, percentiles of a value."""
    if table is None and stream is None:
        raise click.UsageError("give --to or --stream, or both: where the windows go")
    columns = by or ("stream", "subject")
    data = ready_made.rollup(streams, table, stream, size, columns, fields, value)
    run_pipeline(_parsed(_schedule(data, every, follow), server, beside=table), spark)


@command("millstream pipeline compact ./lake/orders --to ./lake/sorted")
@click.argument("table")
@click.option("--to", "target", required=True, help="Table to write.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    help="Keep the last row of each value of this column; repeatable.",
)
@click.option("--cluster-by", multiple=True, help="Columns to sort by.  [default: subject, seq]")
@click.option("--files", type=click.IntRange(1, 10_000), default=1, show_default=True)
@spark_options
def compact(
    table: str,
    target: str,
    keys: tuple[str, ...],
    cluster_by: tuple[str, ...],
    files: int,
    spark: SparkChoice,
) -> None:
    """Merge the files of a Parquet TABLE into few sorted ones, in a table of their own."""
    if Path(table).resolve() == Path(target).resolve():
        raise click.UsageError("--to must be another table: archive may be writing to this one")
    columns = cluster_by or ("subject", "seq")
    data = ready_made.compact(table, target, keys, columns, files)
    run_pipeline(_parsed(data, beside=target), spark)


@command("millstream pipeline backfill orders.yaml --from -7d")
@click.argument("file", type=FILE)
@click.option("--from", "start", help="First time, such as 2026-05-01T00:00:00Z or -7d.")
@click.option("--to", "end", help="End time; records at this time are left out.")
@server_options
@spark_options
def backfill(
    file: Path, start: str | None, end: str | None, server: dict[str, str], spark: SparkChoice
) -> None:
    """Run the pipeline in FILE over a range of history, as one job without checkpoints.

    If you run it again with the same times, no table or stream takes anything twice (a database
    does). A time such as -1h means another time at each run, unless the last run did not finish.
    """
    given = {"startTime": start, "endTime": end}
    bounds = {name: value for name, value in given.items() if value is not None}
    try:
        parse_read({"stream": "x", **bounds})
    except Exception as error:
        raise PipelineError(f"--from, --to: {error}") from error
    whole = loaded(file, server)
    name = f"{whole.name}-{short_hash(start or '', end or '')}.json"
    left = folder(whole, spark.data) / "backfills" / name
    period = ready_made.period(start, end, SystemClock().time_ns(), left)
    pipeline = ready_made.backfill(whole, period.bounds)
    preflight(pipeline, local=spark.local)
    again = " (begun before, and not finished)" if period.resumed else ""
    click.echo(f"from {period.start or 'the beginning'} to {period.end}{again}", err=True)
    sink_id = f"{pipeline.name}/{period.start or ''}/{period.end}"
    finished: list[Done] = []

    def wrote() -> bool:
        waiting = folder(pipeline, spark.data) / "jobs" / pipeline.name
        return bool(finished) or any(waiting.glob("*/plan.json"))

    def told(done: Iterator[Done]) -> Iterator[Done]:
        for one in done:
            finished.append(one)
            yield one

    with opened(spark, pipeline) as session, ready_made.remembered(period, left, wrote):
        done = told(run_tables(session, pipeline, sink_id, spark.data))
        show(done, as_lines=wants_lines(spark.as_json))


def _matching(pattern: str, asked: StreamReader) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    found = [name for name in asked.names() if fnmatchcase(name, pattern)]
    if not found:
        raise PipelineError(f"no stream matches {pattern!r}")
    return found


@command("millstream pipeline audit ORDERS")
@click.argument("streams", nargs=-1, required=True)
@server_options
@spark_options
def audit(streams: tuple[str, ...], server: dict[str, str], spark: SparkChoice) -> int:
    """Check every record of STREAMS (such as 'ORD*'): its checksum, and that none is missing.

    Exits with 0 when all is well and with 3 when something is damaged or missing.
    """
    place = server_now(server)
    found: list[Finding] = []
    with closing(place.streams()) as asked:
        names = list(dict.fromkeys(name for one in streams for name in _matching(one, asked)))
        for stream in names:
            asked.plan(stream)  # before Spark starts: the server answers, the stream is there
        with opened(spark, Pipeline("audit", (), (), ())) as session:
            for stream in names:
                found += audited(session, place, stream)
    if wants_lines(spark.as_json):
        for one in found:
            click.echo(msgspec.json.encode(msgspec.to_builtins(one)))
    else:
        columns = ("stream", "part", "first", "last", "records", "problem")
        rows = [[getattr(one, name) for name in columns] for one in found]
        print_table("audit", columns, rows)
    return 3 if any(one.problem for one in found) else 0
