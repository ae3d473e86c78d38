"""The files of a segment as bytes: what stands in their headers, and the index beside the frames.

    streams/<log id, 16 hex>/seg-<base seq, 20 digits>.data
    0 8s "MSTRSEG\\0"   8 u32 version   12 u32 flags   16 u64 log id   24 u64 base seq
   32 u64 generation: one more with each rewrite   40 8s key id, 0 = none   48 u64 0
   56 u64 XXH3-64 of bytes 0..56
   64 version 1: frames, byte-identical to those in the WAL; version 2: blocks of frames, as
      blocks.py has them, and with flag 1 (COMPLETE) all of them

    ….idx, written once the .data is complete and stable
    0 8s "MSTRIDX\\0"   8 u32 version   12 u32 entries   16 u64 log id   24 u64 base seq
   32 u64 bytes of .data   40 u32 subjects   44 u32 bytes of the subject table
   48 u64 generation of the .data   56 u64 XXH3-64 of bytes 0..56 and all that follows
   64 entries of 32 bytes, then the subject table: u16 length and bytes of each, ids from 0;
      in version 2 both are sealed as one text. "bytes of .data" are those without blocks

The names say which log and sequence a file belongs to; its header says so again.
"""

import struct

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.disk import blocks
from millstream.store.disk.keys import NO_KEY, KeyRing

VERSION = 1
BLOCKS_VERSION = 2
COMPLETE = 1
DATA_MAGIC = b"MSTRSEG\0"
IDX_MAGIC = b"MSTRIDX\0"
DATA_HEADER = struct.Struct("<8sII QQ Q8s8x Q")
IDX_HEADER = struct.Struct("<8sII QQQ II Q Q")
HEADER_BYTES = 64


def segment_name(base_seq: int) -> str:
    """Return a segment's file name without its suffix."""
    return f"seg-{base_seq:020d}"


def log_directory(directory: str, log_id: int) -> str:
    """Return where a log's segments are."""
    return f"{directory}/streams/{log_id:016x}"


class DataHead(msgspec.Struct, frozen=True):
    """What the first 64 bytes of a .data file say."""

    version: int = VERSION
    complete: bool = False
    generation: int = 0
    key_id: bytes = NO_KEY
    in_blocks: bool = False  # whether blocks follow, and not frames: the version says it

    def __post_init__(self) -> None:
        """Work out ahead what every read asks."""
        msgspec.structs.force_setattr(self, "in_blocks", self.version == BLOCKS_VERSION)


def binding(log_id: int, base_seq: int) -> bytes:
    """Return what a segment's blocks are bound to."""
    return struct.pack("<QQ", log_id, base_seq)


def data_header(log_id: int, base_seq: int, head: DataHead | None = None) -> bytes:
    """Return the first bytes of a .data file."""
    head = head or DataHead()
    fields = (log_id, base_seq, head.generation, head.key_id)
    body = DATA_HEADER.pack(DATA_MAGIC, head.version, COMPLETE * head.complete, *fields, 0)[:56]
    return body + xxh3_64_intdigest(body).to_bytes(8, "little")


def read_data_header(data: bytes, log_id: int, base_seq: int, path: str) -> DataHead | None:
    """Return what the header says, None when it is damaged; the file's name says most of it too.

    Raises ``StorageUnusable`` for a sound header of a version that this program does not know.
    """
    if len(data) < HEADER_BYTES or data[:8] != DATA_MAGIC:
        return None
    if xxh3_64_intdigest(data[:56]) != int.from_bytes(data[56:64], "little"):
        return None
    _, version, flags, owner, base, generation, key_id, _ = DATA_HEADER.unpack_from(data)
    _check_version(version, path)
    if (owner, base) != (log_id, base_seq):
        return None
    return DataHead(version, bool(flags & COMPLETE), generation, key_id)


def _check_version(version: int, path: str) -> None:
    if version not in (VERSION, BLOCKS_VERSION):
        raise StorageUnusable(
            f"{path} has format version {version}, this millstream knows versions up to "
            f"{BLOCKS_VERSION}: start the newer millstream that wrote it"
        )


def holds_blocks(buffer: memoryview, bound: bytes) -> bool:
    """Say whether a file whose header is damaged goes on with blocks."""
    found, _ = blocks.find_blocks(buffer[: HEADER_BYTES + (1 << 20)], HEADER_BYTES, 1 << 20, bound)
    return bool(found)


def encode_idx(
    index: SegmentIndex,
    log_id: int,
    data_bytes: int,
    generation: int = 0,
    ring: KeyRing | None = None,
) -> bytes:
    """Return the .idx file of a complete segment."""
    entries, subjects = index.pack()
    table = b"".join([len(s).to_bytes(2, "little") + s for s in subjects])
    fields = (log_id, index.base_seq, data_bytes, len(subjects), len(table), generation)
    sealed = ring is not None and ring.seals
    version = BLOCKS_VERSION if sealed else VERSION
    head = IDX_HEADER.pack(IDX_MAGIC, version, len(index), *fields, 0)[:56]
    rest: tuple[bytes, ...] = (entries, table)
    if sealed:
        assert ring is not None
        rest = (ring.seal_whole(entries + table, head),)
    check = xxh3_64(head)
    for part in rest:
        check.update(part)
    return b"".join((head, check.intdigest().to_bytes(8, "little"), *rest))


def idx_generation(data: bytes) -> int:
    """Return which generation of the .data file an index speaks of."""
    return int.from_bytes(data[48:56], "little")


def decode_idx(
    data: bytes,
    log_id: int,
    base_seq: int,
    data_bytes: int,
    subjects: SubjectTable,
    path: str = "",
    ring: KeyRing | None = None,
) -> SegmentIndex | None:
    """Return the index, or None when the file does not fit: then the .data file rebuilds it."""
    if len(data) < HEADER_BYTES or data[:8] != IDX_MAGIC:
        return None
    head = IDX_HEADER.unpack_from(data)
    _, version, count, owner, base, size, names, table_bytes, _, check = head
    digest = xxh3_64(data[:56])
    digest.update(memoryview(data)[HEADER_BYTES:])
    if digest.intdigest() != check:
        return None
    _check_version(version, path)
    if (owner, base) != (log_id, base_seq) or size > data_bytes:
        return None
    content: bytes | None = data[HEADER_BYTES:]
    if version == BLOCKS_VERSION:
        content = (ring or KeyRing()).open_whole(data[HEADER_BYTES:], data[:56], path)
    entries_end = count * SegmentIndex.STRIDE
    if content is None or entries_end + table_bytes != len(content):
        return None
    ids = []
    at = entries_end
    for _ in range(names):
        length = int.from_bytes(content[at : at + 2], "little")
        ids.append(subjects.intern(content[at + 2 : at + 2 + length]))
        at += 2 + length
    return SegmentIndex.frombytes(base_seq, subjects, content[:entries_end], ids)
