"""The store: all logs of one directory, recovered, committed and checkpointed together."""

import logging
import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.clock import Clock
from millstream.errors import MillstreamError, ShardReadOnly
from millstream.kernel._frames import encode_control
from millstream.store import derived
from millstream.store.blocks import BlockCache
from millstream.store.cold_tier import ColdOptions, ColdPlan, ColdTier
from millstream.store.committer import Committer, Post, Submission
from millstream.store.derived import DERIVE, Derivation, Part
from millstream.store.entry import TARGET_BYTES, Run, encode_entry
from millstream.store.erase import finish_last
from millstream.store.file_log import FileLog, LogOptions
from millstream.store.files import File, Files, ensure_dir
from millstream.store.keys import KeyRing
from millstream.store.local_engine import LocalEngine, shard_directory, wal_indexes, wal_name
from millstream.store.lock import lock_directory
from millstream.store.log import Committed, Durability, Staged
from millstream.store.log_frames import DELETE, RESERVE, VOID, Voided
from millstream.store.marks import RESERVED, SYNCED, Key, Known, Marks, highest, load_marks
from millstream.store.memory_log import MemoryLog
from millstream.store.rebuild import Logs
from millstream.store.recovery import Control, Recovery
from millstream.store.replay import Replay, replay_all
from millstream.store.segment import Flush, Keeping, Segment
from millstream.store.shard import Shard, shard_number, shards_on_disk
from millstream.store.snapshot import (
    KEPT,
    Snapshot,
    load_snapshots,
    snapshot_numbers,
    write_snapshot,
)
from millstream.store.worker import InlineWorker, ThreadWorker, Worker

UNKNOWN_POSITION = 1 << 63
ROOM_SHARE = 8  # the WAL grows by at most this part of the free space between snapshots
LEAST_STEP = 1 << 20
SHORT_GAP = 1.0  # seconds between snapshots while the disk is full

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes and times; ``threads`` off drives everything from the caller, for tests."""

    shards: int = 1  # write-ahead logs; a log's id decides which one it goes into
    wal_file_bytes: int = 64 << 20
    entry_bytes: int = TARGET_BYTES  # a commit is cut into entries of about this size
    dirty_age: float = 0.05
    high_water: int = 32 << 20
    checkpoint_bytes: int = 64 << 20
    threads: bool = True
    nonce: int = 0  # 0: random
    block_cache_bytes: int = 8 << 20  # plain bytes of blocks that were read
    ring: KeyRing = field(default_factory=KeyRing)
    cold: ColdOptions = field(default_factory=ColdOptions)
    log: LogOptions = field(default_factory=LogOptions)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """A sealed segment that other processes may read in place."""

    path: str
    idx_path: str
    base_seq: int
    last_seq: int
    bytes: int


class Store:
    """Opened once per process and directory; everything but ``open`` runs on the loop."""

    def __init__(
        self, directory: str, files: Files, clock: Clock, post: Post, options: StoreOptions
    ) -> None:
        self.directory = directory
        self.files = files
        self.clock = clock
        self._post = post
        self.options = options
        self.worker: Worker = ThreadWorker(post) if options.threads else InlineWorker()
        self.keeping = Keeping(options.ring, BlockCache(options.block_cache_bytes))
        self.cold = ColdTier(self, options.cold, options.threads)
        self._rewriting = False
        self.recovery = Recovery()
        self.on_pressure: Callable[[bool], None] = lambda pressed: None
        self.soon = post  # where calls from the loop to itself go: a door may know a better moment
        self._logs: dict[int, FileLog] = {}
        self._dropped: set[int] = set()
        self._dropped_lately: set[int] = set()  # as of the newest snapshot
        self._dropped_before: set[int] = set()  # as of the one before it
        self._unsynced: set[FileLog] = set()
        self._shards: list[Shard] = []  # in use
        self._left_over: list[Shard] = []  # of an earlier run that had more
        self._dead: list[tuple[int, Segment]] = []  # files to remove once this position is stable
        # Source → where the shards were at its newest DERIVE, until a snapshot covers that.
        self._copied: dict[int, dict[int, int]] = {}
        self._erase_waits = False  # for a snapshot, as copies of what it erases are only named
        self._copying: Counter[int] = Counter()  # source → DERIVE frames that are not answered yet
        self._held_dead: list[Segment] = []  # files that a replay may have to copy from
        self._held_drops: list[FileLog] = []  # dropped logs likewise
        self._held_directories: set[int] = set()  # of logs that the last run had dropped
        self._problems: dict[str, str] = {}
        self._behind: set[int] = set()  # shards above their high water
        self._control_number = 0
        self._open_controls: set[int] = set()  # logged, not yet applied
        self._snapshot_number = 0
        self._snapshot_positions: list[dict[int, int]] = []  # of each shard
        self._snapshot_seqs: list[dict[int, int]] = []  # of each log
        self._checkpointed_at = 0.0
        self._checkpointing = False
        self._short = 0  # snapshots to make, since the disk was full: they set WAL free
        self._written_before = 0
        self._closed = False
        self._recovering = True
        self._lock: File | None = None

    @classmethod
    def open(
        cls,
        directory: str,
        files: Files,
        clock: Clock,
        post: Post,
        options: StoreOptions | None = None,
    ) -> "Store":
        """Lock the directory and recover it; raises ``StorageUnusable`` rather than guess."""
        options = options or StoreOptions()
        lock = lock_directory(files, directory)
        store = cls(directory, files, clock, post, options)
        try:
            store._lock = lock
            store._recover()
        except BaseException:
            store.worker.close()
            store.cold.close()
            lock.close()
            raise
        return store

    # --- starting

    def _recover(self) -> None:
        started = self.clock.monotonic()
        files, options = self.files, self.options
        meta = f"{self.directory}/meta"
        finish_last(files, self.directory)
        ensure_dir(files, meta)
        for number in range(options.shards):
            ensure_dir(files, shard_directory(self.directory, number))
        snapshots = load_snapshots(files, meta, options.ring)
        snapshot = snapshots[0] if snapshots else None
        marks = load_marks(files, meta)
        logs = Logs(files, self._make_log, self.keeping, self.cold.adopt)
        logs.load(snapshot, f"{self.directory}/streams")
        logs.find_holes()
        replays = self._replay(logs, snapshot)
        boot = xxh3_64_intdigest(files.boot_id().encode()) & 0xFFFFFFFF
        newest = max(replays, key=lambda replay: replay.epoch)
        before = newest.last_nonce & 0xFFFFFFFF
        cut = any(replay.cut for replay in replays)  # as good as a power cut
        named = {control.log_id for replay in replays for control in replay.controls}
        logs.finish(cut or (bool(newest.wal_files) and before != boot), highest(marks), named)
        for run, data in logs.relog:
            replays[shard_number(run.stream_id, options.shards)].relog.append((run, data))
        self._logs = logs.logs
        self._dropped = logs.dropped
        self._control_number = max(replay.control_number for replay in replays)
        self._snapshot_number = max(snapshot_numbers(files, meta), default=0)
        self._snapshot_positions = [each.positions for each in reversed(snapshots)]
        self._snapshot_seqs = [_seqs(each) for each in reversed(snapshots)]
        at = {replay.shard: replay.position for replay in replays}
        self._copied = dict.fromkeys(logs.copied_from, at)
        self._harden(logs, [replay.shard for replay in replays])
        for replay in replays:
            self._give_back(replay)
        self._start_committing(replays, boot, marks)
        self._remove_orphans([path for each in replays for path in each.unused] + logs.strays)
        self._recovering = False
        for log_id, seqs in sorted(logs.erased.items()):
            if log_id in self._logs:
                self._logs[log_id].erasure.again(seqs)
        for each in self._logs.values():
            each.drop_dead_segments()
        self._remove_dead()
        controls = [control for replay in replays for control in replay.controls]
        self.recovery = Recovery(
            logs=logs.recovered,
            controls=sorted(controls, key=lambda control: control.number),
            sections=dict(snapshot.sections) if snapshot else {},
            torn_bytes=sum(replay.torn_bytes for replay in replays),
            damaged_bytes=sum(replay.damaged_bytes for replay in replays),
            seconds=self.clock.monotonic() - started,
        )

    def _replay(self, logs: Logs, snapshot: Snapshot | None) -> list[Replay]:
        """Replay every shard that there is or ever was, those in use first."""
        known = {*shards_on_disk(self.files, self.directory), *range(self.options.shards)}
        known.update(snapshot.positions if snapshot else ())
        replays = [
            Replay(self.files, logs, snapshot, self.options.ring, shard) for shard in sorted(known)
        ]
        for replay in replays:
            replay.find(shard_directory(self.directory, replay.shard))
        replay_all(replays, logs)
        logs.torn = any(replay.torn for replay in replays)
        logs.relog = []
        return replays

    def _harden(self, logs: Logs, shards: list[int]) -> None:
        """Make stable what this start relies on, as the last run may have died before it did.

        Names only: what is kept of the WAL above its durable mark goes into a new file, because
        where a sync had failed the kernel shows bytes that it no longer means to write.
        """
        files = self.files
        wal = [shard_directory(self.directory, number) for number in shards]
        meta, streams = f"{self.directory}/meta", f"{self.directory}/streams"
        parent = os.path.dirname(self.directory) or "."
        for path in (parent, self.directory, f"{self.directory}/wal", *wal, meta, streams):
            if files.exists(path):
                files.sync_dir(path)
        for path in sorted(logs.young_directories):
            files.sync_dir(path)

    def _give_back(self, replay: Replay) -> None:
        """Cut the unused space off files of earlier runs: crash after crash would fill the disk."""
        for wal in replay.wal_files:
            file = self.files.open(wal.path)
            try:
                if file.size() > wal.used:
                    file.truncate(wal.used)
            finally:
                file.close()

    def _start_committing(self, replays: list[Replay], boot: int, marks: dict[int, Known]) -> None:
        epoch = max(replay.epoch for replay in replays) + 1
        nonce = (self.options.nonce or secrets.randbits(32)) << 32 | boot
        for replay in replays:
            shard = self._start_shard(replay, epoch, nonce)
            if replay.shard < self.options.shards:
                self._shards.append(shard)
                shard.committer = self._make_committer(shard, epoch, nonce)
                shard.committer.marks = self._make_marks(shard.number, marks.get(shard.number, {}))
            else:
                self._left_over.append(shard)
                shard.engine.close()

    def _start_shard(self, replay: Replay, epoch: int, nonce: int) -> Shard:
        options = self.options
        engine = LocalEngine(
            self.files,
            shard_directory(self.directory, replay.shard),
            replay.shard,
            epoch,
            nonce,
            replay.last_index + 1,
            replay.position + 1,
            options.wal_file_bytes,
        )
        engine.key_id = int.from_bytes(options.ring.key_id, "little")
        engine.history = [(wal.index, wal.first_position) for wal in replay.wal_files]
        entries = self._entries(replay.relog, replay.position, epoch, nonce)
        if entries:
            engine.begin(entries)
        return Shard(replay.shard, engine)

    def _make_committer(self, shard: Shard, epoch: int, nonce: int) -> Committer:
        options = self.options
        committer = Committer(
            shard.engine,
            epoch,
            nonce,
            self.clock,
            self._post,
            options.dirty_age,
            options.high_water,
            options.entry_bytes,
        )
        committer.soon = lambda call: self.soon(call)
        committer.ring = options.ring if options.ring.seals else None
        committer.on_synced = partial(self._synced, shard)
        committer.on_failed = partial(self._failed, shard)
        committer.on_pressure = partial(self._pressed, shard.number)
        if options.threads:
            committer.start()
        return committer

    def _make_marks(self, shard: int, found: Known) -> Marks:
        """Go on with a shard's marks; what this start has kept is stable, marked or not."""
        mine = [g for i, g in self._logs.items() if shard_number(i, self.options.shards) == shard]
        stable = {(SYNCED, each.log_id): each.committed_seq for each in mine if each.committed_seq}
        ids = {each.log_id for each in mine}
        known = {key: seq for key, seq in found.items() if key[1] in ids}
        due = {key: seq for key, seq in stable.items() if seq > known.get(key, 0)}
        return Marks(self.files, f"{self.directory}/meta", shard, known, due)

    def _shard(self, log_id: int) -> Shard:
        shards = self._shards
        return shards[0] if len(shards) == 1 else shards[shard_number(log_id, len(shards))]

    def _committer(self, log_id: int) -> Committer:
        committer = self._shard(log_id).committer
        assert committer is not None
        return committer

    def _pressed(self, shard: int, pressed: bool) -> None:
        """Hold publishers back while any shard is behind."""
        before = bool(self._behind)
        (self._behind.add if pressed else self._behind.discard)(shard)
        if bool(self._behind) != before:
            self.on_pressure(bool(self._behind))

    def _entries(
        self, pieces: list[tuple[Run, bytes]], durable: int, epoch: int, nonce: int
    ) -> list[bytes]:
        """Return entries for what recovery decided above the durable mark."""
        entries: list[bytes] = []
        position = durable + 1
        while pieces:
            size, take = 0, 0
            while take < len(pieces) and (not take or size < TARGET_BYTES):
                size += len(pieces[take][1])
                take += 1
            runs = [run for run, _ in pieces[:take]]
            parts = [data for _, data in pieces[:take]]
            ring = self.options.ring
            entries.append(
                encode_entry(
                    position, epoch, nonce, durable, True, runs, parts, ring=ring, again=True
                )
            )
            position += 1
            del pieces[:take]
        return entries

    def _remove_orphans(self, unused: list[str]) -> None:
        """Remove WAL files never used, and what a crash left of dropped logs and half files."""
        for path in unused:
            self.files.unlink(path)
        for directory in sorted({os.path.dirname(path) for path in unused}):
            self.files.sync_dir(directory)
        streams = f"{self.directory}/streams"
        if not self.files.exists(streams):
            return
        for name in self.files.listdir(streams):
            directory = f"{streams}/{name}"
            gone = len(name) == 16 and int(name, 16) in self._dropped
            if gone and int(name, 16) in self._copied:  # the next start may have to copy again
                self._held_directories.add(int(name, 16))
                continue
            for file in self.files.listdir(directory):
                if gone or file.endswith(".tmp"):
                    self.files.unlink(f"{directory}/{file}")
            if gone:
                self.files.remove_dir(directory)
                self.files.sync_dir(streams)

    def _make_log(self, log_id: int, durability: Durability) -> FileLog:
        return FileLog(self, log_id, durability, self.options.log)

    # --- logs

    def create_log(self, log_id: int, durability: Durability, compressed: bool = False) -> FileLog:
        """Return the log of this id, made if there is none; an existing one takes the class.

        ``compressed`` says how segments are kept that are sealed from now on.
        """
        found = self._create_log(log_id, durability)
        found.compressed = compressed
        return found

    def _create_log(self, log_id: int, durability: Durability) -> FileLog:
        existing = self._logs.get(log_id)
        if existing is not None:
            if Durability.EPHEMERAL not in (durability, existing.durability):
                existing.durability = durability
            return existing
        if durability is Durability.EPHEMERAL:
            options = self.options.log
            made: FileLog = MemoryLog(
                self.files, self.clock, lambda call: self.soon(call), log_id, options
            )
        else:
            made = self._make_log(log_id, durability)
        self._logs[log_id] = made
        return made

    def log(self, log_id: int) -> FileLog | None:
        """Return the log of this id."""
        return self._logs.get(log_id)

    def log_ids(self) -> list[int]:
        """Return the ids of all logs, ascending."""
        return sorted(self._logs)

    def drop_log(self, log_id: int) -> None:
        """Remove a log and its files; the caller has logged that its stream is gone."""
        dropped = self._logs.pop(log_id, None)
        if dropped is None:
            return
        self._unsynced.discard(dropped)
        if dropped.durability is not Durability.EPHEMERAL:
            self._dropped.add(log_id)
        if log_id in self._copied:
            self._held_drops.append(dropped)
            dropped.abandon()
        else:
            dropped.drop()

    # --- what logs ask of the store

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        return self._post(callback)

    def check(self, log_id: int) -> None:
        """Raise when the log's shard takes no writes."""
        if self._problems:
            self._committer(log_id).check()

    def submit(self, submission: Submission) -> None:
        """Queue frames for commit."""
        self._committer(submission.stream_id).submit(submission)

    def unsynced(self, log: FileLog) -> None:
        """Note that the log waits for the next timer sync."""
        self._unsynced.add(log)

    def written_position(self, log_id: int) -> int:
        """Return the newest position of the log's shard that is written."""
        return self._shard(log_id).engine.position - 1

    def remove(self, segment: Segment) -> None:
        """Remove a dead segment's files once the frames that killed it are stable.

        Otherwise a power cut could take the frames and leave records missing without a reason.
        """
        if segment.log_id in self._copied:
            self._held_dead.append(segment)
            return
        if self._recovering:
            self._dead.append((0, segment))
            return
        self._dead.append((self.written_position(segment.log_id), segment))
        self._remove_dead()

    def may_erase(self, log_id: int) -> bool:
        """Say whether no replay copies from a log any more; otherwise a snapshot is due."""
        if log_id not in self._copied:
            return True
        self._erase_waits = True
        return False

    def may_rewrite(self, log_id: int, position: int) -> bool:
        """Say whether records that were dead at ``position`` may go; position 0 asks for a turn.

        A replay may have to copy also dead records from a log, until a snapshot says otherwise.
        """
        if log_id in self._copied or self._closed or self._problems:
            return False
        if not position:
            return not self._rewriting
        return position <= self._shard(log_id).engine.synced_position

    def rewriting(self, is_rewriting: bool) -> None:
        """Note that a rewrite began or ended: there is one at a time."""
        self._rewriting = is_rewriting

    def _remove_dead(self) -> None:
        dead, self._dead = self._dead, []
        for needs, segment in dead:
            if needs > self._shard(segment.log_id).engine.synced_position:
                self._dead.append((needs, segment))
                continue
            self.worker.run(segment.unlink, partial(self._unlinked, segment))

    def _unlinked(self, segment: Segment, error: Exception | None) -> None:
        _report(segment.path, error)
        if segment.cold is not None:
            self.cold.forget(segment.log_id, [segment.base_seq])

    # --- the cold place

    def covered_seq(self, log_id: int) -> int:
        """Return up to where every snapshot that is kept knows the log.

        Only then a start finds a moved segment, and all before it, without the WAL.
        """
        if len(self._snapshot_seqs) < 2:
            return 0
        return min(seqs.get(log_id, 0) for seqs in self._snapshot_seqs)

    def may_move(self, log_id: int) -> bool:
        """Say whether no replay needs the log's files where they are."""
        return log_id not in self._copied and not self._closed and not self._problems

    def withdraw(
        self, log_id: int, segments: list[Segment], done: Callable[[Exception | None], None]
    ) -> bool:
        """Have nothing left of segments at the cold place, then call; False without a place."""
        found = self._logs.get(log_id)
        if found is None or not self.cold.may_hold(segments):
            return False
        self.cold.withdraw(found, segments, done)
        return True

    def removed(self, log_id: int) -> None:
        """Note that the files of a dropped log are gone."""
        self.cold.forget_log(log_id)

    def control(
        self,
        kind: int,
        log_id: int,
        body: bytes,
        done: Committed,
        sync: bool = True,
        can_wait: bool = False,
        apart: bool = False,
    ) -> None:
        """Log a control frame on the timeline of its log; ``done`` as for an append.

        One that ``can_wait`` goes with whatever is committed next, or a moment later. What is
        appended behind one that stands ``apart`` does not wait for its sync.
        """
        tells = (((RESERVED, log_id), int(body)),) if kind == RESERVE else ()
        self._control(kind, log_id, body, done, sync, (), tells, can_wait, apart)

    def derive(self, derivation: Derivation, staged: Sequence[Staged], done: Committed) -> None:
        """Log what copies were made of, in one frame; they commit with it, then ``done`` is told.

        The caller staged them just now: nothing else may have been appended to their logs since,
        so that the frame stands where their own frames would. From here on a replay needs the
        source's files, however soon their records are trimmed.
        """
        logs = (derivation.source, *(each.log_id for each in staged))
        source = self._logs.get(derivation.source)
        is_cold = source is not None and any(s.cold is not None for s in source.segments)
        shards = {shard_number(log_id, self.options.shards) for log_id in logs}
        if len(shards) > 1 or is_cold:  # no start may have to wait for the cold place
            self._log_copies(derivation, staged, done)
            return
        self._copied[derivation.source] = {0: UNKNOWN_POSITION}
        self._copying[derivation.source] += 1
        targets = tuple({part.target for part in derivation.parts if part.target})
        self._control(
            DERIVE,
            targets[0] if targets else derivation.source,  # whose timelines it stands on
            derived.encode(derivation),
            partial(self._derived, derivation.source, staged, done),
            any(each.sync for each in staged),
            targets,
            tuple(((SYNCED, s.log_id), s.first_seq + s.count - 1) for s in staged),
        )

    def _log_copies(
        self, derivation: Derivation, staged: Sequence[Staged], done: Committed
    ) -> None:
        """Log copies as records where no frame could stand on the timelines of several shards.

        With each target's copies goes the part that says how far the source was copied.
        """
        parts = [part for part in derivation.parts if part.target]
        rest = [part for part in derivation.parts if not part.target]
        waiting = len(parts) + bool(rest)
        errors: list[MillstreamError] = []

        def settled(error: MillstreamError | None) -> None:
            nonlocal waiting
            waiting -= 1
            errors.extend([error] if error is not None else [])
            if not waiting:
                done(errors[0] if errors else None)

        for part, each in zip(parts, staged, strict=True):
            progress = msgspec.structs.replace(part, target=0)  # nothing is to be made again
            self._log_part(derivation, [progress], each, partial(_both, each.committed, settled))
        if rest:
            body = derived.encode(msgspec.structs.replace(derivation, parts=rest))
            self.control(DERIVE, derivation.source, body, settled, sync=False)

    def _log_part(
        self, derivation: Derivation, parts: list[Part], copies: Staged, done: Committed
    ) -> None:
        body = derived.encode(msgspec.structs.replace(derivation, parts=parts))
        control, done = self.joined(DERIVE, copies.log_id, body, done)
        if not copies.reason:
            first, count, data = copies.first_seq, copies.count, copies.data
            self.submit(
                Submission(copies.log_id, first, count, data, copies.sync, done, control=control)
            )
            return
        void = Voided(copies.first_seq, copies.first_seq + copies.count - 1, copies.reason)
        frame = self._control_frame(VOID, copies.log_id, msgspec.json.encode(void))
        self.submit(Submission(copies.log_id, 0, 4, control + frame * 2, copies.sync, done))

    def _derived(
        self,
        source: int,
        staged: Sequence[Staged],
        done: Committed,
        error: MillstreamError | None,
    ) -> None:
        self._copying[source] -= 1
        if not self._copying[source]:
            del self._copying[source]
            shard = self._shard(source)  # that of the copies too
            self._copied[source] = {shard.number: shard.engine.position - 1}
        for each in staged:
            each.committed(error)
        done(error)

    def _control(
        self,
        kind: int,
        log_id: int,
        body: bytes,
        done: Committed,
        sync: bool,
        order: tuple[int, ...],
        tells: tuple[tuple[Key, int], ...],
        can_wait: bool = False,
        apart: bool = False,
    ) -> None:
        self.check(log_id)
        frame = self._control_frame(kind, log_id, body)
        number = self._control_number
        self._open_controls.add(number)
        # Nothing else could rebuild them.
        copies = 2 if sync or kind in (DELETE, DERIVE) else 1
        settled = partial(self._control_settled, number, done)
        submission = Submission(log_id, 0, copies, frame * copies, sync, settled, order=order)
        submission.tells = tells
        submission.can_wait = can_wait
        submission.apart = apart
        self.submit(submission)

    def _release_sources(self, positions: dict[int, int]) -> None:
        """Remove what was kept for copies that a snapshot at ``positions`` vouches for."""
        self._copied = {
            source: needs
            for source, needs in self._copied.items()
            if any(at > positions.get(shard, 0) for shard, at in needs.items())
        }
        if self._erase_waits:
            self._erase_waits = False
            for each in list(self._logs.values()):
                each.erasure.step()
        dead, self._held_dead = self._held_dead, []
        for segment in dead:
            self.remove(segment)
        drops, self._held_drops = self._held_drops, []
        for dropped in drops:
            if dropped.log_id in self._copied:
                self._held_drops.append(dropped)
            else:
                dropped.remove_files()
        for log_id in self._held_directories - self._copied.keys():
            self._held_directories.discard(log_id)
            self.worker.run(
                partial(self._remove_directory, log_id), partial(_report, f"log {log_id:x}")
            )

    def _remove_directory(self, log_id: int) -> None:
        """Remove what is left of a log that an earlier run dropped."""
        streams = f"{self.directory}/streams"
        directory = f"{streams}/{log_id:016x}"
        if self.files.exists(directory):
            for name in self.files.listdir(directory):
                self.files.unlink(f"{directory}/{name}")
            self.files.remove_dir(directory)
            self.files.sync_dir(streams)

    def joined(
        self, kind: int, log_id: int, body: bytes, done: Committed
    ) -> tuple[bytes, Committed]:
        """Return control frames to commit with records, and what to call with the outcome.

        They begin the records' batch (MORE), so that no tear leaves one without the other.
        """
        frame = self._control_frame(kind, log_id, body, more=True)
        number = self._control_number
        self._open_controls.add(number)
        return frame * 2, partial(self._control_settled, number, done)

    def _control_settled(self, number: int, done: Committed, error: MillstreamError | None) -> None:
        self._open_controls.discard(number)
        done(error)

    def _control_frame(self, kind: int, log_id: int, body: bytes, more: bool = False) -> bytes:
        self._control_number += 1
        return encode_control(kind, log_id, self._control_number, self.clock.time_ns(), body, more)

    @property
    def backlog_bytes(self) -> int:
        """Return how many bytes wait for their commit."""
        return sum(committer.backlog_bytes for committer in self._committers())

    @property
    def is_full(self) -> bool:
        """Say whether more waits for its commit than should."""
        return bool(self._behind)

    def gather(self, seconds: float) -> None:
        """Have commits wait so long for more to join them: fewer syncs, later answers."""
        for shard in self._shards:
            if shard.committer is not None:
                shard.committer.window = seconds

    def hurry(self, log_id: int) -> None:
        """Commit what waits in a log's shard now, without waiting for more to join it."""
        committer = self._shard(log_id).committer
        if committer is not None:
            committer.hurry()

    @property
    def synced_position(self) -> int:
        """Return how many positions of the WAL, over all shards, are on stable storage."""
        return sum(shard.engine.synced_position for shard in self._shards)

    def _committers(self) -> list[Committer]:
        return [shard.committer for shard in self._shards if shard.committer is not None]

    def _synced(self, shard: Shard, position: int) -> None:
        waiting = [each for each in self._unsynced if self._shard(each.log_id) is shard]
        for dirty in [each for each in waiting if each.note_synced(position)]:
            self._unsynced.discard(dirty)
        self._problems.pop(f"full {shard.number}", None)
        if self._dead:
            self._remove_dead()

    def _failed(self, shard: Shard, error: MillstreamError) -> None:
        kind = "read_only" if isinstance(error, ShardReadOnly) else "full"
        self._problems[f"{kind} {shard.number}"] = str(error)
        if kind == "full":
            self._short = KEPT
        for each in self._logs.values():
            if each.durability is Durability.EPHEMERAL:
                continue
            if self._shard(each.log_id) is shard:
                each.rewind()

    def health(self) -> list[str]:
        """Return what is wrong, in words; empty means healthy."""
        return [*self._problems.values(), *self.cold.health()]

    # --- time

    def tick(self) -> None:
        """Call about once a second: seals by age, flushes, and checkpoints when due."""
        for each in list(self._logs.values()):
            each.tick()
        if not self._closed:
            self.cold.tick(list(self._logs.values()))

    def pump(self) -> None:
        """Commit what is queued now; only without threads."""
        for committer in self._committers():
            while committer.step():
                pass

    def mark(self) -> None:
        """Let an idle WAL say how far it is synced; only without threads."""
        for committer in self._committers():
            committer.tick()

    # --- checkpoints

    @property
    def checkpoint_due(self) -> bool:
        """Say whether the WAL has grown enough since the last snapshot to be worth one."""
        if self._written() - self._written_before >= self._checkpoint_step():
            return True
        if self._short and not self._checkpointing:
            return self.clock.monotonic() - self._checkpointed_at >= SHORT_GAP
        if self._erase_waits and not self._checkpointing:
            return True
        since = self.clock.monotonic() - self._checkpointed_at
        return self.cold.wants_checkpoint and since >= self.options.cold.checkpoint_gap

    def _checkpoint_step(self) -> int:
        """Return how far the WAL grows between snapshots: less where there is little room."""
        share = self.files.free_bytes(self.directory) // ROOM_SHARE
        return min(self.options.checkpoint_bytes, max(share, LEAST_STEP))

    def _written(self) -> int:
        return sum(shard.engine.written for shard in self._shards)

    def checkpoint(self, sections: dict[str, bytes]) -> None:
        """Write a snapshot of what is committed now; then WAL files that it covers go."""
        if self._checkpointing:
            return
        self._checkpointing = True
        self._checkpointed_at = self.clock.monotonic()
        self._written_before = self._written()
        work: list[tuple[FileLog, Segment, Flush]] = []
        for each in self._logs.values():
            if each.durability is not Durability.EPHEMERAL:
                work += [
                    (each, s, each.take_flush(s)) for s in each.segments if not s.sealed or s.flags
                ]
        snapshot = self._capture(sections, work)
        done = partial(self._checkpointed, work, snapshot)
        self.worker.run(partial(self._write_checkpoint, work, snapshot), done)

    def _capture(
        self, sections: dict[str, bytes], work: list[tuple[FileLog, Segment, Flush]]
    ) -> Snapshot:
        """Describe the state of this moment; the WAL position was reached before it."""
        self._snapshot_number += 1
        ends: dict[int, dict[int, int]] = {}
        for each, segment, flush in work:
            ends.setdefault(each.log_id, {})[segment.base_seq] = flush.end
        positions = {s.number: s.applied_position for s in (*self._shards, *self._left_over)}
        return Snapshot(
            number=self._snapshot_number,
            position=positions.pop(0),
            control_number=min(self._open_controls, default=self._control_number + 1) - 1,
            logs=[
                each.snapshot(ends.get(each.log_id, {}))
                for each in self._logs.values()
                if each.durability is not Durability.EPHEMERAL
            ],
            dropped=self._forget_dropped(),
            sections=sections,
            further=positions,
        )

    def _forget_dropped(self) -> list[int]:
        """Return the dropped logs that files or the WAL may still speak of.

        The WAL reaches back to the older snapshot, so an id goes with the second one after it,
        once its directory is gone too.
        """
        streams = f"{self.directory}/streams"
        settled = {i for i in self._dropped_before if not self.files.exists(f"{streams}/{i:016x}")}
        self._dropped -= settled
        self._dropped_before = self._dropped_lately
        self._dropped_lately = set(self._dropped)
        return sorted(self._dropped)

    def _write_checkpoint(
        self, work: list[tuple[FileLog, Segment, Flush]], snapshot: Snapshot
    ) -> None:
        """Make the segments stable, then the snapshot that relies on them, then drop WAL files."""
        for _, segment, flush in work:
            if segment.made or flush.parts:
                segment.write(flush)
                segment.sync()
        write_snapshot(self.files, f"{self.directory}/meta", snapshot, self.options.ring)
        self._drop_wal_below(self._snapshot_positions[-1] if self._snapshot_positions else {})

    def _drop_wal_below(self, positions: dict[int, int]) -> None:
        """Remove WAL files that hold nothing above ``positions``: those of the older snapshot."""
        for shard in (*self._shards, *self._left_over):
            directory = shard_directory(self.directory, shard.number)
            position = positions.get(shard.number, 0)
            history = shard.engine.history
            while len(history) > 1 and history[1][1] <= position + 1:
                self.files.unlink(f"{directory}/{wal_name(history[0][0])}")
                del history[0]
            if shard.committer is None and history and shard.applied_position <= position:
                self.files.unlink(f"{directory}/{wal_name(history[0][0])}")
                history.clear()

    def _checkpointed(
        self,
        work: list[tuple[FileLog, Segment, Flush]],
        snapshot: Snapshot,
        error: Exception | None,
    ) -> None:
        self._checkpointing = False
        if error is not None:
            for _, segment, flush in work:
                segment.flags = flush.flags + segment.flags
            why = error.strerror if isinstance(error, OSError) else error
            self._problems["checkpoint"] = f"the last checkpoint failed: {why}"
            log.error("checkpoint failed error=%s", error)
            return
        self._problems.pop("checkpoint", None)
        self._short = max(self._short - 1, 0)
        self._snapshot_positions = [*self._snapshot_positions[-1:], snapshot.positions]
        self._snapshot_seqs = [*self._snapshot_seqs[-1:], _seqs(snapshot)]
        for each, segment, flush in work:
            each.flushed(segment, flush, synced=True)
        self._release_sources(snapshot.positions)

    def renew(self, named: Sequence[tuple[int, int, bytes]] = ()) -> None:
        """Let two new snapshots of what is there now take the place of all WAL.

        For a repair, before anything is appended, with every segment sealed. The layers above have
        not been here: their control frames are logged again, and ``named`` (kind, log, body)
        behind them.
        """
        controls = list(self.recovery.controls)
        for kind, log_id, body in named:
            self._control_number += 1
            controls.append(Control(kind, log_id, body, self._control_number))
        before = controls[0].number - 1 if controls else self._control_number
        sections = self.recovery.sections
        snapshot = msgspec.structs.replace(self._capture(sections, []), control_number=before)
        self._log_anew(controls)
        for _ in range(KEPT):
            write_snapshot(self.files, f"{self.directory}/meta", snapshot, self.options.ring)
            snapshot = msgspec.structs.replace(snapshot, number=snapshot.number + 1)
        for shard in (*self._shards, *self._left_over):
            self._remove_wal_but(shard)

    def _log_anew(self, controls: list[Control]) -> None:
        """Begin a WAL file with these frames in each shard that is in use."""
        pieces: list[list[tuple[Run, bytes]]] = [[] for _ in self._shards]
        for each in controls:
            now = self.clock.time_ns()
            frames = encode_control(each.kind, each.log_id, each.number, now, each.body) * 2
            run = Run(each.log_id, 0, 2, len(frames))
            pieces[shard_number(each.log_id, len(pieces))].append((run, frames))
        for shard, mine in zip(self._shards, pieces, strict=True):
            engine = shard.engine
            engine.begin(self._entries(mine, engine.position - 1, *engine.stamp))

    def _remove_wal_but(self, shard: Shard) -> None:
        """Remove every file of a shard but the one that grows."""
        directory = shard_directory(self.directory, shard.number)
        for index in wal_indexes(self.files, directory):
            if shard.committer is None or index != shard.engine.index:
                self.files.unlink(f"{directory}/{wal_name(index)}")
        if self.files.exists(directory):
            self.files.sync_dir(directory)

    # --- reading in place

    def plan(self, log_id: int) -> list[SegmentPlan]:
        """Return the sealed segments of a log that need no key and no decompression, in order.

        From the first one on that does, everything is the tail, which the server reads out. Cold
        ones are left out: the server reads those too, or ``cold_plan`` names their twins.
        """
        found = self._logs.get(log_id)
        if found is None:
            return []
        segments = [s for s in found.segments if s.cold is None]
        return [
            SegmentPlan(s.path, s.path[:-5] + ".idx", s.base_seq, s.last_seq, s.size)
            for s in takewhile(_is_readable_in_place, segments)
            if not _shows_deleted(s)
        ]

    def cold_plan(self, log_id: int) -> tuple[list[ColdPlan], list[tuple[int, int]]]:
        """Return the Parquet files of a log's oldest segments, and what of them is deleted."""
        found = self._logs.get(log_id)
        return ([], []) if found is None else self.cold.plan(found)

    # --- the end

    def close(self, sections: dict[str, bytes] | None = None) -> None:
        """Commit and sync what was accepted and stop; with ``sections`` checkpoint as well."""
        if self._closed:
            return
        self._closed = True
        self.cold.close()
        self.worker.close()
        self.worker = InlineWorker()
        for committer in self._committers():
            committer.stop()
        self._remove_dead()
        if sections is not None and not self._problems and not self._open_controls:
            self._checkpointing = False
            self.checkpoint(sections)
        for each in [*self._logs.values(), *self._held_drops]:
            each.close()
        for segment in self._held_dead:
            segment.close()
        if self._lock is not None:
            self._lock.close()


def _seqs(snapshot: Snapshot) -> dict[int, int]:
    """Return how far a snapshot knows each log."""
    return {each.log_id: each.committed_seq for each in snapshot.logs}


def _both(one: Committed, two: Committed, error: MillstreamError | None) -> None:
    one(error)
    two(error)


def _shows_deleted(segment: Segment) -> bool:
    """Say whether a record that is deleted may still look alive in the file."""
    return bool(segment.flags) or segment.busy or segment.erasing


def _is_readable_in_place(segment: Segment) -> bool:
    if segment.cold is not None or segment.head.in_blocks:
        return False
    return segment.sealed and segment.unplaced is None


def _report(path: str, error: Exception | None) -> None:
    if error is not None:
        log.warning("file not removed file=%s error=%s", path, error)
