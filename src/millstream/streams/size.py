"""Size: what a record counts in ``bytes`` and ``max_bytes``.

That is what the reference counts; of a topic that takes nothing from NATS, ``max_bytes`` counts
data and meta, as HTTP has it.
"""

from millstream.store.log import LogState
from millstream.streams.config import StreamConfig
from millstream.streams.data_size import counts_data

_FRAME = 61  # what a frame is around its fields
_FILE, _MEMORY = 30, 16  # what the reference's file and memory stores add to a record


def record_size(
    config: StreamConfig, subject: bytes, headers: bytes, payload: bytes, meta: bytes = b""
) -> int:
    """Return the size of one record, as ``max_bytes`` counts it."""
    if counts_data(config):
        return len(payload) + len(meta)
    overhead = _MEMORY if config.storage == "memory" else _FILE
    return overhead + len(subject) + len(payload) + len(headers)


def stored_size(config: StreamConfig, state: LogState) -> int:
    """Return the size of all records of a log, which its frames know all but exactly.

    The four bytes that the reference's file store adds for a header block are not counted here.
    """
    overhead = _MEMORY if config.storage == "memory" else _FILE
    return max(0, state.bytes - (_FRAME - overhead) * state.count)
