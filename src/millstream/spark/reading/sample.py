"""What a stream's newest records hold: their payloads, and the columns that their JSON makes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from millstream.spark.options import Access, PayloadFormat, ReadOptions
from millstream.spark.reading.partitions import read_partition
from millstream.spark.source import BatchReader

SAMPLED = 200  # records: enough to see the fields, few enough not to be waited for
MOST_FIELDS = 500

# A field's kind: a name of Spark's, a list's kind in a tuple, an object's fields; None if unknown.
Kind: TypeAlias = "str | tuple[Kind] | dict[str, Kind] | None"


@dataclass(frozen=True, slots=True)
class Sample:
    """The newest records of a stream, and what kind of object their payloads are."""

    records: int
    objects: int  # how many of them are JSON objects
    fields: dict[str, Kind]

    @property
    def ddl(self) -> str:
        """Return the fields as Spark's DDL."""
        return ", ".join(f"{quoted(name)} {_spelled(kind)}" for name, kind in self.fields.items())


def sample(options: ReadOptions, stream: str, most: int = SAMPLED) -> Sample:
    """Look at the newest records of a stream that the options ask for."""
    return sampled(payloads(options, stream, most))


def payloads(options: ReadOptions, stream: str, most: int = SAMPLED) -> list[bytes]:
    """Return the payloads of the newest records, at most so many."""
    plan = options.server.streams().plan(stream)
    wanted = replace(
        options,
        streams=(stream,),
        columns=("payload", "gap_from", "gap_to", "gap_reason"),
        include_headers=False,
        payload_json=False,
        payload_format=PayloadFormat.BINARY,
        start_seq=max(plan.last_seq - most + 1, plan.first_seq),
        start_time=None,
        end_seq=None,
        end_time=None,
        exact_start=False,
        access=Access.BROKER,
        fail_on_data_loss=False,
    )
    found: list[bytes] = []
    for partition in BatchReader(wanted, wanted.table_columns()).partitions():
        for batch in read_partition(partition):
            found += [one for one in batch.column("payload").to_pylist() if one is not None]
    return found


def sampled(found: Iterable[bytes]) -> Sample:
    """Return what payloads have in common."""
    records = objects = 0
    fields: dict[str, Kind] = {}
    for payload in found:
        records += 1
        try:
            value = json.loads(payload)
        except ValueError:
            continue
        if isinstance(value, dict):
            objects += 1
            fields = _joined(fields, _kind(value))  # type: ignore[assignment]
    return Sample(records, objects, dict(list(fields.items())[:MOST_FIELDS]))


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes any."""
    return "`" + name.replace("`", "``") + "`"


def _kind(value: Any) -> Kind:
    match value:
        case bool():
            return "boolean"
        case int():
            return "bigint" if -(1 << 63) <= value < 1 << 63 else "double"
        case float():
            return "double"
        case str():
            return "string"
        case dict():
            return {str(name): _kind(below) for name, below in value.items()}
        case list():
            joined: Kind = None
            for one in value:
                joined = _joined(joined, _kind(one))
            return (joined,)
    return None


def _joined(one: Kind, other: Kind) -> Kind:
    """Return the kind that holds both; what has nothing in common is text."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            name: _joined(one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])
        }
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (_joined(one[0], other[0]),)
    return "double" if {"bigint", "double"} == _names(one, other) else "string"


def _names(*kinds: Kind) -> set[str]:
    return {kind for kind in kinds if isinstance(kind, str)}


def _spelled(kind: Kind) -> str:
    if isinstance(kind, tuple):
        return f"array<{_spelled(kind[0])}>"
    if isinstance(kind, dict) and kind:
        return f"struct<{', '.join(f'{quoted(n)}: {_spelled(k)}' for n, k in kind.items())}>"
    return kind if isinstance(kind, str) else "string"
