"""Runs a pipeline in a Spark session and tells how it goes."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.pipelines.checkpoints import checkpoint_of, folder, short_hash
from millstream.pipelines.failures import failed
from millstream.pipelines.file.document import near
from millstream.pipelines.file.spans import seconds
from millstream.pipelines.file.spec import Pipeline, Sink, TableSink
from millstream.pipelines.frames import build_frames
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.progress import Done, Progress, Tally, progress_of
from millstream.pipelines.session import is_local
from millstream.pipelines.sinks import all_sinks, check, start, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

POLL_SECONDS = 0.1
START_SECONDS = 30.0
# Spark gives a Python process ten seconds to start, which a busy machine may not manage.
SLOW_START = "Python worker failed to connect back"
MAX_STARTS = 8
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function, which differs from run to run


@dataclass(slots=True)
class _Running:
    """A query, and what of it was told already."""

    sink: str
    begin: Callable[[], "StreamingQuery"]
    query: "StreamingQuery"
    tally: Tally = field(default_factory=Tally)
    told: int = -1
    rows: int = 0
    batches: int = 0
    rows_out: int | None = 0
    late: int = 0
    starts: int = 1

    def started_again(self, error: BaseException) -> bool:
        """Start anew after a failure that is not the pipeline's; the checkpoint knows the rest."""
        if SLOW_START not in str(error) or self.starts == MAX_STARTS:
            return False
        self.starts += 1
        self.query = self.begin()
        return True

    def news(self) -> Iterator[Progress]:
        """Return the batches that were committed since the last call; empty ones stay unsaid."""
        for report in self.query.recentProgress:
            progress = progress_of(self.sink, report, self.tally)
            if progress.batch > self.told and (progress.rows or progress.rows_out):
                self._count(progress)
                yield progress

    def _count(self, progress: Progress) -> None:
        self.told = progress.batch
        self.rows += progress.rows
        self.batches += 1
        self.late += progress.late
        if self.rows_out is not None:
            out = progress.rows_out
            self.rows_out = None if out is None else self.rows_out + out

    def done(self) -> Done:
        """Return what the sink did in this run."""
        return Done(self.sink, self.rows, self.batches, self.rows_out, self.late)


def run(
    spark: "SparkSession", pipeline: Pipeline, data: Path | None = None
) -> Iterator[Progress | Done]:
    """Run to the end, or for as long as it is iterated; closing the iterator stops it.

    Checkpoints are below ``data``, and without one beside the pipeline's file.
    """
    if pipeline.streaming:
        yield from _stream(spark, pipeline, data)
        return
    while True:
        yield from run_tables(spark, pipeline, data=data)
        if pipeline.schedule.every is None:
            return
        time.sleep(seconds(pipeline.schedule.every))


def run_tables(
    spark: "SparkSession",
    pipeline: Pipeline,
    sink_id: str | None = None,
    data: Path | None = None,
) -> Iterator[Done]:
    """Run a pipeline without streams once; ``sink_id`` makes a second run add nothing."""
    frames = _frames(spark, pipeline)
    for name, sink in all_sinks(pipeline):
        _check_columns(frames[name], sink)
        identity = f"{sink_id}/{sink.name}" if sink_id else None
        place = _job_place(spark, pipeline, sink, sink_id, data)
        try:
            rows = write(frames[name], sink, pipeline, identity, place)
        except PipelineError:
            raise
        except Exception as error:
            raise failed(f"sink {sink.name!r}", error) from error
        yield Done(sink.name, rows, 1, rows)


def _job_place(
    spark: "SparkSession", pipeline: Pipeline, sink: Sink, sink_id: str | None, data: Path | None
) -> Path | None:
    """Return where the rows of a job may wait, if all of Spark can write there.

    What a job is called holds what it does: another one begins anew.
    """
    if data is None and not is_local(spark):
        return None
    what = _ADDRESS.sub("", repr(replace(pipeline, server={}, home=Path())))
    name = f"{sink.name}-{short_hash(what, sink_id or '')}"
    return folder(pipeline, data) / "jobs" / pipeline.name / name


def _frames(spark: "SparkSession", pipeline: Pipeline) -> dict[str, Any]:
    try:
        return build_frames(spark, pipeline)
    except PipelineError:
        raise
    except Exception as error:
        raise failed(f"pipeline {pipeline.name!r}", error) from error


def _check_columns(frame: Any, sink: Sink) -> None:
    """Refuse to partition by a column that there is not, before a batch is begun."""
    there = {name.lower() for name in frame.columns}
    for name in sink.partition_by if isinstance(sink, TableSink) else ():
        if name.lower() not in there:
            raise PipelineError(
                f"sink {sink.name!r}: there is no column {name!r} to partition by; "
                f"{near(name, frame.columns)}"
            )


def _stream(
    spark: "SparkSession", pipeline: Pipeline, data: Path | None
) -> Iterator[Progress | Done]:
    frames = _frames(spark, pipeline)
    places = [(n, sink, checkpoint_of(pipeline, sink, data)) for n, sink in all_sinks(pipeline)]
    for name, sink, checkpoint in places:
        _check_columns(frames[name], sink)
        check(spark, sink, checkpoint)
    running: list[_Running] = []
    try:
        for name, sink, checkpoint in places:
            running.append(_begun(frames[name], sink, pipeline, checkpoint))
        yield from _followed(running)
    finally:
        for one in running:
            one.query.stop()


def _begun(frame: Any, sink: Any, pipeline: Pipeline, checkpoint: str) -> _Running:
    tally = Tally()
    begin = partial(start, frame, sink, pipeline, checkpoint, tally)
    try:
        running = _Running(sink.name, begin, begin(), tally)
    except Exception as error:
        raise failed(f"sink {sink.name!r}", error) from error
    _wait_for_source(running.query)
    return running


def _wait_for_source(query: "StreamingQuery") -> None:
    """Let one query's Python process start before the next one's: together they are slow."""
    until = time.monotonic() + START_SECONDS
    while query.isActive and time.monotonic() < until:
        if not str(query.status["message"]).startswith("Initializing"):
            return
        time.sleep(POLL_SECONDS)


def _followed(running: list[_Running]) -> Iterator[Progress | Done]:
    """Tell each batch; end when all queries have, and fail as soon as one does."""
    left = list(running)
    while left:
        for one in list(left):
            active = one.query.isActive  # before the news: the last batch must be among them
            yield from one.news()
            if active:
                continue
            if (error := one.query.exception()) is not None:
                if one.started_again(error):
                    continue
                raise failed(f"sink {one.sink!r}", error) from error
            left.remove(one)
            yield one.done()
        if left:
            time.sleep(POLL_SECONDS)
