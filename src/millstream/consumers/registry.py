"""Registry: all consumers of all streams, persisted by control frames."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from millstream.clock import Clock
from millstream.consumers import replay, work_queue
from millstream.consumers.config import ConsumerConfig, ConsumerRefused
from millstream.consumers.consumer import Consumer
from millstream.consumers.letters.letter_box import Letters
from millstream.consumers.outlet import Outlet
from millstream.consumers.removal_news import RemovalNews
from millstream.consumers.replay import ConsumerReplay, ConsumersByName
from millstream.consumers.state import KeptConsumer
from millstream.delivery.timers import Timers
from millstream.eager_task import next_turn
from millstream.errors import ConsumerNotFound
from millstream.store.recovery.recovery import Control
from millstream.streams.catalog import Catalog, CatalogStore
from millstream.streams.config.config import StreamConfig
from millstream.streams.stream import Stream
from millstream.subjects.pattern_set import covers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

SECTION = "consumers"
_NO_CONSUMERS = ConsumersByName()


class _Arrivals:
    """New consumers that are being written down: they count for their stream's limit already."""

    def __init__(self, default_max: int) -> None:
        self._default_max = default_max  # of a stream that names no limit; below 1 means none
        self._count: Counter[int] = Counter()  # by stream

    @contextmanager
    def one(self, stream: Stream) -> Iterator[None]:
        """Count one consumer more for as long as it is being written down."""
        self._count[stream.incarnation] += 1
        try:
            yield
        finally:
            self._count[stream.incarnation] -= 1

    def check_limit(self, stream: Stream, known: ConsumersByName) -> None:
        """Refuse one consumer too many."""
        limit, arriving = stream.config.max_consumers, self._count[stream.incarnation]
        limit = limit if limit > 0 else self._default_max
        if 0 < limit <= known.counted + arriving:
            raise ConsumerRefused(10026, "maximum consumers limit reached")


class Registry:
    """Creates, finds, persists and deletes consumers; the home of each."""

    def __init__(
        self,
        catalog: Catalog,
        store: CatalogStore,
        clock: Clock,
        timers: Timers,
        hub: "Hub",
        interests: "Mapping[str, Interest]",
        is_awaited: Callable[[str, bytes], bool] | None = None,
        default_max: int = -1,
        letters: Letters | None = None,
    ) -> None:
        """Keep the consumers of a catalog's streams.

        ``is_awaited`` says whether another account listens at a reply subject of an account.
        ``letters`` keeps what consumers give up, where their metadata names a place for it.
        ``default_max`` bounds the consumers of a stream that names no bound; below 1 means none.
        """
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._timers = timers
        self._hub = hub
        self._interests = interests
        self._consumers: dict[int, ConsumersByName] = {}
        self._changing: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._arrivals = _Arrivals(default_max)
        self._is_awaited = is_awaited
        self._letters = letters
        catalog.listen(self._stream_changed)
        catalog.above_limits.append(self._above_limits)

    # -- names -------------------------------------------------------------------------------

    def get(self, stream: Stream, name: str) -> Consumer:
        """Return a consumer; raises ConsumerNotFound."""
        consumer = self.by_name(stream).get(name)
        if consumer is None:
            raise ConsumerNotFound()
        return consumer

    def by_name(self, stream: Stream) -> ConsumersByName:
        """Return where a stream's consumers are found; to look, and not to keep."""
        return self._consumers.get(stream.incarnation, _NO_CONSUMERS)

    def of(self, stream: Stream) -> list[Consumer]:
        """Return a stream's consumers by name."""
        return sorted(self.by_name(stream).values(), key=lambda consumer: consumer.name)

    def count(self, stream: Stream) -> int:
        """Return how many consumers a stream has."""
        return len(self.by_name(stream))

    def listed(self, stream: Stream) -> list[Consumer]:
        """Return those that a stream's lists and counts show, by name: not the direct ones."""
        found = self.by_name(stream)
        return found.page(0, found.listed)

    # -- changes -----------------------------------------------------------------------------

    async def create(
        self, stream: Stream, config: ConsumerConfig, action: str = ""
    ) -> tuple[Consumer, bool]:
        """Create or update by name; ``action`` (create, update, "") says which is meant.

        Returns the consumer and whether it is new.
        """
        # Consumers of a work queue are compared with each other: one at a time.
        shared = stream.config.retention == "workqueue"
        key = (stream.incarnation, "" if shared else config.name)
        if config.mem_storage and not shared and key not in self._changing:
            known = self.by_name(stream).get(config.name)
            if known is None:  # nothing is written down, so that nobody can come in between
                return await self._create(stream, config, action), True
        async with self._alone(*key):
            known = self.by_name(stream).get(config.name)
            if known is None:
                return await self._create(stream, config, action), True
            if action == "create" and not known.config.same_as(config):
                raise ConsumerRefused(10148, "consumer already exists")
            kept = msgspec.structs.replace(config, pause_until=known.config.pause_until)
            return await self._update(known, kept), False

    def _alone(self, incarnation: int, name: str) -> asyncio.Lock:
        """Return what keeps changes of one consumer apart; those of others share a commit."""
        return self._changing.setdefault((incarnation, name), asyncio.Lock())

    async def pause(self, consumer: Consumer, until: str) -> None:
        """Stop deliveries until a time, or let them go on when it is empty."""
        async with self._alone(consumer.stream.incarnation, consumer.name):
            config = msgspec.structs.replace(consumer.config, pause_until=until)
            await self._change(consumer, config)

    async def _create(self, stream: Stream, config: ConsumerConfig, action: str) -> Consumer:
        if action == "update":
            raise ConsumerRefused(10149, "consumer does not exist")
        self._arrivals.check_limit(stream, self.by_name(stream))
        if stream.config.retention == "workqueue":
            others = self.of(stream)
            work_queue.check_new(config, (other.config for other in others))
            if not config.is_internal:
                await _check_shares(config, others)
        name = config.name or _fresh_name()
        config = config.stamped(durable=bool(config.durable_name))
        consumer = self._build(stream, name, config, self._clock.time_ns())
        consumer.place()
        consumer.claim()  # what is published while this is written down is kept for it already
        if consumer.config.is_persisted:
            try:
                with self._arrivals.one(stream):
                    await consumer.state.create(consumer.config)
            except BaseException:
                stream.removal.unclaim(name)
                raise
        self._consumers.setdefault(stream.incarnation, ConsumersByName()).put(consumer)
        consumer.open()
        return consumer

    async def _update(self, consumer: Consumer, config: ConsumerConfig) -> Consumer:
        if consumer.config.same_as(config):
            return consumer
        if consumer.stream.config.retention == "workqueue":
            others = [other for other in self.of(consumer.stream) if other is not consumer]
            await _check_shares(config, others)
        consumer.config.check_update(config, is_heard=consumer.desk.is_heard)
        if config.inactive_threshold != consumer.config.inactive_threshold:
            config = config.stamped(durable=bool(consumer.config.durable_name))
        await self._change(consumer, config)
        return consumer

    async def _change(self, consumer: Consumer, config: ConsumerConfig) -> None:
        if consumer.config.is_persisted:
            await consumer.state.change(config)
        consumer.reconfigure(config)

    async def delete(self, stream: Stream, name: str) -> None:
        """Delete a consumer; whoever waits for it is told."""
        async with self._alone(stream.incarnation, name):
            consumer = self.get(stream, name)
            if consumer.config.is_persisted:
                await consumer.state.delete()
            self._forget(consumer)

    def _forget(self, consumer: Consumer) -> None:
        self.by_name(consumer.stream).drop(consumer.name)
        consumer.close()
        consumer.stream.removal.unclaim(consumer.name)

    def _build(
        self, stream: Stream, name: str, config: ConsumerConfig, created_ns: int
    ) -> Consumer:
        if not stream.removal.recent.has_listener:
            stream.removal.recent.listen(RemovalNews(self, stream, self._timers))
        interest = self._interests[stream.account]
        awaited = partial(self._is_awaited, stream.account) if self._is_awaited else None
        return Consumer(
            name,
            config,
            stream,
            self,
            created_ns=created_ns,
            clock=self._clock,
            timers=self._timers,
            store=self._store,
            outlet=Outlet(self._hub, interest, self._clock, awaited),
            interest=interest,
            letters=self._letters,
        )

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        if not alive:
            for consumer in list(self._consumers.pop(stream.incarnation, _NO_CONSUMERS).values()):
                consumer.advisories.deleted()
                consumer.close()
        else:
            _claim_all(stream, self.of(stream))

    def with_deliveries(self, stream: Stream) -> list[Consumer]:
        """Return the consumers that await answers, or count what they gave up."""
        found = self.by_name(stream).values()
        return [c for c in found if len(c.ledger.pending) or c.ledger.redelivered]

    def _above_limits(self, stream: Stream, config: StreamConfig) -> list[str]:
        """Return the consumers that limits of the stream's configuration would forbid."""
        longest = config.consumer_limits.get("inactive_threshold", 0)
        most = config.consumer_limits.get("max_ack_pending", 0)
        return [
            consumer.name
            for consumer in self.of(stream)
            if 0 < longest < consumer.config.inactive_threshold
            or 0 < most < consumer.config.max_ack_pending
        ]

    def purged(self, stream: Stream, subject: str) -> None:
        """Let a stream's consumers know that records of ``subject``, or all, were purged."""
        alone = stream.removal.recent.take_purged_alone()
        state = stream.state()
        left = next(stream.index.seqs(stream.index.select([subject])), 0) if subject else 0
        start = left if subject else state.first_seq
        for consumer in self.of(stream):
            filters = consumer.config.filters
            if alone and (not filters or _reached(subject or ">", filters)):
                consumer.answers.tell_dropped(alone)
            if not subject or (filters and _all_within(filters, subject)):
                consumer.on_purge(start or state.last_seq + 1, wider=False)
            elif not filters or _reached(subject, filters):
                consumer.on_purge(state.first_seq, wider=True)
            consumer.forget(state.first_seq, alone)

    # -- archives ----------------------------------------------------------------------------

    async def bring_back(self, stream: Stream, kept: KeptConsumer) -> None:
        """Create a consumer as an archive holds it; raises when it could not be one."""
        known = ConsumerConfig.__struct_fields__
        wire = {key: value for key, value in kept.config.items() if key in known}
        config = ConsumerConfig.from_request({**wire, "name": kept.name}, stream.config)
        config = config.stamped(durable=bool(config.durable_name))
        consumer = self._build(stream, kept.name, config, kept.created_ns or self._clock.time_ns())
        consumer.place()
        if kept.state is not None:
            consumer.ledger.apply(kept.state, self._clock.monotonic(), self._clock.time_ns())
            position = kept.position or kept.state.delivered[1] + 1
            consumer.cursor.resume(position, kept.first, gap=kept.gap)
        consumer.claim()
        await consumer.state.create(consumer.config)
        self._consumers.setdefault(stream.incarnation, ConsumersByName()).put(consumer)
        consumer.open()

    # -- what consumers ask ------------------------------------------------------------------

    def abandon(self, consumer: Consumer) -> None:
        """Delete a consumer that nobody has used for its inactive threshold."""
        consumer.advisories.deleted()
        self._forget(consumer)
        if consumer.config.is_persisted:
            consumer.state.delete_soon()

    # -- persistence -------------------------------------------------------------------------

    def replay(self, section: bytes | None, controls: Iterable[Control]) -> None:
        """Rebuild from the snapshot's section and the control frames after it, in order."""
        streams = {s.incarnation: s for s in self._catalog.everything()}
        found = ConsumerReplay(streams, self._consumers, self._build, self._clock)
        if section:
            found.apply_section(section)
        for control in controls:
            found.apply(control)

    def open(self) -> None:
        """Let every replayed consumer serve."""
        for stream in self._catalog.everything():
            _claim_all(stream, self.of(stream))
        for consumers in self._consumers.values():
            for consumer in consumers.values():
                consumer.open()

    def section(self) -> Iterator[bytes]:
        """Return the items of the snapshot's section, to be taken some at a time."""
        return replay.section(self._consumers)

    def close(self) -> None:
        """Write down what changed and send everybody away."""
        for consumers in self._consumers.values():
            for consumer in consumers.values():
                consumer.state.write_changes()
                consumer.close("Server Shutdown")


async def _check_shares(config: ConsumerConfig, others: Iterable[Consumer]) -> None:
    """Compare with the other consumers of a work queue, in turns where they have many filters.

    Nobody makes or changes another meanwhile: see ``create``.
    """
    for other in others:
        work_queue.check_share(config, other.config)
        await next_turn(32 * (len(config.filters) + len(other.config.filters)))


def _claim_all(stream: Stream, consumers: Iterable[Consumer]) -> None:
    """Let every consumer of a stream say what it needs before anything is let go."""
    for consumer in consumers:
        consumer.claim()
    if stream.config.retention == "interest":  # the others may sleep
        stream.removal.drop_unclaimed()


def _reached(subject: str, filters: tuple[str, ...]) -> bool:
    """Whether all that was purged could go to a consumer with these filters."""
    return any(covers(one, subject) for one in filters)


def _all_within(filters: tuple[str, ...], subject: str) -> bool:
    """Whether all that a consumer with these filters gets was purged."""
    return all(covers(subject, one) for one in filters)


def _fresh_name() -> str:
    return secrets.token_urlsafe(6).replace("-", "a").replace("_", "b")
