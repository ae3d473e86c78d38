"""Size: what a record counts in ``bytes`` and ``max_bytes``.

That is what the reference counts; of a topic that takes nothing from NATS, ``max_bytes`` counts
data and meta, as HTTP has it.
"""

from collections.abc import Iterator

from millstream.store.log.log import Log, LogState
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.data_size import counts_data

_FRAME = 61  # what a frame is around its fields
_FILE, _MEMORY = 30, 16  # what the reference's file and memory stores add to a record
_FILE_HEADERS = 4  # and its file store to one with a header block


def _around(config: StreamConfig, headers: int) -> int:
    if config.storage == "memory":
        return _MEMORY
    return _FILE + _FILE_HEADERS if headers else _FILE


def record_size(
    config: StreamConfig, subject: bytes, headers: bytes, payload: bytes, meta: bytes = b""
) -> int:
    """Return the size of one record, as ``max_bytes`` counts it."""
    if counts_data(config):
        return len(payload) + len(meta)
    return counted_size(config, subject, headers, payload)


def counted_size(
    config: StreamConfig, subject: bytes, headers: bytes, payload: bytes, beside: int = 0
) -> int:
    """Return what one record adds to ``bytes``, ``beside`` being its tag, node and meta."""
    return _around(config, len(headers)) + len(subject) + len(payload) + len(headers) + beside


def stored_size(config: StreamConfig, state: LogState) -> int:
    """Return the size of all records of a log."""
    return max(0, size_of(config, state.count, state.bytes, state.headed))


def size_of(config: StreamConfig, count: int, frames: int, headed: int) -> int:
    """Return the size of records whose frames have so many bytes; ``headed`` have headers."""
    if config.storage == "memory":
        return frames - (_FRAME - _MEMORY) * count
    return frames - (_FRAME - _FILE) * count + _FILE_HEADERS * headed


def sizes(config: StreamConfig, log: Log, start: int) -> Iterator[tuple[int, int]]:
    """Return (sequence, size) of the live records from ``start`` on; from the index alone."""
    is_data = counts_data(config)
    for segment in log.segments:
        index = segment.index
        stop = index.position(log.committed_seq + 1)
        at = index.next_live(index.position(start), None, stop)
        while at >= 0:
            _, seq, _, subject, payload, headers, meta, *_ = index.entry(at)
            if is_data:
                yield seq, payload + meta
            else:
                name = log.subjects.subject(subject)
                yield seq, _around(config, headers) + len(name) + payload + headers
            at = index.next_live(at + 1, None, stop)
