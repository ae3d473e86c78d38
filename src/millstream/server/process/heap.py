"""The heap of a server: memory for batches is used again instead of being given back each time.

Every chunk that a publisher sends needs buffers of some hundred KiB for a moment. As the C library
does by itself, the end of the heap goes back to the system as soon as they are free, and the next
chunk has its pages made anew: an eighth of the processor time of storing records of 1 KiB.
"""

import ctypes

# Bytes at the end of the heap that stay although nobody uses them: about as much as a stream that
# takes all it can has in memory while a segment of it is sealed.
KEPT = 64 << 20
AT_ONCE = 8 << 20  # by which the heap grows beyond what is asked for
MAPPED = 4 << 20  # what is larger is no part of the heap: indexes, which grow without a copy

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)


def keep_heap() -> bool:
    """Set this process's heap up; False where the C library has no such settings."""
    try:
        settle = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = {_TRIM_THRESHOLD: KEPT, _TOP_PAD: AT_ONCE, _MMAP_THRESHOLD: MAPPED}
    return all(settle(name, value) == 1 for name, value in wanted.items())
