"""How a checked message is stored: its headers completed, its entry within what a frame holds."""

from millstream.kernel._batch import Batch
from millstream.streams.config import extras
from millstream.streams.config.config import StreamConfig
from millstream.streams.schedules import schedules
from millstream.streams.writing import preconditions
from millstream.streams.writing.preconditions import PublishRefused

MAX_HEADERS = 65_535
LONGEST_NODE = 255


def completed(config: StreamConfig, headers: bytes, values: dict[bytes, bytes]) -> bytes:
    """Return the headers of a checked message as they are stored.

    A schedule replaces another. A record lives at least as long as a delete marker, which would
    otherwise be missed where one is there already.
    """
    if values.get(schedules.PATTERN) and preconditions.ROLLUP not in values:
        values[preconditions.ROLLUP] = b"sub"
        headers = extras.with_value(headers, preconditions.ROLLUP, b"sub")
    shortest = config.subject_delete_marker_ttl // 10**9
    if shortest <= 0 or config.max_msgs_per_subject == 1 or preconditions.TTL not in values:
        return headers
    if 0 < preconditions.ttl_seconds(values[preconditions.TTL]) < shortest:
        values[preconditions.TTL] = b"%d" % shortest
        headers = extras.without(headers, preconditions.TTL)
        headers = extras.with_value(headers, preconditions.TTL, values[preconditions.TTL])
    return headers


def headers_too_large() -> PublishRefused:
    """Return the refusal of headers that a frame cannot hold."""
    return PublishRefused(400, 10097, "header size exceeds maximum allowed of 64k")


def add_stored(
    batch: Batch, subject: bytes, reply: bytes, headers: bytes, payload: bytes,
    tag: bytes, node: bytes, meta: bytes,
) -> None:  # fmt: skip
    """Append a checked message as it is stored; raises when it became more than a frame holds."""
    if len(headers) > MAX_HEADERS:
        raise headers_too_large()
    if len(node) > LONGEST_NODE:
        raise PublishRefused(400, 10003, f"Millstream-Node holds at most {LONGEST_NODE} bytes")
    try:
        batch.add(subject, reply, headers, payload, tag, node, meta)
    except ValueError as error:
        raise PublishRefused(400, 10003, str(error)) from error
