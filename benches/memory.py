"""Memory that the machine already has, so that a row measures its server and not its host.

A virtual machine gives free memory back to its host in blocks of some megabytes, and the first
touch of each page then costs ten times the copy that is measured: how often that strikes is a
matter of what ran before. So free memory is touched at the start of a run, for whichever server,
and one page of each block is kept until its end: what is in use nearby is not given back.

The kernel takes pages for files and processes from other blocks than pages of its own, among them
what waits in sockets. The former are reached by a mapping, the latter by filling pipes.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import resource
from pathlib import Path

FOR_FILES = 6 << 30  # above what the cases have on disk at once
FOR_SOCKETS = 2 << 30  # several times what one processor keeps of freed pages for itself
BLOCK = 2 << 20  # what a host takes back at least
PIPE = 1 << 20  # as large as anybody may make one


def hold_memory() -> contextlib.ExitStack:
    """Have the host back free memory until the result is closed; nothing where there is little."""
    held = contextlib.ExitStack()
    if _available() >= 2 * (FOR_FILES + FOR_SOCKETS):
        _hold_for_files(held)
        _hold_for_sockets(held)
    return held


def _hold_for_files(held: contextlib.ExitStack) -> None:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapping = held.enter_context(mmap.mmap(-1, FOR_FILES, flags=flags))
    mapping.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, FOR_FILES, mmap.PAGESIZE):
        mapping[at] = 1
    for at in range(0, FOR_FILES, BLOCK):
        mapping.madvise(mmap.MADV_DONTNEED, at + mmap.PAGESIZE, BLOCK - mmap.PAGESIZE)


def _hold_for_sockets(held: contextlib.ExitStack) -> None:
    _allow_descriptors(FOR_SOCKETS // PIPE + 256)
    filling = bytes(PIPE)
    pipes = []
    with contextlib.suppress(
        OSError
    ):  # no more descriptors, or no more pages for this user's pipes
        while len(pipes) < FOR_SOCKETS // PIPE:
            pipes.append(_filled_pipe(filling, held))
    for reading in pipes:
        os.read(reading, PIPE - mmap.PAGESIZE)


def _filled_pipe(filling: bytes, held: contextlib.ExitStack) -> int:
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    held.callback(os.close, reading)
    try:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, len(filling))
        os.write(writing, filling)
    finally:
        os.close(writing)  # what was written stays until the reading end is closed
    return reading


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _available() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
