"""Frames go into sinks: as streaming queries with checkpoints, or as jobs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.pipelines.checkpoints import is_new, query_id, uses_sparks_list
from millstream.pipelines.file.spec import (
    Mode,
    Pipeline,
    Schedule,
    Sink,
    StreamSink,
    StreamSource,
    TableSink,
)
from millstream.pipelines.progress import Tally
from millstream.pipelines.stream_job import publish
from millstream.pipelines.tables.batch_tables import batch_table
from millstream.pipelines.tables.parquet_table import (
    SPARKS_LIST,
    TableOwner,
    has_sparks_list,
    local_path,
    sparks_list_refused,
)
from millstream.spark.options import Delivery, parse_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


def all_sinks(pipeline: Pipeline) -> list[tuple[str, Sink]]:
    """Return each sink with the frame it takes; quarantines are sinks like any other."""
    found = [(sink.input, sink) for sink in pipeline.sinks]
    for source in pipeline.sources:
        if isinstance(source, StreamSource) and source.quarantine is not None:
            bad = f"{source.name}!bad"
            found.append((bad, StreamSink(f"quarantine-{source.name}", bad, source.quarantine)))
    return found


def start(
    frame: "DataFrame", sink: Sink, pipeline: Pipeline, checkpoint: str, tally: Tally
) -> "StreamingQuery":
    """Start the streaming query that fills a sink; ``tally`` hears what its batches add."""
    writer = frame.writeStream.queryName(f"{pipeline.name}/{sink.name}").outputMode(sink.mode)
    writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.trigger(**_trigger(pipeline.schedule))
    if isinstance(sink, StreamSink):
        options = stream_options(pipeline, sink)
        if sink.mode is Mode.APPEND:
            return writer.format("millstream").options(**options).start()
        return writer.foreachBatch(_publish_to(options, checkpoint, tally)).start()
    if _by_spark(sink, checkpoint):
        return _files(writer, sink).start()
    owner = _owner(pipeline, sink, checkpoint)
    return writer.foreachBatch(_put_into(sink, checkpoint, owner, tally)).start()


def check(spark: "SparkSession", sink: Sink, checkpoint: str) -> None:
    """Refuse a table whose list of files skips the batches of this checkpoint."""
    if not isinstance(sink, TableSink) or (sink.format, sink.mode) != ("parquet", Mode.APPEND):
        return
    table = local_path(sink.place)
    if table is not None:
        listed = has_sparks_list(table) and not uses_sparks_list(sink, checkpoint)
    else:
        listed = is_new(checkpoint) and "://" not in checkpoint and _is_listed(spark, sink.place)
    if listed:
        raise sparks_list_refused(sink.place)


def _is_listed(spark: "SparkSession", place: str) -> bool:
    """Ask Spark whether its file sink keeps a list at a url."""
    try:
        spark.read.text(f"{place.rstrip('/')}/{SPARKS_LIST}").limit(1).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            return False
        raise
    return True


def _by_spark(sink: TableSink, checkpoint: str) -> bool:
    appended = (sink.format, sink.mode) == ("parquet", Mode.APPEND)
    return appended and uses_sparks_list(sink, checkpoint)


def _owner(pipeline: Pipeline, sink: Sink, checkpoint: str) -> TableOwner:
    sources = (one for one in pipeline.sources if isinstance(one, StreamSource))
    streams = tuple(name.strip() for one in sources for name in one.streams.split(","))
    return TableOwner(pipeline.name, sink.name, checkpoint, streams)


def write(
    frame: "DataFrame",
    sink: Sink,
    pipeline: Pipeline,
    sink_id: str | None = None,
    place: Path | None = None,
) -> int:
    """Write a frame of tables once, and return how many rows it added.

    With a ``sink_id`` the same job done again adds nothing. ``place`` is a directory where rows may
    wait: without one, a job that has more than a stream takes at once is refused by the server.
    """
    if isinstance(sink, StreamSink):
        options = stream_options(pipeline, sink)
        if place is not None and parse_write(options).delivery is Delivery.EXACTLY_ONCE:
            return publish(frame, options, place, sink_id)
        options |= {"sinkId": sink_id} if sink_id is not None else {}
        frame.write.format("millstream").options(**options).mode("append").save()
    elif (sink.format, sink.mode) == ("parquet", Mode.APPEND) and local_path(sink.place) is None:
        writer = frame.write.mode("append").options(**sink.options)
        writer.partitionBy(*sink.partition_by).parquet(sink.place)
    else:
        added = batch_table(sink, sink_id or "").put(frame, 0 if sink_id else None)
        if added is not None:
            return added
    return int(frame.count())


def stream_options(pipeline: Pipeline, sink: StreamSink) -> dict[str, str]:
    """Return the options of the exactly-once sink."""
    options = {**pipeline.server, **sink.options, "stream": sink.target.stream}
    if sink.target.subject is not None:
        options["subject"] = sink.target.subject
    return options


def _files(writer: "DataStreamWriter", sink: TableSink) -> "DataStreamWriter":
    writer = writer.format("parquet").options(**sink.options).option("path", sink.place)
    return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer


def _put_into(
    sink: TableSink, checkpoint: str, owner: TableOwner, tally: Tally
) -> Callable[["DataFrame", int], None]:
    def put(frame: "DataFrame", batch: int) -> None:
        added = batch_table(sink, _query_of(frame, checkpoint), owner).put(frame, batch)
        tally.note(batch, added)

    return put


def _publish_to(
    options: dict[str, str], checkpoint: str, tally: Tally
) -> Callable[["DataFrame", int], None]:
    """Return what writes a batch of changed rows: Spark lets a Python sink only append.

    The server knows the batch by the query's id and its number, so a batch that comes again after
    a crash is dropped here too.
    """
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    def publish(frame: "DataFrame", batch: int) -> None:
        known = {"sinkId": _query_of(frame, checkpoint), "batchId": str(batch)}
        counted = Observation()
        frame = frame.observe(counted, count(lit(1)).alias("rows"))
        frame.write.format("millstream").options(**{**known, **options}).mode("append").save()
        tally.note(batch, counted.get["rows"])

    return publish


def _query_of(frame: "DataFrame", checkpoint: str) -> str:
    """Return the id of the query whose batch this is: Spark knows it wherever the checkpoint is."""
    from millstream.spark.writing.sink import QUERY_ID

    try:
        told = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except Exception:  # Spark Connect has no context
        told = None
    return told or query_id(checkpoint)


def _trigger(schedule: Schedule) -> dict[str, Any]:
    if schedule.every is not None:
        return {"processingTime": schedule.every}
    return {"processingTime": "0 seconds"} if schedule.continuous else {"availableNow": True}
