"""Marks: what a shard's WAL has made stable, told outside of it.

    meta/marks-NN.bin, slots of 32 bytes
    0 8s "MSTRMRK\\0"   8 u32 version   12 u32 shard   16 8s zeros   24 u64 XXH3-64 of 0..24
    0 u32 magic   4 u32 kind: 0 SYNCED, 1 RESERVED   8 u64 log   16 u64 seq   24 u64 XXH3-64

The end of the newest WAL file has nothing behind it that could miss it: cut off or zeroed, it looks
like a log that ended there. A mark says which sequence of a log a sync has covered, so that a start
which finds less names the loss and gives none of those sequences out again.

Marks of a log only rise, so slots are written in any order, and the highest one counts. They are
written behind the sync that makes them true and are not synced themselves: one that a power cut
takes is missed only when the disk also loses what was synced. Nothing depends on them otherwise, so
a mark that cannot be written or read is no failure.
"""

import logging
import struct

from xxhash import xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.store.disk.files import File, Files, write_all

SYNCED, RESERVED = 0, 1
VERSION = 1
HEADER = struct.Struct("<8sII8xQ")
SLOT = struct.Struct("<IIQQQ")
CHECKED = 24
HEADER_MAGIC = b"MSTRMRK\0"
MAGIC = 0x4B524D4D  # "MMRK"
LIMIT = 256 << 10  # bytes after which a file begins again, with one slot for each log

Key = tuple[int, int]  # kind, log
Known = dict[Key, int]  # → sequence

log = logging.getLogger(__name__)


class Marks:
    """One shard's marks; written by the thread that syncs the shard."""

    def __init__(self, files: Files, directory: str, shard: int, known: Known, due: Known) -> None:
        self._files = files
        self._directory = directory
        self._shard = shard
        self._known = known  # what the file says
        self._due = due  # what it should say besides
        self._file: File | None = None
        self._at = 0
        self._failing = False

    def write(self, news: Known) -> None:
        """Note what a sync has covered."""
        if not news:
            return
        if self._due:
            news, self._due = self._due | news, {}
        self._known |= news
        try:
            self._put(news)
            self._failing = False
        except OSError as error:
            self._due = news | self._due
            if not self._failing:
                log.warning("marks not written shard=%d error=%s", self._shard, error)
            self._failing = True

    def close(self) -> None:
        """Make the marks stable, as the store comes to rest."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.sync()
        except OSError as error:
            log.warning("marks not synced shard=%d error=%s", self._shard, error)
        finally:
            file.close()

    def _put(self, news: Known) -> None:
        file = self._file or self._open()
        if self._at + SLOT.size * len(news) > max(LIMIT, 2 * SLOT.size * len(self._known)):
            self._at, news = HEADER.size, self._known
        write_all(file, b"".join([encode(key, seq) for key, seq in news.items()]), self._at)
        self._at += SLOT.size * len(news)

    def _open(self) -> File:
        path = f"{self._directory}/{marks_name(self._shard)}"
        is_new = not self._files.exists(path)
        file = self._files.open(path, create=True)
        try:
            size = file.size()
            self._at = max(HEADER.size, size - size % SLOT.size)
            if size < HEADER.size:
                write_all(file, encode_header(self._shard), 0)
            if is_new:
                self._files.sync_dir(self._directory)
        except BaseException:
            file.close()
            raise
        self._file = file
        return file


def marks_name(shard: int) -> str:
    """Return the file name of a shard's marks."""
    return f"marks-{shard:02d}.bin"


def is_marks(name: str) -> bool:
    """Say whether a file in ``meta`` holds marks."""
    return name.startswith("marks-") and name.endswith(".bin")


def encode_header(shard: int) -> bytes:
    """Return the first slot of a file."""
    head = HEADER.pack(HEADER_MAGIC, VERSION, shard, 0)[:CHECKED]
    return head + xxh3_64_intdigest(head).to_bytes(8, "little")


def encode(key: Key, seq: int) -> bytes:
    """Return one slot."""
    head = SLOT.pack(MAGIC, *key, seq, 0)[:CHECKED]
    return head + xxh3_64_intdigest(head).to_bytes(8, "little")


def load_marks(files: Files, meta: str) -> dict[int, Known]:
    """Return what each shard's file says; raises for a version that this program does not know."""
    names = filter(is_marks, files.listdir(meta)) if files.exists(meta) else ()
    return {int(name[6:-4]): read_marks(files, f"{meta}/{name}") for name in names}


def highest(shards: dict[int, Known]) -> Known:
    """Return all marks in one: a log may have been in several shards."""
    found: Known = {}
    for known in shards.values():
        for key, seq in known.items():
            found[key] = max(seq, found.get(key, 0))
    return found


def read_marks(files: Files, path: str) -> Known:
    """Return what one file says."""
    file = files.open(path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    _check_version(data, path)
    found: Known = {}
    end = len(data) - len(data) % SLOT.size
    for magic, kind, log_id, seq, check in SLOT.iter_unpack(data[HEADER.size : end]):
        key = (kind, log_id)
        if magic == MAGIC and seq > found.get(key, 0) and _is_sound(magic, key, seq, check):
            found[key] = seq
    return found


def _is_sound(magic: int, key: Key, seq: int, check: int) -> bool:
    return xxh3_64_intdigest(SLOT.pack(magic, *key, seq, 0)[:CHECKED]) == check


def _check_version(data: bytes, path: str) -> None:
    """Leave alone what a newer program wrote; a damaged header says nothing of the slots."""
    if len(data) < HEADER.size:
        return
    magic, version, _, check = HEADER.unpack_from(data)
    if magic != HEADER_MAGIC or xxh3_64_intdigest(data[:CHECKED]) != check:
        log.warning("damaged marks header file=%s offset=0", path)
    elif version != VERSION:
        raise StorageUnusable(
            f"{path} has format version {version}, this millstream knows version {VERSION}: "
            "start the newer millstream that wrote it"
        )
