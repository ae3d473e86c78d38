"""Catalog: names to streams, persisted by control frames.

A stream's log id is its incarnation: given out once and never again, so that a name which was
deleted and created anew replays to the right log, whatever the order of the records around it.
"""

import asyncio
import difflib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.eager_task import next_turn
from millstream.errors import (
    InvalidStreamConfig,
    MillstreamError,
    StreamExists,
    StreamNotFound,
    SubjectsOverlap,
)
from millstream.store.log.log import Committed, Durability, Log
from millstream.store.recovery.recovery import Control
from millstream.streams.account_quota import AccountRoom, NoQuotas, Quotas
from millstream.streams.config import source as sources
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.source import Source
from millstream.streams.retention import rules as retention
from millstream.streams.retention.temperature import tell_log
from millstream.streams.sourcing.deliveries import Deliveries
from millstream.streams.sourcing.mirroring import Mirroring
from millstream.streams.sourcing.source_positions import SourcePositions
from millstream.streams.sourcing.sourcing import Sourcing
from millstream.streams.stream import Stream, settle
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.subjects.pattern_set import PatternSet

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

log = logging.getLogger(__name__)

STREAM_SET = 16
STREAM_GONE = 17
RESTORING = "millstream.restoring"  # in the metadata of a stream that is not all there yet
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


class _StreamEntry(msgspec.Struct, frozen=True):
    """One stream as control frames and the snapshot hold it."""

    account: str
    name: str
    id: int
    created_ns: int
    config: dict[str, Any]


class _CatalogSection(msgspec.Struct, frozen=True):
    next_id: int
    streams: list[_StreamEntry]
    sources: list[msgspec.Raw] = []


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
    ) -> None:
        self._quotas = quotas or NoQuotas()
        self._rooms: dict[tuple[str, str], AccountRoom] = {}  # by account and storage
        self._store = store
        self._clock = clock
        self._timers = timers
        self._hub = hub
        self._interests = interests if interests is not None else {}
        self._default_durability = default_durability
        self._batch_limits = batch_limits or BatchLimits()
        self._streams: dict[tuple[str, str], Stream] = {}
        self._captured: defaultdict[str, PatternSet] = defaultdict(PatternSet)  # by account
        self._positions = SourcePositions(store)
        self._fed: dict[int, Stream] = {}  # streams with sources or an origin
        # Which stream of which account a source of another account means: account, API prefix,
        # delivery prefix, stream → account, stream. Whoever knows exports and imports sets it.
        self.reach: Callable[[str, str, str, str], tuple[str, str] | None] = _nowhere
        self._next_id = 1
        self._changing = asyncio.Lock()  # a create must not overlap the check of another
        self._listeners: list[Callable[[Stream, bool], None]] = []
        self._abandoned: list[Callable[[Stream, bytes, str], None]] = []
        # Whoever keeps consumers names those that a configuration would forbid.
        self.above_limits: list[Callable[[Stream, StreamConfig], list[str]]] = []

    # -- names -------------------------------------------------------------------------------

    def get(self, name: str, account: str = "$G") -> Stream:
        """Return a stream; raises StreamNotFound with the closest name there is."""
        stream = self._streams.get((account, name))
        if stream is None:
            raise StreamNotFound(name, self._closest(name, account))
        return stream

    def find(self, name: str, account: str = "$G") -> Stream | None:
        """Return a stream, None when there is none of that name."""
        return self._streams.get((account, name))

    def streams(self, account: str = "$G") -> list[Stream]:
        """Return the account's streams by name."""
        found = (s for (owner, _), s in self._streams.items() if owner == account)
        return sorted(found, key=lambda stream: stream.name.encode())

    def everything(self) -> list[Stream]:
        """Return the streams of all accounts."""
        return list(self._streams.values())

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

    def _closest(self, name: str, account: str) -> str | None:
        names = [known for owner, known in self._streams if owner == account]
        return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.75)), None)

    # -- changes -----------------------------------------------------------------------------

    async def create(self, config: StreamConfig, account: str = "$G") -> tuple[Stream, bool]:
        """Create a stream; an identical one that exists is returned with False."""
        async with self._changing:
            config = self._following_origin(config, account)
            self._check_cycle(config, account)
            known = self._streams.get((account, config.name))
            if known is not None:
                if not known.config.same_as(config):
                    raise StreamExists(config.name)
                return known, False
            if config.sealed:
                raise InvalidStreamConfig("stream configuration for create can not be sealed")
            self._check_quota(config, account, is_new=True)
            self._check_overlap(config, account)
            entry = self._entry(config, account, self._take_id(), self._clock.time_ns())
            await next_turn(sum(map(len, config.subjects)))
            await self._write(STREAM_SET, entry)
            stream = self._open(entry, config)
            stream.capture()
            self._source(stream)
            self.refresh_feeds()
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
            self._check_overlap(config, account)
            self._check_cycle(config, account)
            self._check_durability(stream, config)
            await next_turn(sum(map(len, config.subjects)))
            # Ahead of limits by which the next start would keep them.
            stream.removal.departures.log_gathered()
            await self._write(
                STREAM_SET, self._entry(config, account, stream.incarnation, stream.created_ns)
            )
            self._captured[account].put(stream.incarnation, config.subjects)
            await next_turn(sum(map(len, config.subjects)))
            durability = config.durability(self._default_durability)
            log = self._store.create_log(stream.incarnation, durability, config.is_compressed)
            tell_log(log, config)
            before = stream.config
            resource = (config.sources, config.mirror) != (before.sources, before.mirror)
            stream.reconfigure(config)
            if retention.excess(config, stream.state()):
                # Removals are logged in order: what is above the new limits is gone behind this.
                await self._write(
                    STREAM_SET, self._entry(config, account, stream.incarnation, stream.created_ns)
                )
            if resource:
                self._source(stream)
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
            self._check_overlap(config, account)
            entry = self._entry(plain, account, self._take_id(), created_ns)
            await self._write(STREAM_SET, entry)
            return self._open(entry, plain)

    def _is_restoring(self, name: str, account: str) -> bool:
        stream = self._streams.get((account, name))
        return stream is not None and RESTORING in stream.config.metadata

    async def end_restore(self, stream: Stream, config: StreamConfig) -> None:
        """Let a stream whose records are all back be what it was."""
        async with self._changing:
            self._check_overlap(config, stream.account)
            await self._write(
                STREAM_SET,
                self._entry(config, stream.account, stream.incarnation, stream.created_ns),
            )
            self._captured[stream.account].put(stream.incarnation, config.subjects)
            stream.reconfigure(config)
            stream.capture()
            self._source(stream)
            self.refresh_feeds()
            self._tell(stream, True)

    def _forget_unrestored(self) -> None:
        """Remove what a crash left of restores that had not ended."""
        for key, stream in list(self._streams.items()):
            if RESTORING in stream.config.metadata:
                del self._streams[key]
                self._captured[key[0]].drop(stream.incarnation)
                stream.close()
                entry = self._entry(stream.config, key[0], stream.incarnation, stream.created_ns)
                body = msgspec.json.encode(entry)
                self._store.control(STREAM_GONE, entry.id, body, _log_failure)
                self._store.drop_log(stream.incarnation)

    async def delete(self, name: str, account: str = "$G") -> None:
        """Delete a stream and its records."""
        async with self._changing:
            stream = self.get(name, account)
            entry = self._entry(stream.config, account, stream.incarnation, stream.created_ns)
            stream.is_leaving = True
            try:
                await self._write(STREAM_GONE, entry)
            except BaseException:
                stream.is_leaving = False
                stream.watchers.wake()
                raise
            del self._streams[account, name]
            self._captured[account].drop(stream.incarnation)
            stream.close()
            self.refresh_feeds()
            self._tell(stream, False)
            self._store.drop_log(stream.incarnation)
            self._positions.forget(stream.incarnation)
            self._fed.pop(stream.incarnation, None)

    def _check_quota(self, config: StreamConfig, account: str, *, is_new: bool) -> None:
        others = [s.config for (owner, name), s in self._streams.items()
                  if owner == account and name != config.name]  # fmt: skip
        self._quotas.check(account, config, others, is_new)

    def _room(self, account: str, storage: str) -> AccountRoom:
        """Return the room that all streams of an account share, of those that store so."""
        if (account, storage) not in self._rooms:
            self._rooms[account, storage] = AccountRoom(
                partial(self._quotas.most_bytes, account, storage),
                partial(self._held, account, storage),
                self._clock.monotonic,
            )
        return self._rooms[account, storage]

    def _held(self, account: str, storage: str) -> int:
        return sum(
            stream.state().bytes + stream.writes.staged_size
            for (owner, _), stream in self._streams.items()
            if owner == account and stream.config.storage == storage
        )

    def _is_server_full(self, account: str, opened: StreamConfig) -> bool:
        """Whether streams that store so hold more than the server may; a restore goes on."""
        most = self._quotas.most_bytes_in_all(opened.storage)
        if most < 0 or self._is_restoring(opened.name, account):
            return False
        stored = (s for s in self._streams.values() if s.config.storage == opened.storage)
        return most < sum(stream.state().bytes for stream in stored)

    def _check_consumer_limits(self, stream: Stream, config: StreamConfig) -> None:
        """Refuse lowered limits that a consumer is above already."""
        if config.consumer_limits == stream.config.consumer_limits:
            return
        above = [name for look in self.above_limits for name in look(stream, config)]
        if above:
            raise LimitsViolated(above)

    def _check_overlap(self, config: StreamConfig, account: str) -> None:
        known = self._streams.get((account, config.name))
        besides = known.incarnation if known is not None else 0
        if self._captured[account].overlaps(config.subjects, besides):
            raise SubjectsOverlap()

    def _check_cycle(self, config: StreamConfig, account: str) -> None:
        def find(key: tuple[str, str]) -> StreamConfig | None:
            found = self._streams.get(key)
            return found.config if found is not None else None

        if sources.forms_cycle((account, config.name), config, find, self._reached):
            raise InvalidStreamConfig("detected cycle")

    def _reached(self, account: str, source: Source) -> tuple[str, str] | None:
        """Return which stream a source of an account's stream means; None while it has no way."""
        if source.external is None:
            return account, source.name
        return self.reach(account, source.external.api, source.external.deliver, source.name)

    def _source(self, stream: Stream) -> None:
        """Let a stream be fed by the sources or the origin that its configuration names."""

        def find(source: Source) -> Stream | None:
            key = self._reached(stream.account, source)
            return self._streams.get(key) if key is not None else None

        clock, timers, config = self._clock, self._timers, stream.config
        if config.mirror is not None or config.sources:
            self._fed[stream.incarnation] = stream
        else:
            self._fed.pop(stream.incarnation, None)
        if config.mirror is not None:
            origin = Source.read(config.mirror)
            way = self._deliveries(origin, mirrors=True)
            stream.feed_by([Mirroring(stream, origin, find, clock, timers, way)])
            return
        positions = self._positions
        named = ((one := Source.read(wire), self._deliveries(one)) for wire in config.sources)
        stream.feed_by(
            [Sourcing(stream, one, find, clock, timers, positions, way) for one, way in named]
        )

    def _deliveries(self, source: Source, *, mirrors: bool = False) -> Deliveries | None:
        """Return the way in through a consumer of the origin, where a source names one."""
        if source.consumer is None or self._hub is None:
            return None
        refused = sources.needs_flow_acks(mirrors=mirrors)
        return Deliveries(self._hub, self._interests, self._timers, source.consumer, refused)

    def refresh_feeds(self) -> None:
        """Let sources and mirrors notice that a stream or a way to one came or went."""
        for stream in list(self._fed.values()):
            for feed in stream.feeds:
                feed.refresh()

    def _following_origin(self, config: StreamConfig, account: str) -> StreamConfig:
        """Return a configuration with what it takes over from streams that are there."""
        origin = None
        for wire in (*config.sources, *((config.mirror,) if config.mirror is not None else ())):
            source = Source.read(wire)
            if source.external is not None:
                continue
            origin = self._streams.get((account, source.name))
            if origin is not None and 0 < config.max_msg_size < origin.config.max_msg_size:
                raise sources.TooSmall(config.mirror is not None)
        if config.mirror is None or origin is None:
            return config
        return msgspec.structs.replace(config, mirror_direct=origin.config.allow_direct)

    def _check_durability(self, stream: Stream, config: StreamConfig) -> None:
        wanted, current = config.durability(self._default_durability), stream.log.durability
        if wanted is not current and Durability.EPHEMERAL in (wanted, current):
            where = "in memory only" if current is Durability.EPHEMERAL else "in files"
            raise InvalidStreamConfig(
                f"the durability of {config.name} cannot change from {current} to {wanted}: its "
                f"records are {where} and stay there; create another with {wanted}, copy what is "
                f"to be kept, and delete {config.name}"
            )

    def _take_id(self) -> int:
        taken, self._next_id = self._next_id, self._next_id + 1
        return taken

    def _entry(
        self, config: StreamConfig, account: str, log_id: int, created_ns: int
    ) -> _StreamEntry:
        return _StreamEntry(account, config.name, log_id, created_ns, msgspec.to_builtins(config))

    async def _write(self, kind: int, entry: _StreamEntry) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.control(kind, entry.id, msgspec.json.encode(entry), partial(settle, done))
        await done

    def _open(self, entry: _StreamEntry, config: StreamConfig) -> Stream:
        durability = config.durability(self._default_durability)
        log = self._store.create_log(entry.id, durability, config.is_compressed)
        tell_log(log, config)
        log.start_at(config.first_seq)  # does nothing to a log that has begun
        stream = Stream(
            config,
            log,
            created_ns=entry.created_ns,
            clock=self._clock,
            timers=self._timers,
            hub=self._hub,
            interest=self._interests.get(entry.account),
            account=entry.account,
            batch_limits=self._batch_limits,
            room=self._room(entry.account, config.storage),
            server_is_full=partial(self._is_server_full, entry.account, config),
            on_abandoned=self._tell_abandoned,
        )
        self._streams[entry.account, entry.name] = stream
        self._captured[entry.account].put(entry.id, config.subjects)
        return stream

    # -- recovery ----------------------------------------------------------------------------

    def replay(self, section: bytes | None, controls: Iterable[Control]) -> None:
        """Rebuild from the snapshot's section and the control frames after it, in order.

        Applying a frame twice changes nothing: entries are keyed by the incarnation.
        """
        entries: dict[int, _StreamEntry] = {}
        if section:
            saved = msgspec.json.decode(section, type=_CatalogSection)
            self._next_id = saved.next_id
            entries = {entry.id: entry for entry in saved.streams}
            self._positions.replay(map(bytes, saved.sources), ())
        controls = list(controls)
        self._positions.replay((), controls)
        for control in controls:
            if control.kind not in (STREAM_SET, STREAM_GONE):
                continue
            entry = msgspec.json.decode(control.body, type=_StreamEntry)
            self._next_id = max(self._next_id, entry.id + 1)
            if control.kind == STREAM_SET:
                entries[entry.id] = entry
            else:
                entries.pop(entry.id, None)
                if self._store.log(entry.id) is not None:
                    self._store.drop_log(entry.id)
        for entry in sorted(entries.values(), key=lambda entry: entry.id):
            self._open(entry, msgspec.convert(entry.config, StreamConfig))

    def capture(self) -> None:
        """Register every stream's subjects, once replay is over."""
        self._forget_unrestored()
        for stream in self._streams.values():
            stream.capture()
        for stream in self._streams.values():
            self._source(stream)

    def hold_publishers(self, held: bool) -> None:
        """Hold publishers back while the disk is behind with what all streams have staged."""
        for stream in self._streams.values():
            stream.writes.hold_publishers(held)

    def section(self) -> bytes:
        """Return the snapshot's section."""
        entries = [
            self._entry(s.config, s.account, s.incarnation, s.created_ns)
            for s in self._streams.values()
        ]
        positions = self._positions.section(s.incarnation for s in self._streams.values())
        return msgspec.json.encode(_CatalogSection(self._next_id, entries, positions))

    def close(self) -> None:
        """Stop capturing everywhere."""
        for stream in self._streams.values():
            stream.close()


def _log_failure(error: MillstreamError | None) -> None:
    if error is not None:
        log.warning("removal of an unfinished restore not written error=%s", error)
