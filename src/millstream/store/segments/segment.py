"""Segments: a stretch of one log as a file of frames, with its index (``segment_files.py``).

A growing segment keeps its newest frames in memory as blocks, written to the file in the
background: the WAL is what makes them durable until then.
"""

import errno
import logging
import struct
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from millstream.kernel._frames import DELETED, Frames, check
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.disk import blocks
from millstream.store.disk.blocks import BlockCache, BlockRef, BlockTable, Raw
from millstream.store.disk.files import (
    CALL_BYTES,
    File,
    Files,
    ensure_dir,
    replace_file,
    write_all,
    write_parts,
)
from millstream.store.disk.keys import KeyRing
from millstream.store.disk.open_files import OpenFiles
from millstream.store.disk.shared_file import SharedFile
from millstream.store.segments.files import (
    BLOCKS_VERSION,
    HEADER_BYTES,
    DataHead,
    binding,
    data_header,
    encode_idx,
    segment_name,
)

if TYPE_CHECKING:
    from millstream.store.cold.copy import ColdCopy

MERGE_BYTES = 256 << 10
DIRTY_BYTES = 8 << 20  # a sync of a whole segment keeps the disk from the WAL for tens of ms
NO_FRAMES = Frames(b"", b"")

PLAIN_HEAD = DataHead()  # of most files

_tokens = count(1)

log = logging.getLogger(__name__)


class Keeping(msgspec.Struct, frozen=True):
    """How a store keeps its segments: with which keys, and how much of them open and in memory."""

    ring: KeyRing = msgspec.field(default_factory=KeyRing)
    cache: BlockCache = msgspec.field(default_factory=lambda: BlockCache(8 << 20))
    open_files: OpenFiles = msgspec.field(default_factory=OpenFiles)


class Block(msgspec.Struct):
    """Frames in memory: the bytes that the file has, or will have, at ``offset``."""

    offset: int
    first_seq: int
    last_seq: int
    data: bytes

    @property
    def end(self) -> int:
        """Return the file offset just past the block."""
        return self.offset + len(self.data)


class Flush(msgspec.Struct, frozen=True):
    """Bytes on their way into the file: those at ``offset`` up to ``end``, and delete flags."""

    offset: int
    parts: list[bytes]
    end: int
    last_seq: int
    flags: list[int]
    generation: int = 0  # of the file that the offsets of ``flags`` are in


class Segment:
    """One segment of a log, growing or sealed. Positions are those of its index."""

    __slots__ = (
        "__weakref__",
        "_brought",
        "_cut_tail",
        "_file",
        "_files",
        "_opening",
        "_table",
        "_token",
        "_unproven",
        "_unsynced",
        "_view",
        "base_seq",
        "blocks",
        "born",
        "busy",
        "cold",
        "directory",
        "erasing",
        "failed",
        "flags",
        "flushed",
        "flushed_seq",
        "full",
        "head",
        "index",
        "keeping",
        "log_id",
        "made",
        "sealed",
        "size",
        "synced",
        "unplaced",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        log_id: int,
        base_seq: int,
        subjects: SubjectTable,
        keeping: Keeping | None = None,
    ) -> None:
        self._files = files
        self.keeping = keeping or Keeping()
        self.directory = directory
        self.log_id = log_id
        self.base_seq = base_seq
        self.index = SegmentIndex(base_seq, subjects)
        self.size = HEADER_BYTES  # where the next frame goes
        self.made = False  # there is a .data file
        self.flushed = HEADER_BYTES  # bytes handed to the file
        self.flushed_seq = base_seq - 1
        self.synced = 0  # bytes of the file known to be stable
        self._unsynced = 0  # writes that no sync has followed
        self._brought = 0  # bytes up to the last sync of a growing file that was asked for
        self.full = False  # takes no more records
        self.sealed = False  # .data complete and stable, .idx beside it
        self.busy = False  # a job works on the files
        self.failed = False  # a sync failed: what the file holds is not known any more
        self.born = 0.0
        self.flags: list[int] = []  # offsets of delete flags that the file does not have yet
        self.head = PLAIN_HEAD  # of the file
        self.unplaced: object | None = None  # a copy that readers use and no name leads to yet
        self.erasing = False  # bytes of the file are on their way out
        self.cold: ColdCopy | None = None  # where the .data is, when it is not here
        self._table: BlockTable | None = None
        self._token = next(_tokens)  # of the file, in the cache
        self._cut_tail = False  # the file may go on behind what counts
        self._unproven = False  # a sync of what the file shows may have failed in an earlier run
        self.blocks: list[Block] = []
        self._file: SharedFile | None = None
        self._view: memoryview | None = None
        self._opening = threading.Lock()

    @property
    def name(self) -> str:
        """Return the name of its files, without what they end with."""
        return segment_name(self.base_seq)

    @property
    def bound(self) -> bytes:
        """Return what its blocks are bound to."""
        return binding(self.log_id, self.base_seq)

    @property
    def path(self) -> str:
        """Return the .data file's path."""
        return f"{self.directory}/{self.name}.data"

    @property
    def last_seq(self) -> int:
        """Return the newest sequence in the segment, base - 1 when it is empty."""
        count = len(self.index)
        return self.index.seq(count - 1) if count else self.base_seq - 1

    def positions(self, first_seq: int, last_seq: int) -> range:
        """Return where the records of ``first_seq..last_seq`` are in the index."""
        return range(self.index.position(first_seq), self.index.position(last_seq + 1))

    def stage(self, data: bytes, first_seq: int, last_seq: int) -> None:
        """Keep encoded frames whose index entries are already made."""
        self.blocks.append(Block(self.size, first_seq, last_seq, data))
        self.size += len(data)

    def rewind(self, last_kept: int) -> None:
        """Forget everything above ``last_kept``."""
        self.index.truncate(self.index.position(last_kept + 1))
        while self.blocks and self.blocks[-1].first_seq > last_kept:
            self.size = self.blocks.pop().offset

    def read(
        self, at: int, stop: int, max_records: int, max_bytes: int, ids: bytes | None = None
    ) -> tuple[Frames, int, int]:
        """Return (frames, position after them, first damaged position or -1) from ``at`` on.

        What comes from the file is checked here: the frames end before a damaged one.
        """
        offset = self.index.offset(at)
        block = self._block_at(offset)
        if block is not None:
            self._merge_from(block, self.index.seq(stop - 1))
            stop = min(stop, self.index.position(block.last_seq + 1))
            packed, after = self.index.offsets_from(
                at, max_records, max_bytes, stop, block.offset, ids
            )
            return Frames(block.data, packed), after, -1
        first = self._first_block_seq()
        stop = min(stop, self.index.position(first)) if first else stop
        source: Raw | None
        if self.head.in_blocks or self.cold is not None:
            source, shift, end = self.block(offset)
            if source is None:
                return NO_FRAMES, at, at
            stop = bisect_left(range(stop), end, lo=at, key=self.index.offset)
        else:
            source, shift = self.view(), 0
        packed, after = self.index.offsets_from(at, max_records, max_bytes, stop, shift, ids)
        try:
            frames = Frames(source, packed)
            bad = frames.verified()
        except ValueError:  # a header so damaged that its lengths do not add up
            bad = _first_damaged(source, packed)
        if bad < 0:
            return frames, after, -1
        place = int.from_bytes(packed[4 * bad : 4 * bad + 4], "little") + shift
        damaged = self._position_of(place, at)
        return Frames(source, packed[: 4 * bad]), damaged, damaged

    def one(self, seq: int) -> Frames | None:
        """Return a record that is in the index, alone and in few steps; None when it is damaged."""
        at = self.index.find(seq)
        offset, blocks, view = self.index.offset(at), self.blocks, self._view
        waits = blocks and offset >= blocks[0].offset
        if waits or self.head.in_blocks or self.cold is not None:
            frames, _, damaged = self.read(at, at + 1, 1, 1)
            return frames if damaged < 0 else None
        try:
            if view is None or len(view) < self.flushed:
                view = self._mapped(self.flushed)
            frames = Frames(view, [offset])
        except ValueError:
            return None
        return frames if frames.verified() < 0 else None

    def damaged_part(self, at: int) -> tuple[int, int, int]:
        """Return (file offset, first and last position) of what is lost with a damaged record."""
        offset = self.index.offset(at)
        if not self.head.in_blocks or self.block(offset)[0] is not None:
            return offset, at, at
        start, end = self.table.around(offset)
        first = bisect_left(range(len(self.index)), start, key=self.index.offset)
        past = bisect_left(range(len(self.index)), end, key=self.index.offset)
        return self.table.file_offset(offset), first, max(past - 1, first)

    # --- blocks

    @property
    def table(self) -> BlockTable:
        """Return where the blocks of a file in blocks are; found at the first need."""
        if self.cold is not None and self.cold.table is not None:
            return self.cold.table
        if self._table is None:
            with self.use() as file:
                size = file.size()
            buffer = self._mapped(size)
            found, _ = blocks.find_blocks(buffer, HEADER_BYTES, len(buffer), self.bound)
            self._table = BlockTable(found)
        return self._table

    def block(self, offset: int) -> tuple[Raw | None, int, int]:
        """Return (plain bytes or None, plain offsets of their begin and end) around an offset."""
        if self.cold is not None:
            return self.cold.stretch(offset)
        ref = self.table.at(offset)
        if ref is None:
            return None, offset, offset
        cache = self.keeping.cache
        raw = cache.get(self._token, ref.offset)
        if raw is None:
            raw = blocks.decode_block(self.view(), ref, self.bound, self.keeping.ring)
            if raw is None:
                self.table.spoil(ref)
            else:
                cache.put(self._token, ref.offset, raw)
        return raw, ref.offset, ref.end

    def scrub(self, at: int, scrubbed: Callable[[bytes], bytes]) -> None:
        """Change a record in what the memory holds of it."""
        offset, size = self.index.offset(at), self.index.frame_len(at)
        block = self._block_at(offset)
        if block is not None:
            start = offset - block.offset
            frame = scrubbed(block.data[start : start + size])
            block.data = block.data[:start] + frame + block.data[start + size :]
        self.keeping.cache.forget(self._token)

    def plain(self) -> memoryview:
        """Return the flushed bytes as they would be without blocks; zeros where one is damaged."""
        if not self.head.in_blocks:
            return self.view()
        return blocks.plain_image(self.view(), self.table, self.bound, self.keeping.ring)[0]

    def _write_blocks(self, file: File, flush: Flush) -> None:
        """Append what the file lacks; what it has is never written again.

        A flush may have been taken before the outcome of an earlier one was known, and a snapshot
        may rely on the blocks of that one already.
        """
        table = self.table
        end, at = max(table.end, HEADER_BYTES), max(table.after, HEADER_BYTES)
        if self._cut_tail:
            file.truncate(at)
            self._cut_tail = False
        if self._unproven:
            _write_again(file, at)
            self._unproven = False
        data = memoryview(b"".join(flush.parts))[max(end - flush.offset, 0) :]
        for piece in blocks.cut_frames(data):
            block = blocks.encode_block(piece, end, blocks.PLAIN, self.keeping.ring, self.bound)
            write_all(file, block, at)
            table.add(BlockRef(end, len(piece), at, len(block) - blocks.HEAD.size))
            end, at = end + len(piece), at + len(block)

    def frame(self, at: int) -> bytes | None:
        """Return one frame as a live one, deleted or not; None when it is damaged."""
        offset, size = self.index.offset(at), self.index.frame_len(at)
        block = self._block_at(offset)
        if block is not None:
            found = block.data[offset - block.offset : offset - block.offset + size]
        elif self.head.in_blocks or self.cold is not None:
            raw, start, _ = self.block(offset)
            found = b"" if raw is None else bytes(raw[offset - start : offset - start + size])
        else:
            found = bytes(self.view()[offset : offset + size])
        found = found[:-1] + b"\0"  # its checksum then vouches for the payload too
        return found if len(found) == size and check(found, 0) == size else None

    def _position_of(self, offset: int, at: int) -> int:
        while self.index.offset(at) != offset:
            at += 1
        return at

    def _block_at(self, offset: int) -> Block | None:
        at = bisect_right(self.blocks, offset, key=_offset) - 1
        return self.blocks[at] if at >= 0 and offset < self.blocks[at].end else None

    def _first_block_seq(self) -> int:
        return self.blocks[0].first_seq if self.blocks else 0

    def _merge_from(self, block: Block, last_seq: int) -> None:
        """Join small committed neighbours, so that a reader gets more than one batch a call."""
        if len(block.data) >= MERGE_BYTES // 4 or block.last_seq >= last_seq:
            return
        at = bisect_right(self.blocks, block.offset, key=_offset) - 1
        end, size = at + 1, len(block.data)
        while end < len(self.blocks) and self.blocks[end].last_seq <= last_seq:
            size += len(self.blocks[end].data)
            if size > MERGE_BYTES:
                break
            end += 1
        if end > at + 1:
            block.data = b"".join([b.data for b in self.blocks[at:end]])
            block.last_seq = self.blocks[end - 1].last_seq
            del self.blocks[at + 1 : end]

    # --- files

    @contextmanager
    def use(self) -> Iterator[File]:
        """Open the .data file, made and given its header when there is none.

        It stays open meanwhile, whatever becomes of the segment: jobs work on files in the file
        thread while the loop goes over to others, or is done with them.
        """
        with self._opening:
            if self._file is None and self.made:
                self._file = SharedFile(self._files.open(self.path))
            elif self._file is None:
                self._file, self.made = SharedFile(self._make()), True
            shared = self._file
            file = shared.take()
        self.keeping.open_files.note(self)
        try:
            yield file
        finally:
            shared.give_back()

    def _make(self) -> File:
        ensure_dir(self._files, self.directory)
        file = self._files.open(self.path, create=True)
        self._unsynced += 1
        try:
            file.truncate(0)  # an earlier run may have left records that a start gave up
            ring = self.keeping.ring
            if ring.seals:
                self.head = DataHead(BLOCKS_VERSION, key_id=ring.key_id)
                self._table = BlockTable()
            write_all(file, data_header(self.log_id, self.base_seq, self.head), 0)
            self._files.sync_dir(self.directory)
        except BaseException:  # tried again with each flush, as long as the disk is full
            file.close()
            raise
        return file

    def view(self) -> memoryview:
        """Return the flushed bytes, mapped."""
        return self._mapped(self.table.after if self.head.in_blocks else self.flushed)

    def _mapped(self, size: int) -> memoryview:
        view = self._view
        if view is None or len(view) < size:
            with self.use() as file:
                view = self._view = file.view(size)
            self.keeping.open_files.note(self)  # the map has a descriptor of its own
            if self.sealed and not self.busy:
                self.release()
        return view

    def unflushed(self, committed: int) -> Flush:
        """Return the committed bytes that the file does not have."""
        parts: list[bytes] = []
        end, last_seq = self.flushed, self.flushed_seq
        at = max(bisect_right(self.blocks, self.flushed, key=_offset) - 1, 0)
        for block in self.blocks[at:]:
            if block.last_seq > committed:
                break
            if block.end > end:
                parts.append(block.data[max(end - block.offset, 0) :])
                end, last_seq = block.end, block.last_seq
        flags, self.flags = self.flags, []
        return Flush(self.flushed, parts, end, last_seq, flags, self.head.generation)

    def write(self, flush: Flush) -> None:
        """Put committed bytes and delete flags into the file (on the file thread)."""
        if self.cold is not None:
            return  # deletes are in the snapshot and the WAL
        with self.use() as file:
            self._unsynced += 1
            self._write(file, flush)
        self.keeping.open_files.trim(may_sync=True)

    def _write(self, file: File, flush: Flush) -> None:
        if self.head.in_blocks:
            if flush.parts and not self.head.complete:
                self._write_blocks(file, flush)
            return  # deletes are in the snapshot and the WAL
        if flush.parts:
            write_parts(file, flush.parts, flush.offset)
            if self._cut_tail:  # only now: the first flush has all that a start kept of it
                file.truncate(flush.end)
                self._cut_tail = False
        if flush.generation == self.head.generation:  # else the new file has them already
            for offset in flush.flags:
                write_all(file, bytes((DELETED,)), offset)

    def wrote(self, flush: Flush, cache_bytes: int) -> None:
        """Note on the loop what ``write`` did; blocks beyond the cache leave the memory."""
        if flush.end > self.flushed:
            self.flushed, self.flushed_seq = flush.end, flush.last_seq
        held = 0
        for at in range(len(self.blocks) - 1, -1, -1):
            held += len(self.blocks[at].data)
            if held > cache_bytes and self.blocks[at].end <= self.flushed:
                del self.blocks[: at + 1]
                break

    def has_piece(self) -> bool:
        """Say, once for each piece of a growing file, that the disk may lack another one.

        It is synced piece by piece, so that little is left when it is sealed.
        """
        if self.flushed - self._brought < DIRTY_BYTES or self.failed:
            return False
        self._brought = self.flushed
        return True

    def sync_piece(self) -> None:
        """Sync what a growing file has (on a file thread); one that was closed needs it no more."""
        with self._opening:
            shared = self._file
            file = shared.take() if shared is not None else None
        if shared is not None and file is not None:
            try:
                self.sync_file(file)
            finally:
                shared.give_back()

    def sync(self) -> None:
        """Make the file stable (on a file thread)."""
        if self.cold is None:
            with self.use() as file:
                self.sync_file(file)

    def sync_file(self, file: File) -> None:
        """Make what the segment has written into ``file`` stable.

        A failed sync is never tried again: the kernel may have dropped what it could not write,
        and a second sync would succeed without it. The WAL keeps the records for the next start.
        """
        if self.failed:
            raise OSError(errno.EIO, "an earlier sync of this file failed", self.path)
        written = self._unsynced
        try:
            file.sync()
        except OSError:
            self.failed = True
            raise
        if self._unsynced == written:
            self._unsynced = 0

    def lacks(self, flush: Flush) -> bool:
        """Say whether the file, or the disk, lacks something of what a flush brings or before."""
        return bool(flush.parts) or (self.made and bool(flush.flags or self._unsynced))

    def write_idx(self) -> None:
        """Write the .idx of a complete, stable .data file (on the file thread)."""
        if not self.head.in_blocks:
            with self.use() as file:
                file.truncate(self.size)  # what an older run may have left behind
        self.sync()
        ring = self.keeping.ring
        data = encode_idx(self.index, self.log_id, self.size, self.head.generation, ring)
        replace_file(self._files, self.directory, f"{self.name}.idx", data)

    def become(self, head: DataHead, table: BlockTable | None, file: File) -> None:
        """Read from a copy of the file from now on; its index entries are those marked to stay."""
        self.size = self.flushed = self.synced = self.index.compact(HEADER_BYTES)
        self.head = head
        self.flags = [] if head.in_blocks else _dead_ends(self.index)
        self.keeping.cache.forget(self._token)
        with self._opening:
            before, self._file = self._file, SharedFile(file)
            self._table, self._view, self._token = table, None, next(_tokens)
        if before is not None:
            before.let_go()

    def found(
        self, head: DataHead, table: BlockTable | None = None, unproven: bool = False
    ) -> None:
        """Take a file that a start found for what it is; ``table`` holds the blocks that count."""
        self.made = True
        self.head, self._table = PLAIN_HEAD if head == PLAIN_HEAD else head, table
        self._unproven = unproven
        self._unsynced += unproven
        self._cut_tail = not head.complete

    def leave(self) -> None:
        """Forget the file: from now on the bytes are elsewhere; what readers hold stays valid."""
        self.close()
        self.flags = []
        self._table = None

    def come_back(self, head: DataHead) -> None:
        """Read from the file again, which is back in its place."""
        self.cold = None
        self.head, self._table, self._token = head, None, next(_tokens)
        self.flags = [] if head.in_blocks else _dead_ends(self.index)

    def unlink_data(self) -> None:
        """Remove the file of a segment that is elsewhere (on the file thread)."""
        if self.cold is not None and self._files.exists(self.path):
            self._files.unlink(self.path)
            self._files.sync_dir(self.directory)

    def unlink(self) -> None:
        """Remove the files; what a crash leaves is swept at the next start."""
        self.close()
        for suffix in (".idx", ".cold", ".data"):
            path = f"{self.directory}/{self.name}{suffix}"
            if self._files.exists(path):
                self._files.unlink(path)
        if self._files.exists(self.directory):
            self._files.sync_dir(self.directory)

    def put_away(self, may_sync: bool) -> bool:
        """Close the file until somebody needs it; what readers hold of it stays valid.

        What the disk may lack of it is synced first. Of a file that nobody has open, the kernel
        may forget that a write failed.
        """
        if self._unsynced and not self.failed:
            if not may_sync:
                return False
            try:
                self.sync_piece()
            except OSError as error:
                log.error("segment not synced file=%s error=%s", self.path, error)
        with self._opening:
            if self.unplaced is not None:
                return False  # the name leads to another file
            shared, self._file, self._view = self._file, None, None
        if shared is not None:
            shared.let_go()
        return True

    def release(self) -> None:
        """Close the file; views stay valid."""
        with self._opening:
            if self._file is not None:
                self._file.let_go()
                self._file = None
        if self._view is None:
            self.keeping.open_files.forget(self)

    def close(self) -> None:
        """Close the file and forget the view; what readers hold of it stays valid."""
        self._view = None
        self.release()
        self.keeping.cache.forget(self._token)


def dead_positions(index: SegmentIndex) -> Iterator[int]:
    """Yield where the dead entries of an index are."""
    flags = memoryview(index.tobytes())[31 :: SegmentIndex.STRIDE].tobytes()
    at = flags.find(1)
    while at >= 0:
        yield at
        at = flags.find(1, at + 1)


def _dead_ends(index: SegmentIndex) -> list[int]:
    """Return where the delete flags of dead entries belong."""
    return [index.offset(at) + index.frame_len(at) - 1 for at in dead_positions(index)]


def _write_again(file: File, end: int) -> None:
    """Have the kernel take up to ``end`` for new: what a failed sync left it does not write."""
    for at in range(0, end, CALL_BYTES):
        write_all(file, file.pread(min(CALL_BYTES, end - at), at), at)


def _first_damaged(view: Raw, packed: bytes) -> int:
    for i, (offset,) in enumerate(struct.iter_unpack("<I", packed)):
        if check(view, offset) <= 0 or Frames(view, [offset]).verified() >= 0:
            return i
    return -1


def _offset(block: Block) -> int:
    return block.offset
