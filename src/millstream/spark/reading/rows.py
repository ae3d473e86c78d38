"""Records to Arrow, whole arrays at a time: offset arithmetic on index entries, no loop over rows.

A record's pieces lie side by side in its frame, so their places follow from the index alone:

    frame   52-byte header | subject | tag | node | meta | headers | payload | u64 check | u8 flag
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.columns import (
    COUNT,
    HEADERS_TYPE,
    PAYLOAD_BINARY,
    PAYLOAD_ONLY_TEXT,
    PAYLOAD_TEXT,
    VARIANT_TYPE,
    arrow_schema,
)
from millstream.spark.problems import NotText
from millstream.spark.reading.header_map import parse_headers

FRAME_HEADER = 52
FRAME_TRAILER = 9
DELETED_BYTE = 0xD5
DELETED_FLAG = 1

BATCH_ROWS = 16_384  # a run of small records fits the cache between checking and copying
INDEX_ROWS = 131_072  # where nothing but the index is read
BATCH_BYTES = 32 << 20  # a batch of large records stays far below Arrow's 2 GiB offsets

ENTRY = np.dtype(
    [
        ("offset", "<u4"),
        ("seq", "<u4"),
        ("ts_ns", "<u8"),
        ("subject", "<u4"),
        ("payload_len", "<u4"),
        ("headers_len", "<u2"),
        ("meta_len", "<u2"),
        ("tag_len", "<u2"),
        ("node_len", "u1"),
        ("flags", "u1"),
    ]
)

PIECES = ("tag", "node", "meta", "headers", "payload")  # in frame order, after the subject

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Records:
    """Records of one buffer: their index entries, and the subjects that the entries number."""

    data: pa.Buffer
    base_seq: int
    entries: npt.NDArray[np.void]
    subjects: pa.StringArray
    subject_lens: Ints  # in bytes as stored, which a repaired string may not have

    def __len__(self) -> int:
        return len(self.entries)

    def select(self, which: slice | Mask) -> "Records":
        """Return the records of a slice or mask; nothing is copied but entries."""
        return replace(self, entries=self.entries[which])

    @cached_property
    def seqs(self) -> Ints:
        """The sequences."""
        count = len(self)
        if count and int(self.entries["seq"][-1]) - int(self.entries["seq"][0]) == count - 1:
            first = self.base_seq + int(self.entries["seq"][0])
            return np.arange(first, first + count, dtype=np.int64)
        seqs: Ints = self.entries["seq"] + np.int64(self.base_seq)
        return seqs

    @cached_property
    def is_plain(self) -> bool:
        """Whether no record has a tag, node, meta or headers, and none is flagged in the index."""
        # These are the last eight bytes of an entry: one pass over them instead of five.
        ends = self.entries.view("<u8").reshape(-1, ENTRY.itemsize // 8)[:, -1]
        return not np.bitwise_or.reduce(ends)

    @cached_property
    def ends(self) -> Ints:
        """Where each frame ends in the buffer."""
        ends: Ints = self._payload_starts + self.entries["payload_len"] + FRAME_TRAILER
        return ends

    def spans(self, column: str) -> tuple[Ints, Ints]:
        """Return start and length in the buffer of one variable-length piece of each record."""
        length: Ints = self.entries[f"{column}_len"].astype(np.int64)
        start = self._payload_starts
        if not self.is_plain:
            for piece in PIECES[PIECES.index(column) : -1]:
                start = start - self.entries[f"{piece}_len"]
        return start, length

    @cached_property
    def _payload_starts(self) -> Ints:
        entries = self.entries
        start: Ints = entries["offset"] + self.subject_lens[entries["subject"]]
        if not self.is_plain:
            for piece in PIECES[:-1]:
                start += entries[f"{piece}_len"]
        start += FRAME_HEADER
        return start


def listed(records: Records) -> Mask:
    """Return which records the index does not call deleted; the frame may know better."""
    if records.is_plain:
        return np.ones(len(records), dtype=np.bool_)
    mask: Mask = (records.entries["flags"] & DELETED_FLAG) == 0
    return mask


def live(records: Records) -> Mask:
    """Return which records are not deleted: by the index's flag or by the frame's last byte."""
    data = np.frombuffer(records.data, dtype=np.uint8)
    last = np.minimum(records.ends, len(data)) - 1  # a cut file must not stop the others
    mask: Mask = data[last] != DELETED_BYTE
    if not records.is_plain:
        mask &= listed(records)
    return mask


def within_file(records: Records) -> bool:
    """Say whether every frame lies in the buffer, as in a file that was cut it may not."""
    return not len(records) or int(records.ends.max()) <= records.data.size


def batches(records: Records, most: int) -> Iterator[Records]:
    """Cut records into runs that make good Arrow batches: of ``most`` rows, bounded in bytes."""
    position, offsets = 0, records.entries["offset"]
    while position < len(records):
        stop = min(position + most, len(records))
        bound = int(offsets[position]) + BATCH_BYTES
        if int(offsets[stop - 1]) > bound:  # seldom: to look at all costs more than the cut
            near = offsets[position:stop].astype(np.int64)
            stop = position + max(int(np.searchsorted(near, bound, side="right")), 1)
        yield records.select(slice(position, stop))
        position = stop


def decode(records: Records, stream: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return live, verified records as one Arrow batch of just these columns.

    With ``records`` among them it is one row that says how many there are.
    """
    if COUNT in columns:
        return counted(len(records), stream, columns)
    arrays = [_COLUMNS[name](records, stream) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def counted(count: int, stream: str, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return the one row that stands for so many records."""
    known = {"stream": stream, COUNT: count}
    row = {name: known.get(name) for name in columns}
    return pa.RecordBatch.from_pylist([row], schema=arrow_schema(columns))


def gap_rows(
    gaps: Sequence[tuple[int, int, str]], stream: str, columns: tuple[str, ...]
) -> pa.RecordBatch:
    """Return one row for each lost range: only the stream and the gap columns are set."""
    known: dict[str, list[Any]] = {
        "stream": [stream] * len(gaps),
        "gap_from": [first for first, _, _ in gaps],
        "gap_to": [last for _, last, _ in gaps],
        "gap_reason": [reason for _, _, reason in gaps],
    }
    schema = arrow_schema(columns)
    nothing = [None] * len(gaps)
    arrays = [pa.array(known.get(field.name, nothing), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def gather(data: pa.Buffer, starts: Ints, lengths: Ints) -> pa.BinaryArray:
    """Copy ascending pieces of a buffer into one binary array.

    The pieces and the bytes between them are seen as one array of 2n - 1 values over the buffer,
    of which Arrow's own ``take`` keeps every other: no loop, no intermediate objects.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    base = int(starts[0])
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[0::2] = starts - base
    bounds[1::2] = starts + lengths - base
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), data.slice(base)]
    )
    return pieces.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


def text(values: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as strings; what is not UTF-8 gets replacement characters, as Python does it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode(errors="replace") for v in values.to_pylist()],
            pa.string(),
        )


def _ints(values: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    whole = np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(arrow_type, len(whole), [None, pa.py_buffer(whole)])


def _stream(records: Records, stream: str) -> pa.Array:
    return _repeated(stream, len(records))


@lru_cache(maxsize=4)
def _repeated(text: str, count: int) -> pa.StringArray:
    """Return a text so many times; nearly all batches of a read are of one length."""
    return pa.repeat(pa.scalar(text, pa.string()), count)


@lru_cache(maxsize=8)
def _nulls(count: int, arrow_type: pa.DataType) -> pa.Array:
    return pa.nulls(count, arrow_type)


def _seq(records: Records, _stream: str) -> pa.Array:
    return _ints(records.seqs, pa.int64())


def _ts(records: Records, _stream: str) -> pa.Array:
    return _ints(records.entries["ts_ns"] // np.uint64(1000), pa.timestamp("us", "UTC"))


def _ts_ns(records: Records, _stream: str) -> pa.Array:
    return _ints(records.entries["ts_ns"], pa.int64())


def _subject(records: Records, _stream: str) -> pa.Array:
    return records.subjects.take(pa.array(np.ascontiguousarray(records.entries["subject"])))


def _payload(records: Records, _stream: str) -> pa.Array:
    return gather(records.data, *records.spans("payload"))


def _payload_text(records: Records, _stream: str) -> pa.Array:
    return text_or_null(_payload(records, _stream))


def _payload_only_text(records: Records, stream: str) -> pa.Array:
    return only_text(_payload(records, stream), records.seqs, stream)


def _payload_binary(records: Records, _stream: str) -> pa.Array:
    return no_text(_payload(records, _stream))


def text_or_null(payloads: pa.BinaryArray) -> pa.StringArray:
    """Return payloads as strings, null where one is no UTF-8."""
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded_text(one) for one in payloads.to_pylist()], pa.string())


def only_text(payloads: pa.BinaryArray, seqs: Sequence[int] | Ints, stream: str) -> pa.StringArray:
    """Return payloads as strings; raises ``NotText`` where one is none."""
    found = text_or_null(payloads)
    if found.null_count > payloads.null_count:
        at = pc.index(pc.is_null(found), True).as_py()
        raise NotText(
            f"the payload of record {seqs[at]} of stream {stream!r} is no UTF-8 text: read with "
            "payloadFormat=binary, or name the column payload_binary too, which then has its bytes"
        )
    return found


def no_text(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return the payloads that are no UTF-8, null for the others."""
    found = text_or_null(payloads)
    if found.null_count == payloads.null_count:
        return _nulls(len(payloads), pa.binary())
    return pc.if_else(pc.is_null(found), payloads, pa.scalar(None, pa.binary()))


def _decoded_text(payload: bytes | None) -> str | None:
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None


def _payload_json(records: Records, _stream: str) -> pa.Array:
    return variants(_payload(records, _stream))


def variants(payloads: pa.BinaryArray) -> pa.Array:
    """Return payloads as Spark's VARIANT, null where one is no JSON."""
    from pyspark.sql.types import VariantVal

    def parsed(payload: bytes) -> dict[str, bytes] | None:
        try:
            found = VariantVal.parseJson(payload.decode())
        except Exception:  # whatever the parser says: it is no JSON
            return None
        return {"value": found.value, "metadata": found.metadata}

    return pa.array([parsed(payload) for payload in payloads.to_pylist()], VARIANT_TYPE)


def _headers(records: Records, _stream: str) -> pa.Array:
    lengths = records.entries["headers_len"]
    if records.is_plain or not lengths.any():
        return _nulls(len(records), HEADERS_TYPE)
    present = records.select(lengths != 0)
    blocks = gather(present.data, *present.spans("headers"))
    maps = pa.array([parse_headers(block) for block in blocks.to_pylist()], HEADERS_TYPE)
    return maps.take(_where(lengths != 0))


def _optional_text(column: str) -> Callable[[Records, str], pa.Array]:
    """Return the decoder of a piece that is null where its length is nought."""

    def column_of(records: Records, _stream: str) -> pa.Array:
        lengths = records.entries[f"{column}_len"]
        if records.is_plain or not lengths.any():
            return _nulls(len(records), pa.string())
        values = text(gather(records.data, *records.spans(column)))
        return pc.if_else(pa.array(lengths != 0), values, pa.scalar(None, pa.string()))

    return column_of


def _where(present: Mask) -> pa.Array:
    """Return for each row its place among the rows that are present, null for the others."""
    return pa.array(np.cumsum(present, dtype=np.int64) - 1, pa.int64(), mask=~present)


def _null(arrow_type: pa.DataType) -> Callable[[Records, str], pa.Array]:
    return lambda records, _stream: _nulls(len(records), arrow_type)


_COLUMNS: dict[str, Callable[[Records, str], pa.Array]] = {
    "stream": _stream,
    "seq": _seq,
    "ts": _ts,
    "ts_ns": _ts_ns,
    "subject": _subject,
    "payload": _payload,
    PAYLOAD_TEXT: _payload_text,
    PAYLOAD_ONLY_TEXT: _payload_only_text,
    PAYLOAD_BINARY: _payload_binary,
    "headers": _headers,
    "tag": _optional_text("tag"),
    "node": _optional_text("node"),
    "meta": _optional_text("meta"),
    "payload_json": _payload_json,
    "gap_from": _null(pa.int64()),
    "gap_to": _null(pa.int64()),
    "gap_reason": _null(pa.string()),
}
