"""A topic's state with its limits applied as of now.

The log removes records once the removal is logged, and timers run when the loop comes round; a
reader must not see the difference. What the limits already doom is treated as gone.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from millstream.streams.config.size import sizes
from millstream.streams.retention import rules as retention
from millstream.streams.state import StreamState

if TYPE_CHECKING:
    from millstream.streams.stream import Stream


def current_state(stream: "Stream", now_ns: int) -> StreamState:
    """Return the stream's state without what its caps and its time to live have doomed."""
    state, config = stream.state(), stream.config
    if config.max_age <= 0 and config.max_msgs <= 0 and config.max_bytes <= 0:
        return state  # nothing can be doomed
    doomed = {"ttl": _expired_floor(stream, state, now_ns), "cap": _capped_floor(stream, state)}
    floor = max(doomed.values())
    if floor <= state.first_seq:
        return state
    left = stream.contents.count_from(floor)
    return replace(
        state,
        first_seq=floor,
        messages=left,
        evict_floor=max(state.evict_floor, floor - 1),
        floors=_raised(state, doomed),
        num_deleted=max(0, state.last_seq - floor + 1 - left),
    )


def _raised(state: StreamState, doomed: dict[str, int]) -> dict[str, int]:
    """Return the floors of each reason as they will be once the removals have happened."""
    taken = {reason: kept - 1 for reason, kept in doomed.items() if kept > state.first_seq}
    return {**state.floors, **taken}


def _expired_floor(stream: "Stream", state: StreamState, now_ns: int) -> int:
    until = retention.expired_until(stream.config, now_ns)
    # Only a record that is older than its time to live is gone, not one that is just as old.
    return stream.log.seek_time(until) if until > 0 and state.messages else 0


def _capped_floor(stream: "Stream", state: StreamState) -> int:
    over = retention.excess(stream.config, state)
    if not over or stream.config.discard != "old":
        return 0
    if not over.bytes and not state.num_deleted:
        return state.first_seq + over.messages
    at, messages, size = state.first_seq, over.messages, over.bytes
    for seq, taken in sizes(stream.config, stream.log, at):
        if messages <= 0 and size <= 0:
            break
        at = seq + 1
        messages -= 1
        size -= taken
    return at
