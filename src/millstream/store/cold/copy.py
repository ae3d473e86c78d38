"""ColdCopy: a sealed segment whose .data is at the cold place, read in pieces of about 1 MiB.

    streams/<log id>/seg-<base>.cold, beside the .idx that stays
    {"xxh3": of what follows, 16 hex, "manifest": {"name", "bytes", "xxh3"}}   as a manifest has it

The file says that the .data is elsewhere. It comes before the .data goes, and where both are
there the .data counts.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
from xxhash import xxh3_64_hexdigest

from millstream.errors import ColdUnavailable
from millstream.store.cold import mend as cold_mend
from millstream.store.cold.manifest import Form, folder
from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockRef, BlockTable, Raw
from millstream.store.disk.objects import Objects
from millstream.store.segments.files import HEADER_BYTES, DataHead, read_data_header

if TYPE_CHECKING:
    from millstream.store.segments.segment import Segment

PIECE_BYTES = 1 << 20
SUFFIX = ".cold"

Key = tuple[int, int]
Pieces = dict[Key, Raw]
DAMAGED = b""  # a piece that nobody can read


class PieceSource(Protocol):
    """Where pieces come from."""

    objects: Objects | None

    def piece(self, key: Key, fetch: Callable[[], Pieces], next_seq: int) -> Raw:
        """Return a piece, or raise ``NotHere`` and have it fetched."""
        ...

    def form(self, copy: "ColdCopy", next_seq: int) -> None:
        """Have the copy looked at, or raise ``NotHere``."""
        ...


class ColdCopy:
    """One segment's bytes, elsewhere."""

    def __init__(
        self, source: PieceSource, segment: "Segment", form: Form | None, token: int
    ) -> None:
        self._source = source
        self._segment = segment
        self.form = form
        self.token = token
        self.is_known = False  # whether the object has been looked at: its head, its blocks
        self.table: BlockTable | None = None
        self.is_suspect = False  # a reader met damage: the scrub has a look soon

    @property
    def name(self) -> str:
        """Return the object's name."""
        return f"{folder(self._segment.log_id)}/{self._segment.name}.data"

    def known_as(self, head: DataHead, table: BlockTable | None) -> None:
        """Note what the object is, on the loop."""
        self._segment.head, self.table, self.is_known = head, table, True

    def look(self) -> tuple[DataHead, BlockTable | None]:
        """Find out what the object is (on a thread of the pool)."""
        segment, objects = self._segment, self.objects
        first = objects.get_range(self.name, 0, HEADER_BYTES)
        head = read_data_header(first, segment.log_id, segment.base_seq, self.name)
        if head is None or head.in_blocks:
            whole = objects.get(self.name)
            found, _ = blocks.find_blocks(whole, HEADER_BYTES, len(whole), segment.bound)
            if head is None:
                head = DataHead(2 if found else 1, complete=True)
            if head.in_blocks:
                return head, BlockTable(found)
        return head, None

    def stretch(self, offset: int) -> tuple[Raw | None, int, int]:
        """Return (bytes or None, plain offset of their begin, offset where records begin no more).

        Raises ``NotHere`` while they are being fetched.
        """
        segment = self._segment
        after = segment.last_seq + 1
        if not self.is_known:
            self._source.form(self, after)
        if self.table is None:
            number = offset // PIECE_BYTES
            start, end = number * PIECE_BYTES, self._end_of(number)
            raw = self._source.piece(
                (self.token, start), partial(self._fetch, start, end - start), after
            )
            return raw, start, start + PIECE_BYTES
        ref = self.table.at(offset)
        if ref is None:
            return None, offset, offset
        refs = self._from(ref)
        raw = self._source.piece((self.token, ref.offset), partial(self._decode, refs), after)
        if not len(raw):
            self.table.spoil(ref)
            return None, offset, offset
        return raw, ref.offset, ref.end

    def _end_of(self, number: int) -> int:
        """Return where the last frame ends that begins in a piece."""
        index = self._segment.index
        after = bisect_left(range(len(index)), (number + 1) * PIECE_BYTES, key=index.offset)
        return index.offset(after - 1) + index.frame_len(after - 1)

    def _from(self, ref: BlockRef) -> list[BlockRef]:
        """Return the block and those behind it that come along."""
        assert self.table is not None
        return [r for r in self.table if ref.at <= r.at and r.after <= ref.at + PIECE_BYTES] or [
            ref
        ]

    @property
    def objects(self) -> Objects:
        """Return where the bytes are."""
        if self._source.objects is None:
            raise ColdUnavailable("these records are in cold history: start with --cold PLACE")
        return self._source.objects

    def _fetch(self, start: int, size: int) -> Pieces:
        data = self.objects.get_range(self.name, start, size)
        return {(self.token, start): self._mended(data, start, start + PIECE_BYTES, size)}

    def _mended(self, data: Raw, start: int, end: int, size: int) -> bytes:
        """Return a piece with what is damaged in it from the Parquet twin, where there is one."""
        index = self._segment.index
        count = len(index)
        first = bisect_left(range(count), start, key=index.offset)
        past = bisect_left(range(count), end, key=index.offset)
        bad = cold_mend.damaged(bytes(data), start, index, range(first, past))
        if not bad:
            return bytes(data)
        self.is_suspect = True
        image = bytearray(data) + bytes(size - len(data))
        cold_mend.mend(image, start, index, bad, self.objects, self._segment.log_id)
        return bytes(image)

    def _decode(self, refs: list[BlockRef]) -> Pieces:
        start, segment = refs[0].at, self._segment
        data = self.objects.get_range(self.name, start, refs[-1].after - start)
        found: Pieces = {}
        for ref in refs:
            here = ref._replace(at=ref.at - start)
            raw = blocks.decode_block(data, here, segment.bound, segment.keeping.ring)
            if raw is None:
                raw = self._mended(b"", ref.offset, ref.end, ref.size)
                raw = raw if any(raw) else DAMAGED
            found[self.token, ref.offset] = raw
        return found


class _Marker(msgspec.Struct):
    xxh3: str
    manifest: msgspec.Raw


def encode_marker(form: Form) -> bytes:
    """Return what stands in for a .data file."""
    body = msgspec.json.encode(form)
    return b'{"xxh3":"%b","manifest":%b}\n' % (xxh3_64_hexdigest(body).encode(), body)


def decode_marker(data: bytes) -> Form | None:
    """Return what it says, None when it is damaged: that it is there says enough."""
    try:
        marker = msgspec.json.decode(data, type=_Marker)
        if xxh3_64_hexdigest(bytes(marker.manifest)) != marker.xxh3:
            return None
        return msgspec.json.decode(marker.manifest, type=Form)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
