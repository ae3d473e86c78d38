"""Copies: records of another stream that a router puts into this one."""

from typing import Protocol

from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.store.log.log import Committed, Staged
from millstream.streams.reading.watchers import Watchers
from millstream.streams.writing.run import Run
from millstream.streams.writing.writes import Writes


class CopyTarget(Protocol):
    """What taking copies asks of a stream."""

    @property
    def writes(self) -> Writes:
        """Return what brings runs into the log."""
        ...

    @property
    def watchers(self) -> Watchers:
        """Return who looks again when the stream grows."""
        ...


def stage(target: CopyTarget, batch: Batch, ts_ns: int) -> Staged:
    """Stage copies, which the caller logs by their origin."""
    return target.writes.stage(Run(batch, 0, len(batch), _unheard), ts_ns)


def store(target: CopyTarget, batch: Batch, done: Committed) -> None:
    """Store copies of records that do not outlive the process, as records of their own."""
    target.writes.append(Run(batch, 0, len(batch), lambda _run, error: done(error)))


def skip(target: CopyTarget, count: int, reason: str) -> Staged:
    """Stage sequences for records that the other stream lost before they were copied."""

    def on_skipped(error: MillstreamError | None) -> None:
        if error is None:
            target.watchers.wake()

    return target.writes.skip(count, reason, on_skipped)


def _unheard(_run: Run, _error: MillstreamError | None) -> None:
    """Nobody waits for a copy: whoever made it hears of the commit from the store."""
