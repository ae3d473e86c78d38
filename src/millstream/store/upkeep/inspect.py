"""A data directory as it lies there: what is damaged in it. Reads only.

The check is a recovery over files that cannot be changed: what it reports is what a start would.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from millstream.clock import SystemClock
from millstream.errors import MillstreamError, StorageUnusable
from millstream.store.disk.files import Buffer, File, Files
from millstream.store.disk.keys import KeyRing
from millstream.store.disk.seq_ranges import SeqRanges
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import UNSYNCED
from millstream.store.log.snapshot import load_snapshots
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from millstream.store.upkeep.base_snapshot import missing_wal

CLEAN, DAMAGED, UNUSABLE = 0, 3, 4

log = logging.getLogger(__name__)


class _Copy:
    """A file whose changes stay in memory."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        data = b"".join(parts)
        if offset + len(data) > len(self.data):
            self.data.extend(bytes(offset + len(data) - len(self.data)))
        self.data[offset : offset + len(data)] = data
        return len(data)

    def preallocate(self, size: int) -> None:
        """Nothing is reserved."""

    def truncate(self, size: int) -> None:
        del self.data[size:]

    def size(self) -> int:
        return len(self.data)

    def data_end(self) -> int:
        return len(self.data)

    def sync(self) -> None:
        """Nothing is kept."""

    def view(self, size: int) -> memoryview:
        return memoryview(bytes(self.data[:size]))

    def lock(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


class _Original:
    """A file of the directory; the first change makes a copy of it in memory."""

    def __init__(self, file: File, copy: Callable[[], _Copy]) -> None:
        self._file: File = file
        self._copy = copy

    def pread(self, size: int, offset: int) -> bytes:
        return self._file.pread(size, offset)

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        return self._changed().pwritev(parts, offset)

    def preallocate(self, size: int) -> None:
        """Nothing is reserved."""

    def truncate(self, size: int) -> None:
        if size < self._file.size():
            self._changed().truncate(size)

    def size(self) -> int:
        return self._file.size()

    def data_end(self) -> int:
        return self._file.data_end()

    def sync(self) -> None:
        """Nothing is kept."""

    def view(self, size: int) -> memoryview:
        return self._file.view(size)

    def lock(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()

    def _changed(self) -> File:
        if not isinstance(self._file, _Copy):
            self._file.close()
            self._file = self._copy()
        return self._file


class ReadOnlyFiles:
    """Keeps ``Files`` over a directory that stays as it is: changes live in memory."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._copies: dict[str, _Copy] = {}
        self._gone: set[str] = set()
        self._made: set[str] = set()

    def open(self, path: str, create: bool = False) -> File:
        """Open a file, or what became of it."""
        if path in self._copies:
            return self._copies[path]
        if path not in self._gone and self._files.exists(path):
            if path.endswith("/lock"):
                return _Copy(bytearray())
            return _Original(self._files.open(path), lambda: self._copied(path))
        if not create:
            return self._files.open(path)
        self._gone.discard(path)
        self._copies[path] = _Copy(bytearray())
        return self._copies[path]

    def _copied(self, path: str) -> _Copy:
        if path not in self._copies:
            file = self._files.open(path)
            self._copies[path] = _Copy(bytearray(file.pread(file.size(), 0)))
            file.close()
        return self._copies[path]

    def exists(self, path: str) -> bool:
        """Say whether the path names anything."""
        if path in self._gone:
            return False
        return path in self._copies or path in self._made or self._files.exists(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        names = set(self._files.listdir(path)) if self._files.exists(path) else set()
        made = (*self._copies, *self._made)
        names |= {p.rsplit("/", 1)[1] for p in made if p.rsplit("/", 1)[0] == path}
        return sorted(name for name in names if f"{path}/{name}" not in self._gone)

    def make_dir(self, path: str) -> None:
        """Remember a directory."""
        self._made.add(path)
        self._gone.discard(path)

    def remove_dir(self, path: str) -> None:
        """Forget a directory."""
        self._made.discard(path)
        self._gone.add(path)

    def rename(self, old: str, new: str) -> None:
        """Move a file in memory."""
        self._copies[new] = self._copies.pop(old)
        self._gone.discard(new)

    def unlink(self, path: str) -> None:
        """Forget a file."""
        self._copies.pop(path, None)
        self._gone.add(path)

    def sync_dir(self, path: str) -> None:
        """Nothing is kept."""

    def free_bytes(self, path: str) -> int:
        """There is room: nothing is written."""
        return 1 << 40

    def boot_id(self) -> str:
        """Return the machine's boot id."""
        return self._files.boot_id()


@dataclass(frozen=True, slots=True)
class Lost:
    """Sequences that a log had and has no more; ``recorded`` where a snapshot says so already."""

    log_id: str
    first: int
    last: int
    reason: str
    recorded: bool = False


@dataclass(slots=True)
class Report:
    """What a check found; ``findings`` name file and offset."""

    status: int = CLEAN
    logs: int = 0
    records: int = 0
    torn_bytes: int = 0
    damaged_bytes: int = 0
    lost: list[Lost] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    error: str = ""

    def plain(self) -> dict[str, object]:
        """Return the report for JSON."""
        return asdict(self)


class Findings(logging.Handler):
    """Keeps what the store says of damage, each thing once."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        line = record.getMessage()
        if line not in self.lines:
            self.lines.append(line)


def check_directory(directory: str, files: Files, ring: KeyRing | None = None) -> Report:
    """Recover the directory without changing it, read every record, report all damage."""
    report = Report()
    findings = Findings()
    store_log = logging.getLogger("millstream.store")
    propagate, store_log.propagate = store_log.propagate, False
    store_log.addHandler(findings)
    try:
        if not files.exists(directory):
            raise StorageUnusable(f"{directory} does not exist")
        options = StoreOptions(threads=False, ring=ring or KeyRing())
        clock = SystemClock()
        store = Store.open(directory, ReadOnlyFiles(files), clock, lambda call: None, options)
        try:
            _collect(store, report, _recorded(directory, files, options.ring))
            if place := missing_wal(files, directory, options.ring):
                log.error("wal files are missing file=%s offset=0", place)
        finally:
            store.close()
    except (MillstreamError, OSError) as error:
        report.status, report.error = UNUSABLE, str(error)
    finally:
        store_log.removeHandler(findings)
        store_log.propagate = propagate
    report.findings = findings.lines
    if report.status == CLEAN and (findings.lines or report.damaged_bytes or _rot(report)):
        report.status = DAMAGED
    return report


def _rot(report: Report) -> bool:
    told = ("corruption", UNSYNCED)
    return any(lost.reason in told and not lost.recorded for lost in report.lost)


def _recorded(directory: str, files: Files, ring: KeyRing) -> dict[int, SeqRanges]:
    """Return what the newest snapshot has as lost, by log: damage that was seen before."""
    found = load_snapshots(files, f"{directory}/meta", ring)
    logs = found[0].logs if found else []
    return {log.log_id: SeqRanges((a, b) for a, b, _ in log.gaps) for log in logs}


def _collect(store: Store, report: Report, recorded: dict[int, SeqRanges]) -> None:
    report.torn_bytes = store.recovery.torn_bytes
    report.damaged_bytes = store.recovery.damaged_bytes
    for log_id in store.log_ids():
        found = store.log(log_id)
        assert found is not None
        report.logs += 1
        report.records += sum(1 for _ in read_all(found))
        gaps = found.state().gaps  # after reading: that is what finds rot in sealed files
        known = recorded.get(log_id, SeqRanges())
        report.lost += [
            Lost(f"{log_id:016x}", g.first, g.last, g.reason, not known.missing(g.first, g.last))
            for g in gaps
        ]


def read_all(log: FileLog) -> Iterator[int]:
    """Yield something for each record that readers get; what is damaged is named on the way."""
    seq = 1
    for segment in log.segments:
        if segment.cold is not None:  # its bytes are not in this directory
            yield from range(segment.index.live)
            seq = segment.last_seq + 1
    while len(frames := log.read(seq, 4096, 1 << 20)):
        yield from (record[0] for record in frames)
        seq = frames.last_seq + 1
