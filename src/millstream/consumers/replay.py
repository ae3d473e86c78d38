"""ConsumerReplay: makes consumers again from a snapshot's section and control frames.

ConsumersByName is where they are found, then and later.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from millstream.clock import Clock
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.consumer import Consumer
from millstream.consumers.state import CONSUMER_GONE, CONSUMER_KINDS, CONSUMER_SET, ConsumerEntry
from millstream.store.recovery.recovery import Control
from millstream.streams.name_list import NameList
from millstream.streams.stream import Stream


class ConsumersByName:
    """Finds a consumer, and a page of them, whatever their number."""

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._listed = NameList()  # not the direct ones
        self._internal = 0

    def __len__(self) -> int:
        return len(self._consumers)

    def get(self, name: str) -> Consumer | None:
        """Return a consumer, None when there is none of that name."""
        return self._consumers.get(name)

    def values(self) -> Iterable[Consumer]:
        """Return all of them, in no order."""
        return self._consumers.values()

    def put(self, consumer: Consumer) -> None:
        """Take a consumer in, in the place of one of its name."""
        self.drop(consumer.name)
        self._consumers[consumer.name] = consumer
        self._internal += consumer.config.is_internal
        if not consumer.config.direct:
            self._listed.add(consumer.name)

    def drop(self, name: str) -> None:
        """Let go of a consumer, if there is one of that name."""
        consumer = self._consumers.pop(name, None)
        if consumer is not None:
            self._internal -= consumer.config.is_internal
            if not consumer.config.direct:
                self._listed.remove(name)

    @property
    def counted(self) -> int:
        """Return how many count for the stream's limit."""
        return len(self._consumers) - self._internal

    @property
    def listed(self) -> int:
        """Return how many a list shows."""
        return len(self._listed)

    def page(self, start: int, count: int) -> list[Consumer]:
        """Return some of those that a list shows, by name."""
        return [self._consumers[name] for name in self._listed.page(start, count)]


Found = dict[int, ConsumersByName]  # by stream
Build = Callable[[Stream, str, ConsumerConfig, int], Consumer]


class _SavedConsumer(msgspec.Struct, frozen=True):
    stream: int
    entry: ConsumerEntry


def section(found: Found) -> Iterator[bytes]:
    """Return the items of the snapshot's section: the consumers that outlive a restart.

    They may change while the items are taken; one that is of a later moment has its version.
    """
    return _items([(log_id, list(consumers.values())) for log_id, consumers in found.items()])


def _items(found: list[tuple[int, list[Consumer]]]) -> Iterator[bytes]:
    for log_id, consumers in found:
        for consumer in consumers:
            if consumer.config.is_persisted:
                saved = _SavedConsumer(log_id, consumer.state.whole(consumer.config))
                yield msgspec.json.encode(saved)


class ConsumerReplay:
    """Applies what was written down, in order, to the consumers ``found`` so far."""

    def __init__(
        self, streams: dict[int, Stream], found: Found, build: Build, clock: Clock
    ) -> None:
        self._streams = streams
        self._found = found
        self._build = build
        self._clock = clock

    def apply_section(self, section: bytes) -> None:
        """Make the consumers of a snapshot whose streams are there."""
        for saved in msgspec.json.decode(section, type=list[_SavedConsumer]):
            if saved.stream in self._streams:
                self._set(self._streams[saved.stream], saved.entry)

    def apply(self, control: Control) -> None:
        """Apply a control frame, unless it is about something else."""
        stream = self._streams.get(control.log_id)
        if stream is None or control.kind not in CONSUMER_KINDS:
            return
        entry = msgspec.json.decode(control.body, type=ConsumerEntry)
        consumers = self._found.get(stream.incarnation)
        known = consumers.get(entry.name) if consumers is not None else None
        same = known is not None and known.created_ns == entry.created_ns
        if control.kind == CONSUMER_SET:
            self._set(stream, entry)
        elif known is not None and same and control.kind == CONSUMER_GONE:
            self._found[stream.incarnation].drop(entry.name)
        elif known is not None and same and entry.state is not None:
            self._restore(known, entry)

    def _set(self, stream: Stream, entry: ConsumerEntry) -> None:
        config = msgspec.convert({**(entry.config or {}), "name": entry.name}, ConsumerConfig)
        config = config.stamped(durable=bool(config.durable_name))  # an update may have ended that
        consumers = self._found.setdefault(stream.incarnation, ConsumersByName())
        known = consumers.get(entry.name)
        if known is not None and known.created_ns >= entry.created_ns:
            if known.created_ns == entry.created_ns:
                known.take_on(config)
            return
        made = self._build(stream, entry.name, config, entry.created_ns)
        consumers.put(made)
        if entry.state is not None:
            self._restore(made, entry, first_time=True)

    def _restore(self, consumer: Consumer, entry: ConsumerEntry, first_time: bool = False) -> None:
        assert entry.state is not None
        if first_time or entry.state.version > consumer.ledger.version:
            consumer.ledger.apply(entry.state, self._clock.monotonic(), self._clock.time_ns())
            behind = entry.state.delivered[1] + 1
            if entry.first or consumer.config.deliver_policy == "last_per_subject":
                consumer.cursor.resume(entry.position or behind, entry.first, gap=entry.gap)
            else:
                clear_to = entry.position - 1
                consumer.cursor.resume(behind, [], clear_to=clear_to, gap=entry.gap)
