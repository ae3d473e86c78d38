"""Taking a backup: the files of a data directory as a crash could have left them.

The server may run meanwhile. Three rules make the copy one that recovery understands:

- Snapshots first, the WAL last. The WAL holds every change since the snapshot that was copied, so
  it does not matter at which moment the segments in between were read.
- WAL files are read from their end to their start, each piece twice. They only ever grow, so
  what is in front of a byte that was seen is there when it is read later: no hole.
- An ``.idx`` before its ``.data``: when the first exists, the second is complete.

Two snapshots later the server removes WAL that the copied one needs; then the copy starts again.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millstream.backup.moment import (
    PIECE_BYTES,
    VERSION,
    Kept,
    Moment,
    known_pieces,
    moments,
    piece_name,
    put_moment,
    put_piece,
    remove_piece,
)
from millstream.clock import Clock
from millstream.errors import BackupFailed
from millstream.store.disk.objects import Objects
from millstream.store.wal.marks import is_marks

ATTEMPTS = 5
SETTLED_NS = 2_000_000_000  # a file changed later than this before a backup is read again
NOT_COPIED = ("lock",)


@dataclass(frozen=True, slots=True)
class TakenBackup:
    """What a backup did."""

    moment: Moment
    read_bytes: int
    stored_bytes: int


def take(
    directory: Path,
    target: Objects,
    clock: Clock,
    read: Callable[[int], None] = lambda size: None,
) -> TakenBackup:
    """Add a backup of ``directory`` to the target; what earlier ones have is not stored again.

    ``read`` hears how many bytes were read, or need not be read again, since its last call.
    """
    if not (directory / "meta").is_dir() and not (directory / "wal").is_dir():
        raise BackupFailed(f"{directory} is not a data directory: it has neither meta nor wal")
    earlier = moments(target)
    for _ in range(ATTEMPTS):
        copy = _FileCopy(directory, target, earlier, read)
        started = max([clock.time_ns(), *(moment.started_ns + 1 for moment in earlier[-1:])])
        before = _snapshots(directory)
        files = list(copy.files())
        if _still_covered(before, _snapshots(directory)):
            moment = Moment(VERSION, started, clock.time_ns(), files)
            put_moment(target, moment)
            return TakenBackup(moment, copy.read_bytes, copy.stored_bytes)
    raise BackupFailed(
        "the server makes snapshots faster than this copies: use a target that takes writes faster"
    )


def prune(target: Objects, keep: int) -> int:
    """Remove all but the newest ``keep`` backups and what only they had; returns how many went."""
    known = moments(target)
    kept = known[-keep:]
    for moment in known[: len(known) - len(kept)]:
        target.remove(moment.name)
    named = {piece for moment in kept for file in moment.files for piece in file.pieces}
    for piece in known_pieces(target) - named:
        remove_piece(target, piece)
    return len(known) - len(kept)


def _snapshots(directory: Path) -> list[str]:
    meta = directory / "meta"
    return sorted(path.name for path in meta.glob("snapshot-*.bin")) if meta.is_dir() else []


def _still_covered(before: list[str], after: list[str]) -> bool:
    """The server keeps the WAL back to the older of its two snapshots."""
    return before[-1] in after if before else len(after) < 2


class _FileCopy:
    def __init__(
        self,
        directory: Path,
        target: Objects,
        earlier: list[Moment],
        read: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._tell_read = read
        self._target = target
        self._stored = {p for moment in earlier for file in moment.files for p in file.pieces}
        self._last = {file.path: file for file in earlier[-1].files} if earlier else {}
        self._trusted_ns = earlier[-1].started_ns - SETTLED_NS if earlier else 0
        self.read_bytes = 0
        self.stored_bytes = 0

    def files(self) -> Iterator[Kept]:
        """Copy everything, in the order that the rules above ask for."""
        names = {path.name for path in self._directory.iterdir()}
        for name in ["meta", *sorted(names - {"meta", "wal"}, reverse=True), "wal"]:
            for path in self._below(self._directory / name):
                relative = path.relative_to(self._directory).as_posix()
                kept = self._file(path, relative, backwards=name == "wal")
                if kept is not None:
                    yield kept

    def _below(self, path: Path) -> Iterator[Path]:
        """Yield the regular files, in descending order of names."""
        if path.name in NOT_COPIED or path.name.endswith(".tmp") or path.is_symlink():
            return
        if is_marks(path.name):
            return  # restored to an earlier time, they would call lost what came later
        if path.is_dir():
            for child in sorted(path.iterdir(), reverse=True):
                yield from self._below(child)
        elif path.is_file():
            yield path

    def _file(self, path: Path, relative: str, backwards: bool) -> Kept | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None  # the server was done with it
        try:
            stat = os.fstat(fd)
            known = self._last.get(relative)
            if known is not None and self._is_unchanged(known, stat):
                self._tell_read(stat.st_size)
                return known
            offsets = range(0, stat.st_size, PIECE_BYTES)
            read = [self._piece(fd, at) for at in (reversed(offsets) if backwards else offsets)]
        finally:
            os.close(fd)
        pieces = _without_zeros_at_end(read[::-1] if backwards else read)
        return Kept(relative, stat.st_size, stat.st_mtime_ns, pieces)

    def _is_unchanged(self, known: Kept, stat: os.stat_result) -> bool:
        """Times have a grain: a change just before the last backup may not show in them."""
        same = known.size == stat.st_size and known.mtime_ns == stat.st_mtime_ns
        return same and stat.st_mtime_ns < self._trusted_ns

    def _piece(self, fd: int, at: int) -> str:
        """Store one piece and return its name, nothing for a piece of zeros.

        The first look says how far the bytes reach, the second takes them: a growing file is
        never caught with a later page filled and an earlier one still empty.
        """
        looked_at = os.pread(fd, PIECE_BYTES, at)
        self._tell_read(len(looked_at))
        reach = len(looked_at.rstrip(b"\0"))
        if reach == 0:
            return ""
        data = os.pread(fd, reach, at)
        self.read_bytes += len(data)
        name = piece_name(data)
        if name not in self._stored:
            self.stored_bytes += put_piece(self._target, name, data)
            self._stored.add(name)
        return name


def _without_zeros_at_end(pieces: list[str]) -> list[str]:
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces
