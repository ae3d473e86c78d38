"""Rewrites: a full segment copied into a new file, in blocks or without, with or without the dead.

Each step leaves a directory that a start can use: the copy is written beside the old file and
synced, readers go over to it, then it takes the old one's name, then its index. Between the last
two the index is one generation behind, and a start makes it anew.
"""

from collections.abc import Iterator
from contextlib import suppress

from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockRef, BlockTable
from millstream.store.disk.files import File, Files, write_all
from millstream.store.segments.files import (
    BLOCKS_VERSION,
    HEADER_BYTES,
    VERSION,
    DataHead,
    data_header,
)
from millstream.store.segments.segment import Segment

WRITE_BYTES = 1 << 20


class Rewrite:
    """One segment's way into a new file. Made and taken up on the loop, carried out beside it."""

    def __init__(self, files: Files, segment: Segment, compressed: bool, drop: bool) -> None:
        self.changes: list[tuple[int, bytes]] = []  # bytes that the copy has in other ways
        self._files = files
        self.segment = segment
        self._codec = blocks.LZ4 if compressed else blocks.PLAIN
        self._runs = segment.index.runs(blocks.MOST_BYTES, drop)
        ring = segment.keeping.ring
        self._in_blocks = compressed or ring.seals
        self._head = DataHead(
            BLOCKS_VERSION if self._in_blocks else VERSION,
            complete=self._in_blocks,
            generation=segment.head.generation + 1,
            key_id=ring.key_id,
        )
        self._table: BlockTable | None = BlockTable() if self._in_blocks else None
        self._file: File | None = None
        self.bytes = 0  # of the new file

    @property
    def path(self) -> str:
        """Return the copy's name until it takes the old file's."""
        return f"{self.segment.path}.tmp"

    def write(self) -> None:
        """Write and sync the copy (on the file thread).

        The old file is synced first: a snapshot may rely on it before the copy has its name.
        """
        segment = self.segment
        if not segment.sealed:
            segment.sync()
        source = segment.plain()
        if self.changes:
            changed = bytearray(source)
            for offset, data in self.changes:
                changed[offset : offset + len(data)] = data
            source = memoryview(changed)
        self._file = file = self._files.open(self.path, create=True)
        try:
            file.truncate(0)
            waiting = [data_header(segment.log_id, segment.base_seq, self._head)]
            held = 0
            for piece in self._pieces(source):
                waiting.append(piece)
                held += len(piece)
                if held >= WRITE_BYTES:
                    self._put(file, waiting)
                    held = 0
            self._put(file, waiting)
            file.sync()
        except BaseException:
            self.discard()
            raise

    def _put(self, file: File, waiting: list[bytes]) -> None:
        data = b"".join(waiting)
        write_all(file, data, self.bytes)
        self.bytes += len(data)
        waiting.clear()

    def _pieces(self, source: memoryview) -> Iterator[bytes]:
        if self._table is None:
            for start, end in self._runs:
                yield bytes(source[start:end])
            return
        segment = self.segment
        offset = at = HEADER_BYTES
        for raw in _joined(source, self._runs):
            block = blocks.encode_block(
                raw, offset, self._codec, segment.keeping.ring, segment.bound
            )
            self._table.add(BlockRef(offset, len(raw), at, len(block) - blocks.HEAD.size))
            offset, at = offset + len(raw), at + len(block)
            yield block

    def take_up(self) -> None:
        """Let readers use the copy (on the loop)."""
        assert self._file is not None
        self.segment.unplaced = self  # ahead of it: nobody may put away a file without a name
        self.segment.become(self._head, self._table, self._file)

    def place(self) -> None:
        """Give the copy the old file's name, and write its index (on the file thread)."""
        if self.segment.unplaced is self and self._files.exists(self.path):
            self._files.rename(self.path, self.segment.path)
            self.segment.unplaced = None
            self._files.sync_dir(self.segment.directory)
        self.segment.unplaced = None
        self.segment.write_idx()

    def discard(self) -> None:
        """Remove a copy that nobody uses (on the file thread)."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(OSError):
                self._files.unlink(self.path)


def _joined(source: memoryview, runs: list[tuple[int, int]]) -> Iterator[memoryview | bytes]:
    """Return the frames of the runs in pieces for blocks."""
    parts: list[memoryview] = []
    size = 0
    for start, end in runs:
        if parts and size + end - start > blocks.MOST_BYTES:
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts, size = [], 0
        parts.append(source[start:end])
        size += end - start
    if parts:
        yield parts[0] if len(parts) == 1 else b"".join(parts)
