"""A range of a cold Parquet file as the Arrow batches that a segment would give.

The file is the server's own twin of a segment: rows in order of ``seq``, a checksum on each page.
Only the columns of the read come out of it, and those that say which rows count.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.columns import (
    COUNT,
    GAP_COLUMNS,
    PAYLOAD_BINARY,
    PAYLOAD_JSON,
    PAYLOAD_ONLY_TEXT,
    PAYLOAD_TEXT,
    arrow_schema,
)
from millstream.spark.problems import FilesUnreachable
from millstream.spark.reading import rows
from millstream.spark.reading.subject_filter import pattern_of

if TYPE_CHECKING:
    from millstream.spark.reading.planner import ColdRange

BATCH_ROWS = 16_384
_OF_PAYLOAD = frozenset({PAYLOAD_JSON, PAYLOAD_TEXT, PAYLOAD_ONLY_TEXT, PAYLOAD_BINARY})
_MADE_HERE = frozenset({"stream", COUNT, *_OF_PAYLOAD, *GAP_COLUMNS})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows and columns a read takes of every file."""

    stream: str
    columns: tuple[str, ...]
    subject: str | None
    start_ns: int | None
    end_ns: int | None

    def stored(self) -> list[str]:
        """Return the columns to take out of the file; the first is ``seq``."""
        names = ["seq", *(name for name in self.columns if name not in _MADE_HERE)]
        names += ["payload"] if not _OF_PAYLOAD.isdisjoint(self.columns) else []
        names += ["subject"] if self.subject is not None else []
        names += ["ts_ns"] if (self.start_ns, self.end_ns) != (None, None) else []
        return list(dict.fromkeys(names))


def batches(part: "ColdRange", wanted: Wanted) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches, each with the last sequence that it settles; a few rows or none are one too.

    Raises ``FilesUnreachable`` where the file is gone, or damaged from there on.
    """
    try:
        file = pq.ParquetFile(part.path, memory_map=True, page_checksum_verification=True)
        with file:
            groups = _groups(file.metadata, part.from_seq, part.to_seq)
            found = file.iter_batches(BATCH_ROWS, groups, wanted.stored(), use_threads=False)
            for batch in found:
                if len(batch):
                    yield batch.column("seq")[-1].as_py(), _decoded(batch, part, wanted)
    except (OSError, pa.ArrowException) as error:
        raise FilesUnreachable(
            f"cannot read {part.path} here: {error}; access=auto reads through the server instead"
        ) from error


def _groups(metadata: pq.FileMetaData, first: int, last: int) -> list[int]:
    """Return the row groups that hold some of ``first..last``, by their statistics."""
    at = metadata.schema.names.index("seq")
    found = []
    for number in range(metadata.num_row_groups):
        known = metadata.row_group(number).column(at).statistics
        if known is None or (known.min <= last and known.max >= first):
            found.append(number)
    return found


def _decoded(batch: pa.RecordBatch, part: "ColdRange", wanted: Wanted) -> pa.RecordBatch:
    keep = _kept(batch, part, wanted)
    if not keep.all():
        batch = batch.filter(pa.array(keep))
    if COUNT in wanted.columns:
        return rows.counted(len(batch), wanted.stream, wanted.columns)
    schema = arrow_schema(wanted.columns)
    arrays = [
        _column(batch, name, field, wanted.stream)
        for name, field in zip(wanted.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _kept(batch: pa.RecordBatch, part: "ColdRange", wanted: Wanted) -> rows.Mask:
    seqs = batch.column("seq").to_numpy()
    keep: rows.Mask = (seqs >= part.from_seq) & (seqs <= part.to_seq)
    for first, last in _near(part.deleted, int(seqs[0]), int(seqs[-1])):
        low, high = np.searchsorted(seqs, [first, last + 1])
        keep[low:high] = False
    if wanted.start_ns is not None:
        keep &= batch.column("ts_ns").to_numpy() >= wanted.start_ns
    if wanted.end_ns is not None:
        keep &= batch.column("ts_ns").to_numpy() < wanted.end_ns
    if wanted.subject is not None:
        keep &= _matching(batch.column("subject"), pattern_of(wanted.subject))
    return keep


def _near(ranges: Sequence[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    return [(a, b) for a, b in ranges if a <= last and b >= first]


def _matching(subjects: pa.StringArray, pattern: re.Pattern[str]) -> rows.Mask:
    """Return which rows match; each distinct subject is looked at once."""
    distinct = subjects.dictionary_encode()
    matches = [pattern.fullmatch(name) is not None for name in distinct.dictionary.to_pylist()]
    mask: rows.Mask = np.array(matches, dtype=np.bool_)[distinct.indices.to_numpy()]
    return mask


def _column(batch: pa.RecordBatch, name: str, field: pa.Field, stream: str) -> pa.Array:
    if name == "stream":
        return pa.repeat(pa.scalar(stream, pa.string()), len(batch))
    if name in _OF_PAYLOAD:
        return _of_payload(batch, name, stream)
    if name in GAP_COLUMNS:
        return pa.nulls(len(batch), field.type)
    values = batch.column(field.name)
    return values if values.type.equals(field.type) else values.cast(field.type)


def _of_payload(batch: pa.RecordBatch, name: str, stream: str) -> pa.Array:
    payloads = batch.column("payload")
    if name == PAYLOAD_JSON:
        return rows.variants(payloads)
    if name == PAYLOAD_BINARY:
        return rows.no_text(payloads)
    if name == PAYLOAD_TEXT:
        return rows.text_or_null(payloads)
    return rows.only_text(payloads, batch.column("seq").to_pylist(), stream)
