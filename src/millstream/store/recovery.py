"""Recovery: snapshot, segments, then the WAL after them.

Reads only; whatever must outlive the damage it found is written anew by the store, ahead of the
first append. So a crash inside recovery leaves everything as it was, and running it twice gives
the same.

Torn and rotten are told apart by the durable mark. What the log itself says was on stable storage
and is damaged now has rotted: its neighbours are kept and the lost sequences are named. Above the
mark a crash may have torn it: there a batch is taken whole or not at all.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from millstream.errors import StorageUnusable
from millstream.kernel._frames import MORE, RECORD, body, index_frames, scan
from millstream.store.entry import Damage, Entry, Run, scan_entries
from millstream.store.file_log import DELETE, RESERVE, TRIM, VOID, FileLog, Trimmed, Voided
from millstream.store.files import File, Files, write_all
from millstream.store.local_engine import HEADER, WalHeader, decode_header, wal_indexes, wal_name
from millstream.store.log import Durability, Gap
from millstream.store.segment import (
    HEADER_BYTES,
    Segment,
    check_data_header,
    decode_idx,
    segment_name,
)
from millstream.store.seq_ranges import SeqRanges
from millstream.store.snapshot import LogSnapshot, SegmentState, Snapshot

STREAM_DELETE = 17

log = logging.getLogger(__name__)

MakeLog = Callable[[int, Durability], FileLog]


@dataclass(frozen=True, slots=True)
class Control:
    """A control frame for the layers above, in the order in which they were logged."""

    kind: int
    log_id: int
    body: bytes
    number: int


@dataclass(slots=True)
class LogRecovery:
    """What came back of one log."""

    log_id: int
    records: int = 0
    lost: int = 0
    torn: int = 0
    gaps: tuple[Gap, ...] = ()


@dataclass(slots=True)
class Recovery:
    """What a start found; ``controls`` and ``sections`` are for the layers above."""

    logs: dict[int, LogRecovery] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list)
    sections: dict[str, bytes] = field(default_factory=dict)
    torn_bytes: int = 0
    damaged_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Frame:
    kind: int
    flags: int
    stream_id: int
    seq: int
    start: int
    end: int
    data: bytes

    @property
    def more(self) -> bool:
        return bool(self.flags & MORE)


@dataclass(slots=True)
class WalFile:
    """One WAL file as found: its header and the first position that a later file took over."""

    index: int
    path: str
    header: WalHeader | None
    first_position: int
    limit: int = 1 << 63


class Replay:
    """Applies a shard's WAL to the logs; the store gives the logs and takes the outcome."""

    def __init__(self, files: Files, logs: "Logs", snapshot: Snapshot | None) -> None:
        self._files = files
        self._logs = logs
        self._from = snapshot.position if snapshot else 0
        self.control_number = snapshot.control_number if snapshot else 0
        self.position = self._from  # the last one accepted
        self.epoch = 0
        self.last_index = 0
        self.last_nonce = 0
        self.torn_bytes = 0
        self.damaged_bytes = 0
        self.controls: list[Control] = []
        self.wal_files: list[WalFile] = []
        self.unused: list[str] = []
        self.relog: list[tuple[Run, bytes]] = []  # accepted from beyond the first torn place
        self._relogging = False
        self._pending: list[tuple[Run, bytes]] = []
        self._durable = 0

    def run(self, directory: str) -> None:
        """Replay every file of the shard in order, one at a time."""
        self.wal_files = self._find_files(directory)
        if self.wal_files and self.wal_files[0].first_position > self._from + 1:
            raise StorageUnusable(
                f"{directory} begins at position {self.wal_files[0].first_position}, but the "
                f"newest readable snapshot ends at {self._from}: restore the missing files"
            )
        for wal in self.wal_files:
            self._replay_file(wal, wal is self.wal_files[-1])

    def _find_files(self, directory: str) -> list[WalFile]:
        found: list[WalFile] = []
        for index in wal_indexes(self._files, directory):
            self.last_index = index
            path = f"{directory}/{wal_name(index)}"
            file = self._files.open(path)
            try:
                data = file.pread(HEADER.size, 0)
                header = decode_header(data, path)
                if header is None and not any(data):
                    self.unused.append(path)  # made ahead; without a header nothing in it counts
                    continue
                first, nonce = self._beginning(header, file)
            finally:
                file.close()
            if first == 0:
                continue
            self.last_nonce = nonce
            if found:
                found[-1].limit = first
            found.append(WalFile(index, path, header, first))
        return found

    def _beginning(self, header: WalHeader | None, file: File) -> tuple[int, int]:
        """Return (first position, nonce) of a file; its first sound entry tells when it must."""
        if header is not None:
            self.epoch = max(self.epoch, header.epoch)
            return header.first_position, header.nonce
        for item in scan_entries(file.view(file.size()), HEADER.size, 0):
            if isinstance(item, Entry):
                self.epoch = max(self.epoch, item.epoch)
                return item.position, item.nonce
        return 0, 0

    def _replay_file(self, wal: WalFile, last: bool) -> None:
        file = self._files.open(wal.path)
        try:
            buffer = file.view(file.size())
        finally:
            file.close()
        self._durable = self._durable_mark(buffer, wal) if last else wal.limit - 1
        at = wal.first_position - 1
        for item in scan_entries(buffer, HEADER.size, wal.first_position - 1):
            if isinstance(item, Entry):
                if item.position >= wal.limit:
                    break  # a later start decided about these
                at = item.position
                self._replay_entry(buffer, item, wal)
            elif at + 1 < wal.limit:
                self._replay_damage(buffer, item, wal, at)
        if last:
            self._pending.clear()

    def _durable_mark(self, buffer: memoryview, wal: WalFile) -> int:
        mark = wal.first_position - 1
        for item in scan_entries(buffer, HEADER.size, wal.first_position - 1):
            if isinstance(item, Entry):
                mark = max(mark, item.durable)
        return mark

    def _replay_entry(self, buffer: memoryview, entry: Entry, wal: WalFile) -> None:
        if entry.position <= self._from and not self._logs.holes:
            return
        if entry.sound(buffer):
            self._accept(entry.position, self._pieces(buffer, entry), entry.commits)
            return
        log.error(
            "damaged wal entry file=%s offset=%d position=%d", wal.path, entry.start, entry.position
        )
        self.damaged_bytes += entry.end - entry.body
        frames = _frames(buffer, entry.body, entry.end)
        self._salvage(entry.position, frames, entry.body)
        if entry.commits:
            reason = "corruption" if entry.position <= self._durable else "torn"
            for run in entry.runs:
                if run.first_seq:
                    self._logs.expect(run.stream_id, run.first_seq + run.frames - 1, reason)

    def _pieces(self, buffer: memoryview, entry: Entry) -> list[tuple[Run, bytes]]:
        pieces = []
        at = entry.body
        for run in entry.runs:
            pieces.append((run, bytes(buffer[at : at + run.size])))
            at += run.size
        return pieces

    def _accept(self, position: int, pieces: list[tuple[Run, bytes]], commits: bool) -> None:
        """Take a sound entry; one that does not commit waits for the one that does."""
        if not self._relogging:
            self.position = max(self.position, position)
        if self._pending and not (pieces and _continues(self._pending[-1][0], pieces[0][0])):
            self._pending.clear()  # given up by its writer, or torn: absent as a whole
        if not commits:
            self._pending += pieces
            return
        waiting, self._pending = self._pending, []
        for run, data in (*waiting, *pieces):
            self._apply(run, data)

    def _apply(self, run: Run, data: bytes) -> None:
        if self._relogging:
            self.relog.append((run, data))
        if run.first_seq:
            self._logs.replay(run.stream_id, run.first_seq, run.frames, data)
            return
        frames, _ = scan(data)
        for kind, _flags, stream_id, number, _ts, start, _size, _deleted in frames:
            self._control(kind, stream_id, number, body(data, start))

    def _control(self, kind: int, log_id: int, number: int, content: bytes) -> None:
        if number <= self.control_number:
            return  # in the snapshot, or the second copy
        self.control_number = number
        if kind in (TRIM, DELETE, VOID, RESERVE):
            self._logs.control(kind, log_id, content)
            return
        if kind == STREAM_DELETE:
            self._logs.drop(log_id)
        self.controls.append(Control(kind, log_id, content, number))

    def _replay_damage(self, buffer: memoryview, damage: Damage, wal: WalFile, at: int) -> None:
        """Read what no entry header vouches for: the frames vouch for themselves."""
        position = at + 1
        if position <= self._from and not self._logs.holes:
            return
        frames = _frames(buffer, damage.start, damage.end)
        size = damage.end - damage.start
        if damage.last and position > self._durable:
            self.torn_bytes += _used(buffer, damage.start, damage.end)
            log.warning("torn tail cut file=%s offset=%d", wal.path, damage.start)
        else:
            self.damaged_bytes += size
            log.error("damaged wal file=%s offset=%d bytes=%d", wal.path, damage.start, size)
        self._salvage(position, frames, -1)

    def _salvage(self, position: int, frames: list[_Frame], start: int) -> None:
        """Take single frames where damage is rot, whole batches where it may be a torn write."""
        if position <= self._durable:
            pending, self._pending = self._pending, []
            for run, data in pending:
                self._apply(run, data)
            taken = frames
            self.position = max(self.position, position)
        else:
            self._pending.clear()
            self._relogging = self._logs.torn = True
            taken = _whole_batches(frames, start)
        for frame in taken:
            is_record = frame.kind == RECORD
            first = frame.seq if is_record else 0
            self._apply(Run(frame.stream_id, first, 1, len(frame.data)), frame.data)


def _continues(before: Run, after: Run) -> bool:
    return (
        before.stream_id == after.stream_id and after.first_seq == before.first_seq + before.frames
    )


def _frames(buffer: memoryview, start: int, end: int) -> list[_Frame]:
    frames, _ = scan(buffer, start, end)
    return [
        _Frame(kind, flags, stream_id, seq, at, at + size, bytes(buffer[at : at + size]))
        for kind, flags, stream_id, seq, _ts, at, size, _deleted in frames
    ]


def _whole_batches(frames: list[_Frame], start: int) -> list[_Frame]:
    """Return the frames of complete batches; ``start`` is where a batch is known to begin.

    Only the end of a batch is marked, so what follows a hole up to the next end may lack its
    beginning and is left out.
    """
    whole: list[_Frame] = []
    batch: list[_Frame] = []
    sure = True
    end = start
    for frame in frames:
        if frame.start != end:
            batch, sure = [], frame.kind != RECORD
        batch.append(frame)
        end = frame.end
        if not frame.more:
            whole += batch if sure else []
            batch, sure = [], True
    return whole


def _used(buffer: memoryview, start: int, end: int) -> int:
    """Return how many bytes up to the last one that is not zero."""
    return len(bytes(buffer[start:end]).rstrip(b"\0"))


class Logs:
    """The logs while they are being rebuilt: segments first, WAL frames behind them."""

    def __init__(self, files: Files, make: MakeLog) -> None:
        self._files = files
        self._make = make
        self.logs: dict[int, FileLog] = {}
        self.dropped: set[int] = set()
        self.recovered: dict[int, LogRecovery] = {}
        self.torn = False  # the replay is past the first place that a crash may have torn
        self.found_gaps: list[tuple[int, Gap]] = []  # to be logged: nothing will show them again
        self.holes: dict[int, dict[int, bytes]] = {}  # log → lost seq → frame found in the WAL
        self.rescued: list[tuple[Run, bytes]] = []  # records that only a segment file had
        self._damaged: list[tuple[FileLog, Segment]] = []
        self._spare: dict[int, list[_Frame]] = {}
        self._cuts: dict[int, set[int]] = {}
        self._durable: dict[tuple[int, int], int] = {}  # (log, base) → bytes that were loaded

    # --- segments

    def load(self, snapshot: Snapshot | None, directory: str) -> None:
        """Load every log that a snapshot or a directory names."""
        known = {entry.log_id: entry for entry in snapshot.logs} if snapshot else {}
        self.dropped = set(snapshot.dropped) if snapshot else set()
        for log_id in sorted(known.keys() | set(self._directories(directory))):
            if log_id not in self.dropped:
                self._load_log(log_id, known.get(log_id), f"{directory}/{log_id:016x}")

    def _directories(self, directory: str) -> Iterator[int]:
        if self._files.exists(directory):
            for name in self._files.listdir(directory):
                if len(name) == 16:
                    yield int(name, 16)

    def _load_log(self, log_id: int, known: LogSnapshot | None, directory: str) -> None:
        target = self._log(log_id, Durability(known.durability) if known else Durability.FSYNC)
        states = {s.base_seq: s for s in known.segments} if known else {}
        if known is not None:
            target.first_kept = known.first_kept
            target.evict_floor = known.evict_floor
            for first, last, reason in known.gaps:
                target.add_gap(first, last, reason)
        names = self._files.listdir(directory) if self._files.exists(directory) else []
        bases = sorted(int(n[4:24]) for n in names if n.startswith("seg-") and n.endswith(".data"))
        newest = max(states, default=0)
        cuts = self._cuts.setdefault(log_id, set())
        for base in bases:
            sealed = f"seg-{base:020d}.idx" in names
            if base in states or (sealed and base > newest):
                self._load_segment(target, base, states.get(base), directory, sealed)
            elif base > newest:
                cuts.add(base)  # begun after the snapshot: the WAL has its records
        if known is not None:
            self._settle(target, known)
            self._name_missing(target, sorted(states), set(bases))
        else:
            last = max((segment.last_seq for segment in target.segments), default=0)
            target.committed_seq = target.loaded_seq = last
            target.next_seq = last + 1

    def _name_missing(self, target: FileLog, bases: list[int], present: set[int]) -> None:
        """Name the sequences of segment files that are gone."""
        for base, end in pairwise([*bases, target.loaded_seq + 1]):
            if base not in present:
                log.error("segment file is missing log=%x base_seq=%d", target.log_id, base)
                new = target.add_gap(max(base, target.first_kept), end - 1, "corruption")
                self.recovered[target.log_id].lost += sum(g.last - g.first + 1 for g in new)

    def _load_segment(
        self, target: FileLog, base: int, state: SegmentState | None, directory: str, sealed: bool
    ) -> None:
        segment = target.start_segment(base)
        segment.made = True
        file = self._files.open(segment.path)
        try:
            size = file.size()
            buffer = file.view(size)
        finally:
            file.close()
        if not check_data_header(bytes(buffer[:HEADER_BYTES]), target.log_id, base, segment.path):
            log.error("damaged segment header file=%s offset=0", segment.path)
        if sealed and self._load_idx(segment, size):
            return
        limit = min(state.size, size) if state else size
        self._durable[target.log_id, base] = limit
        if not index_segment(segment, buffer, limit) or (state and limit < state.size):
            self._damaged.append((target, segment))
        segment.full = bool(state and state.sealed) or state is None

    def _load_idx(self, segment: Segment, size: int) -> bool:
        path = f"{segment.directory}/{segment.name}.idx"
        file = self._files.open(path)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        index = decode_idx(data, segment.log_id, segment.base_seq, size, segment.index.subjects)
        if index is None:
            log.error("damaged index, rebuilding it file=%s", path)
            return False
        segment.index = index
        data_bytes = int.from_bytes(data[32:40], "little")
        segment.size = segment.flushed = segment.synced = data_bytes
        segment.flushed_seq = segment.last_seq
        segment.full = segment.sealed = True
        return True

    def _settle(self, target: FileLog, known: LogSnapshot) -> None:
        """Bring counters and marks to where the snapshot was, and find what is missing below."""
        for first, last in known.deleted:
            target.apply_delete(list(range(first, last + 1)))
            target.deleted.add(first, last)
        last = max((s.last_seq for s in target.segments), default=0)
        target.committed_seq = max(known.committed_seq, last)
        target.next_seq = target.committed_seq + 1
        target.loaded_seq = target.committed_seq
        target.reserved_seq = known.reserved_seq
        target.last_ts_ns = target.staged_ts_ns = known.last_ts_ns

    def find_holes(self) -> None:
        """Name what damaged segments lack, for the WAL to fill in where it still has it."""
        for target, segment in self._damaged:
            holes = self.holes.setdefault(target.log_id, {})
            for first, last in missing_seqs(target, segment):
                holes.update(dict.fromkeys(range(first, last + 1), b""))

    def _fill_holes(self) -> None:
        """Put frames that the WAL still had back where they were; the rest is lost, by name."""
        for target, segment in self._damaged:
            if target.log_id in self.dropped:
                continue
            holes = self.holes[target.log_id]
            repair_segment(segment, holes)
            for first, last in target.deleted:
                for seq in range(max(first, segment.base_seq), min(last, segment.last_seq) + 1):
                    position = segment.index.find(seq)
                    if position >= 0:
                        segment.index.delete(position)
            segment.index.delete_below(target.first_kept)
            for first, last in missing_seqs(target, segment):
                new = target.add_gap(first, last, "corruption")
                self.recovered[target.log_id].lost += sum(g.last - g.first + 1 for g in new)

    # --- the WAL

    def _log(self, log_id: int, durability: Durability = Durability.FSYNC) -> FileLog:
        if log_id not in self.logs:
            self.logs[log_id] = self._make(log_id, durability)
            self.recovered[log_id] = LogRecovery(log_id)
        return self.logs[log_id]

    def replay(self, log_id: int, first: int, count: int, data: bytes) -> None:
        """Append a run of frames; those that the log already has are skipped by sequence."""
        if log_id in self.dropped:
            return
        target = self._log(log_id)
        last = first + count - 1
        self._offer(log_id, first, last, data)
        if last < target.next_seq:
            return
        if first < target.next_seq:
            first, data = _from_seq(data, target.next_seq)
        self.expect(log_id, first - 1, "corruption")
        self._append(target, first, last, data)

    def _append(self, target: FileLog, first: int, last: int, data: bytes) -> None:
        segment = target.segments[-1] if target.segments else None
        if segment is None or segment.full or first in self._cuts.get(target.log_id, ()):
            segment = target.start_segment(first)
            segment.made = first in self._cuts.get(target.log_id, ())
        elif segment.size + len(data) > 0xF0000000 or target.is_full(segment):
            segment = target.start_segment(first)
        _, _, why = index_frames(data, 0, len(data), target.log_id, segment.index, segment.size)
        if why:
            raise StorageUnusable(f"log {target.log_id:x}: frames at {first} do not follow")
        segment.stage(data, first, last)
        target.next_seq = last + 1
        target.committed_seq = last
        target.last_ts_ns = target.staged_ts_ns = segment.index.ts_ns(len(segment.index) - 1)

    def _offer(self, log_id: int, first: int, last: int, data: bytes) -> None:
        """Keep frames that a damaged segment lacks."""
        holes = self.holes.get(log_id)
        if holes and any(seq in holes for seq in range(first, last + 1)):
            for frame in _frames(memoryview(data), 0, len(data)):
                if frame.seq in holes:
                    holes[frame.seq] = frame.data

    def expect(self, log_id: int, last: int, reason: str) -> None:
        """Note that the log had sequences up to ``last``: what did not come is a gap.

        Unless the segment file got it before the WAL was damaged.
        """
        if log_id in self.dropped:
            return
        target = self._log(log_id)
        if last < target.next_seq:
            return
        for frame in self._spare_frames(target, target.next_seq, last):
            if frame.seq > target.next_seq:
                self._lose(target, frame.seq - 1, reason)
            self._append(target, frame.seq, frame.seq, frame.data)
        if last >= target.next_seq:
            self._lose(target, last, reason)

    def _lose(self, target: FileLog, last: int, reason: str) -> None:
        new = target.add_gap(target.next_seq, last, reason)
        target.next_seq = last + 1
        target.committed_seq = last
        lost = sum(gap.last - gap.first + 1 for gap in new)
        recovered = self.recovered[target.log_id]
        if reason == "torn":
            recovered.torn += lost
        else:
            recovered.lost += lost
        if self.torn:
            self.found_gaps += [(target.log_id, gap) for gap in new]

    def _spare_frames(self, target: FileLog, first: int, last: int) -> list[_Frame]:
        """Return what the files hold of ``first..last`` beyond what was known to be stable."""
        if target.log_id not in self._spare:
            self._spare[target.log_id] = self._scan_spare(target)
        found = {f.seq: f for f in self._spare[target.log_id] if first <= f.seq <= last}
        return [found[seq] for seq in sorted(found)]

    def _scan_spare(self, target: FileLog) -> list[_Frame]:
        bases = [base for log_id, base in self._durable if log_id == target.log_id]
        frames: list[_Frame] = []
        for base in sorted({*bases, *self._cuts.get(target.log_id, ())}):
            file = self._files.open(f"{target.directory}/{segment_name(base)}.data")
            try:
                buffer = file.view(file.size())
            finally:
                file.close()
            start = self._durable.get((target.log_id, base), HEADER_BYTES)
            found = [f for f in _frames(buffer, start, len(buffer)) if f.kind == RECORD]
            frames += _whole_batches(found, start) if self.torn else found
        return [f for f in frames if f.stream_id == target.log_id]

    def control(self, kind: int, log_id: int, content: bytes) -> None:
        """Apply one of the store's own control frames."""
        if log_id in self.dropped:
            return
        target = self._log(log_id)
        if kind == TRIM:
            trimmed = msgspec.json.decode(content, type=Trimmed)
            target.apply_trim(trimmed.first_kept, trimmed.reason)
        elif kind == DELETE:
            target.apply_delete(msgspec.json.decode(content, type=list[int]))
        elif kind == RESERVE:
            target.reserved_seq = max(target.reserved_seq, msgspec.json.decode(content, type=int))
        elif kind == VOID:
            voided = msgspec.json.decode(content, type=Voided)
            target.add_gap(voided.first, voided.last, voided.reason)
            target.committed_seq = max(target.committed_seq, voided.last)
            target.next_seq = target.committed_seq + 1

    def drop(self, log_id: int) -> None:
        """Forget a log: a later one of the same name has another id."""
        self.dropped.add(log_id)
        self.logs.pop(log_id, None)
        self.recovered.pop(log_id, None)

    # --- the end

    def _rescue(self) -> None:
        """Take whole batches that reached a segment file although the WAL's tail was lost."""
        self.torn = True
        self._spare.clear()
        for target in self.logs.values():
            for frame in self._spare_frames(target, target.next_seq, 1 << 63):
                if frame.seq == target.next_seq:
                    self._append(target, frame.seq, frame.seq, frame.data)
                    run = Run(frame.stream_id, frame.seq, 1, len(frame.data))
                    self.rescued.append((run, frame.data))

    def finish(self, power_lost: bool) -> list[tuple[int, Gap]]:
        """Count what there is; returns gaps that must be logged so that no sequence comes back."""
        self._fill_holes()
        if power_lost or self.torn:
            self._rescue()
        gaps = list(self.found_gaps)
        for log_id, target in self.logs.items():
            for segment in target.segments:
                segment.index.delete_below(target.first_kept)
            if power_lost and target.reserved_seq > target.committed_seq:
                first = target.committed_seq + 1
                gaps += [(log_id, g) for g in target.add_gap(first, target.reserved_seq, "void")]
                target.committed_seq = target.reserved_seq
                target.next_seq = target.committed_seq + 1
            target.synced_seq = target.committed_seq
            target.recount()
            recovered = self.recovered[log_id]
            recovered.records = target.count
            recovered.gaps = tuple(target.gaps)
        return gaps


def index_segment(segment: Segment, buffer: memoryview, limit: int) -> bool:
    """Index a segment from its frames; False when some are damaged and stay out."""
    at = HEADER_BYTES
    whole = True
    while at < limit:
        _, at, _ = index_frames(buffer, at, limit, segment.log_id, segment.index)
        if at >= limit:
            break
        whole = False
        frames, damaged = scan(buffer, at, limit)
        log.error("damaged segment file=%s offset=%d", segment.path, at)
        if damaged and damaged[0][0] == at:
            at = damaged[0][1]
        else:
            at += frames[0][6]  # sound, but not of this log or not in order
    segment.size = segment.flushed = segment.synced = limit
    segment.flushed_seq = segment.last_seq
    return whole


def missing_seqs(target: FileLog, segment: Segment) -> list[tuple[int, int]]:
    """Return the sequences that the segment should hold and does not."""
    after = [s.base_seq for s in target.segments if s.base_seq > segment.base_seq]
    end = min(after) - 1 if after else target.loaded_seq
    present = SeqRanges()
    for i in range(len(segment.index)):
        seq = segment.index.seq(i)
        present.add(seq, seq)
    first = max(segment.base_seq, target.first_kept)
    return [part for a, b in present.missing(first, end) for part in target.lost.missing(a, b)]


def repair_segment(segment: Segment, frames: dict[int, bytes]) -> None:
    """Write frames back into the damaged places of a segment and index it again."""
    wrote = False
    file = segment.open()
    for start, end, above, below in _damaged_places(segment):
        fill = b"".join(frames[seq] for seq in sorted(frames) if above < seq < below)
        if fill and len(fill) <= end - start:
            log.warning("repaired from the wal file=%s offset=%d", segment.path, start)
            write_all(file, fill, start)
            wrote = True
    if wrote:
        file.sync()
        size = segment.size
        segment.index.truncate(0)
        index_segment(segment, file.view(segment.flushed), segment.flushed)
        for block in segment.blocks:
            index_frames(
                block.data, 0, len(block.data), segment.log_id, segment.index, block.offset
            )
        segment.size = size
    segment.release()


def _damaged_places(segment: Segment) -> list[tuple[int, int, int, int]]:
    """Return (start, end, sequence before, sequence after) of file ranges without a record."""
    places = []
    at, above = HEADER_BYTES, 0
    index = segment.index
    for i in range(index.position(segment.flushed_seq + 1)):
        if index.offset(i) > at:
            places.append((at, index.offset(i), above, index.seq(i)))
        at, above = index.offset(i) + index.frame_len(i), index.seq(i)
    if segment.flushed > at:
        places.append((at, segment.flushed, above, 1 << 63))
    return places


def _from_seq(data: bytes, seq: int) -> tuple[int, bytes]:
    """Return the frames from ``seq`` on, and its sequence."""
    frames, _ = scan(data)
    for _kind, _flags, _stream, at, _ts, start, _size, _deleted in frames:
        if at >= seq:
            return at, data[start:]
    return seq, b""
