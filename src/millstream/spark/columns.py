"""The columns of a stream seen as a table: their names, order, Arrow and Spark types.

Spark compares the Arrow schema of a Python source with its own field by field (names, order,
nullability, even the name inside a list), so both descriptions live on one line here.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow as pa

from millstream.spark.problems import OptionError

# Spark's VARIANT: two parts of bytes, told from any other struct by the mark on one of them.
VARIANT_TYPE = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
HEADERS_TYPE = pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))

_TYPES: dict[str, tuple[pa.DataType, str]] = {
    "stream": (pa.string(), "string"),
    "seq": (pa.int64(), "bigint"),
    "ts": (pa.timestamp("us", "UTC"), "timestamp"),
    "ts_ns": (pa.int64(), "bigint"),
    "subject": (pa.string(), "string"),
    "payload": (pa.binary(), "binary"),
    "headers": (HEADERS_TYPE, "map<string,array<string>>"),
    "tag": (pa.string(), "string"),
    "node": (pa.string(), "string"),
    "meta": (pa.string(), "string"),
    "payload_binary": (pa.binary(), "binary"),
    "payload_json": (VARIANT_TYPE, "variant"),
    "records": (pa.int64(), "bigint"),
    "gap_from": (pa.int64(), "bigint"),
    "gap_to": (pa.int64(), "bigint"),
    "gap_reason": (pa.string(), "string"),
}

# The column payload as text. Which of the two a read takes is known by the columns beside it: with
# payload_binary there is a place for bytes that are no text, without it such a record fails.
PAYLOAD_TEXT, PAYLOAD_ONLY_TEXT = "payload:text", "payload:only-text"
_AS_TEXT = (pa.string(), "string")
_ALL_TYPES = _TYPES | {PAYLOAD_TEXT: _AS_TEXT, PAYLOAD_ONLY_TEXT: _AS_TEXT}

GAP_COLUMNS = ("gap_from", "gap_to", "gap_reason")
PAYLOAD_JSON = "payload_json"
PAYLOAD_BINARY = "payload_binary"  # the bytes of a payload that is no text
COUNT = "records"  # of how many records a row tells: one row then stands for many
# What needs none of a record's bytes.
FROM_INDEX = frozenset({"stream", "seq", "ts", "ts_ns", "subject", COUNT, *GAP_COLUMNS})
_NOT_STORED = (*GAP_COLUMNS, PAYLOAD_BINARY, PAYLOAD_JSON, COUNT)
RECORD_COLUMNS = tuple(name for name in _TYPES if name not in _NOT_STORED)


def chosen(
    columns: Sequence[str] | None,
    headers: bool,
    gaps: bool,
    payload_json: bool = False,
    as_text: bool = False,
) -> tuple[str, ...]:
    """Return the columns of a read: those asked for, else all; gap columns come last."""
    names = tuple(columns) if columns else RECORD_COLUMNS
    if not columns and not headers:
        names = tuple(name for name in names if name != "headers")
    if columns and headers and "headers" not in names:
        names += ("headers",)
    if as_text and not columns:
        names += (PAYLOAD_BINARY,)
    if payload_json and PAYLOAD_JSON not in names:
        names += (PAYLOAD_JSON,)
    if gaps:
        names += tuple(name for name in GAP_COLUMNS if name not in names)
    return with_text(names) if as_text else names


def with_text(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns with the payload as text."""
    text = PAYLOAD_TEXT if PAYLOAD_BINARY in names else PAYLOAD_ONLY_TEXT
    return tuple(text if name == "payload" else name for name in names)


def shown(name: str) -> str:
    """Return how Spark's user calls a column."""
    return name.partition(":")[0]


def check_names(names: Iterable[str]) -> None:
    """Raise ``OptionError`` for a column that no stream has, or that does not go with others."""
    seen: set[str] = set()
    for name in names:
        if name not in _TYPES:
            raise OptionError(f"unknown column {name!r}; a stream has {', '.join(RECORD_COLUMNS)}")
        if name in seen:
            raise OptionError(f"column {name!r} is named twice")
        seen.add(name)
    if COUNT in seen and (others := seen - {COUNT, "stream", *GAP_COLUMNS}):
        raise OptionError(
            f"{COUNT} counts many records in one row: leave out {', '.join(sorted(others))}"
        )


@lru_cache(maxsize=16)
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema that Spark expects for these columns."""
    return pa.schema([(shown(name), _ALL_TYPES[name][0]) for name in names])


def spark_schema(names: Sequence[str]) -> str:
    """Return the same schema in Spark's DDL."""
    return ", ".join(f"{shown(name)} {_ALL_TYPES[name][1]}" for name in names)


def spark_type(name: str) -> str:
    """Return the Spark type of one column, as Spark's ``simpleString`` spells it."""
    return _TYPES[name][1]
