"""What a work-queue stream demands of its consumers: each message goes to exactly one of them."""

from collections.abc import Iterable

from millstream.consumers.config import ConsumerConfig, ConsumerRefused
from millstream.subjects.pattern_set import any_overlap


def check_new(config: ConsumerConfig, others: Iterable[ConsumerConfig]) -> None:
    """Refuse a new consumer that could not be one of several; what each takes is checked apart."""
    if config.is_internal:
        return
    if config.ack_policy not in ("explicit", "flow_control"):
        raise ConsumerRefused(10098, "workqueue stream requires explicit ack")
    if config.deliver_policy != "all":
        raise ConsumerRefused(10101, "consumer must be deliver all on workqueue stream")
    others = [other for other in others if not other.is_internal]
    if others and not config.filters:
        raise ConsumerRefused(
            10099, "multiple non-filtered consumers not allowed on workqueue stream"
        )


def check_share(config: ConsumerConfig, other: ConsumerConfig) -> None:
    """Refuse filters that overlap with those of another consumer."""
    if not other.is_internal and any_overlap(config.filters or (">",), other.filters or (">",)):
        raise ConsumerRefused(10100, "filtered consumer not unique on workqueue stream")
