"""The only module that asks the operating system for files.

Everything the store needs of a disk is in ``Files`` and ``File``; tests put a disk behind them
that crashes, tears, loses and refuses at every call.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

MOST_PARTS = 512  # Linux takes at most 1024 in one call
# For a longer write the kernel looks for longer stretches of memory; on a virtual machine those
# may have to come from its host first, which takes ten times as long as the write.
CALL_BYTES = 1 << 20

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file; offsets are explicit, so there is no position to race for."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file."""
        ...

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write the parts one after another; may write less and then says how much."""
        ...

    def preallocate(self, size: int) -> None:
        """Make the file ``size`` bytes long with its space reserved; new bytes are zero."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def size(self) -> int:
        """Return the length of the file."""
        ...

    def data_end(self) -> int:
        """Return from where on the file holds only zeros, as far as that is known unread."""
        ...

    def sync(self) -> None:
        """Return once the file's bytes and length are on stable storage."""
        ...

    def view(self, size: int) -> memoryview:
        """Return the first ``size`` bytes without copying them; stays valid after close."""
        ...

    def lock(self) -> bool:
        """Take the exclusive lock on this file; False when another process holds it."""
        ...

    def close(self) -> None:
        """Give the file back; a lock goes with it."""
        ...


class Files(Protocol):
    """A directory tree. Names become durable by ``sync_dir`` on the directory that holds them."""

    def open(self, path: str, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes an empty file where none is."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether the path names anything."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_dir(self, path: str) -> None:
        """Make one directory, for this user alone."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replace ``new`` by ``old`` in one step."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return once the directory's names are on stable storage."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return how much an unprivileged writer may still write."""
        ...

    def boot_id(self) -> str:
        """Return what changes whenever unsynced bytes may have been lost: the machine's boot."""
        ...


def write_all(file: File, data: Buffer, offset: int) -> None:
    """Write all of ``data`` at ``offset``, however short the single writes are."""
    rest = memoryview(data)
    while len(rest):
        wrote = file.pwritev((rest,), offset)
        if wrote <= 0:
            raise OSError(errno.EIO, "the disk accepts no bytes")
        offset += wrote
        rest = rest[wrote:]


def write_parts(file: File, parts: Sequence[bytes], offset: int) -> None:
    """Write the parts one after another, many a call but no more than ``CALL_BYTES``."""
    some: list[Buffer] = []
    size = 0
    for part in _pieces(parts):
        if size + len(part) > CALL_BYTES or len(some) == MOST_PARTS:
            _write_some(file, some, size, offset)
            offset += size
            some, size = [], 0
        some.append(part)
        size += len(part)
    _write_some(file, some, size, offset)


def _pieces(parts: Sequence[bytes]) -> Iterator[Buffer]:
    for part in parts:
        if len(part) <= CALL_BYTES:
            yield part
        else:
            for at in range(0, len(part), CALL_BYTES):
                yield memoryview(part)[at : at + CALL_BYTES]


def _write_some(file: File, some: list[Buffer], size: int, offset: int) -> None:
    wrote = file.pwritev(some, offset) if size else 0
    if wrote < size:
        write_all(file, b"".join(some)[wrote:], offset + wrote)


# Directories whose name could be neither synced nor taken back: there, but not to be relied on.
_doubtful: WeakKeyDictionary[Files, set[str]] = WeakKeyDictionary()


def ensure_dir(files: Files, path: str) -> None:
    """Make a directory and its parents where they are missing, each durable in its parent."""
    doubtful = _doubtful.setdefault(files, set())
    if files.exists(path) and path not in doubtful:
        return
    parent = os.path.dirname(path) or "."
    ensure_dir(files, parent)
    if not files.exists(path):
        files.make_dir(path)
    doubtful.add(path)  # the next attempt must not take a name for durable that is not
    try:
        files.sync_dir(parent)
    except OSError:
        files.remove_dir(path)
        doubtful.discard(path)
        raise
    doubtful.discard(path)


def replace_file(files: Files, directory: str, name: str, data: Buffer) -> None:
    """Put a whole file in place: after a crash there is the old one or the new one, never half."""
    temporary = f"{directory}/{name}.tmp"
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        write_all(file, data, 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, f"{directory}/{name}")
    files.sync_dir(directory)


def is_no_space(error: OSError) -> bool:
    """Say whether the disk or the quota is full, which passes by itself once space returns."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OsFile:
    """A file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``."""
        first = os.pread(self._fd, size, offset)
        if len(first) == size or not first:
            return first
        parts = [first]
        got = len(first)
        while got < size and (more := os.pread(self._fd, size - got, offset + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> int:
        """Write the parts one after another."""
        if len(parts) == 1:
            return os.pwrite(self._fd, parts[0], offset)
        return os.pwritev(self._fd, parts, offset)

    def preallocate(self, size: int) -> None:
        """Reserve the space now, so that a later write into it cannot meet a full disk."""
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            os.ftruncate(self._fd, size)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """Return the length of the file."""
        return os.fstat(self._fd).st_size

    def data_end(self) -> int:
        """Ask for the last stretch that is no hole: reserved space is one until it is used."""
        size, end = self.size(), 0
        try:
            while end < size:
                end = os.lseek(self._fd, os.lseek(self._fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            return end if error.errno == errno.ENXIO else size
        return end

    def sync(self) -> None:
        """Return once bytes and length are on stable storage."""
        os.fdatasync(self._fd)

    def view(self, size: int) -> memoryview:
        """Map the first ``size`` bytes; the map lives as long as someone holds the view."""
        if size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ))

    def lock(self) -> bool:
        """Take the exclusive lock; it is released by the kernel when the process ends."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close the descriptor; a second close does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFiles:
    """The real disk."""

    def open(self, path: str, create: bool = False) -> OsFile:
        """Open for reading and writing, never through a symbolic link."""
        return OsFile(self.open_fd(path, create))

    def open_fd(self, path: str, create: bool) -> int:
        """Open as ``open`` does, and return the descriptor."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o600)

    def exists(self, path: str) -> bool:
        """Say whether the path names anything."""
        return os.path.lexists(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        """Make one directory with mode 0700."""
        os.mkdir(path, 0o700)

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        """Replace ``new`` by ``old`` in one step."""
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; raises ``FileExistsError`` where that name is taken."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        """Return once the directory's names are on stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        """Return how much an unprivileged writer may still write."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def boot_id(self) -> str:
        """Return the kernel's boot id, or nothing where it is not known."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""
