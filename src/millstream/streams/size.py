"""Size: what a record counts in ``bytes`` and ``max_bytes``, as the reference counts it."""

from millstream.store.log import LogState
from millstream.streams.config import StreamConfig

_FRAME = 61  # what a frame is around its fields
_FILE, _MEMORY = 30, 16  # what the reference's file and memory stores add to a record


def record_size(config: StreamConfig, subject: bytes, headers: bytes, payload: bytes) -> int:
    """Return the size of one record."""
    overhead = _MEMORY if config.storage == "memory" else _FILE
    return overhead + len(subject) + len(payload) + len(headers)


def stored_size(config: StreamConfig, state: LogState) -> int:
    """Return the size of all records of a log, which its frames know all but exactly.

    The four bytes that the reference's file store adds for a header block are not counted here.
    """
    overhead = _MEMORY if config.storage == "memory" else _FILE
    return max(0, state.bytes - (_FRAME - overhead) * state.count)
