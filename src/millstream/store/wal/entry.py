"""WAL entries: what one commit writes, and how a damaged log is read.

    0 u32 magic   4 u32 length (whole entry)   8 u64 position   16 u64 epoch   24 u64 nonce
   32 u32 count of frames   36 u16 flags: 1 COMMITS, 2 CONTINUES, 4 SEALED, 8 AGAIN   38 u16 runs
   40 u64 durable mark: every position up to here was on stable storage when this was written
   48 u64 XXH3-64 of the body   56 u64 XXH3-64 of bytes 0..56 and the run table
   64 runs, 24 bytes each: u64 stream id, u64 first seq, u32 count, u32 bytes
   .. body: frames; of a SEALED entry blocks of frames, as blocks.py has them (the sizes in the run
      table are those of the frames)

A batch may span entries; all but the first have CONTINUES, only the one with COMMITS ends it.
The run table names what an entry holds, so that a damaged body can be reported by sequence. Frames
carry a magic and checksums of their own, so that nothing but the damaged record is lost, even when
this header is the damage.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.kernel._entry import encode_head
from millstream.kernel._frames import RECORD
from millstream.store.disk import blocks
from millstream.store.disk.keys import KeyRing

MAGIC = 0x4C41574D  # "MWAL"
COMMITS = 1
CONTINUES = 2
SEALED = 4
AGAIN = 8  # logged again by a start: counts only once its file has a header
BOUND = b"millstream wal"  # what the blocks of entries are bound to
HEAD = struct.Struct("<IIQQQIHHQQQ")
RUN = struct.Struct("<QQII")
HEAD_CHECKED = 56
KIND = 8  # where a frame says what it is
BODY_CHECK = 48  # where the checksum of the body is, and that of the header behind it
TARGET_BYTES = 1 << 20  # a group is cut into entries of about this size

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_ZEROS = bytes(1 << 18)


class FrameRun(NamedTuple):
    """Adjacent frames of one stream; ``first_seq`` 0 means control frames."""

    stream_id: int
    first_seq: int
    frames: int
    size: int


class WalEntry(msgspec.Struct, frozen=True):
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
    sealed: bool
    durable: int
    runs: tuple[FrameRun, ...]
    body_check: int
    again: bool = False
    cut: bool = False  # the file ends before it does

    def sound(self, buffer: memoryview) -> bool:
        """Say whether the body is as written."""
        return xxh3_64_intdigest(buffer[self.body : self.end]) == self.body_check


class Damage(msgspec.Struct, frozen=True):
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
    runs: Sequence[FrameRun],
    parts: Sequence[bytes],
    continues: bool = False,
    ring: KeyRing | None = None,
    again: bool = False,
) -> tuple[bytes, bytes]:
    """Return one entry as head and body; ``parts`` are whole frames in the order of ``runs``.

    They are written one behind the other. One part is the body as it is: most entries are a single
    batch, whose frames the log keeps anyway.
    """
    flags = COMMITS * commits | CONTINUES * continues | AGAIN * again
    if ring is not None and ring.seals and parts:
        parts, flags = list(_sealed(parts, ring)), flags | SEALED
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    return encode_head(position, epoch, nonce, durable, flags, list(runs), body), body


def _sealed(parts: Sequence[bytes], ring: KeyRing | None) -> Iterator[bytes]:
    """Return the frames in sealed blocks, of many small parts or of a piece of a large one."""
    offset = 0
    for piece in _for_blocks(parts):
        yield blocks.encode_block(piece, offset, blocks.PLAIN, ring, BOUND)
        offset += len(piece)


def _for_blocks(parts: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """Cut frames for blocks; the two copies of a control frame never share one."""
    held: list[bytes | memoryview] = []
    size = 0
    for part in (each for whole in parts for each in _apart(whole)):
        repeated = bool(held) and held[-1] == part
        if held and (repeated or size + len(part) > blocks.MOST_BYTES):
            yield b"".join(held)
            held, size = [], 0
        if len(part) <= blocks.MOST_BYTES:
            held.append(part)
            size += len(part)
        else:
            yield from blocks.cut_frames(memoryview(part))
    if held:
        yield b"".join(held)


def _apart(part: bytes) -> Iterator[bytes]:
    """Return records as they are, and control frames one by one."""
    if part[KIND] == RECORD:
        yield part
        return
    at = 0
    while at < len(part):
        end = at + int.from_bytes(part[at + 4 : at + 8], "little")
        yield part[at:end]
        at = end


def plain_body(buffer: memoryview, start: int, end: int, ring: KeyRing) -> memoryview:
    """Return the frames of the sealed blocks in ``start..end``, zeros where one is damaged.

    Adjacent frames stay adjacent, and those around a damaged block do not become so.
    """
    found, _ = blocks.find_blocks(buffer, start, end, BOUND, rising=False)
    image = bytearray()
    expected = 0
    for ref in found:
        raw = blocks.decode_block(buffer, ref, BOUND, ring)
        if ref.offset < expected:
            image += b"\0"  # another entry
        image += bytes(max(ref.offset - expected, 0))
        image += bytes(ref.size) if raw is None else raw
        expected = ref.end
    return memoryview(image).toreadonly()


def checks(buffer: memoryview, entry: WalEntry, body: bytes) -> bytes:
    """Return the two checksums that an entry's header has with another body."""
    body_check = xxh3_64_intdigest(body).to_bytes(8, "little")
    head = bytes(buffer[entry.start : entry.start + BODY_CHECK]) + body_check
    table = bytes(buffer[entry.start + HEAD.size : entry.body])
    return body_check + xxh3_64_intdigest(head + table).to_bytes(8, "little")


def decode_entry(buffer: memoryview, at: int, cut: bool = False) -> WalEntry | None:
    """Return the entry that starts at ``at``, or None when its header cannot be trusted.

    With ``cut`` also one that goes on behind the end of the file: a file is made at its full size
    before it is used, so no crash does that, and its table names what was cut off.
    """
    if at + HEAD.size > len(buffer):
        return None
    (magic, length, position, epoch, nonce, count, flags, runs, durable, body_check, check) = (
        HEAD.unpack_from(buffer, at)
    )
    body = at + HEAD.size + runs * RUN.size
    end = at + length
    if magic != MAGIC or body > end or (end > len(buffer) and not cut):
        return None
    table = bytes(buffer[at + HEAD.size : body])
    if xxh3_64_intdigest(bytes(buffer[at : at + HEAD_CHECKED]) + table) != check:
        return None
    return WalEntry(
        start=at,
        body=min(body, len(buffer)),
        end=min(end, len(buffer)),
        position=position,
        epoch=epoch,
        nonce=nonce,
        count=count,
        commits=bool(flags & COMMITS),
        continues=bool(flags & CONTINUES),
        sealed=bool(flags & SEALED),
        again=bool(flags & AGAIN),
        durable=durable,
        runs=tuple(FrameRun(*fields) for fields in RUN.iter_unpack(table)),
        body_check=body_check,
        cut=end > len(buffer),
    )


def scan_entries(
    buffer: memoryview, start: int, after: int, data_end: int = 1 << 63
) -> Iterator[WalEntry | Damage]:
    """Walk a WAL file from ``start``: entries with positions above ``after``, and what is damaged.

    Zeros up to the end of the file are its unused space, from ``data_end`` on without a look.
    Positions rise, so that remains of an older write are never taken for an entry; nor is one
    that a disk has put before its place.
    """
    at = start
    while at < len(buffer):
        entry = decode_entry(buffer, at, cut=True)
        if entry is not None and entry.position > after:
            jumps = 0 < after < entry.position - 1
            found = _next_entry(buffer, at + 1, after, entry.position) if jumps else -1
            if found < 0:
                yield entry
                after, at = entry.position, entry.end
                continue
        elif not any_bytes(buffer, at, min(data_end, len(buffer))):
            return
        else:
            found = _next_entry(buffer, at + 1, after)
        end = found if found >= 0 else len(buffer)
        yield Damage(at, end, last=found < 0)
        at = end


def first_entry(buffer: memoryview, start: int) -> WalEntry | None:
    """Return the entry of the lowest position, wherever a disk may have put it."""
    lowest: WalEntry | None = None
    at = _next_entry(buffer, start, 0)
    while at >= 0:
        lowest = decode_entry(buffer, at)
        at = _next_entry(buffer, at + 1, 0, lowest.position if lowest else 0)
    return lowest


def entries_in(buffer: memoryview, start: int, end: int) -> Iterator[WalEntry]:
    """Return every entry whose header is sound, in whatever order."""
    at = _next_entry(buffer, start, 0)
    while 0 <= at < end:
        entry = decode_entry(buffer, at)
        if entry is not None:
            yield entry
        at = _next_entry(buffer, at + 1, 0)


def any_bytes(buffer: memoryview, start: int, end: int) -> bool:
    """Say whether anything but zeros is in ``start..end``."""
    for at in range(start, end, len(_ZEROS)):
        piece = bytes(buffer[at : min(at + len(_ZEROS), end)])
        if piece != _ZEROS[: len(piece)]:
            return True
    return False


def _next_entry(buffer: memoryview, at: int, after: int, before: int = 1 << 64) -> int:
    """Return where the next entry between positions ``after`` and ``before`` starts, or -1."""
    step = 1 << 20
    while at < len(buffer):
        piece = bytes(buffer[at : at + step + 3])  # 3 more: the magic may straddle two pieces
        found = piece.find(_MAGIC_BYTES)
        while found >= 0:
            entry = decode_entry(buffer, at + found)
            if entry is not None and after < entry.position < before:
                return at + found
            found = piece.find(_MAGIC_BYTES, found + 1)
        at += step
    return -1
