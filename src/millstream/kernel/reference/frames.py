"""Frames in plain Python: what the compiled module must agree with, byte for byte."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import xxhash

HEAD = struct.Struct("<IIBBHIHHHBBQQQ")
HEADER = HEAD.size + 4
TRAILER = 9
MAGIC = 0x31736DF7
RECORD = 1
MORE = 1
DELETED = 0xD5


class Head(NamedTuple):
    """The fixed part of a frame, without the check."""

    magic: int
    frame_len: int
    kind: int
    flags: int
    subject_len: int
    payload_len: int
    headers_len: int
    meta_len: int
    tag_len: int
    node_len: int
    zero: int
    stream_id: int
    seq: int
    ts_ns: int

    @property
    def adds_up(self) -> bool:
        """Return whether the whole is the sum of its parts."""
        parts = (self.subject_len, self.payload_len, self.headers_len, self.meta_len)
        return self.frame_len == HEADER + TRAILER + sum(parts) + self.tag_len + self.node_len


class Fields(NamedTuple):
    """What a frame carries beside its numbers."""

    subject: bytes
    payload: bytes
    headers: bytes = b""
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""


def encode(kind: int, flags: int, stream_id: int, seq: int, ts_ns: int, fields: Fields) -> bytes:
    """Return one live frame."""
    subject, payload, headers, tag, node, meta = fields
    body = subject + tag + node + meta + headers + payload
    head = HEAD.pack(
        MAGIC,
        HEADER + len(body) + TRAILER,
        kind,
        flags,
        len(subject),
        len(payload),
        len(headers),
        len(meta),
        len(tag),
        len(node),
        0,
        stream_id,
        seq,
        ts_ns,
    )
    check = xxhash.xxh3_64_intdigest(head) & 0xFFFFFFFF
    frame = head + check.to_bytes(4, "little") + body
    return frame + xxhash.xxh3_64_intdigest(frame).to_bytes(8, "little") + b"\0"


def encode_batch(
    records: Sequence[Fields], stream_id: int, first_seq: int, ts_ns: int, whole: bool
) -> bytes:
    """Return records as frames with contiguous sequences."""
    last = len(records) - 1
    return b"".join(
        encode(RECORD, MORE if whole and i < last else 0, stream_id, first_seq + i, ts_ns, fields)
        for i, fields in enumerate(records)
    )


def encode_exact(
    records: Sequence[Fields],
    stream_id: int,
    seqs: Sequence[int],
    times_ns: Sequence[int],
    least_ns: int,
) -> bytes:
    """Return records as one whole batch with these sequences; times never fall."""
    frames = []
    for i, fields in enumerate(records):
        least_ns = max(least_ns, times_ns[i])
        flags = MORE if i < len(records) - 1 else 0
        frames.append(encode(RECORD, flags, stream_id, seqs[i], least_ns, fields))
    return b"".join(frames)


def head_at(data: bytes, at: int) -> Head | None:
    """Return the header at ``at`` when it holds."""
    if at < 0 or len(data) - at < HEADER:
        return None
    head = Head(*HEAD.unpack_from(data, at))
    check = xxhash.xxh3_64_intdigest(data[at : at + HEAD.size]) & 0xFFFFFFFF
    stored = int.from_bytes(data[at + HEAD.size : at + HEADER], "little")
    return head if head.magic == MAGIC and stored == check and head.adds_up else None


def check_header(data: bytes, at: int) -> int:
    """Return the length that a holding header gives, else 0."""
    head = head_at(data, at)
    return head.frame_len if head else 0


def check(data: bytes, at: int) -> int:
    """Return the length of a good frame, else 0."""
    size = check_header(data, at)
    if not size or at + size > len(data):
        return 0
    if data[at + size - 1] == DELETED:
        return size
    end = at + size - TRAILER
    stored = int.from_bytes(data[end : end + 8], "little")
    return size if xxhash.xxh3_64_intdigest(data[at:end]) == stored else 0


def cut(data: bytes, most: int) -> list[tuple[int, int, int]]:
    """Return (start, end, frames) of pieces of at most ``most`` bytes, cut at frame borders."""
    pieces: list[tuple[int, int, int]] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        start, _, count = pieces[-1] if pieces else (0, 0, 0)
        if count and at + size - start <= most:
            pieces[-1] = (start, at + size, count + 1)
        else:
            pieces.append((at, at + size, 1))
        at += size
    return pieces


Found = tuple[int, int, int, int, int, int, int, bool]


def scan(data: bytes) -> tuple[list[Found], list[tuple[int, int]]]:
    """Return (good frames, damaged ranges)."""
    frames: list[Found] = []
    damaged: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        size = check(data, at)
        head = head_at(data, at)
        if size and head:
            gone = data[at + size - 1] == DELETED
            frames.append(
                (head.kind, head.flags, head.stream_id, head.seq, head.ts_ns, at, size, gone)
            )
            at += size
            continue
        head = head or mended(data, at)
        good = min(at + head.frame_len, len(data)) if head else next_good(data, at + 1)
        if damaged and damaged[-1][1] == at:
            damaged[-1] = (damaged[-1][0], good)
        else:
            damaged.append((at, good))
        at = good
    return frames, damaged


def mended(data: bytes, at: int) -> Head | None:
    """Return the header at ``at`` as it was before one bit flipped, if that explains it."""
    for bit in range(8 * HEADER if len(data) - at >= HEADER else 0):
        tried = bytearray(data[at : at + HEADER])
        tried[bit >> 3] ^= 1 << (bit & 7)
        head = head_at(bytes(tried), 0)
        if head:
            return head
    return None


def next_good(data: bytes, at: int) -> int:
    """Return where the next good frame starts, the end when there is none."""
    return next((i for i in range(at, len(data)) if check(data, i)), len(data))
