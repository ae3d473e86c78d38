"""Frames written out by hand from the documented layout, so that decoding has a second opinion."""

import struct
from dataclasses import dataclass

import xxhash

MAGIC = 0x31736DF7


@dataclass(frozen=True)
class Row:
    seq: int
    ts_ns: int
    subject: bytes
    payload: bytes
    headers: bytes = b""
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""
    deleted: bool = False


def frame(row: Row, stream_id: int) -> bytes:
    body = row.subject + row.tag + row.node + row.meta + row.headers + row.payload
    head = struct.pack(
        "<IIBBHIHHHBBQQQ",
        MAGIC,
        52 + len(body) + 9,
        1,
        0,
        len(row.subject),
        len(row.payload),
        len(row.headers),
        len(row.meta),
        len(row.tag),
        len(row.node),
        0,
        stream_id,
        row.seq,
        row.ts_ns,
    )
    head += struct.pack("<I", xxhash.xxh3_64_intdigest(head) & 0xFFFFFFFF)
    checked = head + body
    check = struct.pack("<Q", xxhash.xxh3_64_intdigest(checked))
    return checked + check + (b"\xd5" if row.deleted else b"\x00")


def frames(rows: list[Row], stream_id: int) -> bytes:
    return b"".join(frame(row, stream_id) for row in rows)
