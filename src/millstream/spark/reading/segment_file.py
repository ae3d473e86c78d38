"""Where the bytes of records come from: a sealed segment's two files, or frames off the wire.

This is the only module of the package that knows how the files begin and end; records and index
entries are described in ``rows``.

    .data   0 8s "MSTRSEG\\0"   8 u32 version   12 u32 0   16 u64 stream id   24 u64 base seq
           32 u64 generation   40 16 bytes 0   56 u64 XXH3-64 of bytes 0..56   64 frames
    .idx    0 8s "MSTRIDX\\0"   8 u32 version   12 u32 entries   16 u64 stream id   24 u64 base seq
           32 u64 bytes of .data   40 u32 subjects   44 u32 bytes of the subject table
           48 u64 generation of the .data   56 u64 XXH3-64 of bytes 0..56 and all that follows
           64 entries of 32 bytes, then the subject table: u16 length and bytes of each, ids from 0

A rewrite in the background replaces first .data and then .idx, each by a file of the next
generation; a compressed or encrypted one has version 2, which is for the server alone to read.
"""

import mmap
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64, xxh3_64_intdigest

from millstream.spark.problems import FilesUnreachable, SparkSourceError
from millstream.spark.reading.frames import HEADER, indexed
from millstream.spark.reading.rows import ENTRY, Ints, Records, text

VERSION = 1
DATA_MAGIC = b"MSTRSEG\0"
IDX_MAGIC = b"MSTRIDX\0"
DATA_HEADER = struct.Struct("<8sII QQQ 16x Q")
IDX_HEADER = struct.Struct("<8sII QQQ II QQ")
HEADER_BYTES = 64
CHECKED_BYTES = 56  # of a header; its own checksum follows


class DamagedFrames(SparkSourceError):
    """What arrived from the server is not what it sent."""


def stream_of(frames: bytes) -> int:
    """Return the incarnation of the stream that the first frame belongs to."""
    return int.from_bytes(frames[24:32], "little")


def records_of(frames: bytes) -> Records:
    """Return the records of whole frames as a server sends them, each checked in the same pass."""
    if len(frames) < HEADER:
        raise DamagedFrames("the server sent less than one record")
    packed, subjects, position = indexed(frames, stream_of(frames))
    if position != len(frames):
        raise DamagedFrames(f"the records that the server sent are damaged at byte {position}")
    entries = np.frombuffer(packed, dtype=ENTRY)
    first = int.from_bytes(frames[32:40], "little")
    return Records(pa.py_buffer(frames), first, entries, *_strings(subjects))


def _strings(subjects: list[bytes]) -> tuple[pa.StringArray, Ints]:
    lengths = np.array([len(subject) for subject in subjects], dtype=np.int64)
    return text(pa.array(subjects, pa.binary())), lengths


def open_segment(path: str, idx_path: str, stream_id: int) -> Records:
    """Return the records of a sealed segment, both files mapped, the data not read yet.

    Neither is written again once it is sealed, but for delete flags and erased records of the data.

    Raises ``FilesUnreachable`` when the files are not those of this stream's sealed segment: the
    path may mean something else on this machine, a damaged index is for the server to mend, and
    of two files around a rewrite one may speak of the other's predecessor.
    """
    index = _index_of(memoryview(_mapped(idx_path)), idx_path, stream_id)
    data = _mapped(path)
    _check_data_header(data, path, stream_id, index)
    return Records(data, index.base_seq, index.entries, *_strings(index.subjects))


class _Index(NamedTuple):
    base_seq: int
    generation: int
    entries: npt.NDArray[np.void]
    subjects: list[bytes]


def _index_of(content: memoryview, path: str, stream_id: int) -> _Index:
    if len(content) < HEADER_BYTES or content[:8] != IDX_MAGIC:
        raise FilesUnreachable(f"{path} is not a segment index")
    head = IDX_HEADER.unpack_from(content)
    _, version, count, owner, base_seq, _, names, table_bytes, generation, check = head
    _check_owner(path, version, owner, stream_id)
    digest = xxh3_64(content[:CHECKED_BYTES])
    digest.update(content[HEADER_BYTES:])
    table = HEADER_BYTES + count * ENTRY.itemsize
    if digest.intdigest() != check or table + table_bytes != len(content):
        raise FilesUnreachable(f"{path} is damaged")
    entries = np.frombuffer(content, dtype=ENTRY, count=count, offset=HEADER_BYTES)
    subjects = _subject_table(content, table, names)
    return _Index(base_seq, generation, entries, subjects)


def _subject_table(content: memoryview, at: int, names: int) -> list[bytes]:
    subjects: list[bytes] = []
    for _ in range(names):
        length = int.from_bytes(content[at : at + 2], "little")
        subjects.append(bytes(content[at + 2 : at + 2 + length]))
        at += 2 + length
    return subjects


def _check_data_header(data: pa.Buffer, path: str, stream_id: int, index: _Index) -> None:
    head = memoryview(data)[:HEADER_BYTES]
    if len(head) < HEADER_BYTES or head[:8] != DATA_MAGIC:
        raise FilesUnreachable(f"{path} is no segment")
    _, version, _, owner, base, generation, check = DATA_HEADER.unpack(head)
    if xxh3_64_intdigest(head[:CHECKED_BYTES]) != check:
        raise FilesUnreachable(f"the header of {path} is damaged")
    _check_owner(path, version, owner, stream_id)
    if (base, generation) != (index.base_seq, index.generation):
        raise FilesUnreachable(f"{path} does not belong to its index: it was rewritten")


def _check_owner(path: str, version: int, owner: int, stream_id: int) -> None:
    if version != VERSION:
        raise FilesUnreachable(
            f"{path} has format version {version}, this millstream reads version {VERSION}"
        )
    if owner != stream_id:
        raise FilesUnreachable(f"{path} belongs to another stream")


def _mapped(path: str) -> pa.Buffer:
    try:
        with open(path, "rb") as file:
            return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise _unreachable(path, error) from error


def _unreachable(path: str, error: Exception) -> FilesUnreachable:
    reason = getattr(error, "strerror", None) or str(error)
    return FilesUnreachable(
        f"cannot read {path} here: {reason.lower()}; access=auto reads through the server instead"
    )
