"""Where the bytes of records come from: a sealed segment's two files, or frames off the wire.

This is the only module of the package that knows how the files begin and end; records and index
entries are described in ``rows``.
"""

import numpy as np
import pyarrow as pa

from millstream.kernel._frames import HEADER, index_frames
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.spark.problems import FilesUnreachable, SparkSourceError
from millstream.spark.rows import ENTRY, Ints, Records, text


class DamagedFrames(SparkSourceError):
    """What arrived from the server is not what it sent."""


def stream_of(frames: bytes) -> int:
    """Return the incarnation of the stream that the first frame belongs to."""
    return int.from_bytes(frames[24:32], "little")


def records_of(frames: bytes) -> Records:
    """Return the records of whole frames as a server sends them, each checked in the same pass."""
    if len(frames) < HEADER:
        raise DamagedFrames("the server sent less than one record")
    index = SegmentIndex(int.from_bytes(frames[32:40], "little"), SubjectTable())
    _, position, _ = index_frames(frames, 0, len(frames), stream_of(frames), index)
    if position != len(frames):
        raise DamagedFrames(f"the records that the server sent are damaged at byte {position}")
    packed, subjects = index.pack()
    entries = np.frombuffer(packed, dtype=ENTRY)
    return Records(pa.py_buffer(frames), index.base_seq, entries, *_strings(subjects))


def _strings(subjects: list[bytes]) -> tuple[pa.StringArray, Ints]:
    lengths = np.array([len(subject) for subject in subjects], dtype=np.int64)
    return text(pa.array(subjects, pa.binary())), lengths


def open_segment(path: str, idx_path: str, stream_id: int) -> Records:
    """Return the records of a sealed segment; raises ``FilesUnreachable``."""
    raise FilesUnreachable(f"{path}: not readable here")
