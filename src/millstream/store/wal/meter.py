"""WalMeter: how much goes into the write-ahead log, and how long the disk takes for it."""

import struct
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.clock import Clock
from millstream.store.disk.files import Buffer, OsFile, OsFiles
from millstream.store.wal.entry import MAGIC

_COUNTED = struct.Struct("<I28xI")  # magic and number of frames in an entry's header
SYNC_BOUNDS_US = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)


@dataclass(slots=True)
class WalMeter:
    """Counters since the start; written by the loop and by each shard's thread, read by any."""

    frames: int = 0
    batches: int = 0
    bytes_written: int = 0
    rotations: int = 0
    sync_us: int = 0
    sync_counts: list[int] = field(default_factory=lambda: [0] * (len(SYNC_BOUNDS_US) + 1))
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def syncs(self) -> int:
        """Return how many syncs have ended."""
        return sum(self.sync_counts)

    def wrote(self, head: Buffer, size: int) -> None:
        """Count a write; one that begins like an entry is a batch."""
        magic, frames = _COUNTED.unpack_from(head) if len(head) >= _COUNTED.size else (0, 0)
        with self._lock:
            self.bytes_written += size
            if magic == MAGIC:
                self.batches += 1
                self.frames += frames

    def rotated(self) -> None:
        """Count a file that was begun."""
        with self._lock:
            self.rotations += 1

    def synced(self, seconds: float) -> None:
        """Count a sync; a bucket holds what is not longer than its bound."""
        microseconds = seconds * 1e6
        with self._lock:
            self.sync_us += round(microseconds)
            self.sync_counts[bisect_left(SYNC_BOUNDS_US, microseconds)] += 1


class MeteredFile(OsFile):
    """A file of the write-ahead log."""

    def __init__(self, fd: int, meter: WalMeter, clock: Clock) -> None:
        super().__init__(fd)
        self._meter = meter
        self._clock = clock

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write the parts one after another."""
        wrote = super().pwritev(parts, offset)
        self._meter.wrote(parts[0], wrote)
        return wrote

    def sync(self) -> None:
        """Return once bytes and length are on stable storage."""
        began = self._clock.monotonic()
        super().sync()
        self._meter.synced(self._clock.monotonic() - began)


class MeteredFiles(OsFiles):
    """The real disk, with a meter on the write-ahead log."""

    def __init__(self, clock: Clock) -> None:
        self.meter = WalMeter()
        self._clock = clock

    def open(self, path: str, create: bool = False) -> OsFile:
        """Open for reading and writing, never through a symbolic link."""
        name = path.rsplit("/", 1)[-1]
        if not (name.startswith("wal-") and name.endswith(".log")):
            return super().open(path, create)
        if create:
            self.meter.rotated()
        return MeteredFile(self.open_fd(path, create), self.meter, self._clock)


def meter_of(store: object) -> WalMeter | None:
    """Return the meter of a store's disk, None where it has none."""
    files = getattr(store, "files", None)
    return files.meter if isinstance(files, MeteredFiles) else None
