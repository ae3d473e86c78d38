"""Checkpoints: snapshots of what is committed, and the WAL files that each one sets free."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import msgspec

from millstream.clock import Clock
from millstream.store.controls import Controls
from millstream.store.disk.files import File, Files
from millstream.store.disk.worker import FileWorker
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.log.snapshot import (
    KEPT,
    LogSnapshot,
    Snapshot,
    snapshot_numbers,
    write_snapshot,
)
from millstream.store.options import StoreOptions
from millstream.store.recovery.recovery import Control
from millstream.store.segments.segment import Flush, Segment
from millstream.store.shards import Shards

ROOM_SHARE = 8  # the WAL grows by at most this part of the free space between snapshots
LEAST_STEP = 1 << 20
SHORT_GAP = 1.0  # seconds between snapshots while the disk is full

Work = list[tuple[FileLog, Segment, Flush]]
Taken = Callable[[Snapshot, str], None]  # with why it failed, nothing when it did not

log = logging.getLogger(__name__)


class CheckpointHost(Protocol):
    """What checkpoints need of the store."""

    files: Files
    clock: Clock
    directory: str
    options: StoreOptions
    worker: FileWorker
    syncer: FileWorker
    logs: dict[int, FileLog]


class _Round:
    """One checkpoint under way: what it writes, and the files that stay open until they are synced.

    A segment may be sealed or removed between the two.
    """

    def __init__(self, work: Work, snapshot: Snapshot) -> None:
        self.work = work
        self.snapshot = snapshot
        self.is_written = False
        self.is_put = False  # the snapshot is in its place
        self._open = ExitStack()
        self._written: list[tuple[Segment, File]] = []

    def write(self) -> None:
        """Hand to the files what they lack."""
        for _, segment, flush in self.work:
            if segment.made or flush.parts:
                segment.write(flush)
                if segment.cold is None:
                    self._written.append((segment, self._open.enter_context(segment.use())))
        self.is_written = True

    def sync(self) -> None:
        """Make stable what was written."""
        for segment, file in self._written:
            segment.sync_file(file)

    def close(self) -> None:
        """Leave the files to the segments."""
        self._open.close()


class Checkpoints:
    """Takes one at a time: decided on the loop, written by one file thread, synced by the other."""

    def __init__(self, host: CheckpointHost, shards: Shards, controls: Controls) -> None:
        self._host = host
        self._shards = shards
        self._controls = controls
        self._number = 0
        self._positions: list[dict[int, int]] = []  # of each shard, per snapshot that is kept
        self._seqs: list[dict[int, int]] = []  # of each log, likewise
        self._at = 0.0
        self._written_before = 0
        self._short = 0  # snapshots to make, since the disk was full: they set WAL free
        self.dropped: set[int] = set()  # logs that files or the WAL may still speak of
        self._dropped_lately: set[int] = set()  # as of the newest snapshot
        self._dropped_before: set[int] = set()  # as of the one before it
        self._current: _Round | None = None

    @property
    def is_running(self) -> bool:
        """Say whether one is under way."""
        return self._current is not None

    def found(self, snapshots: list[Snapshot]) -> None:
        """Go on behind the snapshots that a start has read, newest first."""
        meta = f"{self._host.directory}/meta"
        self._number = max(snapshot_numbers(self._host.files, meta), default=0)
        self._positions = [each.positions for each in reversed(snapshots)]
        self._seqs = [_seqs(each) for each in reversed(snapshots)]

    def hurry(self) -> None:
        """Make snapshots soon, as the disk is full and they set WAL files free."""
        self._short = KEPT

    def covered_seq(self, log_id: int) -> int:
        """Return up to where every snapshot that is kept knows a log."""
        if len(self._seqs) < KEPT:
            return 0
        return min(seqs.get(log_id, 0) for seqs in self._seqs)

    # --- when

    def is_due(self, wanted: bool, gap: float | None) -> bool:
        """Say whether the WAL has grown enough since the last one to be worth another.

        Sooner where the disk is full or somebody has ``wanted`` one, or once ``gap`` has passed.
        """
        if self._shards.written - self._written_before >= self._step():
            return True
        since = self._host.clock.monotonic() - self._at
        if self._short and not self.is_running:
            return since >= SHORT_GAP
        if wanted and not self.is_running:
            return True
        return gap is not None and since >= gap

    def _step(self) -> int:
        """Return how far the WAL grows between snapshots: less where there is little room."""
        share = self._host.files.free_bytes(self._host.directory) // ROOM_SHARE
        return min(self._host.options.checkpoint_step, max(share, LEAST_STEP))

    # --- one

    def take(self, sections: dict[str, bytes], taken: Taken) -> None:
        """Make the segments stable, then the snapshot that relies on them, then drop WAL files."""
        self._at = self._host.clock.monotonic()
        self._written_before = self._shards.written
        work: Work = []
        for each in self._host.logs.values():
            if each.durability is not Durability.EPHEMERAL:
                open_segments = [s for s in each.segments if not s.sealed or s.flags]
                work += [(each, s, s.unflushed(each.committed_seq)) for s in open_segments]
        self._current = current = _Round(work, self._capture(sections, work))
        self._host.worker.run(current.write, partial(self._written, current, taken))

    def finish(self) -> None:
        """Bring the one that is under way to its end: the store is closed, its file threads ended.

        One that could not be written is given up: the WAL has what it would have covered.
        """
        current = self._current
        if current is not None and current.is_written and not current.is_put:
            try:
                self._settle(current)
            except Exception as error:
                log.error("checkpoint failed error=%s", error)
        if current is not None:
            current.close()
            self._current = None

    def _goes_on(self, current: _Round, taken: Taken, error: Exception | None) -> bool:
        """Say whether the next step is due; a step that failed ends the checkpoint."""
        if current is self._current and error is not None:
            self._taken(current, taken, error)
        return current is self._current

    def _written(self, current: _Round, taken: Taken, error: Exception | None) -> None:
        if self._goes_on(current, taken, error):
            settled = partial(self._settled, current, taken)
            self._host.syncer.run(partial(self._settle, current), settled)

    def _settle(self, current: _Round) -> None:
        current.sync()
        self._put(current.snapshot)
        current.is_put = True

    def _settled(self, current: _Round, taken: Taken, error: Exception | None) -> None:
        if self._goes_on(current, taken, error):
            kept = self._positions[-1] if self._positions else {}
            drop = partial(self._shards.drop_below, kept)
            self._host.worker.run(drop, partial(self._taken, current, taken))

    def _taken(self, current: _Round, taken: Taken, error: Exception | None) -> None:
        if current is not self._current:
            return
        current.close()
        self._current = None
        if error is not None:
            for _, segment, flush in current.work:
                segment.flags = flush.flags + segment.flags
            why = error.strerror if isinstance(error, OSError) else error
            log.error("checkpoint failed error=%s", error)
            taken(current.snapshot, f"the last checkpoint failed: {why}")
            return
        self._short = max(self._short - 1, 0)
        self._positions = [*self._positions[-1:], current.snapshot.positions]
        self._seqs = [*self._seqs[-1:], _seqs(current.snapshot)]
        for each, segment, flush in current.work:
            each.files.checkpointed(segment, flush)
        taken(current.snapshot, "")

    def _capture(self, sections: dict[str, bytes], work: Work) -> Snapshot:
        """Describe the state of this moment; the WAL position was reached before it."""
        self._number += 1
        ends: dict[int, dict[int, int]] = {}
        for each, segment, flush in work:
            ends.setdefault(each.log_id, {})[segment.base_seq] = flush.end
        positions = self._shards.positions()
        return Snapshot(
            number=self._number,
            position=positions.pop(0),
            control_number=self._controls.applied_number,
            logs=[
                LogSnapshot.of(each, ends.get(each.log_id, {}))
                for each in self._host.logs.values()
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
        streams, exists = f"{self._host.directory}/streams", self._host.files.exists
        settled = {i for i in self._dropped_before if not exists(f"{streams}/{i:016x}")}
        self.dropped -= settled
        self._dropped_before = self._dropped_lately
        self._dropped_lately = set(self.dropped)
        return sorted(self.dropped)

    def _put(self, snapshot: Snapshot) -> None:
        host = self._host
        write_snapshot(host.files, f"{host.directory}/meta", snapshot, host.options.ring)

    # --- instead of the WAL

    def replace_wal(self, controls: list[Control], sections: dict[str, bytes]) -> None:
        """Let two new snapshots of what is there now take the place of all WAL.

        ``controls`` are for the layers above, which have not been here: they are logged again.
        """
        before = controls[0].number - 1 if controls else self._controls.number
        snapshot = msgspec.structs.replace(self._capture(sections, []), control_number=before)
        self._shards.begin_anew(controls)
        for _ in range(KEPT):
            self._put(snapshot)
            snapshot = msgspec.structs.replace(snapshot, number=snapshot.number + 1)
        self._shards.drop_old()


def _seqs(snapshot: Snapshot) -> dict[int, int]:
    """Return how far a snapshot knows each log."""
    return {each.log_id: each.committed_seq for each in snapshot.logs}
