"""Segments: a stretch of one log as a file of frames, with its index.

    streams/<log id, 16 hex>/seg-<base seq, 20 digits>.data
    0 8s "MSTRSEG\\0"   8 u32 version   12 u32 0   16 u64 log id   24 u64 base seq
   32 24 bytes 0        56 u64 XXH3-64 of bytes 0..56
   64 frames, byte-identical to those in the WAL

    ….idx, written once the .data is complete and stable
    0 8s "MSTRIDX\\0"   8 u32 version   12 u32 entries   16 u64 log id   24 u64 base seq
   32 u64 bytes of .data   40 u32 subjects   44 u32 bytes of the subject table
   48 u64 0             56 u64 XXH3-64 of bytes 0..56 and all that follows
   64 entries of 32 bytes, then the subject table: u16 length and bytes of each, ids from 0

A growing segment keeps its newest frames in memory as blocks, written to the file in the
background: the WAL is what makes them durable until then.
"""

import errno
import struct
import threading
from bisect import bisect_right
from dataclasses import dataclass

from xxhash import xxh3_64, xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.kernel._frames import DELETED, Frames, check
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.files import File, Files, ensure_dir, replace_file, write_all, write_parts

VERSION = 1
DATA_MAGIC = b"MSTRSEG\0"
IDX_MAGIC = b"MSTRIDX\0"
DATA_HEADER = struct.Struct("<8sII QQ 24x Q")
IDX_HEADER = struct.Struct("<8sII QQQ II 8x Q")
HEADER_BYTES = 64
MERGE_BYTES = 256 << 10


@dataclass(slots=True)
class Block:
    """Frames in memory: the bytes that the file has, or will have, at ``offset``."""

    offset: int
    first_seq: int
    last_seq: int
    data: bytes

    @property
    def end(self) -> int:
        """Return the file offset just past the block."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Flush:
    """Bytes on their way into the file: those at ``offset`` up to ``end``, and delete flags."""

    offset: int
    parts: list[bytes]
    end: int
    last_seq: int
    flags: list[int]


def segment_name(base_seq: int) -> str:
    """Return a segment's file name without its suffix."""
    return f"seg-{base_seq:020d}"


def log_directory(directory: str, log_id: int) -> str:
    """Return where a log's segments are."""
    return f"{directory}/streams/{log_id:016x}"


def data_header(log_id: int, base_seq: int) -> bytes:
    """Return the first bytes of a .data file."""
    body = DATA_HEADER.pack(DATA_MAGIC, VERSION, 0, log_id, base_seq, 0)[:56]
    return body + xxh3_64_intdigest(body).to_bytes(8, "little")


def check_data_header(data: bytes, log_id: int, base_seq: int, path: str) -> bool:
    """Say whether the header is as written; a damaged one costs nothing, the name says the same.

    Raises ``StorageUnusable`` for a sound header of another version.
    """
    if len(data) < HEADER_BYTES or data[:8] != DATA_MAGIC:
        return False
    if xxh3_64_intdigest(data[:56]) != int.from_bytes(data[56:64], "little"):
        return False
    _, version, _, owner, base, _ = DATA_HEADER.unpack_from(data)
    if version != VERSION:
        raise StorageUnusable(
            f"{path} has format version {version}, this millstream knows version {VERSION}: "
            "start the newer millstream that wrote it"
        )
    return bool(owner == log_id and base == base_seq)


def encode_idx(index: SegmentIndex, log_id: int, data_bytes: int) -> bytes:
    """Return the .idx file of a complete segment."""
    entries, subjects = index.pack()
    table = b"".join([len(s).to_bytes(2, "little") + s for s in subjects])
    fields = (log_id, index.base_seq, data_bytes, len(subjects), len(table))
    head = IDX_HEADER.pack(IDX_MAGIC, VERSION, len(index), *fields, 0)[:56]
    check = xxh3_64(head)
    check.update(entries)
    check.update(table)
    return b"".join((head, check.intdigest().to_bytes(8, "little"), entries, table))


def decode_idx(
    data: bytes, log_id: int, base_seq: int, data_bytes: int, subjects: SubjectTable
) -> SegmentIndex | None:
    """Return the index, or None when the file does not fit: then the .data file rebuilds it."""
    if len(data) < HEADER_BYTES or data[:8] != IDX_MAGIC:
        return None
    head = IDX_HEADER.unpack_from(data)
    _, version, count, owner, base, size, names, table_bytes, check = head
    if version != VERSION or (owner, base) != (log_id, base_seq) or size > data_bytes:
        return None
    digest = xxh3_64(data[:56])
    digest.update(memoryview(data)[HEADER_BYTES:])
    entries_end = HEADER_BYTES + count * SegmentIndex.STRIDE
    if digest.intdigest() != check or entries_end + table_bytes != len(data):
        return None
    ids = []
    at = entries_end
    for _ in range(names):
        length = int.from_bytes(data[at : at + 2], "little")
        ids.append(subjects.intern(data[at + 2 : at + 2 + length]))
        at += 2 + length
    return SegmentIndex.frombytes(base_seq, subjects, data[HEADER_BYTES:entries_end], ids)


class Segment:
    """One segment of a log, growing or sealed. Positions are those of its index."""

    def __init__(
        self, files: Files, directory: str, log_id: int, base_seq: int, subjects: SubjectTable
    ) -> None:
        self._files = files
        self.directory = directory
        self.log_id = log_id
        self.base_seq = base_seq
        self.name = segment_name(base_seq)
        self.index = SegmentIndex(base_seq, subjects)
        self.size = HEADER_BYTES  # where the next frame goes
        self.made = False  # there is a .data file
        self.flushed = HEADER_BYTES  # bytes handed to the file
        self.flushed_seq = base_seq - 1
        self.synced = 0  # bytes of the file known to be stable
        self.full = False  # takes no more records
        self.sealed = False  # .data complete and stable, .idx beside it
        self.busy = False  # a job works on the files
        self.failed = False  # a sync failed: what the file holds is not known any more
        self.born = 0.0
        self.flags: list[int] = []  # offsets of delete flags that the file does not have yet
        self.blocks: list[Block] = []
        self._file: File | None = None
        self._view: memoryview | None = None
        self._opening = threading.Lock()

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
        packed, after = self.index.offsets_from(at, max_records, max_bytes, stop, 0, ids)
        view = self.view()
        try:
            frames = Frames(view, packed)
            bad = frames.verified()
        except ValueError:  # a header so damaged that its lengths do not add up
            bad = _first_damaged(view, packed)
        if bad < 0:
            return frames, after, -1
        damaged = self._position_of(int.from_bytes(packed[4 * bad : 4 * bad + 4], "little"), at)
        return Frames(view, packed[: 4 * bad]), damaged, damaged

    def frame(self, at: int) -> bytes | None:
        """Return one frame as a live one, deleted or not; None when it is damaged."""
        offset, size = self.index.offset(at), self.index.frame_len(at)
        block = self._block_at(offset)
        if block is not None:
            found = block.data[offset - block.offset : offset - block.offset + size]
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

    def open(self) -> File:
        """Open the .data file, made and given its header when there is none."""
        with self._opening:
            if self._file is None and self.made:
                self._file = self._files.open(self.path)
            elif self._file is None:
                ensure_dir(self._files, self.directory)
                file = self._files.open(self.path, create=True)
                write_all(file, data_header(self.log_id, self.base_seq), 0)
                self._files.sync_dir(self.directory)
                self._file, self.made = file, True
            return self._file

    def view(self) -> memoryview:
        """Return the flushed bytes, mapped; a sealed file needs no descriptor for that."""
        if self._view is None or len(self._view) < self.flushed:
            self._view = self.open().view(self.flushed)
            if self.sealed and not self.busy:
                self.release()
        return self._view

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
        return Flush(self.flushed, parts, end, last_seq, flags)

    def write(self, flush: Flush) -> None:
        """Put committed bytes and delete flags into the file (on the file thread)."""
        file = self.open()
        if flush.parts:
            write_parts(file, flush.parts, flush.offset)
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

    def sync(self) -> None:
        """Make the file stable (on the file thread).

        A failed sync is never tried again: the kernel may have dropped what it could not write,
        and a second sync would succeed without it. The WAL keeps the records for the next start.
        """
        if self.failed:
            raise OSError(errno.EIO, "an earlier sync of this file failed", self.path)
        try:
            self.open().sync()
        except OSError:
            self.failed = True
            raise

    def write_idx(self) -> None:
        """Write the .idx of a complete, stable .data file (on the file thread)."""
        self.open().truncate(self.size)  # what an older run may have left behind
        self.sync()
        data = encode_idx(self.index, self.log_id, self.size)
        replace_file(self._files, self.directory, f"{self.name}.idx", data)

    def unlink(self) -> None:
        """Remove the files; what a crash leaves is swept at the next start."""
        self.close()
        for suffix in (".idx", ".data"):
            path = f"{self.directory}/{self.name}{suffix}"
            if self._files.exists(path):
                self._files.unlink(path)
        if self._files.exists(self.directory):
            self._files.sync_dir(self.directory)

    def release(self) -> None:
        """Close the file; views stay valid."""
        with self._opening:
            if self._file is not None:
                self._file.close()
                self._file = None

    def close(self) -> None:
        """Close the file and forget the view; what readers hold of it stays valid."""
        self.release()
        self._view = None


def _first_damaged(view: memoryview, packed: bytes) -> int:
    for i, (offset,) in enumerate(struct.iter_unpack("<I", packed)):
        if check(view, offset) <= 0:
            return i
    return -1


def _offset(block: Block) -> int:
    return block.offset
