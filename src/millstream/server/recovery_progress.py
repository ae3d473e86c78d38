"""RecoveryProgress: how much of its log a start has replayed, for whoever asks meanwhile."""

import os
from collections import Counter
from pathlib import Path

from millstream.clock import Clock
from millstream.store.disk.files import OsFile
from millstream.store.wal.meter import MeteredFiles

HEAD = 64  # bytes, of which some are not 0 in every file that is in use


class RecoveryProgress:
    """Told of the log's files as they are opened: at first all in turn, later each to be replayed.

    Where there are several shards, all are looked through once more in between. So the share is
    that of files which were replayed, by their size; a start of one file goes from 0 to its end.
    """

    def __init__(self, directory: Path) -> None:
        found = directory.glob("wal/shard-*/wal-*.log")
        self._sizes = {str(each): each.stat().st_size for each in found if _is_used(each)}
        self._looks = 2 if len({os.path.dirname(path) for path in self._sizes}) < 2 else 3
        self._opened: Counter[str] = Counter()
        self._under_way = ""
        self._done = 0

    @property
    def is_needed(self) -> bool:
        """Say whether there is anything to replay."""
        return bool(self._sizes)

    @property
    def share(self) -> float:
        """Return how much is replayed, 0 to 1."""
        return self._done / max(sum(self._sizes.values()), 1)

    def opened(self, path: str) -> None:
        """Take note of a file that is opened."""
        if path not in self._sizes:
            return
        self._opened[path] += 1
        if self._opened[path] >= self._looks:  # the one before is done
            self._done += self._sizes.get(self._under_way, 0)
            self._under_way = path if self._opened[path] == self._looks else ""


def _is_used(path: Path) -> bool:
    """Say whether anything was written to a file, other than its room made ahead."""
    with path.open("rb") as file:
        return any(file.read(HEAD))


class RecoveringFiles(MeteredFiles):
    """The real disk, which tells a start's progress."""

    def __init__(self, clock: Clock, progress: RecoveryProgress | None = None) -> None:
        super().__init__(clock)
        self._progress = progress

    def open(self, path: str, create: bool = False) -> OsFile:
        """Open for reading and writing, never through a symbolic link."""
        if self._progress is not None:
            self._progress.opened(path)
        return super().open(path, create)

    def recovered(self) -> None:
        """Tell no more."""
        self._progress = None
