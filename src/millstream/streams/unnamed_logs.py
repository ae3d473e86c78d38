"""Streams for logs that nothing names any more, so that a repair leaves no record out of reach.

A log whose id is in no catalog would be taken for that of a stream which is created later.
"""

from collections.abc import Sequence

import msgspec

from millstream.store.recovery.recovery import Recovery
from millstream.streams.catalog import SECTION
from millstream.streams.entries import STREAM_GONE, STREAM_SET

ACCOUNT = "$G"
PREFIX = "recovered_"


class _Named(msgspec.Struct, frozen=True):
    id: int


class _StreamSection(msgspec.Struct, frozen=True):
    streams: list[_Named]


def adopted(recovery: Recovery, log_ids: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Return control frames (kind, log, body) that create a stream for each log without one."""
    return [
        (STREAM_SET, log_id, _stream(log_id)) for log_id in sorted(set(log_ids) - _named(recovery))
    ]


def _named(recovery: Recovery) -> set[int]:
    section = recovery.sections.get(SECTION)
    found = msgspec.json.decode(section, type=_StreamSection).streams if section else []
    ids = {entry.id for entry in found}
    for control in recovery.controls:
        if control.kind in (STREAM_SET, STREAM_GONE):
            entry = msgspec.json.decode(control.body, type=_Named)
            (ids.add if control.kind == STREAM_SET else ids.discard)(entry.id)
    return ids


def _stream(log_id: int) -> bytes:
    name = f"{PREFIX}{log_id}"
    config = {"name": name, "subjects": [name]}
    entry = {"account": ACCOUNT, "name": name, "id": log_id, "created_ns": 0, "config": config}
    return msgspec.json.encode(entry)
