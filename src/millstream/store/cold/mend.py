"""Mending: what is damaged in a cold segment comes from its Parquet twin, frame by frame.

A frame made again is taken only where it fits: as long as the index says, and sound.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from millstream.errors import ObjectsFailed
from millstream.kernel._frames import check
from millstream.kernel._index import SegmentIndex
from millstream.store.cold import twin
from millstream.store.cold.manifest import folder
from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockRef, BlockTable
from millstream.store.disk.keys import KeyRing
from millstream.store.disk.objects import Objects
from millstream.store.segments.files import HEADER_BYTES, DataHead, data_header, segment_name


def damaged(image: bytes | bytearray, shift: int, index: SegmentIndex, where: range) -> list[int]:
    """Return the positions of live records that are not sound in bytes that begin at ``shift``."""
    return [
        at
        for at in where
        if not index.deleted(at) and check(image, index.offset(at) - shift) != index.frame_len(at)
    ]


def mend(
    image: bytearray,
    shift: int,
    index: SegmentIndex,
    bad: list[int],
    objects: Objects,
    log_id: int,
) -> list[int]:
    """Put frames from the twin where they are missing; returns positions that stay damaged."""
    if not bad:
        return []
    found = _from_twin(objects, log_id, index.base_seq, {index.seq(at) for at in bad})
    lost = []
    for at in bad:
        frame = found.get(index.seq(at), b"")
        start = index.offset(at) - shift
        if len(frame) == index.frame_len(at) and start + len(frame) <= len(image):
            image[start : start + len(frame)] = frame
        else:
            lost.append(at)
    return lost


def _from_twin(objects: Objects, log_id: int, base_seq: int, seqs: set[int]) -> dict[int, bytes]:
    name = f"{segment_name(base_seq)}.parquet"
    if not twin.can_make() or name not in objects.names(folder(log_id)):
        return {}
    import pyarrow as pa

    try:
        return twin.frames_of(objects.get(f"{folder(log_id)}/{name}"), log_id, seqs)
    except (pa.ArrowException, OSError, ObjectsFailed):
        return {}  # the twin is damaged too


def whole(
    data: bytes,
    head: DataHead | None,
    log_id: int,
    index: SegmentIndex,
    bound: bytes,
    ring: KeyRing,
    objects: Objects,
) -> tuple[bytes, DataHead, BlockTable | None, list[int]]:
    """Return a .data file mended as far as its twin can, and the positions that stay damaged."""
    refs, _ = blocks.find_blocks(data, HEADER_BYTES, len(data), bound)
    if head is None:
        head = DataHead(2 if refs else 1, complete=bool(refs))
    count = len(index)
    size = index.offset(count - 1) + index.frame_len(count - 1)
    image = bytearray(data[:size])
    if head.in_blocks:
        image = bytearray(blocks.plain_image(data, refs, bound, ring)[0])
    image += bytes(size - len(image))
    bad = damaged(image, 0, index, range(count))
    lost = mend(image, 0, index, bad, objects, log_id)
    if bad and lost == bad:  # nothing to be had: what is there stays as it is
        return data, head, BlockTable(refs) if head.in_blocks else None, lost
    head = replace(head, key_id=ring.key_id) if head.in_blocks else head
    first = data_header(log_id, index.base_seq, head)
    if not head.in_blocks:
        return first + bytes(image[HEADER_BYTES:]), head, None, lost
    parts, table = [first], BlockTable()
    offset = at = HEADER_BYTES
    for raw in _cut(bytes(image), index):
        block = blocks.encode_block(raw, offset, blocks.LZ4, ring, bound)
        table.add(BlockRef(offset, len(raw), at, len(block) - blocks.HEAD.size))
        offset, at = offset + len(raw), at + len(block)
        parts.append(block)
    return b"".join(parts), head, table, lost


def _cut(image: bytes, index: SegmentIndex) -> Iterator[bytes]:
    """Cut the plain form into pieces for blocks, at frame borders that the index knows."""
    start = HEADER_BYTES
    for at in range(len(index)):
        offset = index.offset(at)
        if offset > start and offset + index.frame_len(at) - start > blocks.MOST_BYTES:
            yield image[start:offset]
            start = offset
    yield image[start:]
