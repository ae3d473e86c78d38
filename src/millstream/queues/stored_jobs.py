"""StoredJobs: a queue's records as a claim walks over them."""

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from millstream.message import Record
from millstream.queues.leases import MOST_BYTES, Granted
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.delivery.record_key import RecordKey
    from millstream.kernel._frames import Frames


READY_AT = "$ready_at"  # in a job's meta: milliseconds since 1970
READY_AT_KEY = b'"$ready_at"'


class _Meta(msgspec.Struct):
    ready_at: int = msgspec.field(default=0, name=READY_AT)


def ready_at_ms(meta: bytes) -> int:
    """Return from when on a job with this meta may be claimed, 0 for always."""
    try:
        return msgspec.json.decode(meta, type=_Meta).ready_at
    except msgspec.DecodeError:
        return 0


class Job(msgspec.Struct, frozen=True):
    """A record and the lease under which somebody has it."""

    granted: Granted
    record: Record


class StoredJobs:
    """Live records from ``first_seq`` on: read ``ahead`` at a time, decoded when handed out."""

    def __init__(
        self, stream: Stream, first_seq: int, ahead: int, rule: "RecordKey | None" = None
    ) -> None:
        self._rule = rule
        self._stream = stream
        self._first_seq = first_seq
        self._ahead = ahead
        self._frames: Frames | None = None
        self._from = 0
        self._seqs: list[int] = []
        self._at = 0  # where the last one was found
        self._found: dict[int, Record] = {}

    def next_live(self, seq: int) -> int:
        """Return the first live sequence at or above ``seq``, 0 when there is none."""
        seq = max(seq, self._first_seq)
        seqs = self._seqs
        if not seqs or not self._from <= seq <= seqs[-1]:
            seqs = self._read(seq)
        self._at = at = bisect_left(seqs, seq)
        return seqs[at] if at < len(seqs) else 0

    def _read(self, seq: int) -> list[int]:
        self._frames = frames = self._stream.read(seq, self._ahead, MOST_BYTES)
        self._from = seq
        self._seqs = [frames.seq(at) for at in range(len(frames))]
        return self._seqs

    def size(self, seq: int) -> int:
        """Return how many bytes a live job adds to an answer."""
        record = self.record(seq)
        return len(record.payload) + len(record.meta) + len(record.headers)

    def ready_at_ms(self, seq: int) -> int:
        """Return from when on a job may be claimed: its writer may have put that off."""
        meta = self.record(seq).meta
        return ready_at_ms(meta) if READY_AT_KEY in meta else 0

    def key(self, seq: int) -> bytes:
        """Return a job's key, empty where it has none."""
        if self._rule is None:
            return b""
        record = self.record(seq)
        return self._rule.of(record.subject, record.headers, record.tag)

    def pass_over(self, seq: int) -> None:
        """Forget a job that is not handed out now."""
        self._found.pop(seq, None)

    def record(self, seq: int) -> Record:
        """Return a job that ``next_live`` has found."""
        known = self._found.get(seq)
        if known is None:
            at, seqs = self._at, self._seqs
            if at >= len(seqs) or seqs[at] != seq:
                at = bisect_left(seqs, seq)
            if self._frames is not None and at < len(seqs) and seqs[at] == seq:
                known = Record(*self._frames.record(at))
            else:  # passed over, and read on since
                known = self._stream.get(seq)
            self._found[seq] = known
        return known
