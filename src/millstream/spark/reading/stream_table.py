"""A stream as one DataFrame: its history in place, its tail through the server, one moment."""

import os
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from millstream.client.streams import ReadPlan
from millstream.clock import SystemClock
from millstream.spark.columns import (
    COUNT,
    PAYLOAD_BINARY,
    PAYLOAD_JSON,
    PAYLOAD_ONLY_TEXT,
    PAYLOAD_TEXT,
    RECORD_COLUMNS,
    check_names,
    shown,
    spark_schema,
)
from millstream.spark.options import Access, PayloadFormat, ReadOptions, parse, time_ns
from millstream.spark.reading.partitions import looked_at
from millstream.spark.reading.planner import lost
from millstream.spark.reading.scan import scan
from millstream.spark.reading.subject_filter import pattern_of
from millstream.spark.session import can_open, registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_CONDITIONS = 200  # ranges of deleted rows that a query still plans quickly
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
# Options of the caller that a read of one stream is told otherwise.
_TOLD_ANEW = ("stream", "streams", "columns", "payloadjson", "payloadformat", "path")


# How Spark makes columns of what a cold file holds.
_STORED = {
    PAYLOAD_TEXT: "if(is_valid_utf8(payload), cast(payload as string), null) payload",
    PAYLOAD_ONLY_TEXT: "if(is_valid_utf8(payload), cast(payload as string), raise_error("
    "'the payload of a record is no UTF-8 text: read with payloadFormat=binary, or name the column "
    "payload_binary too, which then has its bytes')) payload",
    PAYLOAD_BINARY: "if(is_valid_utf8(payload), null, payload) payload_binary",
}


def table(
    spark: "SparkSession", stream: str, *, payload_json: bool = False, **options: str
) -> "DataFrame":
    """Return the records that the stream holds now; what comes later is not in it.

    ``stream`` may be a list of names, and ``*`` in one stands for any text. ``options`` are those
    of ``spark.read.format("millstream")``. Cold files, where the server names any, are read
    by Spark's own Parquet reader; the rest comes from sealed segments and the tail.
    ``payload_json`` adds the payload as VARIANT, null where it is no JSON.
    """
    registered(spark)
    asked = parse({"stream": stream, **options})
    wanted = replace(asked, payload_json=asked.payload_json or payload_json).table_columns()
    if PAYLOAD_JSON not in wanted:
        return _records(spark, asked, options)
    return with_payload_json(_records(spark, _unparsed(asked), options)).select(*map(shown, wanted))


def _unparsed(asked: ReadOptions) -> ReadOptions:
    """Return the read that gives the payload itself: Spark parses it faster than Python."""
    payload_format = asked.payload_format
    if payload_format is PayloadFormat.JSON:
        payload_format = PayloadFormat.TEXT
    if asked.columns is None:
        return replace(asked, payload_json=False, payload_format=payload_format)
    columns = tuple(name for name in asked.columns if name != PAYLOAD_JSON)
    if "payload" not in columns:  # only to be parsed: what is no text is no JSON
        columns, payload_format = (*columns, "payload"), PayloadFormat.BINARY
    check_names(columns)
    return replace(asked, payload_json=False, columns=columns, payload_format=payload_format)


def _records(spark: "SparkSession", asked: ReadOptions, options: dict[str, str]) -> "DataFrame":
    """Return the records of all streams: each one's cold files, and what is in none in one scan."""
    pushes = spark.conf.get(PUSHDOWN_CONF, "false") == "true"
    frames: list[DataFrame] = []
    scanned: list[str] = []
    for name, plan in looked_at(asked, asked.server.streams().plan).items():
        one = replace(asked, streams=(name,))
        if cold_to := _cold_to(spark, plan, one):
            frames.append(_history(spark, plan, one, cold_to, options))
        elif pushes:  # planned later, so the end is fixed here
            frames.append(_rest(spark, replace(one, end_seq=_last(plan, one)), options))
        else:
            scanned.append(name)
    if scanned or not frames:
        frames.append(scan(spark, replace(asked, streams=tuple(scanned))))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _last(plan: ReadPlan, asked: ReadOptions) -> int:
    return plan.last_seq if asked.end_seq is None else min(asked.end_seq, plan.last_seq)


def _history(
    spark: "SparkSession", plan: ReadPlan, asked: ReadOptions, cold_to: int, options: dict[str, str]
) -> "DataFrame":
    """Return one stream's cold files up to ``cold_to``, and the rest of it."""
    last, columns = _last(plan, asked), asked.table_columns()
    stored = [_STORED.get(name, name) for name in columns if name in (*RECORD_COLUMNS, *_STORED)]
    frame = _cold(spark, plan, asked, last).selectExpr(*stored)
    # Where the files hold all that is asked for, no Python need run.
    if cold_to < last or len(stored) < len(columns):
        first = max(cold_to + 1, asked.start_seq or 0)
        rest = _rest(spark, replace(asked, start_seq=first, end_seq=last), options)
        frame = frame.unionByName(rest, allowMissingColumns=True)
    return frame


def _rest(spark: "SparkSession", asked: ReadOptions, options: dict[str, str]) -> "DataFrame":
    """Return what does not come from cold files, by the source where filters may narrow it."""
    if spark.conf.get(PUSHDOWN_CONF, "false") != "true":
        return scan(spark, asked)
    others = {name: value for name, value in options.items() if name.lower() not in _TOLD_ANEW}
    reader = spark.read.format("millstream").options(**others).option("pushdown", "true")
    reader = reader.option("stream", asked.streams[0]).option("endSeq", asked.end_seq)
    reader = reader.option("payloadFormat", asked.payload_format)
    if asked.columns is not None:
        reader = reader.option("columns", ",".join(asked.columns))
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
