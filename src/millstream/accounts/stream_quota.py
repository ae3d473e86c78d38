"""What an account may have of JetStream, decided before a stream is made, at whichever door."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.accounts.account import StreamLimits
from millstream.streams.account_quota import Others
from millstream.streams.refusals import AccountLimit

if TYPE_CHECKING:
    from millstream.streams.config.config import StreamConfig

OUR_TIER = "R1"  # a server on its own keeps each record once


def check_tiers(tiers: Mapping[str, StreamLimits], tier: str = OUR_TIER) -> None:
    """Refuse where the account's limits are by replicas, and none is for so many; raises."""
    if tiers and tier not in tiers:
        raise AccountLimit(
            400, 10120, "no JetStream default or applicable tiered limit present", "tiered_limits"
        )


def check_stream(
    limits: StreamLimits, config: "StreamConfig", others: Others, *, is_new: bool
) -> None:
    """Refuse a stream that the account has no room for beside ``others``; raises AccountLimit."""
    if 0 < limits.max_streams <= others.streams:
        text = "maximum number of streams reached"
        raise AccountLimit(400, 10027, text, "max_streams", limits.max_streams)
    if limits.max_bytes_required and config.max_bytes <= 0:
        text = "account requires a stream config to have max bytes set"
        raise AccountLimit(400, 10113, text, "max_bytes_required")
    in_memory = config.storage == "memory"
    largest = limits.memory_max_stream_bytes if in_memory else limits.storage_max_stream_bytes
    if 0 < largest < config.max_bytes:
        text = "stream max bytes exceeds account limit max stream bytes"
        raise AccountLimit(400, 10122, text, "max_stream_bytes", largest)
    if 0 < limits.max_consumers < config.max_consumers:
        text = "maximum consumers limit reached"
        raise AccountLimit(400, 10026, text, "max_consumers", limits.max_consumers)
    _check_reserved(limits, config, others.promised, is_new=is_new)


def _check_reserved(
    limits: StreamLimits, config: "StreamConfig", reserved: int, *, is_new: bool
) -> None:
    in_memory = config.storage == "memory"
    room = limits.max_memory if in_memory else limits.max_storage
    asked = max(config.max_bytes, 1 if is_new else 0)  # without a bound it still needs some
    if 0 <= room < reserved + asked:
        what, limit = ("memory", "max_memory") if in_memory else ("storage", "max_storage")
        text = f"insufficient {what} resources available"
        raise AccountLimit(500, 10028 if in_memory else 10047, text, limit, room)
