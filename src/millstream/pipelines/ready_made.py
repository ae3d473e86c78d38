"""The pipelines that everybody needs, as the documents that one would write by hand."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client.errors import ClientError
from millstream.pipelines import paced
from millstream.pipelines.checkpoints import short_hash
from millstream.pipelines.failures import failed
from millstream.pipelines.file.spec import (
    Mode,
    Pipeline,
    Schedule,
    Sink,
    Source,
    StreamSink,
    StreamSource,
    TableSink,
    TableSource,
)
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.tables import tables
from millstream.pipelines.tables.parquet_table import local_path, notes
from millstream.spark.options import parse as parse_read
from millstream.spark.options import time_ns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive(
    streams: str, place: str, form: str, by: str, options: dict[str, str]
) -> dict[str, Any]:
    """Streams → a lake table, partitioned by stream and day (or hour)."""
    pattern = {"day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}[by]
    query = f"select *, date_format(ts, '{pattern}') as {by} from records"
    return {
        "name": _name("archive", streams, form, by, options.get("subject", "")),
        "sources": {"records": {"stream": streams, "options": {"includeHeaders": True, **options}}},
        "steps": [{"name": "dated", "sql": query}],
        "sinks": [{"from": "dated", form: place, "partition_by": ["stream", by], "name": "lake"}],
    }


def check_archived(pipeline: Pipeline) -> None:
    """Refuse a table that holds some of the streams already, by an archive of other settings."""
    (sink,) = pipeline.sinks
    (source,) = pipeline.sources
    assert isinstance(sink, TableSink)
    assert isinstance(source, StreamSource)
    table = local_path(sink.place)
    if table is None or sink.format != "parquet":
        return
    for _, note in notes(table):
        other = note.owner
        if other.pipeline == pipeline.name or not other.pipeline.startswith("archive-"):
            continue
        for name in source.streams.split(","):
            if any(_overlap(name.strip(), there) for there in other.streams):
                raise PipelineError(
                    f"the table {table} holds {', '.join(other.streams)} by an archive of other "
                    f"streams or settings, so records of {name.strip()!r} would be there twice: "
                    "leave out what it holds, give the same settings, or write to another table"
                )


def _overlap(one: str, other: str) -> bool:
    return fnmatchcase(one, other) or fnmatchcase(other, one)


def replay(place: str, form: str, stream: str, subject: str | None, where: str) -> dict[str, Any]:
    """A table that was archived → a stream, in the order of sequences."""
    kept = " and ".join(f"lower(name) not like '{one}%'" for one in paced.CONDITIONS)
    headers = f"map_filter(headers, (name, _) -> {kept}) as headers"
    columns = f"payload, tag, {headers}" if subject else f"subject, payload, tag, {headers}"
    query = f"select {columns} from records where {where} order by stream, seq"
    return {
        "name": f"replay-{_plain(stream)}",
        "sources": {"records": {form: place}},
        "steps": [{"name": "ordered", "sql": query}],
        "sinks": [{"from": "ordered", "stream": stream, "subject": subject}],
    }


def replay_paced(
    spark: "SparkSession", pipeline: Pipeline, where: str, subject: str | None, speed: float
) -> int:
    """Publish the table of a replay at its old pace; returns how many records that were."""
    (source,) = (one for one in pipeline.sources if isinstance(one, TableSource))
    (sink,) = (one for one in pipeline.sinks if isinstance(one, StreamSink))
    server = parse_read({"stream": "x", **pipeline.server}).server
    try:
        frame = tables.read(spark, source).where(where).orderBy("ts_ns", "stream", "seq")
        columns = ("stream", "seq", "ts_ns", "subject", "payload", "headers", "tag")
        rows = frame.select(*columns).toLocalIterator(prefetchPartitions=True)
        return paced.publish(server, rows, sink.target.stream, subject, paced.ReplayPace(speed))
    except (PipelineError, ClientError):
        raise
    except Exception as error:
        raise failed(f"pipeline {pipeline.name!r}", error) from error


def rollup(
    streams: str,
    table: str | None,
    stream: str | None,
    size: str,
    by: Sequence[str],
    fields: str | None,
    value: str | None,
) -> dict[str, Any]:
    """Streams → counts, rates, percentiles by window: all in a table, changes in a stream."""
    source = {"stream": streams} | ({"json": fields} if fields else {})
    window = {"size": size} | ({"value": value} if value else {})
    # A column named subject would be that of the record: all columns go into the payload.
    name = (stream or "").replace("\\", "\\\\").replace("'", "\\'")
    told = f"select '{name}' as subject, to_json(struct(*)) as payload from rollup"
    steps = [
        {"name": "rollup", "from": "records", "rollup": window, "by": list(by)},
        {"name": "told", "sql": told},
    ]
    sinks: list[dict[str, Any]] = []
    if table is not None:
        sinks.append({"from": "rollup", "parquet": table, "mode": "complete", "name": "table"})
    if stream is not None:
        target = {"stream": stream, "create": [stream], "name": "stream"}
        sinks.append({"from": "told", "mode": "update", **target})
    return {
        "name": _name("rollup", streams, size, *by, fields or "", value or ""),
        "sources": {"records": source},
        "steps": steps,
        "sinks": sinks,
    }


def compact(
    place: str, target: str, keys: Sequence[str], cluster: Sequence[str], files: int
) -> dict[str, Any]:
    """Many files of a Parquet table → few that are sorted; with keys, the last row of each."""
    query = "select * from rows"
    if keys:
        ranked = f"row_number() over (partition by {', '.join(keys)} order by seq desc)"
        query = f"select * except (_rank) from (select *, {ranked} _rank from rows) where _rank = 1"

    def clustered(_spark: Any, frame: Any) -> Any:
        return frame.repartitionByRange(files, *cluster).sortWithinPartitions(*cluster)

    return {
        "name": "compact",
        "sources": {"rows": {"delta" if tables.is_delta(place) else "parquet": place}},
        "steps": [
            {"name": "kept", "sql": query},
            {"name": "clustered", "from": "kept", "python": clustered},
        ],
        "sinks": [{"from": "clustered", "parquet": target, "mode": "overwrite"}],
    }


def backfill(pipeline: Pipeline, bounds: dict[str, str]) -> Pipeline:
    """The same pipeline over a range of history, as one job."""
    return replace(
        pipeline,
        name=f"backfill-{pipeline.name}",
        sources=tuple(_bounded(source, bounds) for source in pipeline.sources),
        sinks=tuple(_as_job(sink) for sink in pipeline.sinks),
        schedule=Schedule(),
    )


@dataclass(frozen=True, slots=True)
class Period:
    """A range of history at fixed times, whatever words it was asked for in."""

    start: str | None
    end: str
    resumed: bool = False

    @property
    def bounds(self) -> dict[str, str]:
        """Return it as options of the source."""
        start = {"startTime": self.start} if self.start is not None else {}
        return start | {"endTime": self.end}


def period(start: str | None, end: str | None, now_ns: int, left: Path) -> Period:
    """Return the range that ``--from`` and ``--to`` mean now.

    ``left`` is a file that holds the range of a backfill which was begun and not finished: the
    same words mean the same range then, so that what it wrote is not there twice.
    """
    if left.is_file():
        kept = json.loads(left.read_text())
        return Period(kept["start"], kept["end"], resumed=True)
    last_ns = time_ns(end or "now", now_ns)
    if start is None:
        return Period(None, moment(last_ns))
    if (first_ns := time_ns(start, now_ns)) >= last_ns:
        raise PipelineError(f"--from {start} is not before --to {end or 'now'}")
    return Period(moment(first_ns), moment(last_ns))


@contextmanager
def remembered(period: Period, left: Path, wrote: Callable[[], bool]) -> Iterator[None]:
    """Keep the range in a file until the backfill is finished, or has failed and wrote nothing."""
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text(json.dumps({"start": period.start, "end": period.end}))
    try:
        yield
    except BaseException:
        if not wrote():
            left.unlink()
        raise
    left.unlink()


def moment(at_ns: int) -> str:
    """Return a time as text that says the same at any time; no more exact than it is read."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return at.isoformat().replace("+00:00", "Z")


def _bounded(source: Source, bounds: dict[str, str]) -> Source:
    if not isinstance(source, StreamSource):
        return source
    return replace(source, snapshot=True, options={**source.options, **bounds})


def _as_job(sink: Sink) -> Sink:
    if isinstance(sink, TableSink) and sink.mode is Mode.COMPLETE:
        return replace(sink, mode=Mode.OVERWRITE)
    return replace(sink, mode=Mode.APPEND)


def _name(kind: str, streams: str, *settings: str) -> str:
    """Return a name that differs where the settings do, as checkpoints are kept by it."""
    return f"{kind}-{_plain(streams)}-{short_hash(streams, *settings)}"


def former(name: str) -> str:
    """Return the name of a ready-made pipeline as it was without its settings."""
    return name.rpartition("-")[0]


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:60]
