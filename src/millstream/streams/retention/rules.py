"""What a stream drops to stay within its limits: pure rules, carried out by the stream."""

import msgspec

from millstream.streams.config.config import StreamConfig
from millstream.streams.state import StreamState


class Excess(msgspec.Struct, frozen=True):
    """How much must go from the old end: at least so many records and so many bytes."""

    messages: int
    bytes: int

    def __bool__(self) -> bool:
        return self.messages > 0 or self.bytes > 0


def excess(config: StreamConfig, state: StreamState) -> Excess:
    """Return what is above the stream's caps; nothing for discard new, which refuses instead."""
    if config.discard == "new":
        return Excess(0, 0)
    messages = state.messages - config.max_msgs if config.max_msgs > 0 else 0
    held = state.bytes if state.capped is None else state.capped
    size = held - config.max_bytes if config.max_bytes > 0 else 0
    return Excess(max(messages, 0), max(size, 0))


def expired_until(config: StreamConfig, now_ns: int) -> int:
    """Return the time at or before which records have outlived max_age, 0 when nothing ages."""
    return now_ns - config.max_age if config.max_age > 0 else 0


def next_expiry(config: StreamConfig, state: StreamState) -> int:
    """Return when the oldest record outlives max_age, 0 when nothing waits for that."""
    if config.max_age <= 0 or state.messages == 0:
        return 0
    return state.first_ts_ns + config.max_age


def refusal(
    config: StreamConfig, messages: int, size: int, new_messages: int, new_size: int
) -> str | None:
    """Return why discard new turns a write away, or None when it fits."""
    if config.discard != "new":
        return None
    if 0 < config.max_msgs < messages + new_messages:
        return "maximum messages exceeded"
    if 0 < config.max_bytes < size + new_size:
        return "maximum bytes exceeded"
    return None
