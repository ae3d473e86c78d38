"""The store: all logs of one directory, recovered, committed and checkpointed together."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.clock import Clock
from millstream.errors import MillstreamError, ShardReadOnly, StoreAway
from millstream.store.checkpoints import Checkpoints, Sections
from millstream.store.cold.plan import ColdPlan
from millstream.store.cold.tier import ColdTier
from millstream.store.controls import Controls
from millstream.store.copies import Copies
from millstream.store.disk.blocks import BlockCache
from millstream.store.disk.files import File, Files, ensure_dir
from millstream.store.disk.lock import lock_directory
from millstream.store.disk.open_files import OpenFiles
from millstream.store.disk.worker import FileWorker, InlineWorker, ThreadWorker
from millstream.store.engines import LocalEngines
from millstream.store.log.control_frames import RESERVE
from millstream.store.log.derived import Derivation
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Committed, Durability, Staged
from millstream.store.log.memory_log import MemoryLog
from millstream.store.log.overwrite import finish_last
from millstream.store.log.snapshot import Snapshot, load_snapshots
from millstream.store.options import StoreOptions
from millstream.store.recovery.rebuild import Logs
from millstream.store.recovery.recovery import Control, Recovery
from millstream.store.recovery.replay import Replay, replay_all
from millstream.store.segments.segment import Keeping, Segment
from millstream.store.shard import shard_number, shards_on_disk
from millstream.store.shards import Engines, Shards
from millstream.store.tending import Tending
from millstream.store.wal.committer import Post
from millstream.store.wal.local_engine import BOOT_MASK, shard_directory
from millstream.store.wal.marks import RESERVED, highest, load_marks
from millstream.store.wal.pressure import Pressure
from millstream.store.wal.submission import Submission
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)

AWAY = "away"  # the problem that passes by itself


class SegmentPlan(msgspec.Struct, frozen=True):
    """A sealed segment that other processes may read in place."""

    path: str
    idx_path: str
    base_seq: int
    last_seq: int
    bytes: int


class Store:
    """Opened once per process and directory; everything but ``open`` runs on the loop.

    ``post`` takes calls of any thread to the loop. ``defer`` takes those of the loop to its next
    turn, at a moment that suits it.
    """

    def __init__(
        self,
        directory: str,
        files: Files,
        clock: Clock,
        post: Post,
        options: StoreOptions,
        supervisor: Supervisor,
        defer: Post,
        engines: Engines | None = None,
    ) -> None:
        self.directory = directory
        self.files = files
        self.clock = clock
        self._post = post
        self.options = options
        self.supervisor = supervisor
        self.worker: FileWorker = self._make_worker("files")
        self.syncer: FileWorker = self._make_worker("syncs")
        self.syncs_soon = options.syncs_soon
        self.quiet_age = options.quiet_age
        self.keeping = Keeping(
            options.ring, BlockCache(options.block_cache_bytes), OpenFiles(options.open_files)
        )
        self.cold = ColdTier(self, options.cold, options.threads)
        self._rewriting = False
        self.recovery = Recovery()
        self.logs: dict[int, FileLog] = {}
        self._defer = defer
        self.pressure = Pressure()  # high while more waits for its commit than should
        self._engines = engines or LocalEngines(files, directory, options)
        self.shards = Shards(
            directory, files, clock, post, defer, options, self._engines, self, self.pressure,
            supervisor,
        )  # fmt: skip
        self._controls = Controls(clock, self.shards, post)
        self._copies = Copies(self.shards, self._controls, self.log)
        self._checkpoints = Checkpoints(self, self.shards, self._controls)
        self._tending = Tending(self)
        self._unsynced: set[FileLog] = set()
        self._promised: set[FileLog] = set()  # logs that have promised sequences ahead
        self._dead: list[tuple[int, Segment]] = []  # files to remove once this position is stable
        self._problems: dict[str, str] = {}
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
        supervisor: Supervisor | None = None,
        defer: Post | None = None,
        engines: Engines | None = None,
    ) -> "Store":
        """Lock the directory and recover it; raises ``StorageUnusable`` rather than guess.

        ``engines`` commit elsewhere than in files of the directory.
        """
        options = options or StoreOptions()
        lock = lock_directory(files, directory)
        supervisor = supervisor or Supervisor()
        store = cls(directory, files, clock, post, options, supervisor, defer or post, engines)
        try:
            store._lock = lock
            store._recover()
        except BaseException:
            store.worker.close()
            store.syncer.close()
            store.cold.close()
            lock.close()
            raise
        return store

    # --- starting

    def _make_worker(self, name: str) -> FileWorker:
        if not self.options.threads:
            return InlineWorker()
        return ThreadWorker(self._post, name, self.supervisor, self._worker_ended)

    def _worker_ended(self, error: BaseException) -> None:
        """Take no more writes: without its file threads the store would keep them in memory."""
        self.shards.refuse(f"a thread that writes its files ended ({error!r})")

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
        boot = xxh3_64_intdigest(self._engines.boot_id().encode()) & BOOT_MASK
        replays = self._replay(logs, snapshot, boot)
        newest = max(replays, key=lambda replay: replay.wal.epoch)
        _, nonce = max(replay.wal.ran for replay in replays)  # later starts may have been cut off
        before = (nonce or newest.wal.last_nonce) & BOOT_MASK
        cut = any(replay.damage.is_cut for replay in replays)  # as good as a power cut
        if not any(replay.wal.files for replay in replays):  # none that could name the boot
            cut = any(replay.wal.is_emptied for replay in replays)
        named = {control.log_id for replay in replays for control in replay.controls}
        logs.finish(cut or (bool(newest.wal.files) and before != boot), highest(marks), named)
        for run, data in logs.relog:
            replays[shard_number(run.stream_id, options.shards)].relog.append((run, data))
        self.logs = logs.logs
        self._controls.number = max(replay.control_number for replay in replays)
        self._checkpoints.found(snapshots)
        self._checkpoints.dropped = logs.dropped
        self._copies.found(logs.copied_from, {each.shard: each.position for each in replays})
        self._harden(logs, [replay.shard for replay in replays])
        for replay in replays:
            self._give_back(replay)
        self.shards.start(replays, boot, marks, self.logs)
        self._remove_orphans([path for each in replays for path in each.wal.unused] + logs.strays)
        self._recovering = False
        for log_id, seqs in sorted(logs.erased.items()):
            if log_id in self.logs:
                self.logs[log_id].erasure.again(seqs)
        for each in self.logs.values():
            each.removal.drop_dead_segments()
            each.promise.keep()
        self._remove_dead()
        controls = [control for replay in replays for control in replay.controls]
        self.recovery = Recovery(
            logs=logs.recovered,
            controls=sorted(controls, key=lambda control: control.number),
            sections=dict(snapshot.sections) if snapshot else {},
            torn_bytes=sum(replay.damage.torn_bytes for replay in replays),
            damaged_bytes=sum(replay.damage.bytes for replay in replays),
            seconds=self.clock.monotonic() - started,
        )

    def _replay(self, logs: Logs, snapshot: Snapshot | None, boot: int) -> list[Replay]:
        """Replay every shard that there is or ever was, those in use first."""
        known = {*shards_on_disk(self.files, self.directory), *range(self.options.shards)}
        known.update(snapshot.positions if snapshot else ())
        replays = [
            Replay(self.files, logs, snapshot, self.options.ring, shard, boot)
            for shard in sorted(known)
        ]
        for replay in replays:
            replay.wal.find(shard_directory(self.directory, replay.shard))
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
        for wal in replay.wal.files:
            file = self.files.open(wal.path)
            try:
                if file.size() > wal.used:
                    file.truncate(wal.used)
            finally:
                file.close()

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
            gone = len(name) == 16 and int(name, 16) in self._checkpoints.dropped
            if gone and self._copies.need(int(name, 16)):  # the next start may copy again
                self._copies.hold_directory(int(name, 16))
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
        found = self._create_log(log_id, self._engines.kept_as(durability))
        found.compressed = compressed
        return found

    def _create_log(self, log_id: int, durability: Durability) -> FileLog:
        existing = self.logs.get(log_id)
        if existing is not None:
            if Durability.EPHEMERAL not in (durability, existing.durability):
                existing.durability = durability
            return existing
        if durability is Durability.EPHEMERAL:
            options = self.options.log
            made: FileLog = MemoryLog(self.files, self.clock, self._defer, log_id, options)
        else:
            made = self._make_log(log_id, durability)
        self.logs[log_id] = made
        return made

    def log(self, log_id: int) -> FileLog | None:
        """Return the log of this id."""
        return self.logs.get(log_id)

    def log_ids(self) -> list[int]:
        """Return the ids of all logs, ascending."""
        return sorted(self.logs)

    def drop_log(self, log_id: int) -> None:
        """Remove a log and its files; the caller has logged that its stream is gone."""
        dropped = self.logs.pop(log_id, None)
        if dropped is None:
            return
        self._unsynced.discard(dropped)
        self._promised.discard(dropped)
        if dropped.durability is not Durability.EPHEMERAL:
            self._checkpoints.dropped.add(log_id)
        if self._copies.need(log_id):
            self._copies.hold_log(dropped)
            dropped.abandon()
        else:
            dropped.abandon()
            dropped.remove_files()

    # --- what logs ask of the store

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        return self._post(callback)

    def check(self, log_id: int) -> None:
        """Raise when the log's shard takes no writes."""
        if self._problems:
            if away := self._problems.get(AWAY):
                raise StoreAway(away)
            self.shards.committer(log_id).check()

    def say_away(self, why: str) -> None:
        """Refuse writes for now, as what commits them gives no answer; "" takes that back.

        What is under way stays so: it may come true (rule 16).
        """
        if why:
            self._problems[AWAY] = why
        else:
            self._problems.pop(AWAY, None)

    def submit(self, submission: Submission, at_once: bool = False) -> None:
        """Queue frames for commit; ``at_once`` asks for it before this returns, if it can be."""
        self.shards.committer(submission.stream_id).submit(submission, at_once)

    def unsynced(self, log: FileLog) -> None:
        """Note that the log waits for the next timer sync."""
        self._unsynced.add(log)

    def promised(self, log: FileLog) -> None:
        """Note that the log has promised sequences ahead."""
        self._promised.add(log)

    def written_position(self, log_id: int) -> int:
        """Return the newest position of the log's shard that is written."""
        return self.shards.committer(log_id).positions.confirmed

    def remove(self, segment: Segment) -> None:
        """Remove a dead segment's files once the frames that killed it are stable.

        Otherwise a power cut could take the frames and leave records missing without a reason.
        """
        if self._copies.need(segment.log_id):
            self._copies.hold_segment(segment)
            return
        if self._recovering:
            self._dead.append((0, segment))
            return
        self._dead.append((self.written_position(segment.log_id), segment))
        self._remove_dead()

    def may_erase(self, log_id: int) -> bool:
        """Say whether no replay copies from a log any more; otherwise a snapshot is due."""
        if not self._copies.need(log_id):
            return True
        self._copies.erase_waits = True
        return False

    def may_rewrite(self, log_id: int, position: int) -> bool:
        """Say whether records that were dead at ``position`` may go; position 0 asks for a turn.

        A replay may have to copy also dead records from a log, until a snapshot says otherwise.
        """
        if self._copies.need(log_id) or self._closed or self._problems:
            return False
        if not position:
            return not self._rewriting
        return position <= self.shards.of(log_id).synced_position

    def rewriting(self, is_rewriting: bool) -> None:
        """Note that a rewrite began or ended: there is one at a time."""
        self._rewriting = is_rewriting

    def _remove_dead(self) -> None:
        dead, self._dead = self._dead, []
        for needs, segment in dead:
            if needs > self.shards.of(segment.log_id).synced_position:
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
        return self._checkpoints.covered_seq(log_id)

    def may_move(self, log_id: int) -> bool:
        """Say whether no replay needs the log's files where they are."""
        return not self._copies.need(log_id) and not self._closed and not self._problems

    def withdraw(
        self, log_id: int, segments: list[Segment], done: Callable[[Exception | None], None]
    ) -> bool:
        """Have nothing left of segments at the cold place, then call; False without a place."""
        found = self.logs.get(log_id)
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
        tells = (((RESERVED, log_id), int(body)),) if kind == RESERVE and sync else ()
        self._controls.log(kind, log_id, body, done, sync, (), tells, can_wait, apart)

    def derive(self, derivation: Derivation, staged: Sequence[Staged], done: Committed) -> None:
        """Log what copies were made of, in one frame; they commit with it, then ``done`` is told.

        The caller staged them just now: nothing else may have been appended to their logs since,
        so that the frame stands where their own frames would. From here on a replay needs the
        source's files, however soon their records are trimmed.
        """
        self._copies.derive(derivation, staged, done)

    def _release_sources(self, positions: dict[int, int]) -> None:
        """Remove what was kept for copies that a snapshot at ``positions`` vouches for."""
        released = self._copies.release(positions)
        if released.erases:
            for each in list(self.logs.values()):
                each.erasure.step()
        for segment in released.segments:
            self.remove(segment)
        for dropped in released.logs:
            dropped.remove_files()
        for log_id in released.directories:
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
        """Return control frames to commit with records, and what to call with the outcome."""
        return self._controls.joined(kind, log_id, body, done)

    @property
    def backlog_bytes(self) -> int:
        """Return how many bytes wait for their commit."""
        return self.shards.backlog_bytes

    @property
    def is_full(self) -> bool:
        """Say whether more waits for its commit than should."""
        return self.pressure.is_high

    def gather(self, seconds: float) -> None:
        """Have commits wait so long for more to join them: fewer syncs, later answers."""
        self.shards.gather(seconds)

    def hurry(self, log_id: int) -> None:
        """Commit what waits in a log's shard now, without waiting for more to join it."""
        self.shards.committer(log_id).hurry()

    @property
    def synced_position(self) -> int:
        """Return how many positions of the WAL, over all shards, are on stable storage."""
        return self.shards.synced_position

    def on_synced(self, shard: int, position: int) -> None:
        """Tell the logs of a shard that everything up to ``position`` is stable."""
        if self._unsynced:
            waiting = [each for each in self._unsynced if self._is_in(shard, each)]
            for dirty in [each for each in waiting if each.note_synced(position)]:
                self._unsynced.discard(dirty)
        if self._promised:
            self._rest(each for each in self._promised if self._is_in(shard, each))
        self._problems.pop(f"full {shard}", None)
        if self._dead:
            self._remove_dead()

    def _rest(self, logs: Iterable[FileLog]) -> None:
        """Have logs that fell quiet end their promises: after a power cut nothing is in doubt."""
        if not self._closed:
            self._promised.difference_update([each for each in list(logs) if each.promise.rest()])

    def on_failed(self, shard: int, error: MillstreamError) -> None:
        """Have the logs of a shard take back what is not committed, and say so in the health."""
        kind = "read_only" if isinstance(error, ShardReadOnly) else "full"
        self._problems[f"{kind} {shard}"] = str(error)
        if kind == "full":
            self._checkpoints.hurry()
        for each in self.logs.values():
            if each.durability is Durability.EPHEMERAL:
                continue
            if self._is_in(shard, each):
                each.rewind()

    def _is_in(self, shard: int, log: FileLog) -> bool:
        return self.shards.of(log.log_id).number == shard

    def health(self) -> list[str]:
        """Return what is wrong, in words; empty means healthy.

        That is also what the supervisor knows of everything else that it runs in this server.
        """
        return [*self._problems.values(), *self.cold.health(), *self.supervisor.problems()]

    # --- time

    def tick(self) -> None:
        """Call about once a second: seals by age and flushes, where logs are few all of them."""
        some = self._tending.next()
        self._rest(self._promised)
        if not self._closed:
            self.cold.tick(some, self.logs)

    def pump(self) -> None:
        """Commit what is queued now; only without threads."""
        self.shards.pump()

    def mark(self) -> None:
        """Let an idle WAL say how far it is synced; only without threads."""
        self.shards.mark()

    # --- checkpoints

    @property
    def checkpoint_due(self) -> bool:
        """Say whether the WAL has grown enough since the last snapshot to be worth one."""
        gap = self.options.cold.checkpoint_gap if self.cold.wants_checkpoint else None
        if self._engines.is_snapshot_due and not self._checkpoints.is_running:
            return True
        return self._checkpoints.is_due(self._copies.erase_waits, gap)

    def checkpoint(self, sections: Sections) -> None:
        """Write a snapshot of what is committed now; then WAL files that it covers go.

        Who has much to say gives a call instead, which a file thread makes. That may tell of a
        later moment: the WAL tells of what came between once more.
        """
        if self._checkpoints.is_running:
            return
        self._checkpoints.take(sections, self._checkpointed)

    def checkpoint_soon(self, sections: Callable[[], Sections]) -> None:
        """Checkpoint once those who waited for a control frame have taken in that it is there."""
        if self._closed:
            return
        if self._controls.are_fresh:
            self._post(partial(self.checkpoint_soon, sections))
            return
        self.checkpoint(sections())

    def _checkpointed(self, positions: dict[int, int], failed: str) -> None:
        if failed:
            self._problems["checkpoint"] = failed
            return
        self._problems.pop("checkpoint", None)
        self._release_sources(positions)

    def renew(self, named: Sequence[tuple[int, int, bytes]] = ()) -> None:
        """Let two new snapshots of what is there now take the place of all WAL.

        For a repair, before anything is appended, with every segment sealed. The layers above have
        not been here: their control frames are logged again, and ``named`` (kind, log, body)
        behind them.
        """
        controls = list(self.recovery.controls)
        for kind, log_id, body in named:
            self._controls.number += 1
            controls.append(Control(kind, log_id, body, self._controls.number))
        self._checkpoints.replace_wal(controls, self.recovery.sections)

    # --- reading in place

    def plan(self, log_id: int) -> list[SegmentPlan]:
        """Return the sealed segments of a log that need no key and no decompression, in order.

        From the first one on that does, everything is the tail, which the server reads out. Cold
        ones are left out: the server reads those too, or ``cold_plan`` names their twins.
        """
        found = self.logs.get(log_id)
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
        found = self.logs.get(log_id)
        return ([], []) if found is None else self.cold.plan(found)

    # --- the end

    def close(self, sections: Sections | None = None) -> None:
        """Commit and sync what was accepted and stop; with ``sections`` checkpoint as well."""
        if self._closed:
            return
        self._closed = True
        self.cold.close()
        self.worker.close()
        self.syncer.close()
        self.worker = self.syncer = InlineWorker()
        self._checkpoints.finish()
        for each in self._promised:
            each.promise.end()
        self.shards.stop()
        self._remove_dead()
        if sections is not None and not self._problems and not self._controls.are_open:
            self.checkpoint(sections)
        for each in self.logs.values():
            each.close()
        self._copies.close()
        if self._lock is not None:
            self._lock.close()


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
