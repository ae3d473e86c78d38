"""SnapshotUploads: the files of each new snapshot as objects; then the head rises over them.

First the files, then the manifest that names them, then the head that names the manifest, and last
go the log entries and the objects that nobody needs (rules 5 and 8). A file is read whole at any
moment after its snapshot was made: the log has every change since, as a backup relies on too. Where
another snapshot comes meanwhile, what copies are made of may be gone, and it begins again.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from millstream.errors import MillstreamError
from millstream.store.disk.files import OsFiles
from millstream.store.disk.keys import KeyRing
from millstream.store.fleet.manifest import (
    SNAPSHOTS,
    FileManifest,
    KeptFile,
    check_of,
    file_name,
    files_below,
    manifest_name,
)
from millstream.store.fleet.places import LeftAlone
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.log.snapshot import decode_snapshot, snapshot_name, snapshot_numbers
from millstream.store.object_log.entry import EPOCH, Chain
from millstream.store.object_log.head import LogHead
from millstream.store.object_log.object_engine import ObjectEngine
from millstream.store.object_log.requests import (
    Accepted,
    ConditionFailed,
    Create,
    Remove,
    carried_out,
)
from millstream.store.object_log.take_over import Won
from millstream.supervisor import Supervisor

NAME = "millstream-uploads"
SWEPT_AT_ONCE = 500  # log entries that go before the head says so
SETTLED_NS = 2_000_000_000  # a file that changed later than this before a look is read again
PATIENCE = 30.0  # seconds that a stop waits for the last one

log = logging.getLogger(__name__)
Stamp = tuple[int, int, int]  # inode, bytes, time of the last change


class SnapshotUploads:
    """One thread that brings the newest snapshot of a directory to the store."""

    def __init__(
        self,
        shared: SharedLog,
        directory: Path,
        ring: KeyRing,
        time_ns: Callable[[], int],
        supervisor: Supervisor | None,
    ) -> None:
        """Without ``supervisor`` there is no thread: whoever wants a snapshot there calls."""
        self._shared = shared
        self._directory = directory
        self._ring = ring
        self._time_ns = time_ns
        self._supervisor = supervisor
        self._wanted = threading.Event()
        self._is_ending = False
        self._thread: threading.Thread | None = None
        self._known: dict[str, tuple[Stamp, int, KeptFile]] = {}
        self._engine: ObjectEngine | None = None
        self._head = LogHead()
        self._tag: str | None = None
        self._epochs: tuple[int, ...] = ()
        self._manifest = FileManifest(0, [])

    def begin(self, engine: ObjectEngine, won: Won, manifest: FileManifest) -> None:
        """Go on from the head that was there when the log became ours."""
        read = won.read
        self._engine, self._head, self._tag = engine, read.head, read.tag
        self._manifest = manifest
        new = [entry.position for entry in read.entries if entry.kind == EPOCH]
        self._epochs = (*read.head.epochs, *new)
        looked = self._time_ns()
        for kept in manifest.files:
            path = self._directory / kept.path
            if path.is_file():
                self._known[kept.path] = (_stamp(path), looked, kept)
        if self._supervisor is not None:
            self._thread = self._supervisor.thread(NAME, self._run, lambda error: None)

    def want(self) -> None:
        """Bring the newest snapshot to the store, soon."""
        self._wanted.set()

    def finish(self) -> None:
        """Bring the last snapshot to the store, if that can be done in time, and end."""
        self._is_ending = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)
        self._shared.place.leave()

    def _run(self) -> None:
        while not self._is_ending:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self.bring()
            except LeftAlone as error:
                log.warning("snapshot not in the store error=%s", error)
                return
            except (OSError, MillstreamError) as error:
                log.error("snapshot not in the store error=%s", error)

    def bring(self) -> None:
        """Bring the newest snapshot to the store, now."""
        while not self._is_done():
            self._upload()

    # --- one

    def _newest(self) -> int:
        numbers = snapshot_numbers(OsFiles(), str(self._directory / SNAPSHOTS))
        return max(numbers, default=0)

    def _is_done(self) -> bool:
        """Say whether the newest snapshot that a head may name is there."""
        found = self._read_newest()
        return found is None or found[1].position <= self._head.chain.position

    def _read_newest(self) -> tuple[int, Chain, bytes] | None:
        number = self._newest()
        path = self._directory / SNAPSHOTS / snapshot_name(number)
        if not number or not path.is_file():
            return None
        data = path.read_bytes()
        snapshot = decode_snapshot(data, str(path), self._ring)
        assert self._engine is not None
        chain = self._engine.chain_at(snapshot.position) if snapshot is not None else None
        return None if chain is None else (number, chain, data)

    def _upload(self) -> None:
        found = self._read_newest()
        if found is None:
            return
        number, chain, data = found
        path = self._directory / SNAPSHOTS / snapshot_name(number)
        files = [self._stored(self._relative(path), data)]
        for each in files_below(self._directory):
            kept = self._kept(each)
            if kept is not None:
                files.append(kept)
        if self._newest() == number:
            self._raise_head(chain, files)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()

    def _kept(self, path: Path) -> KeptFile | None:
        """Return the object of a file, made where there is none; None where the file is gone."""
        relative, looked = self._relative(path), self._time_ns()
        try:
            stamp = _stamp(path)
            known = self._known.get(relative)
            if known is not None and known[0] == stamp and stamp[2] < known[1] - SETTLED_NS:
                return known[2]
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        kept = self._stored(relative, data)
        self._known[relative] = (stamp, looked, kept)
        return kept

    def _stored(self, relative: str, data: bytes) -> KeptFile:
        """Make an object of a file; one of the same content and epoch is the same object."""
        check = check_of(data)
        known = self._known.get(relative)
        if known is not None and known[2].check == check:
            return known[2]
        name = file_name(self._shared.shard, self._epoch, check)
        self._create(name, data)
        return KeptFile(relative, name, len(data), check)

    @property
    def _epoch(self) -> int:
        return self._epochs[-1]

    def _create(self, name: str, data: bytes) -> None:
        place = self._shared.place
        while not isinstance(place.carry_out(Create(name, data)), Accepted | ConditionFailed):
            pass  # the place waits before it answers unsurely

    def _raise_head(self, chain: Chain, files: Sequence[KeptFile]) -> None:
        """Have the head name a new manifest, then let go of what it does not need."""
        names = {kept.name for kept in files}
        retired = [kept.name for kept in self._manifest.files if kept.name not in names]
        manifest = FileManifest(chain.position - 1, list(files), retired)
        data = msgspec.json.encode(manifest)
        name = manifest_name(self._shared.shard, self._epoch, manifest.position, data)
        self._create(name, data)
        before = self._head.snapshot
        wanted = LogHead(chain, name, chain.position - 1, self._head.swept, self._epochs)
        if not self._replace_head(wanted):
            return
        gone = [*self._manifest.retired, *([before] if before else [])]
        self._manifest = manifest
        self._let_go(gone)

    def _replace_head(self, wanted: LogHead) -> bool:
        """Put the head in place of the one that we know; False where it is another one by now.

        Then a writer before us was still at it. Objects that we took over from its manifests may
        be gone: everything is made anew, under the names of our own epoch.
        """
        while True:
            steps = self._shared.trimmer.replace(wanted, self._tag)
            now, tag = carried_out(steps, self._shared.place)
            if now == wanted:
                self._head, self._tag = now, tag
                return True
            if tag != self._tag:
                log.warning("another member has raised the head snapshot=%s", now.snapshot)
                self._head, self._tag = now, tag
                self._known.clear()
                self._manifest = FileManifest(0, [])
                return False

    def _let_go(self, gone: Sequence[str]) -> None:
        """Remove by exact names: what the last manifest but one named, and covered entries."""
        assert self._engine is not None
        self._engine.covered(self._head.floor)
        for name in gone:
            while not isinstance(self._shared.place.carry_out(Remove(name)), Accepted):
                pass
        while self._head.swept < self._head.floor and self._tag is not None:
            steps = self._shared.trimmer.sweep(self._head, self._tag, SWEPT_AT_ONCE)
            self._head, self._tag = carried_out(steps, self._shared.place)


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
