"""Submission: frames that become durable together, and who wants to know."""

from collections.abc import Callable, Iterator

import msgspec

from millstream.errors import MillstreamError
from millstream.kernel._frames import scan
from millstream.store.wal.entry import RUN, FrameRun
from millstream.store.wal.marks import Key


class Submission(msgspec.Struct):
    """Frames that become durable together, and who wants to know."""

    stream_id: int
    first_seq: int  # 0: control frames
    count: int
    data: bytes
    sync: bool
    committed: Callable[[MillstreamError | None], None]
    control: bytes = b""  # control frames that count only together with these records
    runs: tuple[FrameRun, ...] = ()  # the stretches of ``data``, where sequences are left out
    order: tuple[int, ...] = ()  # further logs on whose timeline this stands
    can_wait: bool = False  # nobody waits: goes with the next, or when the thread looks by itself
    tells: tuple[tuple[Key, int], ...] = ()  # marks that are true once this is stable
    apart: bool = False  # answered whenever it is stable: nothing of its log waits behind it

    @property
    def ordered(self) -> tuple[int, ...]:
        """Return the logs whose order this must keep."""
        return () if self.apart else (self.stream_id, *self.order)

    @property
    def last_seq(self) -> int:
        """Return the sequence of the last record, 0 without any."""
        if self.runs:
            return self.runs[-1].first_seq + self.runs[-1].frames - 1
        return self.first_seq and self.first_seq + self.count - 1

    @property
    def size(self) -> int:
        """Return how many bytes go into the log."""
        return len(self.control) + len(self.data) + RUN.size * len(self.runs)

    def pieces(self) -> Iterator[tuple[FrameRun, bytes]]:
        """Yield each run with its frames."""
        if self.control:
            frames = len(scan(self.control)[0])
            yield FrameRun(self.stream_id, 0, frames, len(self.control)), self.control
        if not self.runs:
            yield FrameRun(self.stream_id, self.first_seq, self.count, len(self.data)), self.data
        at = 0
        for run in self.runs:
            yield run, self.data[at : at + run.size]
            at += run.size
