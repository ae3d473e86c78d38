"""Blocks: at most 64 KiB of frames, compressed or sealed or both, each with its own checksums.

    0 u32 magic   4 u32 stored bytes   8 u32 plain bytes   12 u32 plain offset
   16 u8 codec (0 none, 1 LZ4)   17 u8 cipher (0 none, 1 AES-256-GCM, 2 ChaCha20-Poly1305)
   18 u16 0   20 u32 header check: low half of XXH3-64 of bytes 0..20 and 24..64, seeded by the
      XXH3-64 of what the block is bound to
   24 8s key id   32 24s nonce   56 u64 XXH3-64 of the stored bytes
   64 stored bytes: first compressed, then sealed

The plain offset says where the block's first byte is in the file that the frames would be without
blocks; index entries speak of that file. A frame is never cut: one above 64 KiB has a block to
itself. So one flipped bit costs at most one block, and the blocks around it know their places.
"""

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import cramjam
from xxhash import xxh3_64_intdigest

from millstream.kernel._frames import cut
from millstream.store.disk.keys import NO_KEY, NONCE_BYTES, TAG_BYTES, KeyRing

MOST_BYTES = 64 << 10
MAGIC = 0x4B4C424D  # "MBLK"
HEAD = struct.Struct("<IIIIBBHI8s24sQ")
_UNCHECKED = slice(20, 24)
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_NO_NONCE = bytes(NONCE_BYTES)
OVERHEAD = HEAD.size + TAG_BYTES
PLAIN, LZ4 = 0, 1

Raw = bytes | memoryview


class BlockRef(NamedTuple):
    """Where a block is: in the plain form, and in its file."""

    offset: int
    size: int
    at: int
    stored: int

    @property
    def end(self) -> int:
        """Return the plain offset just past the block."""
        return self.offset + self.size

    @property
    def after(self) -> int:
        """Return the file offset just past the block."""
        return self.at + HEAD.size + self.stored


def cut_frames(data: memoryview) -> Iterator[memoryview]:
    """Cut frames into pieces for blocks, at frame borders."""
    for start, end, _ in cut(data, MOST_BYTES):
        yield data[start:end]


def encode_block(raw: Raw, offset: int, codec: int, ring: KeyRing | None, bound: bytes) -> bytes:
    """Return a block; ``bound`` is what it belongs to, and it is nothing anywhere else.

    What does not get smaller stays as it is.
    """
    stored: Raw = raw
    if codec == LZ4:
        packed = memoryview(cramjam.lz4.compress_block(raw, store_size=False))
        codec = LZ4 if len(packed) < len(raw) else PLAIN
        stored = packed if codec == LZ4 else raw
    sealed = ring is not None and ring.seals
    nonce, key_id, cipher = _NO_NONCE, NO_KEY, 0
    if sealed:
        assert ring is not None
        nonce, key_id, cipher = ring.nonce(), ring.key_id, ring.cipher
        said = _said(len(raw), offset, codec, cipher, bound)
        stored = ring.seal(nonce, bytes(stored), said)
    head = bytearray(
        HEAD.pack(
            MAGIC,
            len(stored),
            len(raw),
            offset,
            codec,
            cipher,
            0,
            0,
            key_id,
            nonce,
            xxh3_64_intdigest(stored),
        )
    )
    head[_UNCHECKED] = _head_check(head, bound)
    return b"".join((head, stored))


def _said(size: int, offset: int, codec: int, cipher: int, bound: bytes) -> bytes:
    """Return what a sealed block vouches for beside its bytes."""
    return struct.pack("<IIBB", size, offset, codec, cipher) + bound


def _head_check(head: Raw | bytearray, bound: bytes) -> bytes:
    seed = xxh3_64_intdigest(bound)
    checked = bytes(head[:20]) + bytes(head[24:64])
    return (xxh3_64_intdigest(checked, seed) & 0xFFFFFFFF).to_bytes(4, "little")


def decode_head(buffer: Raw, at: int, bound: bytes) -> BlockRef | None:
    """Return the block whose header is at ``at``, None when there is none that holds."""
    if at + HEAD.size > len(buffer):
        return None
    head = bytes(buffer[at : at + HEAD.size])
    if head[:4] != _MAGIC_BYTES or head[_UNCHECKED] != _head_check(head, bound):
        return None
    _, stored, size, offset, *_ = HEAD.unpack(head)
    return BlockRef(offset, size, at, stored)


def decode_block(buffer: Raw, ref: BlockRef, bound: bytes, ring: KeyRing) -> Raw | None:
    """Return the plain bytes of a block, None when it is damaged.

    Raises when the key that sealed it is not in the ring.
    """
    head = _sound_head(buffer, ref.at, bound)
    if head is None:
        return None
    _, stored, size, offset, codec, cipher, _, _, key_id, nonce, check = HEAD.unpack(head)
    start = ref.at + HEAD.size
    body: Raw = buffer[start : start + stored]
    if len(body) != stored or xxh3_64_intdigest(body) != check:
        return None
    if cipher:
        ring.require(key_id, "a block of records")
        opened = ring.open(cipher, key_id, nonce, body, _said(size, offset, codec, cipher, bound))
        if opened is None:
            return None
        body = opened
    if codec == LZ4:
        try:
            body = memoryview(cramjam.lz4.decompress_block(body, output_len=size))
        except cramjam.DecompressionError:
            return None
    return body if len(body) == size and codec in (PLAIN, LZ4) else None


def _sound_head(buffer: Raw, at: int, bound: bytes) -> bytes | None:
    """Return the header at ``at``, mended where one flipped bit explains what is wrong with it."""
    head = bytearray(buffer[at : at + HEAD.size])
    if len(head) < HEAD.size:
        return None
    for bit in (-1, *range(8 * HEAD.size)):
        if bit >= 0:
            head[bit >> 3] ^= 1 << (bit & 7)
        if head[:4] == _MAGIC_BYTES and head[_UNCHECKED] == _head_check(head, bound):
            return bytes(head)
        if bit >= 0:
            head[bit >> 3] ^= 1 << (bit & 7)
    return None


def find_blocks(
    buffer: Raw, start: int, stop: int, bound: bytes, rising: bool = True
) -> tuple[list[BlockRef], list[tuple[int, int]]]:
    """Return (blocks, damaged ranges) of a file's bytes, in order.

    A header that one flipped bit spoiled still tells where the next block is; after worse the next
    header that holds is searched. Plain offsets rise, so that remains of older writes do not count.
    """
    blocks: list[BlockRef] = []
    damaged: list[tuple[int, int]] = []
    at, least = start, 0
    while at < stop:
        ref = decode_head(buffer, at, bound)
        if ref is None and (mended := _sound_head(buffer[:stop], at, bound)) is not None:
            _, stored, size, offset, *_ = HEAD.unpack(mended)
            ref = BlockRef(offset, size, at, stored)
            damaged.append((at, at + HEAD.size))
        if ref is not None and ref.after <= stop and ref.offset >= least:
            blocks.append(ref)
            at, least = ref.after, ref.end if rising else 0
            continue
        found = _next_block(buffer, at + 1, stop, least, bound)
        damaged.append((at, found))
        at = found
    return blocks, damaged


def _next_block(buffer: Raw, at: int, stop: int, least: int, bound: bytes) -> int:
    content = bytes(buffer[at:stop])
    found = content.find(_MAGIC_BYTES)
    while found >= 0:
        ref = decode_head(buffer, at + found, bound)
        if ref is not None and ref.after <= stop and ref.offset >= least:
            return at + found
        found = content.find(_MAGIC_BYTES, found + 1)
    return stop


def plain_image(
    buffer: Raw, blocks: Iterable[BlockRef], bound: bytes, ring: KeyRing
) -> tuple[memoryview, list[BlockRef]]:
    """Return (the plain form, blocks that are damaged); where one is missing there are zeros."""
    refs = list(blocks)
    image = bytearray(max((ref.end for ref in refs), default=0))
    lost = []
    for ref in refs:
        raw = decode_block(buffer, ref, bound, ring)
        if raw is None:
            lost.append(ref)
        else:
            image[ref.offset : ref.end] = raw
    return memoryview(image).toreadonly(), lost


class BlockTable:
    """The blocks of one file, by plain offset."""

    def __init__(self, blocks: Iterable[BlockRef] = ()) -> None:
        self._blocks = list(blocks)
        self._damaged: set[int] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def end(self) -> int:
        """Return the plain offset just past the last block, 0 when there is none."""
        return self._blocks[-1].end if self._blocks else 0

    @property
    def after(self) -> int:
        """Return the file offset just past the last block, 0 when there is none."""
        return self._blocks[-1].after if self._blocks else 0

    def add(self, ref: BlockRef) -> None:
        """Add a block behind the last one."""
        self._blocks.append(ref)

    def at(self, offset: int) -> BlockRef | None:
        """Return the block that holds a plain offset, unless it is missing or known as damaged."""
        i = bisect_right(self._blocks, offset, key=_offset) - 1
        if i < 0 or offset >= self._blocks[i].end or self._blocks[i].offset in self._damaged:
            return None
        return self._blocks[i]

    def spoil(self, ref: BlockRef) -> None:
        """Note that a block is damaged: nobody need look again."""
        self._damaged.add(ref.offset)

    def around(self, offset: int) -> tuple[int, int]:
        """Return the plain range without a good block in which ``offset`` lies."""
        good = [ref for ref in self._blocks if ref.offset not in self._damaged]
        start = max((ref.end for ref in good if ref.end <= offset), default=0)
        end = min((ref.offset for ref in good if ref.offset > offset), default=1 << 32)
        return start, end

    def file_offset(self, offset: int) -> int:
        """Return where the file has, or had, the block of a plain offset."""
        i = bisect_right(self._blocks, offset, key=_offset) - 1
        if i < 0:
            return 64
        return self._blocks[i].at if offset < self._blocks[i].end else self._blocks[i].after

    def __iter__(self) -> Iterator[BlockRef]:
        return iter(self._blocks)


def _offset(ref: BlockRef) -> int:
    return ref.offset


class BlockCache:
    """Plain bytes of blocks that were read lately, bounded; readers keep what they hold."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._blocks: OrderedDict[tuple[int, int], Raw] = OrderedDict()

    def get(self, file: int, offset: int) -> Raw | None:
        """Return a block of a file, by its plain offset."""
        raw = self._blocks.get((file, offset))
        if raw is not None:
            self._blocks.move_to_end((file, offset))
        return raw

    def put(self, file: int, offset: int, raw: Raw) -> None:
        """Keep a block; the ones not read for longest make room."""
        if len(raw) > self._most:
            return
        self.drop(file, offset)
        self._blocks[file, offset] = raw
        self._held += len(raw)
        while self._held > self._most:
            _, gone = self._blocks.popitem(last=False)
            self._held -= len(gone)

    def drop(self, file: int, offset: int) -> None:
        """Forget a block."""
        gone = self._blocks.pop((file, offset), None)
        if gone is not None:
            self._held -= len(gone)

    def forget(self, file: int) -> None:
        """Forget every block of a file."""
        for key in [key for key in self._blocks if key[0] == file]:
            self.drop(*key)
