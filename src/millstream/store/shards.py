"""Shards: all write-ahead logs of a store, started, asked and stopped together.

Those of an earlier run that had more are left over: they take nothing any more, and their files go
once two snapshots cover them.
"""

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from millstream.clock import Clock
from millstream.errors import MillstreamError, StorageFull
from millstream.kernel._frames import encode_control
from millstream.store.disk.files import Files
from millstream.store.log.file_log import FileLog
from millstream.store.options import StoreOptions
from millstream.store.recovery.recovery import Control
from millstream.store.recovery.replay import Replay
from millstream.store.shard import Shard, shard_number
from millstream.store.wal.committer import Committer, Post
from millstream.store.wal.entry import Run, encode_entry
from millstream.store.wal.local_engine import LocalEngine, shard_directory, wal_indexes, wal_name
from millstream.store.wal.marks import SYNCED, Known, Marks
from millstream.supervisor import Supervisor

Synced: TypeAlias = Callable[[Shard, int], None]
Failed: TypeAlias = Callable[[Shard, MillstreamError], None]

JOINED_BYTES = 64 << 10  # logged again in one entry; what is longer stands alone, and uncopied


class Shards:
    """The shards in use, and those that are left over."""

    def __init__(
        self,
        directory: str,
        files: Files,
        clock: Clock,
        post: Post,
        options: StoreOptions,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._directory = directory
        self._files = files
        self._clock = clock
        self._post = post
        self._options = options
        self._supervisor = supervisor or Supervisor()
        self.soon = post  # where calls from the loop to itself go
        self.in_use: list[Shard] = []
        self._left_over: list[Shard] = []
        self._behind: set[int] = set()  # shards above their high water
        self.on_pressure: Callable[[bool], None] = lambda pressed: None
        self.on_synced: Synced = lambda shard, position: None
        self.on_failed: Failed = lambda shard, error: None

    # --- starting

    def start(
        self,
        replays: list[Replay],
        boot: int,
        marks: dict[int, Known],
        logs: dict[int, FileLog],
    ) -> None:
        """Go on where the replays ended; what they found unproven is written anew first."""
        epoch = max(replay.epoch for replay in replays) + 1
        nonce = (self._options.nonce or secrets.randbits(32)) << 32 | boot
        for replay in replays:
            shard = self._start_shard(replay, epoch, nonce)
            if replay.shard < self._options.shards:
                self.in_use.append(shard)
                shard.committer = self._make_committer(shard, epoch, nonce)
                found = marks.get(shard.number, {})
                shard.committer.marks = self._make_marks(shard.number, found, logs)
            else:
                self._left_over.append(shard)
                shard.engine.close()

    def _start_shard(self, replay: Replay, epoch: int, nonce: int) -> Shard:
        options = self._options
        engine = LocalEngine(
            self._files,
            shard_directory(self._directory, replay.shard),
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
        if entries or replay.begins_late:
            self._begin(engine, entries)
        return Shard(replay.shard, engine)

    def _begin(self, engine: LocalEngine, entries: list[tuple[bytes, bytes]]) -> None:
        try:
            engine.begin(entries)
        except StorageFull as error:
            size = sum(len(part) for entry in entries for part in entry)
            raise StorageFull(
                f"no space left in {self._directory}: before it serves, a start writes anew what "
                f"no sync had covered, {size:,} bytes; free some space and start again"
            ) from error

    def _make_committer(self, shard: Shard, epoch: int, nonce: int) -> Committer:
        options = self._options
        committer = Committer(
            shard.engine,
            epoch,
            nonce,
            self._clock,
            self._post,
            options.dirty_age,
            options.dirty_bytes,
            options.high_water,
            options.entry_bytes,
            self._supervisor,
        )
        committer.soon = self.soon
        committer.ring = options.ring if options.ring.seals else None
        committer.on_synced = lambda position: self.on_synced(shard, position)
        committer.on_failed = lambda error: self.on_failed(shard, error)
        committer.on_pressure = partial(self._pressed, shard.number)
        if options.threads:
            committer.start()
        return committer

    def _make_marks(self, shard: int, found: Known, logs: dict[int, FileLog]) -> Marks:
        """Go on with a shard's marks; what this start has kept is stable, marked or not."""
        mine = [g for i, g in logs.items() if shard_number(i, self._options.shards) == shard]
        stable = {(SYNCED, each.log_id): each.committed_seq for each in mine if each.committed_seq}
        ids = {each.log_id for each in mine}
        known = {key: seq for key, seq in found.items() if key[1] in ids}
        due = {key: seq for key, seq in stable.items() if seq > known.get(key, 0)}
        return Marks(self._files, f"{self._directory}/meta", shard, known, due)

    def _pressed(self, shard: int, pressed: bool) -> None:
        """Hold publishers back while any shard is behind."""
        before = bool(self._behind)
        (self._behind.add if pressed else self._behind.discard)(shard)
        if bool(self._behind) != before:
            self.on_pressure(bool(self._behind))

    def _entries(
        self, pieces: list[tuple[Run, bytes]], durable: int, epoch: int, nonce: int
    ) -> list[tuple[bytes, bytes]]:
        """Return entries for what recovery decided above the durable mark."""
        entries: list[tuple[bytes, bytes]] = []
        position = durable + 1
        while pieces:
            size, take = len(pieces[0][1]), 1
            while take < len(pieces) and size + len(pieces[take][1]) <= JOINED_BYTES:
                size += len(pieces[take][1])
                take += 1
            runs = [run for run, _ in pieces[:take]]
            parts = [data for _, data in pieces[:take]]
            ring = self._options.ring
            entries.append(
                encode_entry(
                    position, epoch, nonce, durable, True, runs, parts, ring=ring, again=True
                )
            )
            position += 1
            del pieces[:take]
        return entries

    # --- asking

    def of(self, log_id: int) -> Shard:
        """Return the shard that a log's frames go into."""
        shards = self.in_use
        return shards[0] if len(shards) == 1 else shards[shard_number(log_id, len(shards))]

    def committer(self, log_id: int) -> Committer:
        """Return who commits a log's frames."""
        committer = self.of(log_id).committer
        assert committer is not None
        return committer

    @property
    def committers(self) -> list[Committer]:
        """Return the committers of all shards in use."""
        return [shard.committer for shard in self.in_use if shard.committer is not None]

    @property
    def is_behind(self) -> bool:
        """Say whether more waits for its commit than should."""
        return bool(self._behind)

    @property
    def backlog_bytes(self) -> int:
        """Return how many bytes wait for their commit."""
        return sum(committer.backlog_bytes for committer in self.committers)

    @property
    def written(self) -> int:
        """Return how many bytes were written since the start."""
        return sum(shard.engine.written for shard in self.in_use)

    @property
    def synced_position(self) -> int:
        """Return how many positions, over all shards in use, are on stable storage."""
        return sum(shard.engine.synced_position for shard in self.in_use)

    def positions(self) -> dict[int, int]:
        """Return up to where the loop has seen each shard that there ever was."""
        return {s.number: s.applied_position for s in (*self.in_use, *self._left_over)}

    # --- telling

    def gather(self, seconds: float) -> None:
        """Have commits wait so long for more to join them."""
        for committer in self.committers:
            committer.window = seconds

    def pump(self) -> None:
        """Commit what is queued now; only without threads."""
        for committer in self.committers:
            while committer.step():
                pass

    def mark(self) -> None:
        """Let an idle WAL say how far it is synced; only without threads."""
        for committer in self.committers:
            committer.tick()

    def refuse(self, why: str) -> None:
        """Take nothing more in any shard."""
        for committer in self.committers:
            committer.refuse(why)

    def stop(self) -> None:
        """Commit and sync what was accepted, and end the threads."""
        for committer in self.committers:
            committer.stop()

    # --- files

    def drop_below(self, positions: dict[int, int]) -> None:
        """Remove files that hold nothing above ``positions``: those of the older snapshot."""
        for shard in (*self.in_use, *self._left_over):
            directory = shard_directory(self._directory, shard.number)
            position = positions.get(shard.number, 0)
            history = shard.engine.history
            while len(history) > 1 and history[1][1] <= position + 1:
                shard.engine.forget(history[0][0])
                self._files.unlink(f"{directory}/{wal_name(history[0][0])}")
                del history[0]
            if shard.committer is None and history and shard.applied_position <= position:
                self._files.unlink(f"{directory}/{wal_name(history[0][0])}")
                history.clear()

    def begin_anew(self, controls: Iterable[Control]) -> None:
        """Begin a file with these frames in each shard that is in use."""
        pieces: list[list[tuple[Run, bytes]]] = [[] for _ in self.in_use]
        for each in controls:
            now = self._clock.time_ns()
            frames = encode_control(each.kind, each.log_id, each.number, now, each.body) * 2
            run = Run(each.log_id, 0, 2, len(frames))
            pieces[shard_number(each.log_id, len(pieces))].append((run, frames))
        for shard, mine in zip(self.in_use, pieces, strict=True):
            engine = shard.engine
            engine.begin(self._entries(mine, engine.position - 1, *engine.stamp))

    def drop_old(self) -> None:
        """Remove every file but those that grow."""
        for shard in (*self.in_use, *self._left_over):
            directory = shard_directory(self._directory, shard.number)
            for index in wal_indexes(self._files, directory):
                if shard.committer is None or index != shard.engine.index:
                    self._files.unlink(f"{directory}/{wal_name(index)}")
            if self._files.exists(directory):
                self._files.sync_dir(directory)
