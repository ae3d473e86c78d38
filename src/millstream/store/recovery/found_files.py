"""FoundFiles: segment files as a start finds them, read into segments.

An index is taken where it fits its file; what has none, or one that is damaged or outdated, is
indexed from its frames. What is damaged stays out: the WAL may still have it.
"""

import logging

from msgspec.structs import replace
from xxhash import xxh3_64

from millstream.errors import MillstreamError, StorageUnusable
from millstream.store.cold.copy import ColdCopy
from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockRef, BlockTable
from millstream.store.disk.files import Files, replace_file
from millstream.store.log.snapshot import SegmentState
from millstream.store.recovery.damaged_segments import index_segment
from millstream.store.segments.files import (
    HEADER_BYTES,
    DataHead,
    binding,
    decode_idx,
    holds_blocks,
    idx_generation,
    read_data_header,
)
from millstream.store.segments.segment import Keeping, Segment

log = logging.getLogger(__name__)


class FoundFiles:
    """Reads only, but for an index that the cold place has to give back."""

    def __init__(self, files: Files, keeping: Keeping) -> None:
        self._files = files
        self._keeping = keeping

    def buffer(self, path: str) -> memoryview:
        """Return a file's bytes, mapped."""
        file = self._files.open(path)
        try:
            return file.view(file.size())
        finally:
            file.close()

    def plain(self, path: str, log_id: int, base: int) -> tuple[DataHead, memoryview]:
        """Return what kind of file it is and its bytes as they would be without blocks."""
        buffer = self.buffer(path)
        bound = binding(log_id, base)
        head = read_data_header(bytes(buffer[:HEADER_BYTES]), log_id, base, path)
        if head is None:
            head = DataHead(version=2 if holds_blocks(buffer, bound) else 1)
        if not head.in_blocks:
            return head, buffer
        self._keeping.ring.require(head.key_id, path)
        found, _ = blocks.find_blocks(buffer, HEADER_BYTES, len(buffer), bound)
        return head, blocks.plain_image(buffer, found, bound, self._keeping.ring)[0]

    # --- loading

    def load(self, segment: Segment, state: SegmentState | None, sealed: bool) -> tuple[int, bool]:
        """Index a segment whose .data is here; ``state`` is what a snapshot knows of it.

        Returns up to where the file counts, 0 when its index says so, and whether all is sound.
        """
        segment.made = True
        buffer = self.buffer(segment.path)
        head = self._head(buffer, segment)
        if sealed and head.in_blocks:
            head = replace(head, complete=True)
        segment.found(head)
        if sealed and self._take_idx(segment, len(buffer), state.size if state else 0, head):
            return 0, True
        if head.in_blocks:
            return self._load_blocks(segment, state, buffer)
        limit = min(state.size, len(buffer)) if state else len(buffer)
        whole = index_segment(segment, buffer, limit) and not (state and limit < state.size)
        segment.full = bool(state and state.sealed) or state is None or self._keeping.ring.seals
        return limit, whole

    def load_cold(self, segment: Segment, copy: ColdCopy) -> None:
        """Take up a segment by its index alone; the cold place is asked only if that is damaged."""
        segment.made = True
        head = DataHead(complete=True, generation=-1)
        if self._take_idx(segment, 1 << 32, 0, head):
            return
        path = f"{segment.directory}/{segment.name}.idx"
        try:
            data = copy.objects.get(copy.name[: -len(".data")] + ".idx")
        except MillstreamError as error:
            raise StorageUnusable(
                f"{path} is damaged, and its copy cannot be read ({error}): "
                "start again when the cold place answers"
            ) from error
        replace_file(self._files, segment.directory, f"{segment.name}.idx", data)
        if not self._take_idx(segment, 1 << 32, 0, head):
            raise StorageUnusable(f"{path} is damaged, here and at the cold place: restore it")

    def _load_blocks(
        self, segment: Segment, state: SegmentState | None, buffer: memoryview
    ) -> tuple[int, bool]:
        """Index a file in blocks; a complete one counts as a whole, as it came by a rename."""
        bound, ring, complete = segment.bound, self._keeping.ring, segment.head.complete
        found, damaged = blocks.find_blocks(buffer, HEADER_BYTES, len(buffer), bound)
        limit = 1 << 32 if complete or state is None else state.size
        table = BlockTable(ref for ref in found if ref.end <= limit)
        image, lost = blocks.plain_image(buffer, table, bound, ring)
        for at in sorted({*(ref.at for ref in lost), *(at for at, _ in damaged)}):
            if at < table.after:
                log.error("damaged block file=%s offset=%d", segment.path, at)
        segment.found(segment.head, table)
        end = max(table.end, HEADER_BYTES)
        whole = index_segment(segment, image, end, quiet=True)
        segment.full = complete or bool(state and state.sealed) or state is None or not ring.seals
        return end, whole and (state is None or complete or end >= state.size)

    def _head(self, buffer: memoryview, segment: Segment) -> DataHead:
        log_id, base, path = segment.log_id, segment.base_seq, segment.path
        head = read_data_header(bytes(buffer[:HEADER_BYTES]), log_id, base, path)
        if head is None:
            log.error("damaged segment header file=%s offset=0", path)
            in_blocks = holds_blocks(buffer, binding(log_id, base))
            head = DataHead(version=2 if in_blocks else 1, generation=-1)
        self._keeping.ring.require(head.key_id, path)
        return head

    def _take_idx(self, segment: Segment, size: int, least: int, head: DataHead) -> bool:
        """Take the index of a sealed segment; not one that a rewrite or growth has outdated."""
        path = f"{segment.directory}/{segment.name}.idx"
        file = self._files.open(path)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        data_bytes = int.from_bytes(data[32:40], "little")
        generation = idx_generation(data)
        if head.generation not in (-1, generation) and _sound(data):
            return False  # a crash came between the two files of a rewrite
        if data_bytes < least and not generation and not head.in_blocks:
            return False
        subjects, ring = segment.index.subjects, self._keeping.ring
        size = 1 << 32 if head.in_blocks else size
        log_id, base = segment.log_id, segment.base_seq
        index = decode_idx(data, log_id, base, size, subjects, path, ring)
        if index is None:
            log.error("damaged index, rebuilding it file=%s offset=0", path)
            return False
        segment.index = index
        segment.size = segment.flushed = segment.synced = data_bytes
        segment.flushed_seq = segment.last_seq
        segment.full = segment.sealed = True
        if head.generation < 0:
            segment.found(replace(head, generation=generation, complete=True))
        return True

    # --- what the WAL has rebuilt

    def goes_on(self, segment: Segment, path: str) -> bool:
        """Let a segment of the WAL's frames go on in a file of blocks, as far as both agree."""
        head, image = self.plain(path, segment.log_id, segment.base_seq)
        if not head.in_blocks or (not head.complete and not self._keeping.ring.seals):
            return False
        buffer = self.buffer(path)
        found, _ = blocks.find_blocks(buffer, HEADER_BYTES, len(buffer), segment.bound)
        held = bytes(HEADER_BYTES) + b"".join([block.data for block in segment.blocks])
        kept: list[BlockRef] = []
        for ref in found:
            follows = ref.offset == (kept[-1].end if kept else HEADER_BYTES)
            if not follows or image[ref.offset : ref.end] != held[ref.offset : ref.end]:
                break  # or one before it is missing
            kept.append(ref)
        if not kept or (head.complete and kept[-1].end != len(held)):
            return False
        segment.found(head, BlockTable(kept), unproven=not head.complete)
        segment.full = segment.full or head.complete
        return True


def _sound(data: bytes) -> bool:
    digest = xxh3_64(data[:56])
    digest.update(memoryview(data)[HEADER_BYTES:])
    return digest.digest()[::-1] == data[56:64]
