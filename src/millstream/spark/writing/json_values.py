"""Arrow values as JSON can hold them; what a value means is said by its type, not by its looks.

Arrow gives a map as a list of pairs, also an empty one, and Spark's VARIANT as two parts of bytes.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

# Decimals are numbers, as Spark's to_json writes them.
ENCODER = msgspec.json.Encoder(enc_hook=str, decimal_format="number")

Plain = Callable[[Any], Any]


def plain_values(values: pa.Array) -> list[Any]:
    """Return the values of a column, ready for ``ENCODER``."""
    found: list[Any] = values.to_pylist()
    plain = _plain(values.type)
    return found if plain is None else [plain(value) for value in found]


def is_variant(kind: pa.DataType) -> bool:
    """Whether this is Spark's VARIANT, a struct with a mark on one of its parts."""
    if not pa.types.is_struct(kind):
        return False
    parts = {part.name: part for part in kind}
    mark = parts["metadata"].metadata if set(parts) == {"value", "metadata"} else None
    return (mark or {}).get(b"variant") == b"true"


def _plain(kind: pa.DataType) -> Plain | None:
    """Return what makes values of this type plain, None where they are."""
    if is_variant(kind):
        return _variant
    if pa.types.is_map(kind):
        return _map_of(_plain(kind.item_type))
    if pa.types.is_struct(kind):
        parts = {part.name: plain for part in kind if (plain := _plain(part.type)) is not None}
        return _struct_of(parts) if parts else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _plain(kind.value_type)
        return None if inner is None else _list_of(inner)
    return None


def _variant(value: Any) -> Any:
    if value is None:
        return None
    from pyspark.sql.types import VariantVal  # where there is one, Spark is loaded

    return VariantVal(value["value"], value["metadata"]).toPython()


def _map_of(inner: Plain | None) -> Plain:
    def plain(value: Any) -> Any:
        if value is None:
            return None
        return {_key(key): one if inner is None else inner(one) for key, one in value}

    return plain


def _struct_of(parts: dict[str, Plain]) -> Plain:
    def plain(value: Any) -> Any:
        if value is None:
            return None
        return value | {name: one(value[name]) for name, one in parts.items()}

    return plain


def _list_of(inner: Plain) -> Plain:
    def plain(value: Any) -> Any:
        return None if value is None else [inner(one) for one in value]

    return plain


def _key(key: Any) -> str:
    """Return a map's key as the text that the same value would be."""
    return key if isinstance(key, str) else ENCODER.encode(key).decode().strip('"')
