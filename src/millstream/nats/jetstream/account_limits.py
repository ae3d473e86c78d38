"""What an account may use of JetStream, checked before streams and consumers are made."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.account import StreamLimits
from millstream.nats.jetstream.errors import ApiError

if TYPE_CHECKING:
    from millstream.consumers.config import ConsumerConfig
    from millstream.nats.jetstream.endpoint import JetStream
    from millstream.streams.config.config import StreamConfig

_DEFAULT_ACK_PENDING = 1000


def shown(limits: StreamLimits) -> dict[str, Any]:
    """Return the limits as account info tells them."""
    told: dict[str, Any] = msgspec.to_builtins(limits)
    return told


def check_stream(js: "JetStream", config: "StreamConfig") -> None:
    """Refuse a stream that the account has no room for; raises ApiError."""
    limits = js.limits()
    others = [stream.config for stream in js.streams() if stream.name != config.name]
    if 0 <= limits.max_streams <= len(others):
        raise ApiError(400, 10027, "maximum number of streams reached")
    in_memory = config.storage == "memory"
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise ApiError(400, 10113, "account requires a stream config to have max bytes set")
    largest = limits.memory_max_stream_bytes if in_memory else limits.storage_max_stream_bytes
    if 0 < largest < config.max_bytes:
        raise ApiError(400, 10122, "stream max bytes exceeds account limit max stream bytes")
    room = limits.max_memory if in_memory else limits.max_storage
    reserved = sum(max(c.max_bytes, 0) for c in others if c.storage == config.storage)
    if 0 <= room < reserved + max(config.max_bytes, 0):
        what = "memory" if in_memory else "storage"
        code = 10028 if in_memory else 10047
        raise ApiError(500, code, f"insufficient {what} resources available")


def room(js: "JetStream", storage: str) -> int | None:
    """Return how many bytes more the account may store so, None for any number."""
    limits = js.limits()
    most = limits.max_memory if storage == "memory" else limits.max_storage
    if most < 0:
        return None
    used = (stream.state().bytes for stream in js.streams() if stream.config.storage == storage)
    return most - sum(used)


def with_ack_pending(js: "JetStream", config: dict[str, Any]) -> dict[str, Any]:
    """Return a consumer's request with the account's own default for what may be pending."""
    most = js.limits().max_ack_pending
    if config.get("max_ack_pending") or not 0 < most < _DEFAULT_ACK_PENDING:
        return config
    return (
        config
        if config.get("ack_policy", "none") == "none"
        else {
            **config,
            "max_ack_pending": most,
        }
    )


def check_consumer(js: "JetStream", stream: str, config: "ConsumerConfig") -> None:
    """Refuse a consumer that the account has no room for; raises ApiError."""
    limits = js.limits()
    if 0 < limits.max_ack_pending < config.max_ack_pending:
        raise ApiError(
            400,
            10121,
            f"consumer max ack pending exceeds system limit of {limits.max_ack_pending}",
        )
    if limits.max_consumers < 0:
        return
    there = [c.name for s in js.streams() for c in js.consumers.of(s) if s.name == stream]
    held = sum(js.consumers.count(s) for s in js.streams())
    if config.name not in there and held >= limits.max_consumers:
        raise ApiError(400, 10026, "maximum consumers limit reached")
