"""Which records are what they were when written: their checksums hold, and nobody swapped them."""

import numpy as np

from millstream.spark.reading.frames import are_whole, check
from millstream.spark.reading.rows import Mask, Records

_SEQ = slice(32, 40)
_STREAM = slice(24, 32)


def intact(records: Records, stream_id: int) -> Mask:
    """Return which records lie whole in the buffer, pass their checksums and are the right ones.

    One compiled pass says that all is well; only a run with damage in it is looked at one by one.
    """
    if _all_intact(records, stream_id):
        return np.ones(len(records), dtype=np.bool_)
    starts = records.entries["offset"].tolist()
    lengths = (records.ends - records.entries["offset"]).tolist()
    seqs = records.seqs.tolist()
    checks = zip(starts, lengths, seqs, strict=True)
    return np.array(
        [_is_record(records, start, length, seq, stream_id) for start, length, seq in checks],
        dtype=np.bool_,
    )


def _all_intact(records: Records, stream_id: int) -> bool:
    if not len(records):
        return True
    starts = np.ascontiguousarray(records.entries["offset"])
    seqs = records.seqs
    size = int((records.ends - starts).sum())
    return (
        are_whole(records.data, starts.tobytes(), int(seqs[0]), int(seqs[-1]), size)
        and _stream_id(records, int(starts[0])) == stream_id
    )


def _is_record(records: Records, start: int, length: int, seq: int, stream_id: int) -> bool:
    head = memoryview(records.data)[start : start + 52]
    return (
        check(records.data, start) == length
        and int.from_bytes(head[_SEQ], "little") == seq
        and int.from_bytes(head[_STREAM], "little") == stream_id
    )


def _stream_id(records: Records, start: int) -> int:
    return int.from_bytes(memoryview(records.data)[start + 24 : start + 32], "little")
