"""S2 streams, the framing around snapshots: chunks of at most 64 KiB of content each, checksummed.

    chunk   0 u8 type   1 u24 length of what follows   4 content
    type 0xff is the identifier; 0x00 compressed, 0x01 plain: u32 masked CRC-32C, then the block;
    0x80 to 0xfe are skipped. Integers are little endian.

Snappy blocks are S2 blocks; what S2 adds is a copy that repeats the last offset.
"""

from collections.abc import Iterator

import cramjam

from millstream.errors import MillstreamError

_LARGEST_BLOCK = 4 * 1024 * 1024  # what S2 allows at most
_IDENTIFIERS = (b"S2sTwO", b"sNaPpY")


class BadArchive(MillstreamError):
    """Bytes that are no archive of a stream."""

    http_status = 400
    code = "invalid_request"


def encode(data: bytes) -> bytes:
    """Return content as a stream that every S2 reader takes; streams may follow each other."""
    return bytes(cramjam.snappy.compress(data))


class Decoder:
    """Takes a stream as it comes, returns content as it is complete."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the content of the chunks that are complete now; raises BadArchive."""
        self._rest += data
        at = 0
        while len(self._rest) - at >= 4:
            size = int.from_bytes(self._rest[at + 1 : at + 4], "little")
            if len(self._rest) - at < 4 + size:
                break
            found = _content(self._rest[at], self._rest[at + 4 : at + 4 + size])
            at += 4 + size
            if found:
                yield found
        self._rest = self._rest[at:]

    @property
    def is_complete(self) -> bool:
        """Whether nothing of a chunk is missing."""
        return not self._rest


def _content(kind: int, body: bytes) -> bytes:
    if kind == 0xFF:
        if body not in _IDENTIFIERS:
            raise BadArchive("the snapshot is not an S2 stream")
        return b""
    if kind in (0x00, 0x01):
        block = body[4:] if kind == 0x01 else decompress_block(body[4:])
        if _masked_crc(block) != int.from_bytes(body[:4], "little"):
            raise BadArchive("a chunk of the snapshot does not match its checksum")
        return block
    if kind >= 0x80:
        return b""
    raise BadArchive(f"the snapshot holds a chunk of unknown type {kind}")


def decompress_block(block: bytes) -> bytes:
    """Return what a Snappy or S2 block holds; raises BadArchive."""
    size, at = _uvarint(block, 0)
    if size > _LARGEST_BLOCK:
        raise BadArchive("a block of the snapshot is larger than S2 allows")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return _s2_block(block, at, size)  # it repeats an offset, which Snappy does not know


def _s2_block(block: bytes, at: int, size: int) -> bytes:
    out = bytearray()
    offset = 1
    try:
        while at < len(block):
            tag = block[at]
            if tag & 3 == 0:
                at, length = _literal(block, at)
                out += block[at : at + length]
                at += length
                continue
            at, length, step = _copy(block, at)
            offset = step or offset
            _repeat(out, offset, length)
            if len(out) > size:
                break
    except IndexError as error:
        raise BadArchive("a block of the snapshot ends too early") from error
    if len(out) != size:
        raise BadArchive("a block of the snapshot has another size than it says")
    return bytes(out)


def _literal(block: bytes, at: int) -> tuple[int, int]:
    """Return where a literal starts and how long it is."""
    length = block[at] >> 2
    if length < 60:
        return at + 1, length + 1
    extra = length - 59
    return at + 1 + extra, int.from_bytes(block[at + 1 : at + 1 + extra], "little") + 1


def _copy(block: bytes, at: int) -> tuple[int, int, int]:
    """Return what follows a copy, its length and its offset, 0 to repeat the last one."""
    tag = block[at]
    if tag & 3 == 1:
        offset = (tag & 0xE0) << 3 | block[at + 1]
        length = (tag >> 2) & 7
        if offset:
            return at + 2, length + 4, offset
        return _repeated(block, at, length)
    width = 2 if tag & 3 == 2 else 4
    offset = int.from_bytes(block[at + 1 : at + 1 + width], "little")
    return at + 1 + width, (tag >> 2) + 1, offset


def _repeated(block: bytes, at: int, length: int) -> tuple[int, int, int]:
    if length < 5:
        return at + 2, length + 4, 0
    extra = length - 4
    base = (0, 8, 260, 65_540)[extra]
    return at + 2 + extra, int.from_bytes(block[at + 2 : at + 2 + extra], "little") + base, 0


def _repeat(out: bytearray, offset: int, length: int) -> None:
    start = len(out) - offset
    if start < 0:
        raise BadArchive("a block of the snapshot copies from before its start")
    piece = bytes(out[start : start + length])
    while len(piece) < length:  # it overlaps what it writes
        piece += piece[: length - len(piece)]
    out += piece


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise BadArchive("a block of the snapshot does not say how long it is")


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
