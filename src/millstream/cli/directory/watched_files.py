"""WatchedFiles: files of a directory that is read whole, and how much of them was opened."""

from pathlib import Path

from millstream.cli.shown.progress import ProgressLine
from millstream.store.disk.files import OsFile, OsFiles


class WatchedFiles(OsFiles):
    """Counts each file when it is first opened."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._seen: set[str] = set()

    def open(self, path: str, create: bool = False) -> OsFile:
        """Open a file, and count it unless it was counted."""
        file = super().open(path, create)
        if path not in self._seen:
            self._seen.add(path)
            self._line.add(file.size())
        return file


def size_of(directory: Path) -> int:
    """Return how many bytes the files below a directory have, 0 where there is none."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
