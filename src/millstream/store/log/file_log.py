"""A log over WAL and segments: staged at once, visible at commit, flushed in the background."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.kernel._frames import encode_batch, encode_exact
from millstream.store.log.compaction import Compaction
from millstream.store.log.control_frames import Skipped, skip_frames
from millstream.store.log.erasure import Erasure
from millstream.store.log.files import LogFiles
from millstream.store.log.growth import MOST_DELTA, SegmentGrowth
from millstream.store.log.host import LogHost
from millstream.store.log.log import Appended, Committed, Durability, Note, Staged
from millstream.store.log.promise import SequencePromise
from millstream.store.log.records import LogRecords
from millstream.store.log.removal import LogRemoval
from millstream.store.log.skips import Skips
from millstream.store.log.sync_marks import SyncMarks
from millstream.store.segments.files import log_directory
from millstream.store.segments.segment import Segment
from millstream.store.wal.entry import FrameRun
from millstream.store.wal.reservation import GROWTH, LEAST, QUICK
from millstream.store.wal.submission import Submission

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """When segments end and how much of them stays in memory."""

    segment_records: int = 1 << 20
    segment_bytes: int = 64 << 20
    segment_age: float = 3600.0
    flush_bytes: int = 1 << 20
    cache_bytes: int = 256 << 10
    waste_bytes: int = 1 << 20  # of dead records that a growing file may hold when none is live
    rewrite_ratio: float = 0.5  # of a sealed file's bytes that are dead when it is written anew
    reserve_records: int = LEAST  # sequences that a `disk` log promises at first
    reserve_growth: int = GROWTH  # times as many, once they were used up quickly
    reserve_quick: float = QUICK  # seconds: what that means for a quarter of them


class _Answer:
    """Who hears of a commit; one that comes before the append returns is part of what it returns.

    It is never an error: those reach the loop in a turn of their own.
    """

    __slots__ = ("_done", "has_come", "is_awaited")

    def __init__(self, done: Committed) -> None:
        self._done = done
        self.has_come = False
        self.is_awaited = False  # the append has returned without it

    def __call__(self, error: MillstreamError | None) -> None:
        """Take the answer, or pass it on."""
        if self.is_awaited:
            self._done(error)
        else:
            assert error is None
            self.has_come = True


class FileLog(LogRecords):
    """Keeps ``store.log.Log`` on disk; all methods run on the loop."""

    __slots__ = (
        "_abandoned",
        "_closed",
        "_host",
        "_skips",
        "compaction",
        "compressed",
        "directory",
        "durability",
        "erasure",
        "files",
        "growth",
        "hot_ns",
        "loaded_seq",
        "log_id",
        "marks",
        "name",
        "next_seq",
        "promise",
        "removal",
        "staged_ts_ns",
        "stays_hot",
    )

    def __init__(
        self, host: LogHost, log_id: int, durability: Durability, options: LogOptions
    ) -> None:
        super().__init__()
        self._host = host
        self.log_id = log_id
        self.durability = durability  # what an ack means
        self.directory = log_directory(host.directory, log_id)
        self._closed = False
        self._abandoned: list[Segment] = []
        self.compressed = False  # what is sealed from now on
        self.name = ""  # of the stream, for those who read its files
        self.stays_hot = False  # segments are never moved to the cold place
        self.hot_ns = 0  # nor while they hold a record that is younger
        self.next_seq = 1
        self.loaded_seq = 0  # what the segment files held at the start
        self.staged_ts_ns = 0
        self.marks = SyncMarks(host, self)
        self.promise = SequencePromise(
            host, self, options.reserve_records, options.reserve_growth, options.reserve_quick
        )
        self.growth = SegmentGrowth(
            host, self, options.segment_records, options.segment_bytes, options.segment_age
        )
        self._skips = Skips(host, self)
        self.erasure = Erasure(host, self)
        self.files = LogFiles(host, self, options.flush_bytes, options.cache_bytes)
        self.compaction = Compaction(host, self, options.rewrite_ratio)
        self.removal = LogRemoval(host, self, options.waste_bytes)

    @property
    def is_closed(self) -> bool:
        """Say whether the log takes no work any more."""
        return self._closed

    # --- writing

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
        """Stage entries as one whole-or-absent batch; says where, and whether it is committed."""
        answer = _Answer(done) if at_once else None
        staged, data = self._stage(batch, start, count, ts_ns, answer or done, note is not None)
        self._submit(staged, count, data, note, at_once=at_once)
        if answer is None:
            return Appended(staged.first_seq)
        answer.is_awaited = True
        return Appended(staged.first_seq, answer.has_come)

    def stage(self, batch: Batch, ts_ns: int, done: Committed) -> Staged:
        """Stage a whole batch whose frames are not logged: the caller logs what makes them again.

        It must do so before anything else is appended, and report the outcome.
        """
        staged, data = self._stage(batch, 0, len(batch), ts_ns, done)
        return Staged(
            staged.first_seq, staged.committed, staged.sync, self.log_id, len(batch), data
        )

    def _stage(
        self, batch: Batch, start: int, count: int, ts_ns: int, done: Committed, noted: bool = False
    ) -> tuple[Staged, bytes]:
        self._host.check(self.log_id)
        first = self.next_seq
        last = first + count - 1
        is_disk, is_lone = self.durability is Durability.DISK, False
        promise = self.promise
        if is_disk and last > promise.reservation.suffices_to(promise.reserved_seq):
            is_lone = promise.make_for(last, count)
        segment = self.growth.take(first, last)
        ts_ns = max(ts_ns, self.staged_ts_ns)
        before = self.subjects.headed
        data = encode_batch(
            batch, start, count, self.log_id, first, ts_ns, segment.index, segment.size, True
        )
        segment.stage(data, first, last)
        headed = self.subjects.headed - before
        noted = noted or is_lone
        return self._staged(first, last, count, headed, len(data), ts_ns, done, noted), data

    def _staged(
        self,
        first: int,
        last: int,
        count: int,
        headed: int,
        size: int,
        ts_ns: int,
        done: Committed,
        noted: bool,
        holes: Sequence[tuple[int, int]] = (),
    ) -> Staged:
        """Note what was staged; what a class promises without the disk is true at once."""
        self.next_seq = last + 1
        self.staged_ts_ns = ts_ns
        self._staged_headed += headed
        if self.durability is Durability.MEMORY:
            self._skips.leave_out(holes)
            self._commit(count, last, headed, size, ts_ns)
            if not noted:
                self._host.post(partial(done, None))
                done = partial(_in_memory_only, self.log_id)
        committed = partial(self._committed, count, last, headed, size, ts_ns, done)
        if holes:
            committed = partial(self._skips.committed, holes, committed)
        return Staged(first, committed, noted or self.durability is Durability.FSYNC)

    def _submit(
        self,
        staged: Staged,
        count: int,
        data: bytes,
        note: Note | None,
        holes: Sequence[tuple[int, int]] = (),
        runs: tuple[FrameRun, ...] = (),
        at_once: bool = False,
    ) -> None:
        """Have staged records committed, with what must not be told apart from them."""
        control, committed = b"", staged.committed
        if holes:
            control = skip_frames(self.log_id, Skipped(list(holes)))
        if note is not None:
            noted, committed = self._host.joined(note.kind, self.log_id, note.body, committed)
            control += noted
        first, sync = staged.first_seq, staged.sync
        self._host.submit(
            Submission(self.log_id, first, count, data, sync, committed, control, runs), at_once
        )

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
        """Stage entries under the caller's sequences and times; what is left out is skipped.

        No sequence is reserved for the ``disk`` class: what a power cut takes comes back under
        the same sequence, because the caller has it from elsewhere.
        """
        self._host.check(self.log_id)
        if not seqs or seqs[0] < self.next_seq:
            raise ValueError(f"sequences must follow {self.next_seq - 1}")
        first, last = seqs[0], seqs[-1]
        if last - first > MOST_DELTA:
            raise ValueError(f"a batch reaches over at most {MOST_DELTA} sequences")
        segment = self.growth.take(first, last)
        index, at, before = segment.index, len(segment.index), self.subjects.headed
        data = encode_exact(
            batch,
            start,
            count,
            self.log_id,
            seqs,
            times_ns,
            self.staged_ts_ns,
            index,
            segment.size,
        )
        segment.stage(data, first, last)
        holes = _holes(self.next_seq, seqs)
        runs = _stretches(segment, at) if holes else ()
        ts_ns = index.ts_ns(len(index) - 1)
        noted, headed = note is not None, self.subjects.headed - before
        staged = self._staged(first, last, count, headed, len(data), ts_ns, done, noted, holes)
        self._submit(staged, count, data, note, holes, runs)
        return Appended(first)

    def _committed(
        self,
        count: int,
        last: int,
        headed: int,
        size: int,
        ts_ns: int,
        done: Committed,
        error: MillstreamError | None,
    ) -> None:
        if error is None:
            if last > self.committed_seq:
                self._commit(count, last, headed, size, ts_ns)
            if self.durability is not Durability.FSYNC:
                self.marks.add(last, self.durability)
        done(error)

    def note_synced(self, position: int) -> bool:
        """Raise the synced mark to what was written up to ``position``; True when all was."""
        is_all = self.marks.rise(position)
        if self.segments and self.files.has_work():
            self.flush()
        return is_all

    def _commit(self, count: int, last: int, headed: int, size: int, ts_ns: int) -> None:
        """Let readers see what the class's promise now covers."""
        self.committed_seq = last
        self.last_ts_ns = ts_ns
        self.count += count
        self.bytes += size
        self._staged_headed -= headed
        if self.durability is Durability.FSYNC:
            self.synced_seq = last
        if not self.segments:
            return  # dropped while the commit was under way
        if self.files.has_work():
            self.flush()

    def rewind(self) -> None:
        """Take back everything staged and not committed: its sequences were never visible."""
        last = self.committed_seq
        self._staged_headed = 0
        while self.segments and self.segments[-1].base_seq > last:
            self.segments.pop().rewind(0)
        if self.segments:
            self.segments[-1].rewind(last)
        self.next_seq = last + 1
        self.removal.forget_open()

    # --- parts

    def skip_to(self, seq: int, done: Committed) -> None:
        """Give the next record at least ``seq``; what is left out was never there."""
        self._skips.skip_to(seq, done)

    def skip(self, count: int, reason: str, done: Committed) -> Staged:
        """Stage ``count`` sequences that hold nothing; the caller logs that, and reports it."""
        return self._skips.skip(count, reason, done)

    def start_at(self, first_seq: int) -> None:
        """Give a log that never held a record another first sequence than 1."""
        self._skips.start_at(first_seq)

    def watch_synced(self, rose: Callable[[], None]) -> Callable[[], None]:
        """Call ``rose`` when more became stable after it was committed; returns the undo."""
        return self.marks.watch(rose)

    def trim(self, first_kept: int, reason: str) -> None:
        """Remove everything below ``first_kept``, once that is logged."""
        self.removal.trim(first_kept, reason)

    def delete(
        self,
        seqs: list[int],
        done: Committed,
        erased: Committed | None = None,
        can_wait: bool = False,
    ) -> int:
        """Remove these records once that is logged; returns how many were live."""
        return self.removal.delete(seqs, done, erased, can_wait)

    # --- files

    def flush(self) -> None:
        """Hand committed bytes to the files, and seal what is complete."""
        if not self._closed:
            self.files.flush()

    def tick(self) -> None:
        """Let age end a segment also when nothing is written, and flush what waits."""
        self.growth.end_by_age()
        self.removal.give_up_waste()
        self.flush()
        self.erasure.step()
        self.compaction.step()

    def abandon(self) -> None:
        """Hold nothing any more; the files stay until ``remove_files``."""
        self._abandoned, self.segments = self.segments, []
        self.count = self.bytes = 0

    def remove_files(self) -> None:
        """Remove the files of a log that was abandoned."""
        segments, self._abandoned = self._abandoned, []
        self.files.remove(segments)

    def close(self) -> None:
        """Close the files; commits that are still being reported no longer touch them."""
        self._closed = True
        for segment in [*self.segments, *self._abandoned]:
            segment.close()


def _in_memory_only(log_id: int, error: MillstreamError | None) -> None:
    if error is not None:
        log.error("records in memory only log=%x error=%s", log_id, error)


def _holes(next_seq: int, seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Return what ascending ``seqs`` leave out from ``next_seq`` on."""
    if seqs[-1] - next_seq + 1 == len(seqs):
        return []
    before = (next_seq - 1, *seqs[:-1])
    return [(a + 1, b - 1) for a, b in zip(before, seqs, strict=True) if b > a + 1]


def _stretches(segment: Segment, at: int) -> tuple[FrameRun, ...]:
    """Return the unbroken stretches of what was staged last, from position ``at`` on."""
    index = segment.index
    end = len(index)
    starts = [i for i in range(at, end) if i == at or index.seq(i - 1) + 1 < index.seq(i)]
    offsets = [*map(index.offset, starts), segment.size]
    return tuple(
        FrameRun(segment.log_id, index.seq(i), after - i, offsets[n + 1] - offsets[n])
        for n, (i, after) in enumerate(pairwise([*starts, end]))
    )
