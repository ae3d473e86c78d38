"""Shards: all write-ahead logs of a store, started, asked and stopped together.

Those of an earlier run that had more are left over: they take nothing any more, and their files go
once two snapshots cover them.
"""

import secrets
from collections.abc import Iterable
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import MillstreamError, StorageFull
from millstream.kernel._frames import encode_control
from millstream.store.disk.files import Files
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.recovery.recovery import Control
from millstream.store.recovery.replay import Replay
from millstream.store.shard import Shard, shard_number
from millstream.store.wal.commit import CommitEngine
from millstream.store.wal.commit_queue import Limits
from millstream.store.wal.committer import Committer, Post
from millstream.store.wal.entry import FrameRun, encode_entry
from millstream.store.wal.marks import SYNCED, Known, Marks
from millstream.store.wal.pressure import Pressure
from millstream.supervisor import Supervisor

JOINED_BYTES = 64 << 10  # logged again in one entry; what is longer stands alone, and uncopied


class Engines(Protocol):
    """Makes the engine of each shard, and says what is true of all of them."""

    @property
    def is_snapshot_due(self) -> bool:
        """Say whether a snapshot should come, however little was written."""
        ...

    def boot_id(self) -> str:
        """Return what changes whenever entries that were not synced may have been lost."""
        ...

    def kept_as(self, durability: Durability) -> Durability:
        """Return the class that logs of a class are kept as."""
        ...

    def open(self, replay: Replay, epoch: int, nonce: int) -> CommitEngine:
        """Return an engine that goes on where a replay ended."""
        ...


class ShardsHost(Protocol):
    """Who hears what becomes of a shard, by its number."""

    def on_synced(self, shard: int, position: int) -> None:
        """Everything up to ``position`` is on stable storage."""
        ...

    def on_failed(self, shard: int, error: MillstreamError) -> None:
        """Take back what is not committed."""
        ...


class _Told:
    """Says which shard it was."""

    def __init__(self, shard: int, host: ShardsHost, pressure: Pressure) -> None:
        self._shard = shard
        self._host = host
        self._pressure = pressure

    def on_synced(self, position: int) -> None:
        self._host.on_synced(self._shard, position)

    def on_failed(self, error: MillstreamError) -> None:
        self._host.on_failed(self._shard, error)

    def on_pressure(self, is_held: bool) -> None:
        self._pressure.set(self._shard, is_held)


class Shards:
    """The shards in use, and those that are left over.

    ``post`` takes calls of any thread to the loop, ``defer`` those of the loop to its next turn.
    """

    def __init__(
        self,
        directory: str,
        files: Files,
        clock: Clock,
        post: Post,
        defer: Post,
        options: StoreOptions,
        engines: Engines,
        host: ShardsHost,
        pressure: Pressure,
        supervisor: Supervisor,
    ) -> None:
        self._directory = directory
        self._files = files
        self._clock = clock
        self._post = post
        self._defer = defer
        self._options = options
        self._engines = engines
        self._host = host
        self._pressure = pressure
        self._stamp = (0, 0)  # epoch and nonce of this start
        self._supervisor = supervisor
        self.in_use: list[Shard] = []
        self._left_over: list[Shard] = []

    # --- starting

    def start(
        self,
        replays: list[Replay],
        boot: int,
        marks: dict[int, Known],
        logs: dict[int, FileLog],
    ) -> None:
        """Go on where the replays ended; what they found unproven is written anew first."""
        epoch = max(replay.wal.epoch for replay in replays) + 1
        self._stamp = (epoch, (self._options.nonce or secrets.randbits(32)) << 32 | boot)
        for replay in replays:
            engine = self._start_engine(replay)
            if replay.shard < self._options.shards:
                mine = self._make_marks(replay.shard, marks.get(replay.shard, {}), logs)
                committer = self._make_committer(replay.shard, engine, mine)
                self.in_use.append(Shard(replay.shard, engine, committer))
            else:
                self._left_over.append(Shard(replay.shard, engine))
                engine.retire()

    def _start_engine(self, replay: Replay) -> CommitEngine:
        engine = self._engines.open(replay, *self._stamp)
        entries = self._entries(replay.relog, engine.position - 1)
        if entries or replay.wal.begins_late:
            self._begin(engine, entries)
        return engine

    def _begin(self, engine: CommitEngine, entries: list[tuple[bytes, bytes]]) -> None:
        try:
            engine.begin(entries)
        except StorageFull as error:
            size = sum(len(part) for entry in entries for part in entry)
            raise StorageFull(
                f"no space left in {self._directory}: before it serves, a start writes anew what "
                f"no sync had covered, {size:,} bytes; free some space and start again"
            ) from error

    def _make_committer(self, shard: int, engine: CommitEngine, marks: Marks) -> Committer:
        options = self._options
        committer = Committer(
            engine,
            self._stamp,
            self._clock,
            self._post,
            self._defer,
            _Told(shard, self._host, self._pressure),
            Limits(
                dirty_age=options.dirty_age,
                dirty_bytes=options.dirty_bytes,
                high_water=options.high_water,
                entry_bytes=options.entry_bytes,
                seals=options.ring.seals,
            ),
            options.ring if options.ring.seals else None,
            marks,
            shard,
            self._supervisor,
        )
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

    def _entries(
        self, pieces: list[tuple[FrameRun, bytes]], durable: int
    ) -> list[tuple[bytes, bytes]]:
        """Return entries for what recovery decided above the durable mark."""
        epoch, nonce = self._stamp
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
        shards = self.in_use
        shard = shards[0] if len(shards) == 1 else shards[shard_number(log_id, len(shards))]
        assert shard.committer is not None
        return shard.committer

    @property
    def committers(self) -> list[Committer]:
        """Return the committers of all shards in use."""
        return [shard.committer for shard in self.in_use if shard.committer is not None]

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
        return sum(shard.synced_position for shard in self.in_use)

    def positions(self) -> dict[int, int]:
        """Return up to where the loop has seen each shard that there ever was."""
        return {s.number: s.applied_position for s in (*self.in_use, *self._left_over)}

    # --- telling

    def gather(self, seconds: float) -> None:
        """Have commits wait so long for more to join them."""
        for committer in self.committers:
            committer.gather(seconds)

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

    # --- letting go

    def drop_below(self, positions: dict[int, int]) -> None:
        """Let go of what stands up to ``positions``: those of the older snapshot."""
        for shard in (*self.in_use, *self._left_over):
            shard.engine.drop_below(positions.get(shard.number, 0))

    def begin_anew(self, controls: Iterable[Control]) -> None:
        """Begin each shard that is in use with these frames, before anything is appended."""
        pieces: list[list[tuple[FrameRun, bytes]]] = [[] for _ in self.in_use]
        for each in controls:
            now = self._clock.time_ns()
            frames = encode_control(each.kind, each.log_id, each.number, now, each.body) * 2
            run = FrameRun(each.log_id, 0, 2, len(frames))
            pieces[shard_number(each.log_id, len(pieces))].append((run, frames))
        for committer, mine in zip(self.committers, pieces, strict=True):
            committer.begin(self._entries(mine, committer.positions.confirmed))

    def drop_old(self) -> None:
        """Let go of all that stands before ``begin_anew``."""
        for shard in (*self.in_use, *self._left_over):
            shard.engine.drop_before_begin()
