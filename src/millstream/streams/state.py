"""StreamState: one consistent look at a stream."""

from collections.abc import Mapping

import msgspec

from millstream.store.log.log import Gap


class StreamState(msgspec.Struct, frozen=True):
    """What a stream holds; sequences and times are those of committed records."""

    messages: int
    bytes: int
    first_seq: int  # earliest live sequence, last_seq + 1 when empty
    last_seq: int
    synced_seq: int
    first_ts_ns: int
    last_ts_ns: int
    num_deleted: int  # holes between first and last
    evict_floor: int  # highest sequence lost involuntarily, 0 = none
    gaps: tuple[Gap, ...]
    # Why records went from the old end: the highest sequence that each reason took.
    floors: Mapping[str, int] = msgspec.field(default_factory=dict)
    capped: int | None = None  # what max_bytes is compared with, where that is not ``bytes``
