"""StoredJobs: a queue's records as a claim walks over them."""

from bisect import bisect_left
from typing import TYPE_CHECKING

from millstream.message import Record
from millstream.queues.leases import MOST_BYTES
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames


class StoredJobs:
    """Live records from ``first_seq`` on: read ``ahead`` at a time, decoded when handed out."""

    def __init__(self, stream: Stream, first_seq: int, ahead: int) -> None:
        self._stream = stream
        self._first_seq = first_seq
        self._ahead = ahead
        self._frames: Frames | None = None
        self._from = 0
        self._seqs: list[int] = []
        self._found: dict[int, Record] = {}

    def next_live(self, seq: int) -> int:
        """Return the first live sequence at or above ``seq``, 0 when there is none."""
        seq = max(seq, self._first_seq)
        if not self._seqs or not self._from <= seq <= self._seqs[-1]:
            self._read(seq)
        at = bisect_left(self._seqs, seq)
        if at == len(self._seqs):
            return 0
        return self._seqs[at]

    def _read(self, seq: int) -> None:
        self._frames = frames = self._stream.read(seq, self._ahead, MOST_BYTES)
        self._from = seq
        self._seqs = [frames.seq(at) for at in range(len(frames))]

    def size(self, seq: int) -> int:
        """Return how many bytes a live job adds to an answer."""
        record = self.record(seq)
        return len(record.payload) + len(record.meta) + len(record.headers)

    def record(self, seq: int) -> Record:
        """Return a job that ``next_live`` has found."""
        known = self._found.get(seq)
        if known is None:
            at = bisect_left(self._seqs, seq)
            if self._frames is not None and at < len(self._seqs) and self._seqs[at] == seq:
                known = Record(*self._frames.record(at))
            else:  # passed over, and read on since
                known = self._stream.get(seq)
            self._found[seq] = known
        return known
