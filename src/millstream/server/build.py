"""From options to connected parts: the only module that knows them all."""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from millstream.clock import Clock
from millstream.consumers.readers import Readers
from millstream.delivery.timers import Timers
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits as HttpLimits
from millstream.http.routes import Routes
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.monitor.answers import counted
from millstream.monitor.facts import Facts, JetStreamFacts
from millstream.monitor.routes import monitor_routes
from millstream.nats.accounts.account_quotas import AccountQuotas
from millstream.nats.accounts.account_streams import AccountStreams
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.accounts.external_streams import ExternalStreams
from millstream.nats.accounts.sharing import Sharing
from millstream.nats.authenticator import Authenticator
from millstream.nats.door import NatsDoor
from millstream.nats.jetstream import shapes
from millstream.nats.jetstream.endpoint import JetStream
from millstream.nats.jetstream.server_limits import ServerLimits
from millstream.nats.millstream_api import plan_endpoint, sink_endpoint
from millstream.nats.session import NatsLimits
from millstream.nats.system.system import System
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.tls_transport import TlsPort
from millstream.nats.transport.trace import Tracing
from millstream.server.about import show
from millstream.server.access.http_gate import HttpGate, gate_of
from millstream.server.access.identity import identities_of
from millstream.server.observer import Observer
from millstream.server.options.auth_options import GLOBAL_ACCOUNT
from millstream.server.options.encryption import key_ring
from millstream.server.options.options import (
    HttpCaps,
    JetStreamLimits,
    JetStreamOptions,
    LoggingOptions,
    Options,
)
from millstream.server.options.unsupported import refuse_missing
from millstream.server.system_account import subjects_of, system_of
from millstream.store.cold.tier import ColdOptions
from millstream.store.log.file_log import LogOptions as SegmentSizes
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import SegmentPlan, Store
from millstream.store.wal.committer import Post
from millstream.store.wal.meter import MeteredFiles, meter_of
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import API_LEVEL
from millstream.streams.deposits.deposits import SECTION as SINKS_SECTION
from millstream.streams.deposits.deposits import Deposits
from millstream.streams.stream import Stream
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.supervisor import Supervisor
from millstream.topics.context import Topics
from millstream.topics.openapi import openapi_route
from millstream.topics.routes import topics_routes
from millstream.wire.info import ServerInfo, server_info


class KeptParts(msgspec.Struct, frozen=True):
    """What is there only where records are kept."""

    store: Store
    jetstream: JetStream
    accounts: AccountStreams
    topics: Topics
    sinks: Deposits

    def sections(self) -> dict[str, bytes]:
        """Return what a snapshot keeps for everything above the store."""
        sinks = {SINKS_SECTION: self.sinks.section()}
        return {**self.jetstream.sections(), **self.topics.sections(), **sinks}

    def checkpoint_if_due(self) -> None:
        """Make a snapshot once the write-ahead log has grown enough."""
        if self.store.checkpoint_due:
            self.store.checkpoint_soon(self.sections)


class Guards(msgspec.Struct, frozen=True):
    """Who is let in, and behind which certificates."""

    accounts: Accounts
    reception: Authenticator
    tls: Tls | None
    websocket_tls: Tls | None

    def tls_port(self, options: Options) -> TlsPort | None:
        """Return what the NATS port offers, None when it speaks plain text only."""
        return None if self.tls is None else TlsPort(self.tls, options.allow_non_tls)


class ServerParts(msgspec.Struct, frozen=True):
    """What the server starts and stops; each part holds only what it needs of the others."""

    info: ServerInfo
    timers: Timers
    guards: Guards
    nats: NatsDoor
    sharing: Sharing
    kept: KeptParts | None
    http: HttpDoor | None
    gate: HttpGate | None
    facts: Facts
    system: System


def build(
    options: Options,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    orders: Mapping[str, Callable[[], None]] | None = None,
    files: MeteredFiles | None = None,
    supervisor: Supervisor | None = None,
) -> ServerParts:
    """Recover the data directory and connect everything; nothing listens yet.

    ``orders`` are what the system account may tell the server: ``RELOAD``. ``files`` is the disk.
    ``supervisor`` learns of every thread, task and repeated call that ends or fails.
    """
    refuse_missing(options)
    supervisor = supervisor or Supervisor()
    timers = Timers(clock, loop, supervisor)
    interest = subject_space(options)
    info = describe(options)
    guard = guards(options, interest, clock)
    nats = NatsDoor(
        loop,
        clock,
        interest,
        info,
        limits_of(options),
        guard.reception,
        guard.tls_port(options),
        tracing_of(options.log),
        supervisor,
    )
    sharing = Sharing(nats.hub, guard.accounts, clock, nats.sessions.session)
    kept = None
    if options.jetstream is not None:
        kept = keep(
            options.jetstream,
            info,
            nats.hub,
            guard.accounts,
            loop,
            clock,
            timers,
            nats.sessions.sight_of,
            files,
            supervisor,
        )
        guard.reception.subjects_of = partial(subjects_of, kept.jetstream.catalog)
        kept.jetstream.may_deliver = nats.sessions.may_deliver
        kept.jetstream.consumers.is_awaited = sharing.is_awaited
        kept.jetstream.client_of = nats.sessions.client_of
        external = ExternalStreams(guard.accounts, options.jetstream.domain)
        kept.jetstream.catalog.reach = external.reach
    facts = monitored(options, info, clock, kept, nats, timers)
    if kept is None:
        facts.health = supervisor.problems
    system = system_of(nats.sessions, clock, facts, options, orders)
    http = gate = None
    if options.monitor.listens:
        gate = gate_to(options, guard, kept, clock)
        app = counted(routes(options, facts, kept, gate), facts.statuses)
        caps = options.monitor.caps
        turns = kept.topics.turns if kept is not None else None
        http = HttpDoor(
            loop,
            app,
            clock,
            HttpLimits(body_bytes=caps.max_body_bytes),
            hosts=options.monitor.allowed_hosts,
            turns=turns,
            supervisor=supervisor,
        )
        if kept is not None:
            kept.topics.cap(**capped(caps))
    return ServerParts(info, timers, guard, nats, sharing, kept, http, gate, facts, system)


def subject_space(options: Options) -> Interest:
    """Return an account's subjects, with a cache of matches unless that was turned off."""
    return Interest() if options.sublist_cache else Interest(cache=1, sweep=0)


def capped(caps: HttpCaps) -> dict[str, int]:
    """Return the caps that the topics keep themselves."""
    return {
        "max_topics": caps.max_topics,
        "max_routers": caps.max_routers,
        "max_watch_sessions": caps.max_watch_sessions,
        "max_sse_connections": caps.max_sse_connections,
        "max_sse_per_key": caps.max_sse_connections_per_key,
        "max_total_bytes": caps.max_total_bytes,
        "shortest_heartbeat_ms": caps.test_min_heartbeat_ms,
    }


def guards(options: Options, interest: Interest, clock: Clock) -> Guards:
    """Return who is let in, how they come, and which accounts there are."""
    known = identities_of(options)
    accounts = Accounts(
        known.accounts,
        global_interest=interest,
        system=known.system_account,
        make_interest=partial(subject_space, options),
    )
    websocket = options.websocket.tls if options.websocket is not None else None
    return Guards(
        accounts,
        Authenticator(accounts, clock, known.credentials, known.by_kind),
        Tls(options.tls) if options.tls is not None else None,
        Tls(websocket) if websocket is not None else None,
    )


def keep(
    options: JetStreamOptions,
    info: ServerInfo,
    hub: Hub,
    accounts: Accounts,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    timers: Timers,
    sight_of: plan_endpoint.SightOf = plan_endpoint.sees_everything,
    files: MeteredFiles | None = None,
    supervisor: Supervisor | None = None,
) -> KeptParts:
    """Recover what is kept, and connect what serves it to every account that has JetStream."""
    supervisor = supervisor or Supervisor()

    def post(call: Callable[[], None]) -> None:
        guarded = supervisor.once("the call of a thread", call)
        if not hub.post(guarded):
            loop.call_soon_threadsafe(guarded)

    store = open_store(options, clock, post, files, supervisor)
    store.soon = lambda call: hub.defer(call) or loop.call_soon(call)
    spaces = accounts.interests
    durability = Durability.FSYNC if options.sync_interval is None else Durability.DISK
    limits = options.limits
    batches = BatchLimits.of(
        limits.max_batch_inflight_per_stream, limits.max_batch_inflight_total,
        limits.max_batch_size, limits.max_batch_timeout,
    )  # fmt: skip
    catalog = Catalog(
        store,
        clock,
        timers,
        hub,
        spaces,
        default_durability=durability,
        batch_limits=batches,
        quotas=AccountQuotas(accounts),
    )
    store.on_pressure = catalog.hold_publishers
    sinks = Deposits(catalog, store, clock)

    def endpoints(account: str, interest: Interest) -> list[int]:
        def segments_of(stream: Stream) -> Sequence[SegmentPlan]:
            return store.plan(stream.log.log_id)

        return [
            *plan_endpoint.register(
                hub,
                interest,
                catalog,
                segments_of,
                account,
                sight_of=sight_of,
                cold_of=lambda stream: store.cold_plan(stream.incarnation),
            ),
            *sink_endpoint.register(hub, interest, catalog, sinks, readers, account),
        ]

    jetstream = JetStream(
        hub,
        spaces[GLOBAL_ACCOUNT],
        store,
        clock,
        loop,
        timers,
        catalog=catalog,
        interests=spaces,
        server_name=info.server_name,
        domain=options.domain,
        supervisor=supervisor,
    )
    jetstream.server_limits = ServerLimits(
        limits.max_ack_pending, limits.max_request_batch, round(limits.duplicate_window * 1e9),
        options.max_memory, options.max_store,
    )  # fmt: skip
    jetstream.is_strict = options.strict
    jetstream.system = lambda: accounts.system.interest if accounts.system is not None else None
    readers = Readers(jetstream.consumers)
    endpoints(GLOBAL_ACCOUNT, spaces[GLOBAL_ACCOUNT])
    served = AccountStreams(jetstream, accounts, endpoints)
    topics = Topics(catalog, clock, store, timers, sinks, readers, supervisor=supervisor)
    return KeptParts(store, jetstream, served, topics, sinks)


def open_store(
    options: JetStreamOptions,
    clock: Clock,
    post: Post,
    files: MeteredFiles | None = None,
    supervisor: Supervisor | None = None,
) -> Store:
    """Lock and recover the data directory; ``post`` takes calls of its threads to the loop."""
    directory = options.directory.resolve()
    segments = options.segments
    sizes = StoreOptions(
        log=SegmentSizes(
            segment_records=segments.records,
            segment_bytes=segments.bytes,
            segment_age=segments.age,
            rewrite_ratio=options.rewrite_ratio,
        ),
        ring=key_ring(options.encryption, os.environ),
    )
    cold = options.cold
    moved = ColdOptions(
        cold.place, cold.hot_segments, cold.hot_bytes, cold.cache_bytes, twins=cold.parquet
    )
    sizes = replace(sizes, shards=options.wal_shards, cold=moved)
    if options.sync_interval is not None:
        sizes = sizes.synced_every(options.sync_interval)
    disk = files or MeteredFiles(clock)
    return Store.open(str(directory), disk, clock, post, sizes, supervisor)


def limits_of(options: Options) -> NatsLimits:
    """Return what one client may take."""
    limits = options.limits
    return NatsLimits(
        max_payload=limits.max_payload,
        max_pending=limits.max_pending,
        max_connections=limits.max_connections,
        max_subscriptions=limits.max_subscriptions,
        max_subject_tokens=limits.max_subject_tokens,
        ping_interval=limits.ping_interval,
        ping_max=limits.ping_max,
        auth_timeout=options.auth_timeout,
        write_deadline=limits.write_deadline,
        max_control_line=limits.max_control_line,
        holds_publishers=not limits.no_fast_producer_stall,
        measure_after=1.0,
    )


def tracing_of(log: LoggingOptions) -> Tracing:
    """Return what the log shows of conversations."""
    return Tracing(log.trace, log.trace_headers, log.max_traced_message)


def describe(options: Options) -> ServerInfo:
    """Return what clients are told; the id is new with every start."""
    info = server_info(
        secrets.token_bytes(32),
        host=options.host,
        port=options.port,
        name=options.server_name,
        jetstream=options.jetstream is not None,
        max_payload=options.limits.max_payload,
    )
    domain = options.jetstream.domain if options.jetstream is not None else ""
    return info.with_(
        headers=options.headers,
        cluster=options.cluster_name,
        domain=domain,
        api_lvl=API_LEVEL,
    )


def monitored(
    options: Options,
    info: ServerInfo,
    clock: Clock,
    kept: KeptParts | None,
    nats: NatsDoor,
    timers: Timers,
) -> Facts:
    """Return what the monitoring endpoints may ask about."""
    observer = Observer(nats.sessions, clock, timers, options.limits.max_closed_clients)
    system = nats.sessions.reception.accounts.system
    facts = Facts(
        clock=clock,
        started_ns=clock.time_ns(),
        server_id=info.server_id,
        server_name=info.server_name,
        nats_version=info.version,
        go=info.go,
        host=options.host,
        port=options.port,
        http_host=options.monitor_host,
        http_port=options.monitor.port or 0,
        is_https=options.monitor.tls_port is not None,
        http_base_path=options.monitor.base_path.rstrip("/"),
        cluster_name=options.cluster_name,
        system_account=system.name if system is not None else "",
        traffic=nats.hub.stats,
        connections=observer.connections,
        open_totals=observer.open_totals,
        closed=observer.closed,
        subscriptions=observer.subscriptions,
        closed_by_reason=observer.closed_by_reason,
        accounts=observer.accounts,
    )
    show(facts, options, facts.started_ns)
    if kept is not None and options.jetstream is not None:
        facts.health = kept.store.health
        facts.jetstream = stored(options.jetstream, kept)
        facts.storage = partial(wal_figures, kept.store)
        facts.cold = kept.store.cold.figures
        facts.wal = meter_of(kept.store)
    return facts


def stored(options: JetStreamOptions, kept: KeptParts) -> JetStreamFacts:
    """Return what the monitor may ask about the records."""
    interval = options.sync_interval
    return JetStreamFacts(
        accounts=kept.accounts.all,
        shapes=shapes,
        store_dir=str(options.directory),
        max_memory=options.max_memory,
        max_storage=options.max_store,
        domain=options.domain,
        sync_interval_ns=None if interval is None else round(interval * 1e9),
        api_level=API_LEVEL,
        limits=_limits_shown(options.limits),
    )


def _limits_shown(limits: JetStreamLimits) -> dict[str, int]:
    """Return the bounds that are set, as the reference names them."""
    named = {
        "max_request_batch": limits.max_request_batch,
        "max_ack_pending": limits.max_ack_pending,
        "max_ha_assets": limits.max_ha_assets,
        "max_duplicate_window": round(limits.duplicate_window * 1e9),
        "max_batch_inflight_per_stream": limits.max_batch_inflight_per_stream,
        "max_batch_inflight_total": limits.max_batch_inflight_total,
        "max_batch_size": limits.max_batch_size,
        "max_batch_timeout": round(limits.max_batch_timeout * 1e9),
    }
    return {name: value for name, value in named.items() if value}


def wal_figures(store: Store) -> dict[str, int]:
    """Return how the write-ahead log stands."""
    return {
        "backlog_bytes": store.backlog_bytes,
        "synced_position": store.synced_position,
        "problems": len(store.health()),
    }


def gate_to(
    options: Options, guard: Guards, kept: KeptParts | None, clock: Clock
) -> HttpGate | None:
    """Return who may use the HTTP port, and whose streams end when they no longer may."""
    if kept is None:
        return gate_of(options, guard.reception, clock, None, lambda: None)
    return gate_of(options, guard.reception, clock, kept.jetstream.catalog, kept.topics.wake)


def routes(
    options: Options, facts: Facts, kept: KeptParts | None, gate: HttpGate | None = None
) -> Routes:
    """Return what the HTTP port serves: monitoring, and topics where they were asked for."""
    base = options.monitor.base_path.rstrip("/")
    found = monitor_routes(facts)
    table = [msgspec.structs.replace(route, pattern=base + route.pattern) for route in found]
    if options.monitor.topics and kept is not None:
        table += topics_routes(kept.topics)
        table.append(openapi_route(lambda: table))
    return Routes(table, None if gate is None else gate.authorize)
