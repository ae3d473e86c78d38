"""A log over WAL and segments: staged at once, visible at commit, flushed in the background."""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import msgspec

from millstream.errors import MillstreamError, ShardReadOnly
from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames, encode_batch, encode_exact
from millstream.store.log.compaction import Compaction
from millstream.store.log.control_frames import (
    DELETE,
    ERASE,
    RESERVE,
    TRIM,
    VOID,
    Skipped,
    Trimmed,
    Voided,
    skip_frames,
)
from millstream.store.log.erasure import Erasure
from millstream.store.log.files import LogFiles
from millstream.store.log.host import LogHost
from millstream.store.log.log import (
    Appended,
    Committed,
    Durability,
    Gap,
    Note,
    Staged,
    by_segment,
)
from millstream.store.log.records import LogRecords, base_of, merged
from millstream.store.log.snapshot import LogSnapshot, SegmentState
from millstream.store.segments.files import HEADER_BYTES, log_directory
from millstream.store.segments.segment import Flush, Segment
from millstream.store.wal.entry import FrameRun
from millstream.store.wal.reservation import GROWTH, LEAST, QUICK, Reservation
from millstream.store.wal.submission import Submission

NO_FRAMES = Frames(b"", b"")
MOST_DELTA = 0xFFFFFFFF  # how far a record's sequence may be above its segment's base

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

    def __init__(
        self, host: LogHost, log_id: int, durability: Durability, options: LogOptions
    ) -> None:
        super().__init__()
        self._host = host
        self._log_id = log_id
        self._durability = durability
        self._options = options
        self.directory = log_directory(host.directory, log_id)
        self._closed = False
        self._abandoned: list[Segment] = []
        self._deleting: set[int] = set()
        self._written: deque[tuple[int, int]] = deque()  # (position, seq) not known to be synced
        self._watching: dict[object, Callable[[], None]] = {}  # told when more is synced
        self._reservation = Reservation(
            options.reserve_records, options.reserve_growth, options.reserve_quick, host.quiet_age
        )
        self.compressed = False  # what is sealed from now on
        self.name = ""  # of the stream, for those who read its files
        self.stays_hot = False  # segments are never moved to the cold place
        self.hot_ns = 0  # nor while they hold a record that is younger
        self.erasure = Erasure(host, self)
        self._files = LogFiles(host, self, options.cache_bytes)
        self._rewrites = Compaction(host, self, options.rewrite_ratio)
        self.next_seq = 1
        self.reserved_seq = 0
        self.loaded_seq = 0  # what the segment files held at the start
        self.staged_ts_ns = 0
        self.holds_dead = False  # dead segments stay: a replay may have to copy from them yet

    @property
    def log_id(self) -> int:
        """Return the incarnation id."""
        return self._log_id

    @property
    def durability(self) -> Durability:
        """Return what an ack of this log means."""
        return self._durability

    @durability.setter
    def durability(self, durability: Durability) -> None:
        self._durability = durability

    @property
    def is_closed(self) -> bool:
        """Say whether the log takes no work any more."""
        return self._closed

    @property
    def is_kept(self) -> bool:
        """Say whether the log outlives the process."""
        return self._durability is not Durability.EPHEMERAL

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
            staged.first_seq, staged.committed, staged.sync, self._log_id, len(batch), data
        )

    def _stage(
        self, batch: Batch, start: int, count: int, ts_ns: int, done: Committed, noted: bool = False
    ) -> tuple[Staged, bytes]:
        self._host.check(self._log_id)
        first = self.next_seq
        last = first + count - 1
        is_disk, is_lone = self._durability is Durability.DISK, False
        if is_disk and last > self._reservation.suffices_to(self.reserved_seq):
            is_lone = self._reserve_for(last, count)
        segment = self._growing(first, last)
        ts_ns = max(ts_ns, self.staged_ts_ns)
        before = self.subjects.headed
        data = encode_batch(
            batch, start, count, self._log_id, first, ts_ns, segment.index, segment.size, True
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
        if self._durability is Durability.MEMORY:
            self._skip(holes)
            self._commit(count, last, headed, size, ts_ns)
            if not noted:
                self._host.post(partial(done, None))
                done = self._memory_done
        committed = partial(self._committed, count, last, headed, size, ts_ns, done)
        if holes:
            committed = partial(self._skip_committed, holes, committed)
        return Staged(first, committed, noted or self._durability is Durability.FSYNC)

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
            control = skip_frames(self._log_id, Skipped(list(holes)))
        if note is not None:
            noted, committed = self._host.joined(note.kind, self._log_id, note.body, committed)
            control += noted
        first, sync = staged.first_seq, staged.sync
        self._host.submit(
            Submission(self._log_id, first, count, data, sync, committed, control, runs), at_once
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
        self._host.check(self._log_id)
        if not seqs or seqs[0] < self.next_seq:
            raise ValueError(f"sequences must follow {self.next_seq - 1}")
        first, last = seqs[0], seqs[-1]
        if last - first > MOST_DELTA:
            raise ValueError(f"a batch reaches over at most {MOST_DELTA} sequences")
        segment = self._growing(first, last)
        index, at, before = segment.index, len(segment.index), self.subjects.headed
        data = encode_exact(
            batch,
            start,
            count,
            self._log_id,
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

    def skip_to(self, seq: int, done: Committed) -> None:
        """Give the next record at least ``seq``; what is left out was never there."""
        self._host.check(self._log_id)
        if seq <= self.next_seq:
            self._host.post(partial(done, None))
            return
        holes = [(self.next_seq, seq - 1)]
        frames = skip_frames(self._log_id, Skipped(holes, seq))
        committed = partial(self._skipped_to, seq, holes, done)
        self._host.submit(Submission(self._log_id, 0, 2, frames, True, committed))
        self.next_seq = seq
        if self._durability is Durability.MEMORY:  # what follows is committed at once
            self._skip_visibly(seq, holes)

    def _skipped_to(
        self,
        seq: int,
        holes: Sequence[tuple[int, int]],
        done: Committed,
        error: MillstreamError | None,
    ) -> None:
        if error is None:
            self._skip_visibly(seq, holes)
            # Its sync has covered whatever was written before it.
            self.synced_seq = max(self.synced_seq, seq - 1)
        done(error)

    def _skip_visibly(self, seq: int, holes: Sequence[tuple[int, int]]) -> None:
        self._skip(holes)
        self.committed_seq = max(self.committed_seq, seq - 1)

    def _skip_committed(
        self,
        holes: Sequence[tuple[int, int]],
        committed: Committed,
        error: MillstreamError | None,
    ) -> None:
        if error is None:
            self._skip(holes)
        committed(error)

    def _skip(self, holes: Sequence[tuple[int, int]]) -> None:
        for first, last in holes:
            self.deleted.add(max(first, self.first_kept), last)

    def skip(self, count: int, reason: str, done: Committed) -> Staged:
        """Stage ``count`` sequences that hold nothing; the caller logs that, and reports it."""
        self._host.check(self._log_id)
        first = self.next_seq
        sync = self._durability is Durability.FSYNC
        if self._durability is Durability.DISK:
            sync = self._reserve_for(first + count, count)
        self.next_seq = first + count
        committed = partial(self._skipped, first, self.next_seq - 1, reason, done)
        return Staged(first, committed, sync, self._log_id, count, reason=reason)

    def _skipped(
        self, first: int, last: int, reason: str, done: Committed, error: MillstreamError | None
    ) -> None:
        if error is None:
            self.add_gap(first, last, reason)
            self.committed_seq = max(self.committed_seq, last)
            if self._durability is Durability.FSYNC:
                self.synced_seq = max(self.synced_seq, last)
            else:
                self._await_sync(last)
        done(error)

    def start_at(self, first_seq: int) -> None:
        """Give a log that never held a record another first sequence than 1.

        The frames that say so go ahead of every record, so that no replay takes the missing
        sequences for lost ones.
        """
        if self.next_seq != 1 or first_seq <= 1:
            return
        void = msgspec.json.encode(Voided(1, first_seq - 1, "void"))
        self._host.control(VOID, self._log_id, void, self._start_logged)
        self.next_seq = first_seq
        self.committed_seq = self.synced_seq = first_seq - 1
        self.trim(first_seq, "delete")

    def _start_logged(self, error: MillstreamError | None) -> None:
        if error is not None:
            log.error("first sequence not written log=%x error=%s", self._log_id, error)

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
            if self._durability is not Durability.FSYNC:
                self._await_sync(last)
        done(error)

    def note_synced(self, position: int) -> bool:
        """Raise the synced mark to what was written up to ``position``; True when all was."""
        written, before = self._written, self.synced_seq
        while written and written[0][0] <= position:
            self.synced_seq = max(self.synced_seq, written.popleft()[1])
        if self._watching and self.synced_seq > before:
            for rose in list(self._watching.values()):
                rose()
        if self.segments and self._leaves_work():
            self.flush()
        return not written

    def may_seal(self, segment: Segment) -> bool:
        """Say whether the disk may have a full segment: the WAL goes first, where a sync is due.

        A ``memory`` log's records may never get into the WAL.
        """
        if self._durability is not Durability.DISK:
            return True
        return self.synced_seq >= segment.last_seq or segment.synced >= segment.size

    def watch_synced(self, rose: Callable[[], None]) -> Callable[[], None]:
        """Call ``rose`` when more became stable after it was committed; returns the undo."""
        key = object()
        self._watching[key] = rose
        return partial(self._unwatch, key)

    def _unwatch(self, key: object) -> None:
        self._watching.pop(key, None)

    def _await_sync(self, last: int) -> None:
        """Note that everything up to ``last`` is written, and stable with the next sync."""
        if self._durability is not Durability.EPHEMERAL:  # which no sync ever covers
            self._written.append((self._host.written_position(self._log_id), last))
            self._host.unsynced(self)

    def _commit(self, count: int, last: int, headed: int, size: int, ts_ns: int) -> None:
        """Let readers see what the class's promise now covers."""
        self.committed_seq = last
        self.last_ts_ns = ts_ns
        self.count += count
        self.bytes += size
        self._staged_headed -= headed
        if self._durability is Durability.FSYNC:
            self.synced_seq = last
        if not self.segments:
            return  # dropped while the commit was under way
        if self._leaves_work():
            self.flush()

    def _leaves_work(self) -> bool:
        """Say whether the one that grows, or the one before it, is to be written or sealed."""
        segment = self.segments[-1]
        if segment.size - segment.flushed >= self._options.flush_bytes and not segment.busy:
            return True
        if len(self.segments) < 2:
            return False
        full = self.segments[-2]
        if full.sealed or full.busy:
            return False
        return full.flushed < full.size or self.may_seal(full)

    def _memory_done(self, error: MillstreamError | None) -> None:
        if error is not None:
            log.error("records in memory only log=%x error=%s", self._log_id, error)

    def _reserve_for(self, last: int, count: int) -> bool:
        """See to it that ``last`` is never given out twice, also when the power fails.

        True: by no promise, so that what is appended now must itself be stable before it counts.
        """
        if self._reservation.covers(last, self.reserved_seq):
            if self._reservation.is_low(last, self.reserved_seq):
                self._reserve_ahead(count)
        elif self._reservation.is_lone(self._host.clock.monotonic()):
            return True
        else:
            self._reserve(last, count)
        return False

    def _reserve(self, last: int, count: int) -> None:
        """Promise more before anything else: what is appended now waits for that sync."""
        self.reserved_seq = self._reservation.grow(last, self._host.clock.monotonic(), count)
        self._host.promised(self)
        body = msgspec.json.encode(self.reserved_seq)
        self._host.control(RESERVE, self._log_id, body, self._reserve_logged, sync=True)

    def _reserve_logged(self, error: MillstreamError | None) -> None:
        if error is None:
            self._reservation.granted(0, self._host.clock.monotonic())
        else:
            self.reserved_seq = self.committed_seq

    def _reserve_ahead(self, count: int) -> None:
        """Promise more while there is enough left, so that nobody waits for the sync."""
        reservation, now = self._reservation, self._host.clock.monotonic()
        wanted = self.reserved_seq = reservation.ahead(self.reserved_seq, now, count)
        self._host.promised(self)
        done = partial(self._reserved_ahead, wanted)
        body = msgspec.json.encode(wanted)
        can_wait = not reservation.is_pressed
        self._host.control(RESERVE, self._log_id, body, done, True, can_wait, apart=True)

    def _reserved_ahead(self, wanted: int, error: MillstreamError | None) -> None:
        if error is None:
            self._reservation.granted(wanted, self._host.clock.monotonic())
        else:
            self.reserved_seq = self._reservation.refused(wanted, self.reserved_seq)

    def keep_promise(self) -> None:
        """Go on with the promise of the run before, where there is one."""
        if self.reserved_seq > self.committed_seq:
            self._reservation.is_open = True
            self._host.promised(self)

    def rest(self) -> bool:
        """End the promise once nothing was appended for a while; True when there is none."""
        is_settled = self.next_seq == self.committed_seq + 1 and not self._written
        now = self._host.clock.monotonic()
        if is_settled and self._reservation.is_quiet(self.next_seq, now):
            self.end_promise()
        return not self._reservation.is_open

    def end_promise(self) -> None:
        """Say in the WAL that nothing was given out above what is in it before this.

        Nobody waits for that: until it is stable a start only knows less, and what is appended
        from now on waits for a sync behind it.
        """
        self._reservation.end()
        self.reserved_seq = self.next_seq - 1
        body = msgspec.json.encode(self.reserved_seq)
        with suppress(ShardReadOnly):
            self._host.control(RESERVE, self._log_id, body, lambda error: None, sync=False)

    def _growing(self, first: int, last: int) -> Segment:
        """Return the segment that takes ``first..last``, a new one when the newest is full."""
        if self.segments:
            segment = self.segments[-1]
            too_far = last - segment.base_seq > MOST_DELTA
            if not segment.full and (too_far or self.is_full(segment)):
                segment.full = True
            if not segment.full:
                return segment
        return self.start_segment(first)

    def start_segment(self, base_seq: int) -> Segment:
        """Begin a segment at ``base_seq``."""
        if self.segments:
            self.segments[-1].full = True
        host = self._host
        segment = Segment(
            host.files, self.directory, self._log_id, base_seq, self.subjects, host.keeping
        )
        segment.born = host.clock.monotonic()
        self.segments.append(segment)
        return segment

    def is_full(self, segment: Segment) -> bool:
        """Say whether the segment has reached a limit of count, bytes or age."""
        options = self._options
        if not len(segment.index):
            return False
        return (
            len(segment.index) >= options.segment_records
            or segment.size >= options.segment_bytes
            or self._host.clock.monotonic() - segment.born >= options.segment_age
        )

    def rewind(self) -> None:
        """Take back everything staged and not committed: its sequences were never visible."""
        last = self.committed_seq
        self._staged_headed = 0
        while self.segments and self.segments[-1].base_seq > last:
            self.segments.pop().rewind(0)
        if self.segments:
            self.segments[-1].rewind(last)
        self.next_seq = last + 1
        self._deleting.clear()

    # --- reading

    def lose(self, seqs: list[int]) -> None:
        """Take records out of service that no copy holds any more, and say so.

        The WAL says so too: the copies were mended around them, so that no later look finds it.
        """
        new: list[Gap] = []
        for seq in seqs:
            at = bisect_right(self.segments, seq, key=base_of) - 1
            position = self.segments[at].index.find(seq) if at >= 0 else -1
            if position >= 0 and self.segments[at].index.delete(position):
                self.count -= 1
                self.bytes -= self.segments[at].index.frame_len(position)
                new += self.add_gap(seq, seq, "corruption")
                log.error("damaged record file=%s seq=%d", self.segments[at].path, seq)
        for gap in merged(new):
            body = msgspec.json.encode(Voided(gap.first, gap.last, gap.reason))
            with suppress(ShardReadOnly):
                self._host.control(VOID, self._log_id, body, lambda error: None)

    # --- removing

    def trim(self, first_kept: int, reason: str) -> None:
        """Remove everything below ``first_kept``, once that is logged.

        A cap is derived again after a crash, so its frame rides along unsynced; what only the
        clock or a caller could decide is on stable storage before it takes effect.
        """
        first_kept = min(first_kept, self.next_seq)
        if first_kept <= self.first_kept:
            return
        body = msgspec.json.encode(Trimmed(first_kept, reason))
        done = partial(self._trimmed, first_kept, reason)
        try:
            self._host.control(TRIM, self._log_id, body, done, sync=reason != "cap")
        except ShardReadOnly as error:  # nothing is removed that the next start would bring back
            log.warning("trim refused log=%x error=%s", self._log_id, error)

    def _trimmed(self, first_kept: int, reason: str, error: MillstreamError | None) -> None:
        if error is not None:
            log.warning("trim not logged log=%x error=%s", self._log_id, error)
            return
        self.apply_trim(first_kept, reason)
        self._rewrites.killed_at = self._host.written_position(self._log_id)

    def apply_trim(self, first_kept: int, reason: str) -> None:
        """Move the floor; whole dead segments go with their files."""
        first_kept = min(first_kept, self.committed_seq + 1)
        if first_kept <= self.first_kept:
            return
        before, self.first_kept = self.first_kept, first_kept
        self.floors[reason] = first_kept - 1
        if reason != "delete":
            self.evict_floor = max(self.evict_floor, first_kept - 1)
        for segment in self.segments:
            if segment.base_seq >= first_kept:
                break
            dead, size = segment.index.delete_below(first_kept, before)
            self.count -= dead
            self.bytes -= size
        self.deleted.cut_below(first_kept)
        self.gaps = [gap for gap in self.gaps if gap.last >= first_kept]
        self.drop_dead_segments()

    def delete(
        self,
        seqs: list[int],
        done: Committed,
        erased: Committed | None = None,
        can_wait: bool = False,
    ) -> int:
        """Remove these records once that is logged; returns how many were live.

        Where somebody waits for ``erased``, their bytes are overwritten wherever they are.
        """
        live = self._live_of(seqs)
        going = [seq for seq in seqs if seq in self._deleting]  # not logged yet: wait for it too
        if not live and not going:
            self._host.post(partial(done, None))
            if erased is not None:
                self._host.post(partial(erased, None))
            return 0
        body = msgspec.json.encode(live + going)
        kind = DELETE if erased is None else ERASE
        sync = self._durability is Durability.FSYNC or kind == ERASE
        done = partial(self._delete_logged, live + going, done, erased)
        self._host.control(kind, self._log_id, body, done, sync, can_wait)
        self._deleting.update(live)
        return len(live)

    def _live_of(self, seqs: list[int]) -> list[int]:
        """Return the sequences that are there, committed, and not on their way out."""
        live: list[int] = []
        for segment, part in by_segment(self.segments, seqs):
            found = zip(part, segment.index.live_ids(part), strict=True)
            live += (seq for seq, known in found if known >= 0 and seq not in self._deleting)
        return [seq for seq in live if self.first_kept <= seq <= self.committed_seq]

    def _delete_logged(
        self,
        seqs: list[int],
        done: Committed,
        erased: Committed | None,
        error: MillstreamError | None,
    ) -> None:
        self._deleting.difference_update(seqs)
        if error is not None and erased is not None:
            erased(error)
        elif error is None and erased is not None:
            self.erasure.begin(seqs, erased)
        elif error is None:
            self.apply_delete(seqs)
            self._rewrites.killed_at = self._host.written_position(self._log_id)
        done(error)

    def apply_delete(self, seqs: list[int]) -> None:
        """Take records out of the index now and flag them in their files soon."""
        if self.take_out(seqs):
            self.drop_dead_segments()

    def drop_dead_segments(self) -> None:
        """Give back segments without a live record; the one that grows stays."""
        self._give_up(self.segments[:-1])

    def _is_waste(self, newest: Segment) -> bool:
        """Say whether the segment that grows holds nothing but much that is dead.

        Its file goes without being completed: a full disk may have no room for that.
        """
        settled = self.next_seq == self.committed_seq + 1
        return settled and newest.size >= self._options.waste_bytes and not newest.index.live

    def _give_up(self, segments: list[Segment]) -> None:
        if self.holds_dead:
            return
        dead = [s for s in segments if not s.index.live and not s.busy]
        dead = [s for s in dead if not s.erasing]
        dead = [s for s in dead if self._accounted(s)]
        if not dead:
            return
        self.segments = [s for s in self.segments if s not in dead]
        for segment in dead:
            if segment.made:
                self._host.remove(segment)

    def _accounted(self, segment: Segment) -> bool:
        """Say whether more than flags in the file tells where the segment's records went."""
        first = max(segment.base_seq, self.first_kept)
        parts = self.deleted.missing(first, segment.last_seq)
        return not any(self.lost.missing(a, b) for a, b in parts)

    # --- files

    def flush(self) -> None:
        """Hand committed bytes to the files, and seal what is complete."""
        if not self._closed:
            self._files.flush()

    def take_flush(self, segment: Segment) -> Flush:
        """Return what a checkpoint has to write of a segment."""
        return segment.unflushed(self.committed_seq)

    def flushed(self, segment: Segment, flush: Flush, synced: bool) -> None:
        """Note what a checkpoint wrote."""
        self._files.wrote(segment, flush)
        if synced:
            segment.synced = max(segment.synced, flush.end)

    def snapshot(self, flushes: dict[int, int]) -> LogSnapshot:
        """Return the floors and files; ``flushes`` says how far each growing file will reach."""
        return LogSnapshot(
            log_id=self._log_id,
            durability=self._durability.value,
            first_kept=self.first_kept,
            evict_floor=self.evict_floor,
            committed_seq=self.committed_seq,
            reserved_seq=self.reserved_seq,
            last_ts_ns=self.last_ts_ns,
            gaps=[(gap.first, gap.last, gap.reason) for gap in self.gaps],
            deleted=list(self.deleted),
            segments=[
                SegmentState(s.base_seq, flushes.get(s.base_seq, s.flushed), s.sealed)
                for s in self.segments
                if s.made or flushes.get(s.base_seq, 0) > HEADER_BYTES
            ],
            floors=dict(self.floors),
            erasing=self.erasure.pending,
        )

    def tick(self) -> None:
        """Let age end a segment also when nothing is written, and flush what waits."""
        if self.segments and not self.segments[-1].full and self.is_full(self.segments[-1]):
            self.segments[-1].full = True
        if self.segments and self._is_waste(self.segments[-1]):
            self._give_up(self.segments)
        self.flush()
        self.erasure.step()
        self._rewrites.step()

    def drop(self) -> None:
        """Remove the log's files."""
        self.abandon()
        self.remove_files()

    def abandon(self) -> None:
        """Hold nothing any more; the files stay until ``remove_files``."""
        self._abandoned, self.segments = self.segments, []
        self.count = self.bytes = 0

    def remove_files(self) -> None:
        """Remove the files of a log that was abandoned."""
        segments, self._abandoned = self._abandoned, []
        self._files.remove(segments)

    def close(self) -> None:
        """Close the files; commits that are still being reported no longer touch them."""
        self._closed = True
        for segment in [*self.segments, *self._abandoned]:
            segment.close()


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
