"""A stream as one DataFrame: its history in place, its tail through the server, one moment."""

from typing import TYPE_CHECKING

from millstream.spark.columns import RECORD_COLUMNS
from millstream.spark.options import parse
from millstream.spark.session import register

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
    register(spark)
    asked = parse({"stream": stream, **options})
    plan = asked.server.streams().plan(stream)
    cold_to = max((file.last_seq for file in plan.cold), default=0)
    if len(plan.cold_deleted) > MOST_CONDITIONS:
        cold_to = 0  # the server reads it out
    reader = spark.read.format("millstream").options(**options).option("stream", stream)
    last = plan.last_seq if asked.end_seq is None else min(asked.end_seq, plan.last_seq)
    reader = reader.option("endSeq", last)
    if spark.conf.get(PUSHDOWN_CONF, "false") == "true":
        reader = reader.option("pushdown", "true")
    if cold_to:
        reader = reader.option("startSeq", max(cold_to + 1, asked.start_seq or 0))
    frame = reader.load()
    if cold_to:
        columns = [name for name in frame.columns if name in RECORD_COLUMNS]
        cold = spark.read.parquet(*(file.path for file in plan.cold)).select(*columns)
        for first, end in plan.cold_deleted:
            cold = cold.where(~cold.seq.between(first, end))
        if asked.start_seq is not None:
            cold = cold.where(cold.seq >= asked.start_seq)
        frame = cold.where(cold.seq <= last).unionByName(frame, allowMissingColumns=True)
    return with_payload_json(frame) if payload_json else frame


def with_payload_json(frame: "DataFrame") -> "DataFrame":
    """Return the frame with ``payload_json``: parsed by Spark itself, not in Python."""
    return frame.selectExpr("*", "try_parse_json(cast(payload as string)) as payload_json")
