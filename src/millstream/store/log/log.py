"""What a log promises to the streams above it; file_log.py and memory_log.py keep it."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames
from millstream.kernel._index import SegmentIndex, SubjectTable


class Durability(StrEnum):
    """What an acknowledgement of an append means."""

    EPHEMERAL = "ephemeral"  # in memory only
    MEMORY = "memory"  # handed to the WAL, not waited for
    DISK = "disk"  # written to the operating system; synced by a timer
    FSYNC = "fsync"  # on stable storage


UNSYNCED = "unsynced"  # given out since the last sync at most; a power cut took what there was
DAMAGE = ("corruption", "torn", UNSYNCED)  # the disk lost what somebody may have been promised
RESTART = "restart"  # in memory alone, and the process that had them ended
LOSSES = (*DAMAGE, RESTART)  # what whoever reads on hears of, also where no limit took it


class Gap(msgspec.Struct, frozen=True):
    """Sequences ``first..last`` that were lost, and why: nothing is lost without one."""

    first: int
    last: int
    reason: str  # "cap" | "ttl" | "source_trim" | "void" | one of LOSSES

    @property
    def size(self) -> int:
        """Return how many sequences these are."""
        return self.last - self.first + 1


def in_doubt(gaps: Iterable[Gap], first: int, last: int) -> int:
    """Return how many lost sequences of ``first..last`` held a record perhaps, and not for sure."""
    doubtful = [gap for gap in gaps if gap.reason == UNSYNCED]
    return sum(max(0, min(gap.last, last) - max(gap.first, first) + 1) for gap in doubtful)


class LogState(msgspec.Struct, frozen=True):
    """One consistent look at a log; ``last_seq`` is the newest committed sequence."""

    first_seq: int  # earliest live sequence, last_seq + 1 when empty
    last_seq: int
    synced_seq: int  # everything up to here is on stable storage
    count: int
    bytes: int
    first_ts_ns: int
    last_ts_ns: int
    evict_floor: int  # highest sequence lost involuntarily, 0 = none
    gaps: tuple[Gap, ...]
    floors: Mapping[str, int] = msgspec.field(
        default_factory=dict
    )  # reason of a trim → highest sequence it took
    headed: int = 0  # records with a header block


Committed = Callable[[MillstreamError | None], None]
"""Called on the loop, once: None when the class's promise holds, else why it never will."""


class Note(msgspec.Struct, frozen=True):
    """A control frame that becomes durable with an append, in the same commit, or not at all."""

    kind: int
    body: bytes


class Appended(msgspec.Struct, frozen=True):
    """What an append has come to when it returns."""

    first_seq: int
    is_committed: bool = False  # the class's promise holds already, and ``done`` is not called


class Staged(msgspec.Struct, frozen=True):
    """Records that have their sequences; whoever logs what they stand for reports the outcome."""

    first_seq: int
    committed: Committed
    sync: bool  # whether the log's class asks for stable storage
    log_id: int = 0
    count: int = 0
    data: bytes = b""  # the frames; none where sequences are given up for ``reason``
    reason: str = ""


class IndexedSegment(Protocol):
    """A stretch of a log, as searches by subject see it; staged records are in the index too."""

    @property
    def base_seq(self) -> int:
        """Return the lowest sequence that can be here."""
        ...

    @property
    def index(self) -> SegmentIndex:
        """Return where each record is, and its subject."""
        ...

    def read(
        self, at: int, stop: int, max_records: int, max_bytes: int, ids: bytes | None = None
    ) -> tuple[Frames, int, int]:
        """Return (frames, position after them, first damaged position or -1) from ``at`` on."""
        ...

    def one(self, seq: int) -> Frames | None:
        """Return a record that is in the index, alone; None when it is damaged."""
        ...


_Segment = TypeVar("_Segment", bound=IndexedSegment)


def by_segment(
    segments: Sequence[_Segment], seqs: Iterable[int]
) -> Iterator[tuple[_Segment, list[int]]]:
    """Return sequences, ascending, with the segment that holds them if any does."""
    rest = sorted(seqs)
    while rest:
        at = bisect_right(segments, rest[0], key=_base) - 1
        is_last = at + 1 == len(segments)
        end = len(rest) if is_last else bisect_left(rest, segments[at + 1].base_seq)
        if at >= 0:
            yield segments[at], rest[:end]
        rest = rest[end:]


def _base(segment: IndexedSegment) -> int:
    return segment.base_seq


class Log(Protocol):
    """Records by sequence. Appends are staged at once and visible once committed."""

    @property
    def subjects(self) -> SubjectTable:
        """Return the subjects of all records, staged ones included."""
        ...

    @property
    def segments(self) -> Sequence[IndexedSegment]:
        """Return the log's stretches in order."""
        ...

    @property
    def committed_seq(self) -> int:
        """Return the newest sequence that readers see."""
        ...

    @property
    def next_seq(self) -> int:
        """Return the sequence that the next append gets."""
        ...

    @property
    def count(self) -> int:
        """Return how many live records there are."""
        ...

    def first_seq(self) -> int:
        """Return the earliest live sequence, one above the newest when there is none."""
        ...

    @property
    def log_id(self) -> int:
        """Return the incarnation id: unique per created log, never reused."""
        ...

    @property
    def durability(self) -> Durability:
        """Return what an ack of this log means."""
        ...

    def append(
        self,
        batch: Batch,
        start: int,
        count: int,
        ts_ns: int,
        done: Committed,
        note: Note | None = None,
        at_once: bool = False,
    ) -> Appended:
        """Stage entries ``start..start+count`` as one whole-or-absent batch.

        With a ``note`` the batch is synced, whatever the class, before ``done`` is called. With
        ``at_once`` the batch is committed before this returns, where nothing but a small write
        stands before that; whether it was is in the answer. Otherwise what comes together shares a
        commit, and ``done`` is called later.

        Returns the first sequence; the records follow contiguously. ``ts_ns`` is raised to the
        previous record's where the wall clock ran backwards. Raises ``ShardReadOnly`` or
        ``StorageFull`` when the log already knows that it cannot commit.
        """
        ...

    def stage(self, batch: Batch, ts_ns: int, done: Committed) -> Staged:
        """Stage a whole batch as ``append`` does, but leave its logging to the caller."""
        ...

    def skip(self, count: int, reason: str, done: Committed) -> Staged:
        """Stage sequences that hold nothing, for ``reason``; the caller logs them."""
        ...

    def append_exact(
        self,
        batch: Batch,
        start: int,
        count: int,
        seqs: Sequence[int],
        times_ns: Sequence[int],
        done: Committed,
        note: Note | None = None,
    ) -> Appended:
        """Stage entries under the caller's sequences and times, as one whole-or-absent batch.

        ``seqs`` ascend above everything appended before. Those left out in between were never
        there: holes without a gap, counted with what was deleted. Times are raised as ``append``
        does. Raises ValueError for sequences that do not follow, or more than 2**32 apart.
        """
        ...

    def skip_to(self, seq: int, done: Committed) -> None:
        """Give the next append at least ``seq``, durably; does nothing when it is there already.

        Once done the log ends at ``seq - 1``; the sequences left out are holes without a gap.
        """
        ...

    def start_at(self, first_seq: int) -> None:
        """Give a log that never held a record another first sequence than 1."""
        ...

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> Frames:
        """Return committed live records from ``start_seq`` on, ascending, at least one if any.

        May return fewer than asked when a buffer ends; an empty result means that there is
        nothing at or above ``start_seq``. Never copies a payload, never returns a damaged one.
        """
        ...

    def trim(self, first_kept: int, reason: str) -> None:
        """Remove everything below ``first_kept``; reasons other than "delete" raise evict_floor."""
        ...

    def delete(
        self,
        seqs: list[int],
        done: Committed,
        erased: Committed | None = None,
        can_wait: bool = False,
    ) -> int:
        """Remove these records for good; returns how many were live.

        Where somebody waits for ``erased``, their bytes are overwritten wherever they are. A
        removal that ``can_wait``, because a start would decide it again, is logged with the next
        append, or a moment later.
        """
        ...

    def state(self) -> LogState:
        """Return a consistent look at the log."""
        ...

    def watch_synced(self, rose: Callable[[], None]) -> Callable[[], None]:
        """Call ``rose`` when more became stable after it was committed; returns the undo."""
        ...

    def last_by_subject(self, subject: bytes) -> int:
        """Return the newest live sequence of a subject, 0 when there is none; no scan."""
        ...

    def seek_time(self, ts_ns: int) -> int:
        """Return the first sequence whose time is at or after ``ts_ns``, last_seq + 1 if none."""
        ...
