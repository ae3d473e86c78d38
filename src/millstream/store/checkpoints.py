"""Checkpoints: snapshots of what is committed, and the WAL files that each one sets free."""

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from millstream.clock import Clock
from millstream.store.controls import Controls
from millstream.store.disk.files import File, Files
from millstream.store.disk.keys import KeyRing
from millstream.store.disk.worker import FileWorker
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.log.snapshot import (
    KEPT,
    LogSnapshot,
    PackedSnapshot,
    Snapshot,
    packed,
    snapshot_numbers,
    write_snapshot,
)
from millstream.store.options import StoreOptions
from millstream.store.recovery.recovery import Control
from millstream.store.segments.segment import Flush, Segment
from millstream.store.shards import Shards

if TYPE_CHECKING:
    import msgspec

ROOM_SHARE = 8  # the WAL grows by at most this part of the free space between snapshots
LEAST_STEP = 1 << 20
SHORT_GAP = 1.0  # seconds between snapshots while the disk is full

Work = list[tuple[FileLog, Segment, Flush]]
Taken = Callable[[dict[int, int], str], None]  # positions, and why it failed or nothing
# What a part of the server has kept: the bytes, or who encodes them, on a file thread, or the items
# of a JSON list, taken on the loop some at a time.
Section = bytes | Callable[[], bytes] | Iterator[bytes]
Sections = Mapping[str, Section]
SLICE = 128  # logs that a checkpoint describes at a time, and files that it has open at most

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

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        ...


class _Round:
    """One checkpoint under way: some logs are described, written and synced at a time.

    What it says of a log may be younger than its positions. That is harmless: a start replays the
    WAL from there on, and skips what a log has already.
    """

    def __init__(
        self,
        number: int,
        positions: dict[int, int],
        control_number: int,
        sections: Sections,
        log_ids: list[int],
    ) -> None:
        self.number = number
        self.positions = positions
        self._control_number = control_number
        self._sections = sections
        self._lists: dict[str, list[bytes]] = {
            name: [] for name, said in sections.items() if isinstance(said, Iterator)
        }
        self._left = log_ids
        self._logs: list[msgspec.Raw] = []
        self.seqs: dict[int, int] = {}  # how far it knows each log that has sealed segments
        self.dropped: list[int] = []
        self.work: Work = []  # of the logs that were described last
        self.is_settled = True  # that is done
        self.is_put = False  # the snapshot is in its place
        self._open = ExitStack()
        self._written: list[tuple[Segment, File]] | None = []

        self._unheard = [*self._lists]  # sections whose items are not all there

    @property
    def is_described(self) -> bool:
        """Say whether everything is."""
        return not self._left and not self._unheard

    def describe_some(self, logs: dict[int, FileLog]) -> None:
        """Note how some more is now, and what the logs' files lack for that to be true."""
        if not self._left:
            self._hear_some(self._unheard[0])
            return
        some, self._left = self._left[-SLICE:], self._left[:-SLICE]
        self.work = []
        for each in filter(None, map(logs.get, some)):
            if each.durability is not Durability.EPHEMERAL:
                self._describe(each)
        self._written = None
        self.is_settled = not self.work

    def _hear_some(self, name: str) -> None:
        said = self._sections[name]
        assert isinstance(said, Iterator)
        some = list(islice(said, SLICE))
        self._lists[name] += some
        if not some:
            self._unheard.remove(name)

    def _section(self, name: str, said: Section) -> bytes:
        if isinstance(said, bytes):
            return said
        return said() if callable(said) else b"[" + b",".join(self._lists[name]) + b"]"

    def _describe(self, log: FileLog) -> None:
        growing = [s for s in log.segments if not s.sealed or s.flags]
        flushes = [(log, s, s.unflushed(log.committed_seq)) for s in growing]
        ends = {segment.base_seq: flush.end for _, segment, flush in flushes}
        self._logs.append(packed(LogSnapshot.of(log, ends)))
        self.work += [each for each in flushes if each[1].lacks(each[2])]
        if any(segment.sealed for segment in log.segments):
            self.seqs[log.log_id] = log.committed_seq

    def write(self) -> None:
        """Hand to the files what they lack; they stay open until they are synced.

        A segment may be sealed or removed between the two.
        """
        written = []
        for _, segment, flush in self.work:
            segment.write(flush)
            if segment.cold is None:
                written.append((segment, self._open.enter_context(segment.use())))
        self._written = written

    def sync(self) -> None:
        """Make stable what was written; raises when it was not."""
        if self._written is None:
            raise OSError(errno.ECANCELED, "the segments were not written")
        for segment, file in self._written:
            segment.sync_file(file)
        self._open.close()
        self.is_settled = True

    def put(self, files: Files, meta: str, ring: KeyRing) -> None:
        """Write the snapshot that relies on all that."""
        further = dict(self.positions)
        sections = {name: self._section(name, said) for name, said in self._sections.items()}
        position, control = further.pop(0), self._control_number
        made = PackedSnapshot(
            self.number, position, control, self._logs, self.dropped, sections, further
        )
        write_snapshot(files, meta, made, ring)
        self.is_put = True

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

    def take(self, sections: Sections, taken: Taken) -> None:
        """Make the segments stable, then the snapshot that relies on them, then drop WAL files."""
        self._at = self._host.clock.monotonic()
        self._written_before = self._shards.written
        self._number += 1
        control, log_ids = self._controls.applied_number, list(self._host.logs)
        self._current = current = _Round(
            self._number, self._shards.positions(), control, sections, log_ids
        )
        self._next(current, taken, None)

    def finish(self) -> None:
        """Bring the one that is under way to its end: the store is closed, its file threads ended.

        One that could not be written is given up: the WAL has what it would have covered.
        """
        current = self._current
        if current is not None and not current.is_put:
            try:
                self._bring_to_end(current)
            except Exception as error:
                log.error("checkpoint failed error=%s", error)
        if current is not None:
            current.close()
            self._current = None

    def _bring_to_end(self, current: _Round) -> None:
        if not current.is_settled:
            current.sync()
        while not current.is_described:
            current.describe_some(self._host.logs)
            if current.work:
                current.write()
                current.sync()
        current.dropped = self._forget_dropped()
        self._put(current)

    def _goes_on(self, current: _Round, taken: Taken, error: Exception | None) -> bool:
        """Say whether the next step is due; a step that failed ends the checkpoint."""
        if current is self._current and error is not None:
            self._taken(current, taken, error)
        return current is self._current

    def _next(self, current: _Round, taken: Taken, error: Exception | None) -> None:
        """Go on with some more logs, or with the snapshot itself."""
        if not self._goes_on(current, taken, error):
            return
        for each, segment, flush in current.work:
            each.files.checkpointed(segment, flush)
        current.work = []
        if current.is_described:
            current.dropped = self._forget_dropped()
            self._host.syncer.run(
                partial(self._put, current), partial(self._settled, current, taken)
            )
            return
        current.describe_some(self._host.logs)
        if current.work:
            self._host.worker.run(current.write, partial(self._written, current, taken))
        else:
            self._host.post(partial(self._next, current, taken, None))

    def _written(self, current: _Round, taken: Taken, error: Exception | None) -> None:
        if self._goes_on(current, taken, error):
            self._host.syncer.run(current.sync, partial(self._next, current, taken))

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
            taken(current.positions, f"the last checkpoint failed: {why}")
            return
        self._short = max(self._short - 1, 0)
        self._positions = [*self._positions[-1:], current.positions]
        self._seqs = [*self._seqs[-1:], current.seqs]
        taken(current.positions, "")

    def _put(self, current: _Round) -> None:
        host = self._host
        current.put(host.files, f"{host.directory}/meta", host.options.ring)

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

    # --- instead of the WAL

    def replace_wal(self, controls: list[Control], sections: Mapping[str, bytes]) -> None:
        """Let two new snapshots of what is there now take the place of all WAL.

        ``controls`` are for the layers above, which have not been here: they are logged again.
        """
        before = controls[0].number - 1 if controls else self._controls.number
        dropped = self._forget_dropped()
        rounds = []
        for _ in range(KEPT):
            self._number += 1
            made = _Round(
                self._number,
                self._shards.positions(),
                before,
                dict(sections),
                list(self._host.logs),
            )
            made.dropped = dropped
            while not made.is_described:
                made.describe_some(self._host.logs)
            rounds.append(made)
        self._shards.begin_anew(controls)
        for made in rounds:
            self._put(made)
        self._shards.drop_old()


def _seqs(snapshot: Snapshot) -> dict[int, int]:
    """Return how far a snapshot knows each log that has sealed segments."""
    return {
        each.log_id: each.committed_seq
        for each in snapshot.logs
        if any(segment.sealed for segment in each.segments)
    }


def whole(sections: Sections) -> dict[str, bytes]:
    """Return sections as they are now: whoever has them is about to change."""
    return {
        name: b"[" + b",".join(said) + b"]"
        if isinstance(said, Iterator)
        else said
        if isinstance(said, bytes)
        else said()
        for name, said in sections.items()
    }
