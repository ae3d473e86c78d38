"""Restoring: the files of a moment under a new name, renamed into place once all are there.

To a time between two backups: the files of the backup before it, with the WAL that later ones
hold, cut in front of the first entry that is younger. A start then replays it, as after a crash.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from millstream.backup.moment import PIECE_BYTES, Kept, Moment, get_piece, moments
from millstream.errors import BackupFailed, StorageUnusable
from millstream.kernel._frames import scan
from millstream.store.disk.files import File, Files, OsFiles
from millstream.store.disk.keys import ID_BYTES, KeyRing
from millstream.store.disk.objects import Objects
from millstream.store.wal.entry import WalEntry, plain_body, scan_entries
from millstream.store.wal.local_engine import HEADER, decode_header, wal_indexes, wal_name

WAL = "wal/"


def restore(
    target: Objects,
    directory: Path,
    at_ns: int | None = None,
    ring: KeyRing | None = None,
    written: Callable[[int, int], None] = lambda size, whole: None,
) -> Moment:
    """Make ``directory`` what it was, by default at the newest backup; returns the one used.

    To a moment between two backups of an encrypted directory the keys in ``ring`` are needed.
    ``written`` hears of each file how large it is, and how large all of them are.
    """
    if directory.exists() and any(directory.iterdir()):
        raise BackupFailed(f"{directory} is not empty: restore into a new directory")
    known = moments(target)
    if not known:
        raise BackupFailed("there is no backup at this target")
    moment, files = (known[-1], known[-1].files) if at_ns is None else files_at(known, at_ns)
    partial = directory.with_name(f"{directory.name}.partial-{secrets.token_hex(4)}")
    partial.mkdir(mode=0o700, parents=True)
    whole = sum(kept.size for kept in files)
    try:
        for kept in files:
            _write(target, kept, partial / kept.path)
            written(kept.size, whole)
        if at_ns is not None:
            cut_wal(OsFiles(), str(partial), at_ns, ring)
        for parent, _, _ in os.walk(partial):
            OsFiles().sync_dir(parent)
        if directory.exists():
            directory.rmdir()
        os.rename(partial, directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    OsFiles().sync_dir(str(directory.parent))
    return moment


def files_at(known: list[Moment], at_ns: int) -> tuple[Moment, list[Kept]]:
    """Return the newest backup before ``at_ns``, and its files with all WAL up to then."""
    before = [moment for moment in known if moment.started_ns <= at_ns]
    after = [moment for moment in known if moment.started_ns >= at_ns]
    if not before:
        raise BackupFailed(f"the oldest backup is of {_time(known[0].started_ns)}: nothing before")
    if not after:
        newest = _time(known[-1].started_ns)
        raise BackupFailed(f"the newest backup is of {newest}: later changes are not in it")
    base = before[-1]
    wal: dict[str, Kept] = {}
    for moment in known[known.index(base) : known.index(after[0]) + 1]:
        wal |= {file.path: file for file in moment.files if file.path.startswith(WAL)}
    _check_unbroken(wal)
    rest = [file for file in base.files if not file.path.startswith(WAL)]
    return base, [*rest, *wal.values()]


def _check_unbroken(paths: Iterable[str]) -> None:
    """A start needs each WAL file from its snapshot on."""
    shards: dict[str, list[int]] = {}
    for path in paths:
        shard, name = path.rsplit("/", 1)
        shards.setdefault(shard, []).append(int(name[4:20]))
    for shard, indexes in shards.items():
        if max(indexes) - min(indexes) + 1 != len(indexes):
            raise BackupFailed(
                f"between two backups WAL files of {shard} were removed: only the backups' own "
                "moments can be restored; take them more often to have every moment between"
            )


def _write(target: Objects, kept: Kept, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        for number, piece in enumerate(kept.pieces):
            if piece:
                file.seek(number * PIECE_BYTES)
                file.write(get_piece(target, piece))
        file.truncate(kept.size)
        file.flush()
        os.fsync(file.fileno())


def cut_wal(files: Files, directory: str, at_ns: int, ring: KeyRing | None = None) -> None:
    """Remove every WAL entry from the first on that is younger than ``at_ns``, in each shard."""
    ring = ring or KeyRing()
    root = f"{directory}/wal"
    for name in files.listdir(root):
        shard = f"{root}/{name}"
        cut = False
        for index in wal_indexes(files, shard):
            path = f"{shard}/{wal_name(index)}"
            if cut:
                files.unlink(path)
                continue
            file = files.open(path)
            try:
                cut = _cut_file(file, path, at_ns, ring)
            finally:
                file.close()
        files.sync_dir(shard)


def _cut_file(file: File, path: str, at_ns: int, ring: KeyRing) -> bool:
    size = file.size()
    buffer = file.view(size)
    header = decode_header(bytes(buffer[: HEADER.size]), path)
    if header is not None:
        _require(ring, header.key_id.to_bytes(ID_BYTES, "little"))
    for item in scan_entries(buffer, HEADER.size, 0):
        if isinstance(item, WalEntry) and _youngest(buffer, item, ring) > at_ns:
            del buffer
            file.truncate(item.start)
            file.preallocate(size)
            file.sync()
            return True
    return False


def _require(ring: KeyRing, key_id: bytes) -> None:
    """Times are sealed with the records: without the key nobody knows where to cut."""
    try:
        ring.require(key_id, "the write-ahead log")
    except StorageUnusable as error:
        raise BackupFailed(
            f"the backup is encrypted with key {key_id.hex()}: --at needs it, give --key-file; "
            "a backup's own moment can be restored without"
        ) from error


def _youngest(buffer: memoryview, entry: WalEntry, ring: KeyRing) -> int:
    start, end = entry.body, entry.end
    if entry.sealed:
        buffer = plain_body(buffer, start, end, ring)
        start, end = 0, len(buffer)
    frames, _ = scan(buffer, start, end)
    return max((frame[4] for frame in frames), default=0)


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds")
