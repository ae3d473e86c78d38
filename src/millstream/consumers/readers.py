"""Readers: those who keep their position themselves and only show it, as a Spark query does.

A reader looks like a durable consumer from which nobody pulls: its name, how far it is and how much
is left are where people look for consumers. Its hold on the stream makes limits wait, for a time.
"""

import msgspec

from millstream.consumers.config import ConsumerConfig
from millstream.consumers.consumer import Consumer
from millstream.consumers.registry import Registry
from millstream.errors import BadRequest, ConsumerNotFound
from millstream.streams.retention.holds import LONGEST
from millstream.streams.stream import Stream

MARK = "millstream.reader"
LONGEST_NAME = 64


class HoldRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``holder`` has taken everything up to ``seq``; limits wait for the rest for ``seconds``.

    ``reader`` tells readers apart that go by one name.
    """

    holder: str
    seq: int
    seconds: float = 0.0
    reader: str = ""


class Readers:
    """Shows readers beside the consumers, and lets them hold what they have not read."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def hold(self, stream: Stream, asked: HoldRequest) -> None:
        """Move a reader to its position; it is made when it is not there yet.

        Of several that go by one name the consumer shows the one that is furthest behind.
        """
        if len(asked.reader) > LONGEST_NAME:
            raise BadRequest(f"the name of a reader has at most {LONGEST_NAME} characters")
        if asked.seq < 0 or not 0 <= asked.seconds <= LONGEST:
            raise BadRequest(f"seq starts at 0 and seconds end at {LONGEST:g}")
        consumer = None
        if stream.config.retention == "limits":  # elsewhere a consumer decides what may go
            consumer = await self._consumer(stream, asked.holder)
        last = stream.removal.limits.hold(asked.holder, asked.seq, asked.seconds, asked.reader)
        if consumer is not None:
            consumer.reset(last + 1)

    async def _consumer(self, stream: Stream, name: str) -> Consumer:
        try:
            consumer = self._registry.get(stream, name)
        except ConsumerNotFound:
            request = {
                "durable_name": name,
                "name": name,
                "deliver_policy": "all",
                "ack_policy": "none",
                "metadata": {MARK: "spark"},
            }
            config = ConsumerConfig.from_request(request, stream.config)
            consumer, _ = await self._registry.create(stream, config)
        if consumer.config.metadata.get(MARK) is None:
            raise BadRequest(f"{name} is a consumer that others pull from: choose another name")
        return consumer
