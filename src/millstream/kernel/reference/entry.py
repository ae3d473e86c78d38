"""Entries in plain Python: what the compiled module must agree with, byte for byte."""

import struct
from collections.abc import Sequence

import xxhash

HEAD = struct.Struct("<IIQQQIHHQQQ")
RUN = struct.Struct("<QQII")
MAGIC = 0x4C41574D  # "MWAL"
CHECKED = 56


def encode_head(
    position: int,
    epoch: int,
    nonce: int,
    durable: int,
    flags: int,
    runs: Sequence[tuple[int, int, int, int]],
    body: bytes,
) -> bytes:
    """Return what is before an entry's body; ``runs`` are (stream id, first seq, count, bytes)."""
    table = b"".join(RUN.pack(*run) for run in runs)
    size, count = HEAD.size + len(table) + len(body), sum(run[2] for run in runs)
    fields = (position, epoch, nonce, count, flags, len(runs), durable)
    head = HEAD.pack(MAGIC, size, *fields, xxhash.xxh3_64_intdigest(body), 0)[:CHECKED]
    check = xxhash.xxh3_64_intdigest(head + table)
    return b"".join((head, check.to_bytes(8, "little"), table))
