"""Commits to local files: preallocated WAL files, written in order, rotated when full.

A position is completed inside of the call that hands it over, so none is ever under way. A
rotation waits for no disk: what the file before lacks there, the next sync brings, and entries
say how far everything was stable when they were written.

    wal/shard-NN/wal-<16 digits>.log
    0 8s "MSTRWAL\\0"   8 u32 version   12 u32 shard   16 u64 index   24 u64 epoch   32 u64 nonce
   40 u64 first position   48 8s key id, 0 = none   56 u64 XXH3-64 of bytes 0..56
   64 entries, then zeros

A file of zeros is one made ahead and not used yet. The nonce is random in its upper half and
names the machine's boot in its lower one: entries of an earlier boot may have lost their tail.
"""

import errno
import logging
import struct
import threading
from collections.abc import Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.errors import ShardReadOnly, StorageFull, StorageUnusable
from millstream.store.disk.files import Buffer, File, Files, is_no_space, write_all
from millstream.store.wal.commit import OK, Completed, Outcome, Taken

VERSION = 1
SEALED_VERSION = 2  # of a file whose entries are sealed
MAGIC = b"MSTRWAL\0"
HEADER = struct.Struct("<8sIIQQQQQQ")
HEADER_CHECKED = 56
BOOT_MASK = 0xFFFFFFFF  # where a nonce names the boot
DISK_SHARE = 16  # a file takes at most this part of the free space
SMALLEST = 256 << 10
LEFT_FREE = 1 << 20  # for the snapshots that set older files free
LARGE = 4  # times the usual size, for who fills files in no time:
BRIEF = 1.0  # within so many seconds
MOST_RETIRED = 5  # full files that the disk may lack; then a rotation waits for it after all

log = logging.getLogger(__name__)


class WalHeader(msgspec.Struct, frozen=True):
    """What the first 64 bytes of a WAL file say."""

    shard: int
    index: int
    epoch: int
    nonce: int
    first_position: int
    key_id: int = 0

    @property
    def version(self) -> int:
        """Return the format of the file."""
        return SEALED_VERSION if self.key_id else VERSION


def shard_directory(directory: str, shard: int) -> str:
    """Return where a shard's WAL files are."""
    return f"{directory}/wal/shard-{shard:02d}"


def wal_name(index: int) -> str:
    """Return the file name of the WAL file ``index``."""
    return f"wal-{index:016d}.log"


def wal_indexes(files: Files, directory: str) -> list[int]:
    """Return the indexes of a shard's WAL files, ascending."""
    if not files.exists(directory):
        return []
    names = files.listdir(directory)
    return sorted(int(n[4:20]) for n in names if n.startswith("wal-") and n.endswith(".log"))


def encode_header(header: WalHeader) -> bytes:
    """Return the first bytes of a WAL file."""
    fields = (header.shard, header.index, header.epoch, header.nonce, header.first_position)
    body = HEADER.pack(MAGIC, header.version, *fields, header.key_id, 0)[:HEADER_CHECKED]
    return body + xxh3_64_intdigest(body).to_bytes(8, "little")


def decode_header(data: bytes, path: str) -> WalHeader | None:
    """Return the header, None when it is damaged or not written yet.

    Raises ``StorageUnusable`` for a sound header of a version that this program does not know:
    such a file is left alone.
    """
    if len(data) < HEADER.size:
        return None
    magic, version, shard, index, epoch, nonce, first, key_id, check = HEADER.unpack_from(data)
    if magic != MAGIC or xxh3_64_intdigest(data[:HEADER_CHECKED]) != check:
        return None
    if version not in (VERSION, SEALED_VERSION):
        raise StorageUnusable(
            f"{path} has format version {version}, this millstream knows versions up to "
            f"{SEALED_VERSION}: start the newer millstream that wrote it"
        )
    return WalHeader(shard, index, epoch, nonce, first, key_id)


class LocalEngine:
    """Appends entries to the newest WAL file of one shard, one thread at a time.

    Another one may sync meanwhile, and prepare the next file.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        shard: int,
        epoch: int,
        nonce: int,
        next_index: int,
        next_position: int,
        file_bytes: int,
        history: Sequence[tuple[int, int]] = (),
        key_id: int = 0,
    ) -> None:
        self._files = files
        self._directory = directory
        self.shard = shard
        self._epoch = epoch
        self._nonce = nonce
        self._capacity = file_bytes
        self._next_index = next_index
        self._ahead: tuple[int, File, int] | None = None  # index, file, bytes
        self._no_room_ahead = False
        self._key_id = key_id  # of the key that seals entries
        self._begun = (0, float("-inf"))  # the current file, and when it was first seen
        self._is_brief = False  # the file before it was full in no time
        self._newest: tuple[int, bytes] = (0, b"")  # position and head of the last entry
        self._is_retired = False
        self._file: File | None = None
        self._retired: list[tuple[int, File]] = []  # full, and perhaps not stable yet
        self._retiring = threading.Lock()  # of that list
        self._syncing: File | None = None  # in use by a sync, also once it is retired
        self._tail = 0
        self._limit = 0  # bytes of the current file
        self._broken = ""
        self.index = 0
        self.written = 0  # bytes of entries since the start
        self.history = list(history)  # (file index, first position), oldest first
        self.position = next_position  # the next one to give away
        self.synced_position = next_position - 1  # recovery synced what it kept

    @property
    def ahead(self) -> int:
        """Return how many positions may be under way: each is completed inside of the call."""
        return 0

    @property
    def room(self) -> int:
        """Return how many bytes go in at once, into this file or one that was made ahead."""
        here = self._limit - self._tail if self._file is not None else 0
        ahead = self._ahead
        if ahead is None or len(self._retired) >= MOST_RETIRED:
            return here
        return max(here, ahead[2] - HEADER.size)

    @property
    def wants_sync(self) -> bool:
        """Say whether a sync should come before another rotation has to wait for it."""
        return len(self._retired) >= MOST_RETIRED - 1

    @property
    def is_prepared(self) -> bool:
        """Say whether the next file is made ahead, or cannot be."""
        return self._ahead is not None or bool(self._broken) or self._no_room_ahead

    @property
    def tail(self) -> int:
        """Return where the next entry goes in the current file."""
        return self._tail

    def append_at(self, position: int, entry: Sequence[bytes], done: Completed) -> Outcome:
        """Write ``entry`` behind the last one, and say so.

        ``StorageFull`` leaves no byte of the entry behind. Any other failure may have left some,
        and the kernel may have dropped pages it could not write, so the engine takes nothing
        more: a later sync that succeeds would prove nothing about these bytes.
        """
        if self._broken:
            raise ShardReadOnly(self._broken)
        if position != self.position:
            is_there = (position, entry[0]) == self._newest  # the head has the body's checksum
            return OK if is_there else Taken(self._nonce)
        size = sum(map(len, entry))
        file = self._file
        if file is None or self._tail + size > self._limit:
            file = self._rotate(size)
        self._write(file, entry, self._tail, size)
        self._tail += size
        self.written += size
        self._newest = (position, entry[0])
        self.position += 1
        return OK

    def begin(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Start a file with entries that replace what an earlier run left from their position on.

        The header comes last: only with it does the file count, and then it is complete.
        """
        index, file, limit = self._ahead or self._create(self._next_index)
        self._ahead = None
        self._next_index = index + 1
        if self._file is not None:
            self._file.close()
        size = sum(len(part) for entry in entries for part in entry)
        self._limit = max(limit, HEADER.size + size)
        self._grow(file, self._limit)
        first = self.position
        self._file, self.index, self._tail = file, index, HEADER.size
        self._begun = (index, float("-inf"))
        for entry in entries:
            length = sum(map(len, entry))
            self._write(file, entry, self._tail, length)
            self._tail += length
            self.position += 1
        self.sync()
        header = WalHeader(self.shard, index, self._epoch, self._nonce, first, self._key_id)
        try:
            write_all(file, encode_header(header), 0)
            file.sync()
        except OSError as error:
            self._break("start", error)
        self.history.append((index, first))

    def sync(self) -> None:
        """Make every entry written so far stable, or take nothing more."""
        if self._broken:
            raise ShardReadOnly(self._broken)
        last = self.position - 1  # a sync says nothing about what is written while it runs
        # Before those that are retired: a rotation meanwhile adds it there.
        self._syncing = current = self._file
        with self._retiring:
            retired, self._retired = self._retired, []
        if current is None or (self.synced_position == last and not retired):
            self._syncing = None
            return
        try:
            for _, file in retired:
                file.sync()
            if all(file is not current for _, file in retired):
                current.sync()
        except OSError as error:
            self._break("sync", error)
        finally:
            self._syncing = None
            for _, file in retired:
                file.close()
        self.synced_position = last

    def drop_below(self, position: int) -> None:
        """Remove files that hold nothing above ``position``; the newest only of a retired log."""
        history = self.history
        while len(history) > 1 and history[1][1] <= position + 1:
            self._forget(history[0][0])
            self._files.unlink(f"{self._directory}/{wal_name(history[0][0])}")
            del history[0]
        if self._is_retired and history and self.position <= position + 1:
            self._files.unlink(f"{self._directory}/{wal_name(history[0][0])}")
            history.clear()

    def drop_before_begin(self) -> None:
        """Remove every file but the one that grows."""
        for index in wal_indexes(self._files, self._directory):
            if self._is_retired or index != self.index:
                self._files.unlink(f"{self._directory}/{wal_name(index)}")
        if self._files.exists(self._directory):
            self._files.sync_dir(self._directory)

    def _forget(self, index: int) -> None:
        """Sync a full file no more: a snapshot covers all of it, and it is going to be removed.

        One that a sync has in its hands stays for the next, which closes it.
        """
        with self._retiring:
            mine = [each for each in self._retired if each[0] == index]
            gone = [file for _, file in mine if file is not self._syncing]
            self._retired = [each for each in self._retired if each[1] not in gone]
        for file in gone:
            file.close()

    def prepare(self, now: float) -> None:
        """Make the next file ahead of its use, so that a rotation does not wait for that too.

        Whoever filled the last one in no time gets a larger one. A full disk is no error here: the
        current file still has room.
        """
        index, since = self._begun
        if self.index != index:
            self._begun, self._is_brief = (self.index, now), now - since < BRIEF
        if not self.is_prepared:
            try:
                self._ahead = self._create(self._next_index, LARGE if self._is_brief else 1)
                self._next_index += 1
            except StorageFull:
                self._no_room_ahead = True  # the next rotation tries again
                log.warning("no room for the next wal file shard=%d", self.shard)

    def retire(self) -> None:
        """Take nothing any more: a later ``drop_below`` may remove every file."""
        self._is_retired = True
        self.close()

    def come_to_rest(self) -> None:
        """Cut off the space that the current file did not use, once everything is synced."""
        if self._file is not None and not self._broken:
            self._file.truncate(self._tail)

    def refuse(self, why: str) -> ShardReadOnly:
        """Take nothing more, for a reason that is not the disk's."""
        self._broken = self._broken or f"shard {self.shard} is read-only: {why}; restart"
        return ShardReadOnly(self._broken)

    def close(self) -> None:
        """Close the files; says nothing about their bytes."""
        with self._retiring:
            retired, self._retired = self._retired, []
        ahead = [self._ahead[1]] if self._ahead else []
        for file in (self._file, *ahead, *(file for _, file in retired)):
            if file is not None:
                file.close()
        self._file = self._ahead = None
        self._broken = self._broken or "the store is closed"

    def _rotate(self, size: int) -> File:
        """Go on in the next file; the old one is stable with the next sync."""
        if self._ahead is None:
            self._ahead = self._create(self._next_index)
            self._next_index += 1
        if len(self._retired) >= MOST_RETIRED:
            self.sync()
        index, file, limit = self._ahead
        if HEADER.size + size > limit:
            limit = HEADER.size + size
            self._grow(file, limit)
        header = WalHeader(self.shard, index, self._epoch, self._nonce, self.position, self._key_id)
        # Refused, the next attempt starts here again.
        self._write(file, [encode_header(header)], 0, HEADER.size)
        if self._file is not None:
            with self._retiring:
                self._retired.append((self.index, self._file))
        self._ahead = None
        self._no_room_ahead = False
        self._file, self.index, self._tail, self._limit = file, index, HEADER.size, limit
        self.history.append((index, self.position))
        return file

    def _create(self, index: int, times: int = 1) -> tuple[int, File, int]:
        """Make a file of the usual size, or of a share of what a small or full disk still has."""
        path = f"{self._directory}/{wal_name(index)}"
        try:
            free = self._files.free_bytes(self._directory)
            size = min(times * self._capacity, max(free // DISK_SHARE, SMALLEST))
            if len(self.history) > 1 and free < size + LEFT_FREE:
                raise StorageFull("no space left for the write-ahead log")
            file = self._files.open(path, create=True)
            try:
                file.preallocate(size)
                file.sync()
                self._files.sync_dir(self._directory)
            except BaseException:
                file.close()
                raise
        except OSError as error:
            if is_no_space(error):
                raise StorageFull("no space left for the write-ahead log") from error
            self._break("create", error)
        return index, file, size

    def _grow(self, file: File, size: int) -> None:
        try:
            file.preallocate(size)
        except OSError as error:
            if is_no_space(error):
                raise StorageFull("no space left for the write-ahead log") from error
            self._break("grow", error)

    def _write(self, file: File, parts: Sequence[bytes], offset: int, size: int) -> None:
        done = 0
        rest: Sequence[Buffer] = parts
        try:
            while done < size:
                wrote = file.pwritev(rest, offset + done)
                if wrote <= 0:
                    raise OSError(errno.EIO, "the disk accepts no bytes")
                done += wrote
                if done < size:
                    rest = (memoryview(b"".join(parts))[done:],)
        except OSError as error:
            if not is_no_space(error):
                self._break("write", error)
            self._wipe(file, done, offset)
            raise StorageFull("no space left for the write-ahead log") from error

    def _wipe(self, file: File, size: int, offset: int) -> None:
        """Put zeros over what a refused write has left, so that recovery never finds it."""
        try:
            write_all(file, bytes(size), offset)
        except OSError as error:
            self._break("wipe", error)

    def _break(self, what: str, error: OSError) -> None:
        self._broken = (
            f"shard {self.shard} is read-only: {what} of the write-ahead log failed "
            f"({error.strerror or error}); check the disk, then restart"
        )
        log.error("shard is read-only shard=%d step=%s error=%s", self.shard, what, error)
        raise ShardReadOnly(self._broken) from error
