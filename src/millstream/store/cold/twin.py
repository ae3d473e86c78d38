"""Twin: a sealed segment as a Parquet file, which any table reader takes as it is.

Columns: stream, seq, ts, ts_ns, subject, headers (map of lists), headers_raw, payload, tag, node,
meta; compressed by zstd, with a checksum on each page, row groups in order of seq with statistics.
Deleted records may still be in it: the manifest's deletion ranges say which rows do not count.

pyarrow is optional: without it there are no twins, and one log line says so.
"""

import io
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.kernel._batch import Batch
from millstream.kernel._frames import encode_exact

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 256 << 10  # rows; readers take large groups faster, and still skip by statistics
GROUP_BYTES = 64 << 20  # of payloads and headers, whichever comes first
PAGE_BYTES = 256 << 10  # a quarter of the usual: Java copies each page whole, and large ones dearly
BATCH = 8 << 10  # rows taken in at once: the loop waits while Arrow looks at Python's values
BREATH = 500  # records after which the loop has its turn for certain
Fields = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]

log = logging.getLogger(__name__)
_told = False
_pause = threading.Event()  # never set: waiting for it gives the processor away


def can_make() -> bool:
    """Say whether twins can be made here; tells once why not."""
    global _told
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        if not _told:
            log.warning("no Parquet twins of cold segments: pip install 'millstream[lake]'")
            _told = True
        return False
    return True


def schema() -> "pa.Schema":
    """Return the columns of a twin."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("stream", pa.string(), nullable=False),
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("ts_ns", pa.int64(), nullable=False),
            pa.field("subject", pa.string(), nullable=False),
            pa.field("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
            pa.field("headers_raw", pa.binary()),
            pa.field("payload", pa.binary(), nullable=False),
            pa.field("tag", pa.string()),
            pa.field("node", pa.string()),
            pa.field("meta", pa.string()),
        ]
    )


def make(records: Iterable[Fields], stream: str) -> bytes:
    """Return the Parquet file of records in order of their sequences."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema(),
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
        data_page_size=PAGE_BYTES,
    ) as writer:
        for group in _groups(records, stream):
            table = pa.Table.from_batches(group)
            writer.write_table(table, row_group_size=len(table))  # without the loop's lock
    return sink.getvalue()


_DICTIONARIES = ["stream", "subject", "tag", "node"]
# They only grow, by little: smaller than plain and sooner read, be times distinct or all the same.
_ENCODINGS = dict.fromkeys(("seq", "ts", "ts_ns"), "DELTA_BINARY_PACKED")


def _groups(records: Iterable[Fields], stream: str) -> Iterator[list["pa.RecordBatch"]]:
    """Yield the batches of one row group after the other."""
    group: list[pa.RecordBatch] = []
    rows = held = 0
    for batch, size in _batches(records):
        group.append(_batch(batch, stream))
        rows, held = rows + len(batch), held + size
        if rows >= ROW_GROUP or held >= GROUP_BYTES:
            yield group
            group, rows, held = [], 0, 0
    if group:
        yield group


def _batches(records: Iterable[Fields]) -> Iterator[tuple[list[Fields], int]]:
    """Yield runs of records, each with the bytes of its payloads and headers."""
    batch: list[Fields] = []
    held = 0
    for record in records:
        batch.append(record)
        held += len(record[3]) + len(record[4])
        if not len(batch) % BREATH:
            _pause.wait(0.001)
        if len(batch) >= BATCH or held >= GROUP_BYTES:
            yield batch, held
            batch, held = [], 0
    if batch:
        yield batch, held


def _batch(group: list[Fields], stream: str) -> "pa.RecordBatch":
    import pyarrow as pa

    seqs, times, subjects, payloads, headers, tags, nodes, metas = zip(*group, strict=True)
    columns: list[Any] = [
        [stream] * len(group),
        seqs,
        [ts_ns // 1000 for ts_ns in times],
        times,
        [_text(subject) for subject in subjects],
        [_header_map(block) for block in headers],
        [block or None for block in headers],
        payloads,
        *([_text(value) if value else None for value in each] for each in (tags, nodes, metas)),
    ]
    fields = schema()
    arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _header_map(block: bytes) -> list[tuple[str, list[str]]] | None:
    """Return the fields of a header block, None without one; what is malformed is left out."""
    if not block:
        return None
    found: dict[str, list[str]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon and name:
            found.setdefault(_text(name), []).append(_text(value.strip(b" \t")))
    return list(found.items())


def frames_of(data: bytes, log_id: int, seqs: set[int]) -> dict[int, bytes]:
    """Return the frames of these records as a twin has them; those that it lacks are left out."""
    import pyarrow.parquet as pq

    columns = ["seq", "ts_ns", "subject", "payload", "headers_raw", "tag", "node", "meta"]
    reader = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    found: dict[int, bytes] = {}
    for batch in reader.iter_batches(BATCH, columns=columns):
        for row in batch.to_pylist():
            if row["seq"] in seqs:
                found[row["seq"]] = _frame(row, log_id)
    return found


def _frame(row: dict[str, Any], log_id: int) -> bytes:
    batch = Batch()
    texts = [(row[name] or "").encode() for name in ("subject", "tag", "node", "meta")]
    subject, tag, node, meta = texts
    batch.add(subject, b"", row["headers_raw"] or b"", row["payload"], tag, node, meta)
    return encode_exact(batch, 0, 1, log_id, [row["seq"]], [row["ts_ns"]], 0, None, 0)
