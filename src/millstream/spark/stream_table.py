"""A stream as one DataFrame: its history in place, its tail through the server, one moment."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.client.streams import ReadPlan
from millstream.clock import SystemClock
from millstream.spark.columns import COUNT, RECORD_COLUMNS, spark_schema
from millstream.spark.options import Access, ReadOptions, parse, time_ns
from millstream.spark.planner import lost
from millstream.spark.scan import scan
from millstream.spark.session import can_open, registered
from millstream.spark.subject_filter import pattern_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_CONDITIONS = 200  # ranges of deleted rows that a query still plans quickly
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


def table(
    spark: "SparkSession", stream: str, *, payload_json: bool = False, **options: str
) -> "DataFrame":
    """Return the records that the stream holds now; what comes later is not in it.

    ``options`` are those of ``spark.read.format("millstream")``. Cold files, where the server names
    any, are read by Spark's own Parquet reader; the rest comes from sealed segments and the tail.
    ``payload_json`` adds the payload as VARIANT, null where it is no JSON.
    """
    registered(spark)
    asked = parse({"stream": stream, **options})
    plan = asked.server.streams().plan(stream)
    last = plan.last_seq if asked.end_seq is None else min(asked.end_seq, plan.last_seq)
    cold_to = _cold_to(spark, plan, asked)
    columns = asked.table_columns()
    if not cold_to:
        frame = _rest(spark, replace(asked, end_seq=last), options)
    else:
        stored = [name for name in columns if name in RECORD_COLUMNS]
        frame = _cold(spark, plan, asked, last).select(*stored)
        # Where the files hold all that is asked for, no Python need run.
        if cold_to < last or len(stored) < len(columns):
            first = max(cold_to + 1, asked.start_seq or 0)
            rest = _rest(spark, replace(asked, start_seq=first, end_seq=last), options)
            frame = frame.unionByName(rest, allowMissingColumns=True)
    return with_payload_json(frame) if payload_json else frame


def _rest(spark: "SparkSession", asked: ReadOptions, options: dict[str, str]) -> "DataFrame":
    """Return what does not come from cold files, by the source where filters may narrow it."""
    if spark.conf.get(PUSHDOWN_CONF, "false") != "true":
        return scan(spark, asked)
    reader = spark.read.format("millstream").options(**options).option("pushdown", "true")
    reader = reader.option("stream", asked.streams[0]).option("endSeq", asked.end_seq)
    if asked.start_seq is not None:
        reader = reader.option("startSeq", asked.start_seq)
    return reader.load()


def count(spark: "SparkSession", stream: str, **options: str) -> int:
    """Return how many records a stream, or several, holds now; ``options`` narrow it.

    Spark has no way to ask a Python source for a count: it would take every row. This counts where
    the records are, by index and delete flags, and brings a number for each many thousand.
    """
    registered(spark)
    found = scan(spark, parse({"stream": stream, **options, "columns": COUNT})).collect()
    return sum(row[COUNT] or 0 for row in found)


def _cold_to(spark: "SparkSession", plan: ReadPlan, asked: ReadOptions) -> int:
    """Return up to where cold files serve the table, 0 where the source reads everything."""
    if asked.access is Access.BROKER or len(plan.cold_deleted) > MOST_CONDITIONS:
        return 0
    if COUNT in (asked.columns or ()):
        return 0  # a row of the source counts many, a row of a file is one
    if not _reachable(spark, [file.path for file in plan.cold]):
        return 0  # another machine's files, or a store that this Spark knows nothing of
    reach = max((file.last_seq for file in plan.cold), default=0)
    # What is lost in between is for the source to tell.
    return 0 if lost(plan, max(asked.start_seq or 0, plan.first_seq), reach) else reach


def _reachable(spark: "SparkSession", paths: list[str]) -> bool:
    """Whether Spark can open the files: each path, and the first of those in an object store."""
    urls = [path for path in paths if "://" in path]
    there = all(os.path.exists(path) for path in paths if "://" not in path)
    return there and all(can_open(spark, url) for url in urls[:1])


def _cold(spark: "SparkSession", plan: ReadPlan, asked: ReadOptions, last: int) -> "DataFrame":
    """Return the rows of cold files that the options ask for.

    A condition costs its column in every query, so there is none that all rows of the files meet.
    """
    first = max(asked.start_seq or 0, plan.first_seq)
    files = [file for file in plan.cold if file.last_seq >= first and file.base_seq <= last]
    files = files or plan.cold[:1]  # for the columns: no row of it meets the conditions
    # Without the schema Spark would look for it, by a job of its own.
    reader = spark.read.schema(spark_schema(RECORD_COLUMNS))
    cold = reader.parquet(*(file.path for file in files))
    if first > files[0].base_seq:
        cold = cold.where(cold.seq >= first)
    if last < files[-1].last_seq:
        cold = cold.where(cold.seq <= last)
    for begin, end in plan.cold_deleted:
        if end >= max(first, files[0].base_seq) and begin <= last:
            cold = cold.where(~cold.seq.between(begin, end))
    now_ns = SystemClock().time_ns()
    if asked.start_time is not None:
        cold = cold.where(cold.ts_ns >= time_ns(asked.start_time, now_ns))
    if asked.end_time is not None:
        cold = cold.where(cold.ts_ns < time_ns(asked.end_time, now_ns))
    if asked.subject is not None:
        cold = cold.where(cold.subject.rlike(f"^{pattern_of(asked.subject).pattern}$"))
    return cold


def with_payload_json(frame: "DataFrame") -> "DataFrame":
    """Return the frame with ``payload_json``: parsed by Spark itself, not in Python."""
    return frame.selectExpr("*", "try_parse_json(cast(payload as string)) as payload_json")
