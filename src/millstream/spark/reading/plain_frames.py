"""Frames in plain Python, for machines without the compiled kernel."""

import mmap
import struct
from typing import TypeAlias

from millstream.kernel.reference import frames as reference

HEADER = reference.HEADER
_SLOT = struct.Struct("<IIQIIHHHBB")
_DELETED = 1

Data: TypeAlias = bytes | bytearray | memoryview | mmap.mmap


def check(data: Data, start: int) -> int:
    """Return the length of a good frame, else 0."""
    view = memoryview(data)
    head = reference.head_at(bytes(view[start : start + HEADER]), 0)
    if head is None or start + head.frame_len > len(view):
        return 0
    return reference.check(bytes(view[start : start + head.frame_len]), 0)


def indexed(frames: bytes, stream_id: int) -> tuple[bytes, list[bytes], int]:
    """Return the index entries of whole frames, their subjects, and where a good one ends."""
    entries, subjects, at, first, last = bytearray(), dict[bytes, int](), 0, 0, 0
    while size := check(frames, at):
        head = reference.head_at(frames[at : at + HEADER], 0)
        if head is None or not _follows(head, stream_id, last):
            break
        first, last = first or head.seq, head.seq
        subject = frames[at + HEADER : at + HEADER + head.subject_len]
        entries += _SLOT.pack(
            *(at, head.seq - first, head.ts_ns, subjects.setdefault(subject, len(subjects))),
            *(head.payload_len, head.headers_len, head.meta_len, head.tag_len, head.node_len),
            _DELETED if frames[at + size - 1] == reference.DELETED else 0,
        )
        at += size
    return bytes(entries), list(subjects), at


def _follows(head: reference.Head, stream_id: int, last: int) -> bool:
    return head.kind == reference.RECORD and head.stream_id == stream_id and head.seq > last
