"""A disk in memory that crashes, tears, loses and refuses at every call.

Bytes become stable by ``sync``, names by ``sync_dir``; what is neither is at the crash's mercy,
and a ``Mode`` says what the crash does to it.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from enum import Enum

SECTOR = 512


class Crashed(BaseException):
    """The machine is off; nothing that runs may catch this by accident."""


class Mode(Enum):
    """What a crash leaves of bytes and names that were not synced."""

    KEEP = "keep"  # kill -9: the page cache survives
    KILL = "kill"  # and the write that was under way ended between two pages
    DROP = "drop"
    PREFIX = "prefix"
    ZERO = "zero"
    GARBLE = "garble"
    REORDER = "reorder"


class Node:
    """One file's bytes: what readers see, and what is stable."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.stable = b""
        self.whole = True  # no failed sync has lost anything of it
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, bytes) or (size, None)

    def copy(self) -> "Node":
        """Return an independent twin."""
        twin = Node()
        twin.data, twin.stable = bytearray(self.data), self.stable
        twin.whole, twin.pending = self.whole, list(self.pending)
        return twin

    def write(self, offset: int, data: bytes) -> None:
        _apply(self.data, offset, data)
        self.pending.append((offset, data))

    def cut_write(self, size: int) -> None:
        """Keep only the first ``size`` bytes of the last write, which made the file no longer."""
        offset, data = self.pending.pop()
        assert data is not None
        self.write(offset, data[:size])
        before = bytearray(self.stable)
        for at, change in self.pending:
            _apply(before, at, change)
        self.data[offset + size : offset + len(data)] = before[offset + size : offset + len(data)]

    def resize(self, size: int) -> None:
        _apply(self.data, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        self.stable = bytes(self.data) if self.whole else self._pending_applied()
        self.pending.clear()

    def _pending_applied(self) -> bytes:
        stable = bytearray(self.stable)
        for offset, change in self.pending:
            _apply(stable, offset, change)
        return bytes(stable)

    def fail_sync(self) -> None:
        """Do as the kernel does: forget what could not be written, and still show it to readers.

        A later sync that succeeds says nothing about these bytes.
        """
        self.whole = False
        self.pending.clear()

    def survive(self, mode: Mode, rng: random.Random) -> None:
        """Become what a crash leaves."""
        self.data = _SURVIVALS[mode](self, rng)
        self.stable, self.whole = bytes(self.data), True
        self.pending.clear()


def _apply(data: bytearray, offset: int, change: bytes | None) -> None:
    if change is None:
        if offset < len(data):
            del data[offset:]
        else:
            data.extend(bytes(offset - len(data)))
        return
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(change)] = change


def _drop(node: Node, rng: random.Random) -> bytearray:
    return bytearray(node.stable)


def _prefix(node: Node, rng: random.Random) -> bytearray:
    data = bytearray(node.stable)
    if not node.pending:
        return data
    whole = rng.randrange(len(node.pending) + 1)
    for offset, change in node.pending[:whole]:
        _apply(data, offset, change)
    if whole < len(node.pending):
        offset, change = node.pending[whole]
        if change is not None:
            _apply(data, offset, change[: rng.randrange(len(change) + 1)])
    return data


def _sectors(node: Node) -> list[tuple[int, int]]:
    """Return the pending byte ranges cut at sector borders."""
    parts = []
    for offset, change in node.pending:
        at = offset
        while change is not None and at < offset + len(change):
            end = min(offset + len(change), (at // SECTOR + 1) * SECTOR)
            parts.append((at, end))
            at = end
    return parts


def _spoil(node: Node, rng: random.Random, fill: Callable[[int], bytes]) -> bytearray:
    data = bytearray(node.data)
    parts = [(a, b) for a, b in _sectors(node) if b <= len(data)]
    if parts:
        a, b = rng.choice(parts)
        data[a:b] = fill(b - a)
    return data


def _zero(node: Node, rng: random.Random) -> bytearray:
    return _spoil(node, rng, bytes)


def _garble(node: Node, rng: random.Random) -> bytearray:
    return _spoil(node, rng, rng.randbytes)


def _reorder(node: Node, rng: random.Random) -> bytearray:
    data = bytearray(node.stable)
    _apply(data, max(len(node.data), len(data)), None)
    del data[len(node.data) :]
    for a, b in _sectors(node):
        if rng.random() < 0.5 and b <= len(data):
            data[a:b] = node.data[a:b]
    return data


_SURVIVALS: dict[Mode, Callable[[Node, random.Random], bytearray]] = {
    Mode.DROP: _drop,
    Mode.PREFIX: _prefix,
    Mode.ZERO: _zero,
    Mode.GARBLE: _garble,
    Mode.REORDER: _reorder,
}


class FakeDisk:
    """Keeps ``store.files.Files``. ``crash_at`` counts calls that change anything, from 1."""

    def __init__(self) -> None:
        self.names: dict[str, Node | None] = {"/": None}  # None: a directory
        self.stable_names: dict[str, Node | None] = {"/": None}
        self.calls = 0
        self.crash_at = 0
        self.failures: dict[int, OSError | int] = {}  # call → error, or most bytes to write
        self.crashed = False
        self.cuts = 0  # writes that a crash ended inside
        self.writing: Node | None = None  # to this file, as it crashed
        self.boots = 0
        self.free = 1 << 40
        self.locked: set[int] = set()
        self.trace: list[str] = []
        self.hook: Callable[[str, str], None] = lambda call, path: None

    # --- faults

    def enter(self, call: str, path: str) -> int | None:
        """Count a call; crash or fail in it when told to. Returns a cap on bytes written."""
        if self.crashed:
            raise Crashed
        self.calls += 1
        self.trace.append(f"{call} {path}")
        if self.calls == self.crash_at:
            self.crashed = True
        self.hook(call, path)
        failure = self.failures.get(self.calls)
        if isinstance(failure, OSError):
            raise failure
        return failure

    def leave(self) -> None:
        """Crash at the end of the call that was told to."""
        if self.crashed:
            raise Crashed

    def after_crash(self, mode: Mode, seed: int) -> "FakeDisk":
        """Return the disk as the next start finds it."""
        rng = random.Random(seed)
        disk = FakeDisk()
        killed = mode in (Mode.KEEP, Mode.KILL)
        disk.boots = self.boots + (not killed)
        if mode is Mode.KILL and self.writing is not None:
            self._cut_write(self.writing, rng)
        if killed:  # the page cache lives on, and is no more stable than it was
            disk.names, disk.stable_names = dict(self.names), dict(self.stable_names)
            return disk
        disk.names = dict(self._surviving_names(mode, rng))
        for node in disk.names.values():
            if node is not None:
                node.survive(mode, rng)
        disk.stable_names = dict(disk.names)
        return disk

    def _cut_write(self, node: Node, rng: random.Random) -> None:
        """Cut the write under way at the border of a page, here a sector."""
        offset, data = node.pending[-1]
        first = SECTOR - offset % SECTOR
        if node.whole and data is not None and first < len(data):
            node.cut_write(rng.choice(range(first, len(data), SECTOR)))
            self.cuts += 1

    def _surviving_names(self, mode: Mode, rng: random.Random) -> dict[str, Node | None]:
        """Directory changes are a set of single steps; a crash keeps all, none or some of them."""
        changed = [
            p
            for p in self.names.keys() | self.stable_names.keys()
            if self.names.get(p, 0) is not self.stable_names.get(p, 0)
        ]
        if mode is Mode.DROP:
            kept: set[str] = set()
        else:
            kept = {p for p in sorted(changed) if rng.random() < 0.5}
        names = dict(self.stable_names)
        for path in kept:
            if path in self.names:
                names[path] = self.names[path]
            else:
                names.pop(path, None)
        return {p: n for p, n in names.items() if _has_parents(p, names)}

    def copy(self) -> "FakeDisk":
        """Return an independent disk with the same content, as stable as this one."""
        disk = FakeDisk()
        disk.boots = self.boots
        nodes: dict[int, Node] = {}
        for names, twins in (
            (self.names, disk.names),
            (self.stable_names, disk.stable_names),
        ):
            for path, node in names.items():
                if node is not None and id(node) not in nodes:
                    nodes[id(node)] = node.copy()
                twins[path] = None if node is None else nodes[id(node)]
        return disk

    def content(self) -> dict[str, bytes]:
        """Return every file's bytes."""
        return {p: bytes(n.data) for p, n in self.names.items() if n is not None}

    # --- Files

    def open(self, path: str, create: bool = False) -> "FakeFile":
        if self.crashed:
            raise Crashed
        node = self.names.get(path)
        if node is None:
            if path in self.names or not create or os.path.dirname(path) not in self.names:
                raise OSError(errno.ENOENT, "no such file", path)
            self.enter("create", path)
            node = self.names[path] = Node()
            self.leave()
        return FakeFile(self, path, node)

    def exists(self, path: str) -> bool:
        return path in self.names

    def listdir(self, path: str) -> list[str]:
        if path not in self.names:
            raise OSError(errno.ENOENT, "no such directory", path)
        if self.names[path] is not None:
            raise OSError(errno.ENOTDIR, "not a directory", path)
        return sorted(
            os.path.basename(p) for p in self.names if p != path and os.path.dirname(p) == path
        )

    def make_dir(self, path: str) -> None:
        self.enter("make_dir", path)
        self.names[path] = None
        self.leave()

    def remove_dir(self, path: str) -> None:
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self.enter("remove_dir", path)
        self.names.pop(path)
        self.leave()

    def rename(self, old: str, new: str) -> None:
        self.enter("rename", new)
        self.names[new] = self.names.pop(old)
        self.leave()

    def link(self, old: str, new: str) -> None:
        self.enter("link", new)
        if new in self.names:
            raise FileExistsError(errno.EEXIST, "file exists", new)
        self.names[new] = self.names[old]
        self.leave()

    def unlink(self, path: str) -> None:
        self.enter("unlink", path)
        if path not in self.names:
            raise OSError(errno.ENOENT, "no such file", path)
        self.names.pop(path)
        self.leave()

    def sync_dir(self, path: str) -> None:
        self.enter("sync_dir", path)
        self.leave()
        for known in [p for p in self.stable_names if os.path.dirname(p) == path and p != "/"]:
            self.stable_names.pop(known)
        for known, node in self.names.items():
            if os.path.dirname(known) == path:
                self.stable_names[known] = node

    def free_bytes(self, path: str) -> int:
        return self.free

    def boot_id(self) -> str:
        return f"boot-{self.boots}"


def _has_parents(path: str, names: dict[str, Node | None]) -> bool:
    while path != "/":
        path = os.path.dirname(path)
        if path not in names:
            return False
    return True


class FakeFile:
    """Keeps ``store.files.File``."""

    def __init__(self, disk: FakeDisk, path: str, node: Node) -> None:
        self._disk = disk
        self._path = path
        self._node = node

    def pread(self, size: int, offset: int) -> bytes:
        if self._disk.crashed:
            raise Crashed
        return bytes(self._node.data[offset : offset + size])

    def pwritev(self, parts: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        data = b"".join(parts)
        most = self._disk.enter("write", self._path)
        data = data if most is None else data[:most]
        self._node.write(offset, data)
        if self._disk.crashed:
            self._disk.writing = self._node
        self._disk.leave()
        return len(data)

    def preallocate(self, size: int) -> None:
        self._disk.enter("preallocate", self._path)
        if size > len(self._node.data):
            self._node.resize(size)
        self._disk.leave()

    def truncate(self, size: int) -> None:
        if size == len(self._node.data):
            return
        self._disk.enter("truncate", self._path)
        self._node.resize(size)
        self._disk.leave()

    def size(self) -> int:
        return len(self._node.data)

    def data_end(self) -> int:
        return len(self._node.data.rstrip(b"\0"))

    def sync(self) -> None:
        try:
            self._disk.enter("sync", self._path)
        except OSError:
            self._node.fail_sync()
            raise
        self._disk.leave()
        self._node.sync()

    def view(self, size: int) -> memoryview:
        if self._disk.crashed:
            raise Crashed
        return memoryview(bytes(self._node.data[:size]))

    def lock(self) -> bool:
        if id(self._node) in self._disk.locked:
            return False
        self._disk.locked.add(id(self._node))
        return True

    def close(self) -> None:
        if self._path.endswith("/lock"):
            self._disk.locked.discard(id(self._node))
