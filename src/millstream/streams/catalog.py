"""Catalog: names to streams, persisted by control frames.

A stream's log id is its incarnation: given out once and never again, so that a name which was
deleted and created anew replays to the right log, whatever the order of the records around it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.eager_task import next_turn
from millstream.errors import InvalidStreamConfig, MillstreamError, StreamExists
from millstream.store.log.log import Committed, Durability, Log
from millstream.store.recovery.recovery import Control
from millstream.streams.account_quota import NoQuotas, Others, Quotas
from millstream.streams.config import source as sources
from millstream.streams.config.config import StreamConfig, shared_words
from millstream.streams.config.source import Source
from millstream.streams.entries import (
    STREAM_GONE,
    STREAM_SET,
    StreamEntries,
    StreamEntry,
    decode_section,
)
from millstream.streams.ephemeral_heads import EphemeralHeads
from millstream.streams.retention import rules as retention
from millstream.streams.sleepers import Sleepers
from millstream.streams.sourcing.feeds import Feeds
from millstream.streams.sourcing.origins import Requests, Whereabouts
from millstream.streams.stream import Stream
from millstream.streams.stream_maker import StreamMaker
from millstream.streams.stream_table import RESTORING, StreamsByName, StreamTable
from millstream.streams.writing.batch_limits import BatchLimits

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

SECTION = "streams"


class CatalogStore(Protocol):
    """What the catalog needs of the store."""

    def create_log(self, log_id: int, durability: Durability, compressed: bool = False) -> Log:
        """Return the log of this id, made if there is none; an existing one takes the class."""
        ...

    def log(self, log_id: int) -> Log | None:
        """Return a log that exists."""
        ...

    def drop_log(self, log_id: int) -> None:
        """Delete a log and its records."""
        ...

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


# Which stream of which account a source of another account means: account, API prefix,
# delivery prefix, stream → account, stream.
Reach = Callable[[str, str, str, str], tuple[str, str] | None]


def _nowhere(_account: str, _api: str, _deliver: str, _stream: str) -> None:
    """Find no way to another account."""


class LimitsViolated(MillstreamError):
    """Consumers that exist are above the limits that the stream was to set."""

    status = 500
    err_code = 10069
    http_status = 409
    code = "conflict"

    def __init__(self, consumers: Sequence[str]) -> None:
        super().__init__(f"change to limits violates consumers: {', '.join(consumers)}")


class Catalog:
    """All streams of all accounts. Changes are on disk before they are answered."""

    def __init__(
        self,
        store: CatalogStore,
        clock: Clock,
        timers: Timers,
        hub: "Hub | None" = None,
        interests: "Mapping[str, Interest] | None" = None,
        default_durability: Durability = Durability.FSYNC,
        batch_limits: BatchLimits | None = None,
        quotas: Quotas | None = None,
        streams: StreamsByName | None = None,
        reach: Reach = _nowhere,
        domain: str = "",
    ) -> None:
        """``streams`` is the table to keep them in, where others look streams up as well."""
        self._quotas = quotas or NoQuotas()
        self._store = store
        self._clock = clock
        self.table = StreamTable({} if streams is None else streams)
        self._entries = StreamEntries(store)
        self._heads = EphemeralHeads(store, clock)
        spaces = interests if interests is not None else {}
        self._maker = StreamMaker(
            store, clock, timers, hub, spaces, self.table, self._quotas, default_durability,
            batch_limits or BatchLimits(), self._tell_abandoned, self._heads, domain,
        )  # fmt: skip
        requests = Requests(hub, spaces, timers) if hub is not None else None
        self._feeds = Feeds(store, self._whereabouts, clock, timers, requests, domain)
        self._reach = reach
        self._sleepers = Sleepers(self.table.by_id)
        self._changing = asyncio.Lock()  # a create must not overlap the check of another
        self._listeners: list[Callable[[Stream, bool], None]] = []
        self._abandoned: list[Callable[[Stream, bytes, str], None]] = []
        # Whoever keeps consumers names those that a configuration would forbid.
        self.above_limits: list[Callable[[Stream, StreamConfig], list[str]]] = []

    # -- names -------------------------------------------------------------------------------

    def get(self, name: str, account: str = "$G") -> Stream:
        """Return a stream; raises StreamNotFound with the closest name there is."""
        return self.table.get(name, account)

    def find(self, name: str, account: str = "$G") -> Stream | None:
        """Return a stream, None when there is none of that name."""
        return self.table.find(name, account)

    def streams(self, account: str = "$G") -> list[Stream]:
        """Return the account's streams by name."""
        return self.table.of(account)

    def everything(self) -> list[Stream]:
        """Return the streams of all accounts."""
        return self.table.everything()

    def listen(self, changed: Callable[[Stream, bool], None]) -> None:
        """Call ``changed(stream, alive)`` after a stream was created, updated or deleted."""
        self._listeners.append(changed)

    def listen_abandoned(self, on_abandoned: Callable[[Stream, bytes, str], None]) -> None:
        """Call ``on_abandoned`` with each atomic batch that is given up: its id, and why."""
        self._abandoned.append(on_abandoned)

    def _tell_abandoned(self, stream: Stream, batch_id: bytes, reason: str) -> None:
        for on_abandoned in self._abandoned:
            on_abandoned(stream, batch_id, reason)

    def _tell(self, stream: Stream, alive: bool) -> None:
        for changed in self._listeners:
            changed(stream, alive)

    # -- changes -----------------------------------------------------------------------------

    async def create(self, config: StreamConfig, account: str = "$G") -> tuple[Stream, bool]:
        """Create a stream; an identical one that exists is returned with False."""
        async with self._changing:
            config = self._following_origin(config, account)
            self._check_cycle(config, account)
            known = self.table.find(config.name, account)
            if known is not None:
                if not known.config.same_as(config):
                    raise StreamExists(config.name)
                return known, False
            if config.sealed:
                raise InvalidStreamConfig("stream configuration for create can not be sealed")
            self._check_quota(config, account, is_new=True)
            self.table.check_overlap(config, account)
            entry = self._entries.make(config, account, self._clock.time_ns())
            await next_turn(sum(map(len, config.subjects)))
            await self._entries.write(STREAM_SET, entry)
            stream = self._open(entry, config)
            stream.capture()
            self._feeds.connect(stream)
            self._feeds.refresh()
            self._tell(stream, True)
            return stream, True

    async def update(self, config: StreamConfig, account: str = "$G") -> Stream:
        """Change a stream; lowered limits act before this returns."""
        async with self._changing:
            stream = self.get(config.name, account)
            config = self._following_origin(config, account)
            stream.config.check_update(config)
            config = config.as_sealed()
            self._check_quota(config, account, is_new=False)
            self._check_consumer_limits(stream, config)
            self.table.check_overlap(config, account)
            self._check_cycle(config, account)
            self._maker.check_durability(stream, config)
            await next_turn(sum(map(len, config.subjects)))
            # Ahead of limits by which the next start would keep them.
            stream.removal.departures.log_gathered()
            entry = StreamEntry.of(stream, config)
            await self._entries.write(STREAM_SET, entry)
            self.table.reserve(stream, config)
            await next_turn(sum(map(len, config.subjects)))
            self._maker.log_of(stream.incarnation, config)
            before = stream.config
            resource = (config.sources, config.mirror) != (before.sources, before.mirror)
            stream.reconfigure(config)
            if retention.excess(config, stream.state()):
                # Removals are logged in order: what is above the new limits is gone behind this.
                await self._entries.write(STREAM_SET, entry)
            if resource:
                self._feeds.connect(stream)
            self._tell(stream, True)
            return stream

    async def begin_restore(self, config: StreamConfig, account: str, created_ns: int) -> Stream:
        """Create a stream that takes its records back in; a crash before the end removes it."""
        plain = msgspec.structs.replace(
            StreamConfig(
                name=config.name, storage=config.storage, persist_mode=config.persist_mode
            ),
            allow_msg_ttl=config.allow_msg_ttl,
            duplicate_window=config.duplicate_window,
            metadata={**config.metadata, RESTORING: "true"},
        )
        async with self._changing:
            self._check_quota(config, account, is_new=True)
            self.table.check_overlap(config, account)
            entry = self._entries.make(plain, account, created_ns)
            await self._entries.write(STREAM_SET, entry)
            return self._open(entry, plain)

    async def end_restore(self, stream: Stream, config: StreamConfig) -> None:
        """Let a stream whose records are all back be what it was."""
        async with self._changing:
            self.table.check_overlap(config, stream.account)
            await self._entries.write(STREAM_SET, StreamEntry.of(stream, config))
            self.table.reserve(stream, config)
            stream.reconfigure(config)
            stream.capture()
            self._feeds.connect(stream)
            self._feeds.refresh()
            self._tell(stream, True)

    def _forget_unrestored(self) -> None:
        """Remove what a crash left of restores that had not ended."""
        for stream in self.table.everything():
            if RESTORING in stream.config.metadata:
                self.table.drop(stream)
                stream.close()
                self._entries.drop(StreamEntry.of(stream))

    async def delete(self, name: str, account: str = "$G") -> None:
        """Delete a stream and its records."""
        async with self._changing:
            stream = self.get(name, account)
            stream.is_leaving = True
            try:
                await self._entries.write(STREAM_GONE, StreamEntry.of(stream))
            except BaseException:
                stream.is_leaving = False
                stream.watchers.wake()
                raise
            self.table.drop(stream)
            stream.close()
            self._feeds.refresh()
            self._tell(stream, False)
            self._store.drop_log(stream.incarnation)
            self._feeds.forget(stream)
            self._heads.forget(stream)

    # -- checks ------------------------------------------------------------------------------

    def _check_quota(self, config: StreamConfig, account: str, *, is_new: bool) -> None:
        others = self.table.count(account) - (self.table.find(config.name, account) is not None)
        promised = self.table.promised.beside(account, config)
        self._quotas.check(account, config, Others(others, promised), is_new)

    def _check_consumer_limits(self, stream: Stream, config: StreamConfig) -> None:
        """Refuse lowered limits that a consumer is above already."""
        if config.consumer_limits == stream.config.consumer_limits:
            return
        above = [name for look in self.above_limits for name in look(stream, config)]
        if above:
            raise LimitsViolated(above)

    def _check_cycle(self, config: StreamConfig, account: str) -> None:
        def find(key: tuple[str, str]) -> StreamConfig | None:
            found = self.table.find(key[1], key[0])
            return found.config if found is not None else None

        if sources.forms_cycle((account, config.name), config, find, self._reached):
            raise InvalidStreamConfig("detected cycle")

    def _reached(self, account: str, source: Source) -> tuple[str, str] | None:
        """Return which stream a source of an account's stream means; None while it has no way."""
        if source.external is None:
            return account, source.name
        return self._reach(account, source.external.api, source.external.deliver, source.name)

    def _following_origin(self, config: StreamConfig, account: str) -> StreamConfig:
        """Return a configuration with what it takes over from streams that are there."""
        origin = None
        for wire in (*config.sources, *((config.mirror,) if config.mirror is not None else ())):
            source = Source.read(wire)
            if source.external is not None:
                continue
            origin = self.table.find(source.name, account)
            if origin is not None and 0 < config.max_msg_size < origin.config.max_msg_size:
                raise sources.TooSmall(config.mirror is not None)
        if config.mirror is None or origin is None:
            return config
        return msgspec.structs.replace(config, mirror_direct=origin.config.allow_direct)

    def _whereabouts(self, account: str, source: Source) -> Whereabouts:
        """Return the stream that a source means, or that only its API can be asked for it."""
        key = self._reached(account, source)
        if key is None:
            return Whereabouts(is_elsewhere=True)
        return Whereabouts(self.table.find(key[1], key[0]))

    def refresh_feeds(self) -> None:
        """Let sources and mirrors notice that a stream or a way to one came or went."""
        self._feeds.refresh()

    def _open(self, entry: StreamEntry, config: StreamConfig) -> Stream:
        stream = self._maker.make(entry, config)
        self.table.put(stream)
        return stream

    # -- recovery ----------------------------------------------------------------------------

    def replay(self, section: bytes | None, controls: Iterable[Control]) -> None:
        """Rebuild from the snapshot's section and the control frames after it, in order."""
        saved, controls = decode_section(section), list(controls)
        self._feeds.positions.replay(map(bytes, saved.sources), controls)
        self._heads.replay(saved.heads, controls)
        for entry in self._entries.replay(saved, controls):
            self._open(entry, shared_words(msgspec.convert(entry.config, StreamConfig)))

    def capture(self) -> None:
        """Register every stream's subjects, once replay is over."""
        self._forget_unrestored()
        for stream in self.table.everything():
            stream.capture()
        for stream in self.table.everything():
            self._feeds.connect(stream)

    def tick(self) -> None:
        """Call about once a second: some of the streams that nobody uses fall asleep."""
        self._sleepers.next()

    def hold_publishers(self, held: bool) -> None:
        """Hold publishers back while the disk is behind with what all streams have staged."""
        for stream in self.table.everything():
            stream.hold_publishers(held)

    def section(self) -> Callable[[], bytes]:
        """Return who encodes the snapshot's section, on any thread."""
        sources = self._feeds.positions.section(self.table.by_id)
        heads = self._heads.section(self.table.by_id)
        return self._entries.section(self.table.everything(), sources, heads)

    def settle_heads(self) -> None:
        """Write down how far streams in memory have counted: nothing is appended any more."""
        self._heads.settle(self.table.everything())

    def close(self) -> None:
        """Stop capturing everywhere."""
        for stream in self.table.everything():
            stream.close()
