"""Counters: a subject's newest record holds its sum; publishers send what to add."""

import re
from collections.abc import Mapping

import msgspec

from millstream.streams.preconditions import INCR, PublishRefused

_INCREMENT = re.compile(rb"[+-]?[0-9]{1,1000}")
_VALUE = re.compile(r"[+-]?[0-9]{1,2000}")


class _Stored(msgspec.Struct):
    val: str


def increment(values: Mapping[bytes, bytes], payload: bytes) -> int:
    """Return what a message adds; raises when it does not say so."""
    text = values.get(INCR, b"")
    if not text:
        raise PublishRefused(400, 10169, "message counter increment is missing")
    if not _INCREMENT.fullmatch(text):
        raise PublishRefused(400, 10171, "message counter increment is invalid")
    if payload:
        raise PublishRefused(400, 10170, "message counter has payload")
    return int(text)


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
