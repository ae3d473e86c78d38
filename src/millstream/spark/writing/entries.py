"""Rows to the entries that a server stores: whole columns at a time, no loop over plain rows.

    entry   0 u32 size   4 u32 headers   8 u32 payload   12 u32 0   16 u16 subject   18 u16 0
           20 u16 tag   22 u16 0   24 u32 0   28 u32 0   32 subject | tag | headers | payload

Lengths are computed as arrays; Arrow then joins header, subject, tag, headers and payload of each
row, and its buffer of values is what goes to the server.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.problems import OptionError, SparkSourceError
from millstream.spark.reading.rows import Ints
from millstream.spark.writing.json_values import ENCODER, plain_values

ENTRY = np.dtype(
    [
        ("size", "<u4"),
        ("headers", "<u4"),
        ("payload", "<u4"),
        ("origin", "<u4"),
        ("subject", "<u2"),
        ("reply", "<u2"),
        ("tag", "<u2"),
        ("node", "<u2"),
        ("meta", "<u4"),
        ("flags", "<u4"),
    ]
)
MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
OWN_COLUMNS = ("subject", "payload", "headers", "tag", "msgId")
BINARY = "payload_binary"  # as the source gives it, beside a payload of text
LARGEST_RECORD = 1 << 20
LONGEST_ROW = 200  # letters of a row in an error
_FIELD = re.compile(r"\{([^{}]+)\}")


class BadRow(SparkSourceError):
    """A row that cannot become a record."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a record come from: columns of ours, a template, or all other columns."""

    stream: str
    template: str | None
    columns: tuple[str, ...]

    def check(self) -> None:
        """Raise ``OptionError`` where the columns cannot make a record."""
        for name in self.fields():
            if name not in self.columns:
                there = ", ".join(self.columns)
                raise OptionError(f"the subject template names column {name!r}; there is {there}")
        if "payload" not in self.columns and not self.others():
            raise OptionError("there is no column for the payload")

    def fields(self) -> list[str]:
        """Return the columns that the subject template names."""
        return _FIELD.findall(self.template or "")

    def others(self) -> list[str]:
        """Return the columns that become a JSON object where there is no payload column."""
        return [name for name in self.columns if name not in OWN_COLUMNS]


@dataclass(frozen=True, slots=True)
class EntryParts:
    """The parts of a batch's records as Arrow arrays of bytes without nulls."""

    subject: pa.Array
    tag: pa.Array
    headers: pa.Array
    payload: pa.Array


def without_gaps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that are records: a row without ``seq`` stands for a lost range.

    Such rows come from a read with failOnDataLoss=false; who leaves ``seq`` out means its gaps.
    """
    if not {"seq", "gap_from"} <= set(batch.schema.names):
        return batch
    stands_for_gap = pc.and_(pc.is_null(batch.column("seq")), pc.is_valid(batch.column("gap_from")))
    return batch.filter(pc.invert(stands_for_gap))


def parts_of(batch: pa.RecordBatch, layout: Layout) -> EntryParts:
    """Return the parts of every row."""
    return EntryParts(
        _subjects(batch, layout),
        _optional(batch, "tag"),
        _headers(batch),
        _payloads(batch, layout),
    )


def encode(parts: EntryParts) -> pa.Buffer:
    """Return the entries of these records, one behind the other."""
    lengths = {name: _lengths(getattr(parts, name)) for name in EntryParts.__slots__}
    _check(lengths)
    heads = np.zeros(len(parts.subject), dtype=ENTRY)
    for name, values in lengths.items():
        heads[name] = values
    heads["size"] = ENTRY.itemsize + sum(lengths.values())
    fixed = pa.Array.from_buffers(
        pa.binary(ENTRY.itemsize), len(heads), [None, pa.py_buffer(heads.tobytes())]
    )
    joined = pc.binary_join_element_wise(
        fixed.cast(pa.binary()), parts.subject, parts.tag, parts.headers, parts.payload, b""
    )
    return _values(joined)


def _values(joined: pa.Array) -> pa.Buffer:
    offsets = np.frombuffer(joined.buffers()[1], dtype=np.int32)
    first, last = offsets[joined.offset], offsets[joined.offset + len(joined)]
    return joined.buffers()[2].slice(int(first), int(last - first))


def _check(lengths: dict[str, Ints]) -> None:
    if not lengths["subject"].all():
        raise BadRow(
            "a row has no subject; one that stands for a lost range (failOnDataLoss=false) has "
            "none: write seq and gap_from too, and it is left out, or only rows where seq is not "
            "null"
        )
    for name in ("subject", "tag", "headers"):
        if lengths[name].max(initial=0) > 0xFFFF:
            raise BadRow(f"{name} of a record has at most 65535 bytes")
    largest = int((lengths["headers"] + lengths["payload"]).max(initial=0))
    if largest > LARGEST_RECORD:
        raise BadRow(f"a record has at most {LARGEST_RECORD} bytes, one row makes {largest}")


def _lengths(values: pa.Array) -> Ints:
    lengths: Ints = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _bytes(values: pa.Array) -> pa.Array:
    """Return text or bytes as bytes, empty where there is none."""
    return pc.fill_null(values.cast(pa.binary()), b"")


def _empty(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(b"", pa.binary()), count)


def _optional(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return _empty(batch.num_rows)
    return _bytes(batch.column(name))


def _subjects(batch: pa.RecordBatch, layout: Layout) -> pa.Array:
    if layout.template is not None:
        return _bytes(_filled(batch, layout.template))
    if "subject" in layout.columns:
        return _bytes(batch.column("subject"))
    return pa.repeat(pa.scalar(layout.stream.encode(), pa.binary()), batch.num_rows)


def _filled(batch: pa.RecordBatch, template: str) -> pa.Array:
    """Return the template with each row's values in it; raises ``BadRow`` where one is null."""
    texts = _FIELD.split(template)
    pieces: list[Any] = []
    for at, text in enumerate(texts):
        if at % 2:
            values = batch.column(text)
            if values.null_count:
                raise BadRow(_null_in(template, text, batch))
            pieces.append(values.cast(pa.string()))
        else:
            pieces.append(pa.repeat(pa.scalar(text, pa.string()), batch.num_rows))
    return pc.binary_join_element_wise(*pieces, "")


def _null_in(template: str, name: str, batch: pa.RecordBatch) -> str:
    """Return what is wrong with the first row that has no value for the template, and the row."""
    at = pc.index(pc.is_null(batch.column(name)), True).as_py()
    row = {field: batch.column(field)[at].as_py() for field in batch.schema.names}
    told = str({key: value for key, value in row.items() if key not in OWN_COLUMNS})
    told = told if len(told) <= LONGEST_ROW else told[: LONGEST_ROW - 1] + "…"
    return (
        f"column {name!r} is null in a row, and the subject template {template!r} needs it: leave "
        f"such rows out (where {name} is not null) or give it a value "
        f"(coalesce({name}, 'none')); the row is {told}"
    )


def _payloads(batch: pa.RecordBatch, layout: Layout) -> pa.Array:
    if "payload" not in layout.columns:
        names = layout.others()
        columns = [plain_values(batch.column(name)) for name in names]
        return _json(dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    values = batch.column("payload")
    if BINARY in layout.columns and pa.types.is_string(values.type):
        values = pc.coalesce(values.cast(pa.binary()), batch.column(BINARY).cast(pa.binary()))
    if any(is_kind(values.type) for is_kind in _AS_THEY_ARE):
        return _bytes(values)
    return _json(plain_values(values))


_AS_THEY_ARE = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
)


def _json(values: Iterable[Any]) -> pa.Array:
    return pa.array(
        [b"" if value is None else ENCODER.encode(value) for value in values], pa.binary()
    )


def _headers(batch: pa.RecordBatch) -> pa.Array:
    names = batch.schema.names
    if "headers" not in names and "msgId" not in names:
        return _empty(batch.num_rows)
    nothing = [None] * batch.num_rows
    given = batch.column("headers").to_pylist() if "headers" in names else nothing
    ids = batch.column("msgId").to_pylist() if "msgId" in names else nothing
    return pa.array(
        [header_block(_pairs(one, msg_id)) for one, msg_id in zip(given, ids, strict=True)],
        pa.binary(),
    )


def _pairs(headers: Any, msg_id: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    if msg_id is not None:
        pairs.append((MSG_ID, str(msg_id)))
    items = headers.items() if isinstance(headers, Mapping) else headers or ()
    for name, values in items:
        each = values if isinstance(values, list) else [values]
        pairs += [(str(name), str(value)) for value in each if value is not None]
    return pairs


def header_block(pairs: list[tuple[str, str]]) -> bytes:
    """Return a NATS header block, empty for no headers; raises ``BadRow`` for a broken one."""
    if not pairs:
        return b""
    lines = ["NATS/1.0"]
    for name, value in pairs:
        if not name or ":" in name or any(c in name + value for c in "\r\n"):
            raise BadRow(f"header {name!r} contains a colon or a line break")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode()
