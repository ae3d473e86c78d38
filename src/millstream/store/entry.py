"""WAL entries: what one commit writes, and how a damaged log is read.

    0 u32 magic   4 u32 length (whole entry)   8 u64 position   16 u64 epoch   24 u64 nonce
   32 u32 count of frames   36 u16 flags (1 = COMMITS, 2 = CONTINUES)   38 u16 runs
   40 u64 durable mark: every position up to here was on stable storage when this was written
   48 u64 XXH3-64 of the body   56 u64 XXH3-64 of bytes 0..56 and the run table
   64 runs, 24 bytes each: u64 stream id, u64 first seq, u32 count, u32 bytes
   .. body: frames

A batch may span entries; all but the first have CONTINUES, only the one with COMMITS ends it.
The run table names what an entry holds, so that a damaged body can be reported by sequence. Frames
carry a magic and checksums of their own, so that nothing but the damaged record is lost, even when
this header is the damage.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

MAGIC = 0x4C41574D  # "MWAL"
COMMITS = 1
CONTINUES = 2
HEAD = struct.Struct("<IIQQQIHHQQQ")
RUN = struct.Struct("<QQII")
HEAD_CHECKED = 56
TARGET_BYTES = 1 << 20  # a group is cut into entries of about this size

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_ZEROS = bytes(1 << 18)


class Run(NamedTuple):
    """Adjacent frames of one stream; ``first_seq`` 0 means control frames."""

    stream_id: int
    first_seq: int
    frames: int
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry whose header and run table are as written."""

    start: int
    body: int
    end: int
    position: int
    epoch: int
    nonce: int
    count: int
    commits: bool
    continues: bool
    durable: int
    runs: tuple[Run, ...]
    body_check: int

    def sound(self, buffer: memoryview) -> bool:
        """Say whether the body is as written."""
        return xxh3_64_intdigest(buffer[self.body : self.end]) == self.body_check


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in which no entry header could be trusted; frames inside may still be sound."""

    start: int
    end: int
    last: bool  # nothing valid follows in this file


def encode_entry(
    position: int,
    epoch: int,
    nonce: int,
    durable: int,
    commits: bool,
    runs: Sequence[Run],
    parts: Sequence[bytes],
    continues: bool = False,
) -> bytes:
    """Return one entry; ``parts`` are whole frames in the order of ``runs``."""
    table = b"".join([RUN.pack(*run) for run in runs])
    size = sum(map(len, parts))
    head = HEAD.pack(
        MAGIC,
        HEAD.size + len(table) + size,
        position,
        epoch,
        nonce,
        sum([run.frames for run in runs]),
        COMMITS * commits | CONTINUES * continues,
        len(runs),
        durable,
        xxh3_64_intdigest(parts[0]) if len(parts) == 1 else _check(parts),
        0,
    )[:HEAD_CHECKED]
    check = xxh3_64_intdigest(head + table)
    return b"".join((head, check.to_bytes(8, "little"), table, *parts))


def _check(parts: Sequence[bytes]) -> int:
    """Return the checksum of the parts one after another, without joining them."""
    check = xxh3_64()
    for part in parts:
        check.update(part)
    return check.intdigest()


def decode_entry(buffer: memoryview, at: int) -> Entry | None:
    """Return the entry that starts at ``at``, or None when its header cannot be trusted."""
    if at + HEAD.size > len(buffer):
        return None
    (magic, length, position, epoch, nonce, count, flags, runs, durable, body_check, check) = (
        HEAD.unpack_from(buffer, at)
    )
    body = at + HEAD.size + runs * RUN.size
    end = at + length
    if magic != MAGIC or end > len(buffer) or body > end:
        return None
    table = bytes(buffer[at + HEAD.size : body])
    if xxh3_64_intdigest(bytes(buffer[at : at + HEAD_CHECKED]) + table) != check:
        return None
    return Entry(
        start=at,
        body=body,
        end=end,
        position=position,
        epoch=epoch,
        nonce=nonce,
        count=count,
        commits=bool(flags & COMMITS),
        continues=bool(flags & CONTINUES),
        durable=durable,
        runs=tuple(Run(*fields) for fields in RUN.iter_unpack(table)),
        body_check=body_check,
    )


def scan_entries(buffer: memoryview, start: int, after: int) -> Iterator[Entry | Damage]:
    """Walk a WAL file from ``start``: entries with positions above ``after``, and what is damaged.

    Zeros up to the end of the file are its unused space. Positions rise, so that remains of an
    older write are never taken for an entry.
    """
    at = start
    while at < len(buffer):
        entry = decode_entry(buffer, at)
        if entry is not None and entry.position > after:
            yield entry
            after, at = entry.position, entry.end
            continue
        if not any_bytes(buffer, at):
            return
        found = _next_entry(buffer, at + 1, after)
        end = found if found >= 0 else len(buffer)
        yield Damage(at, end, last=found < 0)
        at = end


def any_bytes(buffer: memoryview, start: int) -> bool:
    """Say whether anything but zeros follows ``start``."""
    for at in range(start, len(buffer), len(_ZEROS)):
        piece = bytes(buffer[at : at + len(_ZEROS)])
        if piece != _ZEROS[: len(piece)]:
            return True
    return False


def _next_entry(buffer: memoryview, at: int, after: int) -> int:
    step = 1 << 20
    while at < len(buffer):
        piece = bytes(buffer[at : at + step + 3])  # 3 more: the magic may straddle two pieces
        found = piece.find(_MAGIC_BYTES)
        while found >= 0:
            entry = decode_entry(buffer, at + found)
            if entry is not None and entry.position > after:
                return at + found
            found = piece.find(_MAGIC_BYTES, found + 1)
        at += step
    return -1
