"""Logs while they are being rebuilt: segments first, then what the WAL has behind them."""

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec

from millstream.errors import StorageUnusable
from millstream.kernel._frames import RECORD, encode_control, index_frames, scan
from millstream.store.cold.copy import SUFFIX, ColdCopy, decode_marker
from millstream.store.cold.manifest import Form
from millstream.store.disk.files import Files
from millstream.store.log import derived
from millstream.store.log.control_frames import (
    DELETE,
    ERASE,
    SKIP,
    TRIM,
    VOID,
    Skipped,
    Trimmed,
    Voided,
)
from millstream.store.log.derived import SOURCE_TRIM, Derivation, DerivedPart
from millstream.store.log.file_log import FileLog
from millstream.store.log.growth import MOST_DELTA
from millstream.store.log.log import UNSYNCED, Durability, Gap
from millstream.store.log.snapshot import LogSnapshot, SegmentState, Snapshot
from millstream.store.recovery import derived_replay as derived_again
from millstream.store.recovery.damaged_segments import missing_seqs, repair_segment
from millstream.store.recovery.found_files import FoundFiles
from millstream.store.recovery.recovery import LogRecovery
from millstream.store.segments.files import HEADER_BYTES, segment_name
from millstream.store.segments.salvage import Frame, batches, frames_in, whole_batches
from millstream.store.segments.segment import Keeping, Segment, dead_positions
from millstream.store.wal.entry import FrameRun
from millstream.store.wal.marks import RESERVED, SYNCED, Known

MakeLog = Callable[[int, Durability], FileLog]
Adopt = Callable[[Segment, Form | None], ColdCopy]

log = logging.getLogger(__name__)


class Logs:
    """The logs while they are being rebuilt: segments first, WAL frames behind them."""

    def __init__(self, files: Files, make: MakeLog, keeping: Keeping, adopt: Adopt) -> None:
        self._files = files
        self._make = make
        self._adopt = adopt
        self._keeping = keeping
        self._found = FoundFiles(files, keeping)
        self.erased: dict[int, set[int]] = {}  # log → what may still be in files
        self._directory = ""
        self._rewritten: set[tuple[int, int]] = set()  # (log, base) of files that are made anew
        self.logs: dict[int, FileLog] = {}
        self.dropped: set[int] = set()
        self.recovered: dict[int, LogRecovery] = {}
        self.copied_from: set[int] = set()  # sources of DERIVE frames that no snapshot covers
        self.steps = 0  # how often a log has grown
        self.rotten = False  # the WAL was damaged: records may be missing that it once had
        self.torn = False  # the replay is past the first place that a crash may have torn
        self.holes: dict[int, dict[int, bytes]] = {}  # log → lost seq → frame found in the WAL
        # For the new WAL file: kept or given up, in order.
        self.relog: list[tuple[FrameRun, bytes]] = []
        self.strays: list[str] = []  # files of segments that died before the snapshot
        self.young_directories: set[str] = set()  # may hold names that are not stable yet
        self._logged: dict[int, int] = {}  # log → newest sequence that the WAL or snapshot has
        self._absent: list[tuple[int, int, int]] = []  # (log, first, last) of missing files
        self._damaged: list[tuple[FileLog, Segment]] = []
        self._reserved_by: dict[int, int] = {}  # log → number of the frame that says how far
        self._spare: dict[int, tuple[list[Frame], list[Frame]]] = {}
        self._cuts: dict[int, set[int]] = {}
        self._durable: dict[tuple[int, int], int] = {}  # (log, base) → bytes that were loaded

    # --- segments

    def load(self, snapshot: Snapshot | None, directory: str) -> None:
        """Load every log that a snapshot or a directory names."""
        self._directory = directory
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
            self._logged[log_id] = known.committed_seq
            if known.erasing:
                self.erased[log_id] = set(known.erasing)
            target.first_kept = known.first_kept
            target.evict_floor = known.evict_floor
            target.floors = dict(known.floors)
            for first, last, reason in known.gaps:
                target.add_gap(first, last, reason)
        names = self._files.listdir(directory) if self._files.exists(directory) else []
        bases = _bases(names, ".data")
        cold = self._find_cold(directory, names)
        bases = sorted({*bases, *cold})
        newest = max(states, default=0)
        cuts = self._cuts.setdefault(log_id, set())
        follows = known.committed_seq + 1 if known else 1
        for base in bases:
            sealed = f"seg-{base:020d}.idx" in names
            if base in cold:
                self._load_cold(target, base)
                follows = max(follows, target.segments[-1].last_seq + 1)
            elif base in states or (sealed and base == follows):
                self._load_segment(target, base, states.get(base), sealed)
                follows = max(follows, target.segments[-1].last_seq + 1)
            elif base > newest:
                cuts.add(base)  # not stable, or behind one that is not: the WAL has its records
                self.strays += [f"{directory}/seg-{base:020d}.idx"] * sealed  # it will grow again
                path = f"{directory}/seg-{base:020d}.data"
                if self._keeping.ring.seals or self._found.plain(path, log_id, base)[0].in_blocks:
                    self._rewritten.add((log_id, base))
            else:
                stem = f"{directory}/seg-{base:020d}"
                self.strays += [f"{stem}.idx"] * sealed + [f"{stem}.data"]
            if base not in states:
                self.young_directories.add(directory)
        if known is not None:
            self._settle(target, known)
            starts = {*states, *(segment.base_seq for segment in target.segments)}
            for base, end in pairwise([*sorted(starts), known.committed_seq + 1]):
                if base not in bases:
                    self._absent.append((log_id, base, end - 1))
        else:
            last = max((segment.last_seq for segment in target.segments), default=0)
            target.committed_seq = target.loaded_seq = last
            target.next_seq = last + 1
        newest_ns = [s.index.ts_ns(len(s.index) - 1) for s in target.segments if len(s.index)]
        target.last_ts_ns = max([target.last_ts_ns, *newest_ns])
        target.staged_ts_ns = target.last_ts_ns

    def _find_cold(self, directory: str, names: list[str]) -> set[int]:
        """Return the segments whose bytes are at the cold place; a hot copy is preferred."""
        hot, indexed = set(_bases(names, ".data")), set(_bases(names, ".idx"))
        marked = set(_bases(names, SUFFIX))
        stray = marked & hot | marked - indexed
        self.strays += [f"{directory}/{segment_name(base)}{SUFFIX}" for base in sorted(stray)]
        lone = indexed - hot - marked  # a removal that a crash has cut off
        self.strays += [f"{directory}/{segment_name(base)}.idx" for base in sorted(lone)]
        return marked - stray

    def _load_cold(self, target: FileLog, base: int) -> None:
        """Take up a segment that is elsewhere."""
        segment = target.growth.start(base)
        marker = bytes(self._found.buffer(f"{segment.directory}/{segment.name}{SUFFIX}"))
        self._found.load_cold(segment, self._adopt(segment, decode_marker(marker)))

    def _keep_blocks(self) -> None:
        """Let segments that the WAL has rebuilt go on in their files, as far as those agree.

        What a damaged WAL could not tell came from there, and must not go before it is written.
        """
        for log_id, base in sorted(self._rewritten):
            target = self.logs.get(log_id)
            path = f"{self._directory}/{log_id:016x}/{segment_name(base)}.data"
            started = [s for s in target.segments if s.base_seq == base] if target else []
            if not started or not self._found.goes_on(started[0], path):
                self.strays.append(path)

    def _name_absent(self) -> None:
        """Name what is gone with segment files, once it is known what was removed on purpose."""
        for log_id, base, last in self._absent:
            target = self.logs.get(log_id)
            if target is None:
                continue
            first = max(base, target.first_kept)
            lost = target.deleted.missing(first, last)
            if lost:
                path = f"{target.directory}/{segment_name(base)}.data"
                log.error("segment file is missing file=%s offset=0", path)
            for a, b in lost:
                new = target.add_gap(a, b, "corruption")
                self.recovered[log_id].lost += sum(g.last - g.first + 1 for g in new)

    def _load_segment(
        self, target: FileLog, base: int, state: SegmentState | None, sealed: bool
    ) -> None:
        segment = target.growth.start(base)
        limit, whole = self._found.load(segment, state, sealed)
        if limit:
            self._durable[target.log_id, base] = limit
        if not whole:
            self._damaged.append((target, segment))

    def _settle(self, target: FileLog, known: LogSnapshot) -> None:
        """Bring counters and marks to where the snapshot was, and find what is missing below."""
        for first, last in known.deleted:
            target.delete_range(first, last)
        last = max((s.last_seq for s in target.segments), default=0)
        target.committed_seq = max(known.committed_seq, last)
        target.next_seq = target.committed_seq + 1
        target.loaded_seq = target.committed_seq
        target.promise.reserved_seq = known.reserved_seq
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
                for position in segment.positions(first, last):
                    segment.index.delete(position)
            segment.index.delete_below(target.first_kept)
            for first, last in missing_seqs(target, segment):
                new = target.add_gap(first, last, "corruption")
                self.recovered[target.log_id].lost += sum(g.last - g.first + 1 for g in new)

    # --- the WAL

    def _log(self, log_id: int, durability: Durability = Durability.FSYNC) -> FileLog:
        if log_id not in self.logs:
            self.logs[log_id] = self._make(log_id, durability)
            self.logs[log_id].removal.holds_dead = True  # until ``finish``
            self.recovered[log_id] = LogRecovery(log_id)
        return self.logs[log_id]

    @property
    def _reason(self) -> str:
        return "torn" if self.torn else "corruption"

    def replay(self, log_id: int, first: int, count: int, data: bytes) -> None:
        """Append a run of frames; those that the log already has are skipped by sequence."""
        if log_id in self.dropped:
            return
        target = self._log(log_id)
        last = first + count - 1
        self._logged[log_id] = max(self._logged.get(log_id, 0), last)
        self._offer(log_id, first, last, data)
        if last < target.next_seq:
            return
        if first < target.next_seq:
            first, data = _from_seq(data, target.next_seq)
        self.expect(log_id, first - 1, self._reason)
        self._append(target, first, last, data)

    def lacks(self, log_id: int, last: int) -> bool:
        """Say whether the log has not come to ``last`` yet, by records or by what was skipped."""
        if log_id in self.dropped or not log_id:
            return False
        target = self.logs.get(log_id)
        return last > 0 if target is None else bool(target.deleted.missing(target.next_seq, last))

    def _append(self, target: FileLog, first: int, last: int, data: bytes) -> None:
        segment = target.segments[-1] if target.segments else None
        if segment is None or segment.full or first in self._cuts.get(target.log_id, ()):
            segment = target.growth.start(first)
            is_made = first in self._cuts.get(target.log_id, ())
            if is_made and (target.log_id, first) not in self._rewritten:
                segment.found(segment.head)
        elif (
            segment.size + len(data) > 0xF0000000
            or target.growth.is_full(segment)
            or last - segment.base_seq > MOST_DELTA
        ):
            segment = target.growth.start(first)
        _, _, why = index_frames(data, 0, len(data), target.log_id, segment.index, segment.size)
        if why:
            raise StorageUnusable(f"log {target.log_id:x}: frames at {first} do not follow")
        segment.stage(data, first, last)
        self.steps += 1
        target.next_seq = last + 1
        target.committed_seq = last
        target.last_ts_ns = target.staged_ts_ns = segment.index.ts_ns(len(segment.index) - 1)

    def _offer(self, log_id: int, first: int, last: int, data: bytes) -> None:
        """Keep frames that a damaged segment lacks."""
        holes = self.holes.get(log_id)
        if holes and any(seq in holes for seq in range(first, last + 1)):
            for frame in frames_in(memoryview(data), 0, len(data)):
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
        if not target.deleted.missing(target.next_seq, last):
            self._lose(target, last, reason)  # skipped: nothing is lost
            return
        for frame in self._spare_frames(target, target.next_seq, last):
            if frame.seq > target.next_seq:
                self._lose(target, frame.seq - 1, reason)
            self._append(target, frame.seq, frame.seq, frame.data)
            if self.torn:
                self._log_again(frame)
        if last >= target.next_seq:
            self._lose(target, last, reason)

    def _log_again(self, frame: Frame) -> None:
        """Have a record written into the new WAL file: only a segment file has it."""
        self.relog.append((FrameRun(frame.stream_id, frame.seq, 1, len(frame.data)), frame.data))

    def _lose(self, target: FileLog, last: int, reason: str) -> None:
        parts = target.deleted.missing(target.next_seq, last)
        new = [gap for a, b in parts for gap in target.add_gap(a, b, reason)]
        self.steps += 1
        target.next_seq = last + 1
        target.committed_seq = last
        lost = sum(gap.last - gap.first + 1 for gap in new)
        recovered = self.recovered[target.log_id]
        if reason == "torn":
            recovered.torn += lost
        else:
            recovered.lost += lost
        if self.torn:
            self._log_gaps(target.log_id, new)

    def _log_gaps(self, log_id: int, gaps: list[Gap]) -> None:
        """Have gaps written before what follows them: nothing else will show them again."""
        for gap in gaps:
            body = msgspec.json.encode(Voided(gap.first, gap.last, gap.reason))
            self._log_control(VOID, log_id, body)

    def _log_control(self, kind: int, log_id: int, body: bytes) -> None:
        frames = encode_control(kind, log_id, 0, 0, body) * 2
        self.relog.append((FrameRun(log_id, 0, 2, len(frames)), frames))

    def _log_flagged(self, target: FileLog, power_lost: bool) -> None:
        """Log deletes that only the flags in a dead segment tell, as its file will go.

        And in any, once the WAL may have lost them: the next start may rebuild it from there.
        """
        for segment in target.segments if power_lost else target.segments[:-1]:
            if not segment.index.live or power_lost:
                dead = [segment.index.seq(at) for at in dead_positions(segment.index)]
                told = (target.deleted, target.lost)
                seqs = [s for s in dead if s >= target.first_kept and not any(s in t for t in told)]
                if seqs:
                    target.forget(seqs)
                    self._log_control(DELETE, target.log_id, msgspec.json.encode(seqs))

    def _spare_frames(self, target: FileLog, first: int, last: int) -> list[Frame]:
        """Return what the files hold of ``first..last`` beyond what was known to be stable.

        What rot took from the WAL was whole once, and each record of it counts. What the WAL never
        had, a crash may have torn in the file as well: there a batch is taken whole or not at all.
        """
        if target.log_id not in self._spare:
            self._spare[target.log_id] = self._scan_spare(target)
        single, whole = self._spare[target.log_id]
        if self.rotten and not self.torn:
            found = {f.seq: f for f in single if first <= f.seq <= last}
        else:  # also where it ends behind ``last``, but none that others took the beginning of
            begun = [batch for batch in batches(whole) if first <= batch[0].seq <= last]
            found = {f.seq: f for batch in begun for f in batch}
        return [found[seq] for seq in sorted(found)]

    def _scan_spare(self, target: FileLog) -> tuple[list[Frame], list[Frame]]:
        """Return the sound frames, and those of whole batches."""
        bases = [base for log_id, base in self._durable if log_id == target.log_id]
        single: list[Frame] = []
        whole: list[Frame] = []
        for base in sorted({*bases, *self._cuts.get(target.log_id, ())}):
            path = f"{target.directory}/{segment_name(base)}.data"
            _, buffer = self._found.plain(path, target.log_id, base)
            start = self._durable.get((target.log_id, base), HEADER_BYTES)
            found = [f for f in frames_in(buffer, start, len(buffer)) if f.kind == RECORD]
            single += found
            whole += whole_batches(found, start)
        return (
            [f for f in single if f.stream_id == target.log_id],
            [f for f in whole if f.stream_id == target.log_id],
        )

    def control(self, kind: int, log_id: int, content: bytes) -> None:
        """Apply one of the store's own control frames."""
        if log_id in self.dropped:
            return
        target = self._log(log_id)
        if kind == TRIM:
            trimmed = msgspec.json.decode(content, type=Trimmed)
            self.expect(log_id, trimmed.first_kept - 1, self._reason)
            target.removal.apply_trim(trimmed.first_kept, trimmed.reason)
        elif kind in (DELETE, ERASE):
            seqs = msgspec.json.decode(content, type=list[int])
            self.expect(log_id, max(seqs), self._reason)  # it was there to be deleted
            target.removal.apply_delete(seqs)
            if kind == ERASE:
                self.erased.setdefault(log_id, set()).update(seqs)
            for owner, first, last in self._absent:
                if owner == log_id:
                    target.forget([seq for seq in seqs if first <= seq <= last])
        elif kind == VOID:
            self._void(target, msgspec.json.decode(content, type=Voided))
        elif kind == SKIP:
            self._skip(target, msgspec.json.decode(content, type=Skipped))

    def reserve(self, log_id: int, number: int, content: bytes) -> None:
        """Take up to where a log may have given out sequences, as its newest frame says."""
        if log_id in self.dropped or number < self._reserved_by.get(log_id, 0):
            return
        self._reserved_by[log_id] = number
        self._log(log_id).promise.reserved_seq = msgspec.json.decode(content, type=int)

    def _skip(self, target: FileLog, skipped: Skipped) -> None:
        """Note what was never there; records that come behind it find nothing missing."""
        for first, last in skipped.ranges:
            target.deleted.add(max(first, target.first_kept), last)
        self.expect(target.log_id, skipped.next_seq - 1, self._reason)

    def _void(self, target: FileLog, voided: Voided) -> None:
        if voided.last < target.first_kept:
            return
        self.expect(target.log_id, voided.first - 1, self._reason)
        target.add_gap(voided.first, voided.last, voided.reason)
        target.committed_seq = max(target.committed_seq, voided.last)
        target.next_seq = target.committed_seq + 1
        self.steps += 1

    # --- copies

    def derive(self, content: bytes) -> None:
        """Make the copies that a DERIVE frame names again, under the sequences that they had.

        What cannot be made again is looked for in the target's own files, and lost by name when it
        is not there either.
        """
        derivation = derived.decode(content)
        self.copied_from.add(derivation.source)
        for part in derivation.parts:
            if part.target and part.target not in self.dropped:
                self._derive_part(derivation, part)

    def _derive_part(self, derivation: Derivation, part: DerivedPart) -> None:
        target = self._log(part.target)
        self._logged[part.target] = max(self._logged.get(part.target, 0), part.last)
        if part.lost and part.base - 1 >= target.next_seq:
            self._void(target, Voided(part.base - part.lost, part.base - 1, SOURCE_TRIM))
        if part.last < target.next_seq:
            return  # the segment files have them
        self.expect(part.target, part.base - 1, self._reason)
        source = self.logs.get(derivation.source)
        for first, last, frames in derived_again.stretches(derivation, part, source, target):
            if frames is None:
                self.expect(part.target, last, self._reason)
            else:
                self._append(target, first, last, frames)

    def offer_derived(self, content: bytes) -> None:
        """Let copies fill holes in damaged files, where their source still has the records."""
        derivation = derived.decode(content)
        source = self.logs.get(derivation.source)
        for part in derivation.parts:
            holes = self.holes.get(part.target)
            if holes and source is not None:
                derived_again.fill(derivation, part, source, holes)

    def drop(self, log_id: int) -> None:
        """Forget a log: a later one of the same name has another id."""
        self.dropped.add(log_id)
        self.steps += 1
        self.logs.pop(log_id, None)
        self.recovered.pop(log_id, None)

    # --- the end

    def _rescue(self) -> None:
        """Take whole batches that reached a segment file although the WAL's tail was lost."""
        self.torn = True
        for target in self.logs.values():
            given_up = [gap for gap in target.gaps if gap.reason in ("void", UNSYNCED)]
            if any(gap.last == target.committed_seq for gap in given_up):
                continue  # an earlier start gave up what was behind, as it had not all of it
            for batch in batches(self._spare_frames(target, target.next_seq, 1 << 63)):
                seqs = [frame.seq for frame in batch]
                if seqs != list(range(target.next_seq, target.next_seq + len(seqs))):
                    break  # what was left out on purpose was told by the WAL alone
                for frame in batch:
                    self._append(target, frame.seq, frame.seq, frame.data)
                    self._log_again(frame)

    def _log_unlogged(self) -> None:
        """Have the WAL tell what only sealed files do: the next start may not trust them.

        That is what a power cut took of the WAL, or what a ``memory`` log answered before a write
        that then failed.
        """
        for target in self.logs.values():
            logged = self._logged.get(target.log_id, 0)
            for segment in target.segments:
                if segment.sealed and segment.last_seq > logged and segment.cold is None:
                    self._log_sealed(target, segment, logged)

    def _log_sealed(self, target: FileLog, segment: Segment, logged: int) -> None:
        holes: list[tuple[int, int]] = []
        before = max(logged, segment.base_seq - 1)
        for position in segment.positions(logged + 1, segment.last_seq):
            seq = segment.index.seq(position)
            holes += target.deleted.missing(before + 1, seq - 1)
            before = seq
        if holes:
            skipped = Skipped([part for a, b in holes for part in target.lost.missing(a, b)])
            self._skip(target, skipped)
            self._log_control(SKIP, target.log_id, msgspec.json.encode(skipped))
        for frame in frames_in(segment.plain(), HEADER_BYTES, segment.size):
            if frame.seq > logged:
                self._log_again(frame)

    def _name_missed(self, marks: Known, named: set[int]) -> set[int]:
        """Name what was stable and is gone with the end of a WAL file; returns the logs.

        No frame behind it tells, and without the mark its sequences would be given out again. The
        frame that reserved some may be among it; its sync covered records too.
        """
        missed: set[int] = set()
        for (kind, log_id), seq in sorted(marks.items()):
            if log_id in self.dropped or not (log_id in self.logs or log_id in named):
                continue  # dropped, and long forgotten
            target = self._log(log_id)
            if kind == RESERVED and log_id in missed:
                target.promise.reserved_seq = max(target.promise.reserved_seq, seq)
            elif kind == SYNCED and seq >= target.next_seq:
                first = target.next_seq
                torn, self.torn = self.torn, True  # have the gap logged
                self.expect(log_id, seq, "corruption")
                self.torn = torn
                missed.add(log_id)
                log.error("wal lost its end log=%x first=%d last=%d", log_id, first, seq)
        return missed

    def _take_out_lost(self, target: FileLog, segment: Segment) -> None:
        """Have nobody count or look for what is on record as lost; an index may still name it."""
        for first, last in target.lost:
            for position in segment.positions(first, last):
                segment.index.delete(position)

    def _give_up(self, target: FileLog) -> None:
        """Name the sequences as lost that may have been acknowledged since the last sync."""
        new = target.add_gap(target.committed_seq + 1, target.promise.reserved_seq, UNSYNCED)
        self._log_gaps(target.log_id, new)
        self.recovered[target.log_id].unsynced += sum(gap.size for gap in new)
        target.committed_seq = target.promise.reserved_seq
        target.next_seq = target.committed_seq + 1

    def finish(self, power_lost: bool, marks: Known, named: set[int]) -> None:
        """Count what there is, and give up sequences that a power cut may have taken."""
        self._fill_holes()
        self._keep_blocks()
        self._name_absent()
        missed = self._name_missed(marks, named)
        self._log_unlogged()
        if power_lost or self.torn:
            self._rescue()
        for log_id, target in self.logs.items():
            for segment in target.segments:
                segment.index.delete_below(target.first_kept)
                self._take_out_lost(target, segment)
            lost = power_lost or log_id in missed
            if lost and target.promise.reserved_seq > target.committed_seq:
                self._give_up(target)
            target.deleted.cut_above(target.committed_seq)  # skipped before records that are gone
            target.synced_seq = target.committed_seq
            target.removal.holds_dead = False
            target.recount()
            self._log_flagged(target, power_lost)
            recovered = self.recovered[log_id]
            recovered.records = target.count
            recovered.gaps = tuple(target.gaps)


def _from_seq(data: bytes, seq: int) -> tuple[int, bytes]:
    """Return the frames from ``seq`` on, and its sequence."""
    frames, _ = scan(data)
    for _kind, _flags, _stream, at, _ts, start, _size, _deleted in frames:
        if at >= seq:
            return at, data[start:]
    return seq, b""


def _bases(names: list[str], suffix: str) -> list[int]:
    """Return the base sequences of a log's files of one kind."""
    return [int(n[4:24]) for n in names if n.startswith("seg-") and n.endswith(suffix)]
