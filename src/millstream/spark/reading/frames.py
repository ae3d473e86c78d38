"""Frames as Spark's tasks look at them: by the kernel, or in plain Python where there is none.

A machine without a C compiler has no kernel. Its tasks read the same records, more slowly.
"""

import mmap
from typing import TypeAlias

from millstream.spark.reading import plain_frames

try:
    from millstream.kernel import _frames, _index
except ImportError:
    HAS_KERNEL = False
else:
    HAS_KERNEL = True

HEADER = plain_frames.HEADER
Data: TypeAlias = bytes | bytearray | memoryview | mmap.mmap


def indexed(frames: bytes, stream_id: int) -> tuple[bytes, list[bytes], int]:
    """Return the index entries of whole frames, their subjects, and where a good one ends."""
    if not HAS_KERNEL:
        return plain_frames.indexed(frames, stream_id)
    index = _index.SegmentIndex(int.from_bytes(frames[32:40], "little"), _index.SubjectTable())
    _, position, _ = _frames.index_frames(frames, 0, len(frames), stream_id, index)
    packed, subjects = index.pack()
    return packed, subjects, position


def check(data: Data, start: int) -> int:
    """Return the length of a good frame, else 0."""
    return (_frames.check if HAS_KERNEL else plain_frames.check)(data, start)


def are_whole(data: Data, starts: bytes, first_seq: int, last_seq: int, size: int) -> bool:
    """Return whether all frames hold, and are together what an index says of them.

    In plain Python this is never so: the caller then looks at each frame by itself.
    """
    if not HAS_KERNEL:
        return False
    try:
        frames = _frames.Frames(data, starts)
    except ValueError:  # something that is no frame
        return False
    return (
        frames.verified() == -1
        and (frames.first_seq, frames.last_seq) == (first_seq, last_seq)
        and frames.size == size
    )
