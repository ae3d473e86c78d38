"""Memory that the machine already has, for cases that write files.

A virtual machine gives free memory back to its host in blocks of some megabytes, and the first
touch of each page then costs ten times the write that is measured: how often that strikes is a
matter of what ran before. So free memory is touched at the start of a run, for whichever server,
and one page of each block is kept until its end: what is in use nearby is not given back.
"""

import mmap
from pathlib import Path

BYTES = 6 << 30  # above what the cases have on disk at once
BLOCK = 2 << 20  # what a host takes back at least


def hold_memory() -> mmap.mmap | None:
    """Have the host back free memory as long as the result lives; None where there is little."""
    if _available() < 2 * BYTES:
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    held = mmap.mmap(-1, BYTES, flags=flags)
    held.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, BYTES, mmap.PAGESIZE):
        held[at] = 1
    for at in range(0, BYTES, BLOCK):
        held.madvise(mmap.MADV_DONTNEED, at + mmap.PAGESIZE, BLOCK - mmap.PAGESIZE)
    return held


def _available() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
