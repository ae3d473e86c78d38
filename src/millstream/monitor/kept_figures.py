"""KeptFigures: one look at what is kept, taken a few streams at a time."""

import asyncio
from typing import TYPE_CHECKING, Any

from millstream.monitor.facts import JetStreamAccount, JetStreamFacts
from millstream.streams.state import StreamState

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.streams.stream import Stream

MOST_STREAMS = 1000  # that get a label of their own, however many there are
MOST_CONSUMERS = 1000
TURN = 200  # looked at before everybody else has had a turn


class StreamFigures:
    """One stream at one moment."""

    def __init__(self, account: JetStreamAccount, stream: "Stream", state: StreamState) -> None:
        self.account = account
        self.stream = stream
        self.state = state


class ConsumerFigures:
    """One consumer at one moment; ``place`` is its stream's among those that are shown."""

    def __init__(self, consumer: "Consumer", info: dict[str, Any], place: int) -> None:
        self.consumer = consumer
        self.info = info
        self.place = place


class KeptFigures:
    """Totals of everything, and figures of as many streams and consumers as get labels."""

    def __init__(self) -> None:
        self.streams: list[StreamFigures] = []
        self.consumers: list[ConsumerFigures] = []
        self.accounts: list[tuple[JetStreamAccount, dict[str, int]]] = []
        self.total_streams = 0
        self.total_consumers = 0
        self.messages = 0
        self.bytes = 0

    @property
    def is_cut(self) -> bool:
        """Say whether something has no label of its own here."""
        return self.total_streams > len(self.streams) or self.total_consumers > len(self.consumers)


async def gather(kept: JetStreamFacts, now_ns: int) -> KeptFigures:
    """Look at every stream of every account."""
    found = KeptFigures()
    for account in kept.accounts():
        sizes = {"memory": 0, "file": 0}
        for stream in list(account.streams()):
            state = stream.state()
            sizes[stream.config.storage] += state.bytes
            found.total_streams += 1
            found.total_consumers += account.consumers.count(stream)
            found.messages += state.messages
            found.bytes += state.bytes
            if len(found.streams) < MOST_STREAMS:
                found.streams.append(StreamFigures(account, stream, state))
            if found.total_streams % TURN == 0:
                await asyncio.sleep(0)
        found.accounts.append((account, sizes))
    await _look_at_consumers(kept, found, now_ns)
    return found


async def _look_at_consumers(kept: JetStreamFacts, found: KeptFigures, now_ns: int) -> None:
    for place, each in enumerate(found.streams):
        for consumer in each.account.consumers.of(each.stream):
            if len(found.consumers) == MOST_CONSUMERS:
                return
            info = kept.shapes.consumer_info(consumer, now_ns)
            found.consumers.append(ConsumerFigures(consumer, info, place))
            if len(found.consumers) % TURN == 0:
                await asyncio.sleep(0)
