"""Every stream that a user may read as a view: ``spark.sql("select * from orders")``."""

import re
from contextlib import closing
from typing import TYPE_CHECKING

from millstream.client.errors import PermissionDenied
from millstream.client.streams import StreamMissing
from millstream.spark.options import ReadOptions, parse
from millstream.spark.reading.partitions import stream_names
from millstream.spark.reading.sample import SAMPLED, Sample, quoted, sample
from millstream.spark.session import registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OTHER = re.compile(r"\W+")


def attach(
    spark: "SparkSession", streams: str = "*", *, most: int = SAMPLED, **options: str
) -> dict[str, str]:
    """Make a temporary view of each stream that this user may read; returns view to stream.

    A view has the fields of the JSON that its newest ``most`` records hold, then the columns of the
    record. Spark plans a view's read once: records that come later are in it after the next call.
    ``streams`` may be a list, with ``*`` for any text; ``options`` are those
    of ``spark.read.format("millstream")``, such as ``url``.
    """
    registered(spark)
    asked = parse({"streams": streams, **options})
    asked.server.reach()
    with closing(asked.server.streams()):
        found = _samples(asked, most)
    views: dict[str, str] = {}
    for name, one in found.items():
        reader = spark.read.format("millstream").options(**options).option("stream", name)
        view = _view_name(name, views)
        with_fields(reader.load(), one).createOrReplaceTempView(quoted(view))
        views[view] = name
    return views


def _samples(asked: ReadOptions, most: int) -> dict[str, Sample]:
    found: dict[str, Sample] = {}
    for name in stream_names(asked):
        try:
            found[name] = sample(asked, name, most)
        except (PermissionDenied, StreamMissing):  # of others, or deleted meanwhile
            if name in asked.streams:
                raise
    return found


def with_fields(frame: "DataFrame", found: Sample) -> "DataFrame":
    """Return the fields of the payload before the columns of the record, which they may hide.

    Names that differ only in case are one to Spark: the first is taken.
    """
    first: dict[str, str] = {}
    for name in found.fields:
        first.setdefault(name.lower(), name)
    if not first or "payload" not in frame.columns:
        return frame
    parsed = "_millstream_parsed"
    kinds = Sample(found.records, found.objects, {n: found.fields[n] for n in first.values()})
    ddl = kinds.ddl.replace("'", "\\'")
    wide = frame.selectExpr("*", f"from_json(cast(payload as string), '{ddl}') {parsed}")
    fields = [f"{parsed}.{quoted(name)} as {quoted(name)}" for name in first.values()]
    others = [quoted(name) for name in frame.columns if name.lower() not in first]
    return wide.selectExpr(*fields, *others)


def _view_name(stream: str, taken: dict[str, str]) -> str:
    """Return the stream's name as SQL takes it without quotes; views differ in more than case."""
    name = base = _OTHER.sub("_", stream).lower()
    number = 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name
