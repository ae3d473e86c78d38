"""Counters: a subject's newest record holds its sum; publishers send what to add."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from millstream.streams.config import extras
from millstream.streams.writing.preconditions import EXPECTATIONS, INCR, ROLLUP, PublishRefused

_INCREMENT = re.compile(rb"[+-]?[0-9]{1,1000}")
_INCOMPATIBLE = (ROLLUP, *EXPECTATIONS)
_VALUE = re.compile(r"[+-]?[0-9]{1,2000}")


SOURCES = b"Nats-Counter-Sources"
_STREAM_SOURCE = b"Nats-Stream-Source"

Sources = dict[str, dict[str, str]]  # stream → subject → its sum when it was last taken in


class _Stored(msgspec.Struct):
    val: str


class Count(NamedTuple):
    """What a counter stands at, and what of that came from other streams."""

    total: int
    sources: Sources

    def with_sources(self, headers: bytes) -> bytes:
        """Return the headers of the record that holds this count."""
        if not self.sources:
            return headers
        text = msgspec.json.encode(self.sources, order="sorted")
        return extras.with_value(headers, SOURCES, text)


def increment(values: Mapping[bytes, bytes], payload: bytes, *, allowed: bool) -> int | None:
    """Return what a message adds, None when it adds nothing; raises when it may not."""
    text = values.get(INCR, b"")
    if not text:
        return None
    if not _INCREMENT.fullmatch(text):
        raise PublishRefused(400, 10171, "message counter increment is invalid")
    if not allowed:
        raise PublishRefused(400, 10168, "message counters is disabled")
    if payload:
        raise PublishRefused(400, 10170, "message counter has payload")
    if not values.keys().isdisjoint(_INCOMPATIBLE):
        raise PublishRefused(400, 10171, "message counter increment is invalid")
    return int(text)


def missing() -> PublishRefused:
    """Return the failure of a message that adds nothing to a stream of counters."""
    return PublishRefused(400, 10169, "message counter increment is missing")


def value_of(payload: bytes) -> int:
    """Return the sum that a record holds."""
    try:
        text = msgspec.json.decode(payload, type=_Stored).val
    except msgspec.DecodeError:
        text = ""
    if not _VALUE.fullmatch(text):
        raise PublishRefused(400, 10172, "message counter is broken")
    return int(text)


def stored(value: int) -> bytes:
    """Return the payload of a record that holds a sum."""
    return b'{"val":"%d"}' % value


def count_of(headers: bytes, payload: bytes) -> Count:
    """Return what a record of a stream of counters holds."""
    text = extras.first_values(headers).get(SOURCES, b"") if SOURCES in headers else b""
    try:
        sources = msgspec.json.decode(text, type=Sources) if text else {}
    except msgspec.DecodeError as error:
        raise PublishRefused(400, 10172, "message counter is broken") from error
    return Count(value_of(payload), sources)


def adopted(before: Count, subject: bytes, headers: bytes, payload: bytes) -> tuple[Count, bytes]:
    """Return what a counter becomes by another stream's, and the headers of that record.

    It grows by what the other has grown since it was last taken in, whatever was missed between.
    """
    values = extras.first_values(headers)
    if not values.get(INCR):
        raise missing()
    fields = values.get(_STREAM_SOURCE, b"").decode("utf-8", "replace").split(" ")
    origin = fields[0]
    origin_subject = fields[4] if len(fields) > 4 else subject.decode("utf-8", "replace")
    reached = value_of(payload)
    sources = {name: dict(subjects) for name, subjects in before.sources.items()}
    taken = sources.setdefault(origin, {})
    grown = reached - int(taken.get(origin_subject, "0"))
    taken[origin_subject] = str(reached)
    count = Count(before.total + grown, sources)
    return count, count.with_sources(extras.with_value(headers, INCR, b"%d" % grown))
