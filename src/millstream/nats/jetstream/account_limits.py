"""What an account may use of JetStream, checked before streams and consumers are made."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts import stream_quota
from millstream.accounts.account import StreamLimits
from millstream.nats.jetstream.errors import ApiError
from millstream.streams.account_quota import Others

if TYPE_CHECKING:
    from millstream.consumers.config import ConsumerConfig
    from millstream.nats.jetstream.endpoint import JetStream
    from millstream.streams.config.config import StreamConfig

_DEFAULT_ACK_PENDING = 1000


def shown(limits: StreamLimits) -> dict[str, Any]:
    """Return the limits as account info tells them."""
    told: dict[str, Any] = msgspec.to_builtins(limits)
    return told


def check_stream(js: "JetStream", config: "StreamConfig", *, is_new: bool = True) -> None:
    """Refuse a stream that the account has no room for; raises AccountLimit."""
    table = js.catalog.table
    is_there = table.find(config.name, js.account) is not None
    others = Others(table.count(js.account) - is_there, table.promised.beside(js.account, config))
    stream_quota.check_tiers(js.tiers())
    stream_quota.check_stream(js.limits(), config, others, is_new=is_new and not is_there)


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
    stream_quota.check_tiers(js.tiers())
    if 0 < limits.max_ack_pending < config.max_ack_pending:
        raise ApiError(
            400,
            10121,
            f"consumer max ack pending exceeds system limit of {limits.max_ack_pending}",
        )
    if limits.max_consumers <= 0:
        return
    found = js.catalog.get(stream, js.account)
    is_there = js.consumers.by_name(found).get(config.name) is not None
    if not is_there and js.consumers.count(found) >= limits.max_consumers:
        raise ApiError(400, 10026, "maximum consumers limit reached")
