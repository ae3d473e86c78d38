"""DirectoryCache: a data directory made of objects, as a crash of its last owner would leave it.

The files of the newest manifest, and behind them the log: one WAL file for each epoch, and a last
one without entries, which says that everything before it was stable. So the usual recovery reads
it, and has nothing to log again. What is there already and has the right checksum stays, all else
goes: the disk is a cache, and may be empty (rule 11).
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.store.disk.files import OsFiles
from millstream.store.disk.lock import lock_directory
from millstream.store.fleet.manifest import SNAPSHOTS, STREAMS, FileManifest, KeptFile, check_of
from millstream.store.object_log.entry import RECORDS, LogObject
from millstream.store.object_log.requests import Absent, FoundObject, Get, ObjectPlace
from millstream.store.object_log.take_over import Read
from millstream.store.wal.entry import decode_entry
from millstream.store.wal.local_engine import (
    BOOT_MASK,
    WalHeader,
    encode_header,
    shard_directory,
    wal_name,
)

BOOT = "fleet"  # entries are stable once they are there, on whichever machine that was


class Superseded(Exception):
    """An object is gone: the head names newer ones by now."""


class DirectoryCache:
    """One data directory, filled from the objects of a shard."""

    def __init__(self, place: ObjectPlace, directory: Path, shard: int = 0) -> None:
        self._place = place
        self._directory = directory
        self._shard = shard

    def manifest(self, name: str) -> FileManifest:
        """Return the manifest of a head; raises ``Superseded`` where it is gone."""
        if not name:
            return FileManifest(0, [])
        return msgspec.json.decode(self._object(name), type=FileManifest)

    def warm(self, manifest: FileManifest) -> None:
        """Fetch what the directory lacks, and remove nothing: a standby does so ahead."""
        for kept in manifest.files:
            if not self._has(kept):
                self._fetch(kept)

    def fill(self, read: Read, manifest: FileManifest) -> None:
        """Make the directory what the objects say, and nothing else."""
        lock_directory(OsFiles(), str(self._directory)).close()  # refuses one that is in use
        self._remove_others({kept.path for kept in manifest.files})
        self.warm(manifest)
        self._write_log(read)

    def _object(self, name: str) -> bytes:
        while True:
            answer = self._place.carry_out(Get(name))
            if isinstance(answer, FoundObject):
                return answer.data
            if isinstance(answer, Absent):
                raise Superseded(name)

    def _has(self, kept: KeptFile) -> bool:
        path = self._directory / kept.path
        if not path.is_file() or path.stat().st_size != kept.size:
            return False
        return check_of(path.read_bytes()) == kept.check

    def _fetch(self, kept: KeptFile) -> None:
        data = self._object(kept.name)
        if check_of(data) != kept.check:
            raise StorageUnusable(
                f"the object {kept.name} is damaged: it does not have its checksum. "
                "Restore it from a backup of the bucket"
            )
        path = self._directory / kept.path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(path.name + ".tmp")
        beside.write_bytes(data)
        beside.replace(path)

    def _remove_others(self, wanted: set[str]) -> None:
        shutil.rmtree(self._directory / "wal", ignore_errors=True)
        for folder in (SNAPSHOTS, STREAMS):
            for path in sorted((self._directory / folder).rglob("*"), reverse=True):
                if path.is_dir():
                    with suppress(OSError):  # not empty
                        path.rmdir()
                elif path.relative_to(self._directory).as_posix() not in wanted:
                    path.unlink()

    # --- the log

    def _write_log(self, read: Read) -> None:
        folder = Path(shard_directory(str(self._directory), self._shard))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        boot = xxh3_64_intdigest(BOOT.encode()) & BOOT_MASK
        first, index = read.head.chain.position, 0
        for entries in _by_epoch(read.entries):
            records = [entry for entry in entries if entry.kind == RECORDS]
            if records:
                index += 1
                nonce = self._nonce(records[0])
                header = WalHeader(self._shard, index, records[0].epoch, nonce, first)
                bodies = b"".join(entry.body for entry in records)
                (folder / wal_name(index)).write_bytes(encode_header(header) + bodies)
                first = records[-1].position + 1
        index += 1
        last = WalHeader(self._shard, index, read.chain.epoch, boot, first)
        (folder / wal_name(index)).write_bytes(encode_header(last))

    def _nonce(self, entry: LogObject) -> int:
        """Return the nonce that the WAL's own entry has inside of the object."""
        inner = decode_entry(memoryview(entry.body), 0)
        if inner is None or inner.position != entry.position:
            raise StorageUnusable(
                f"the log entry {entry.position} of shard {self._shard} holds no WAL entry of its "
                "position: the log is not a millstream's"
            )
        return inner.nonce


def _by_epoch(entries: list[LogObject]) -> Iterator[list[LogObject]]:
    """Group entries that one writer made."""
    group: list[LogObject] = []
    for entry in entries:
        if group and entry.epoch != group[0].epoch:
            yield group
            group = []
        group.append(entry)
    if group:
        yield group
