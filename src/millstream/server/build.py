"""From options to connected parts: the only module that knows them all."""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.consumers.readers import Readers
from millstream.consumers.registry import Registry
from millstream.dashboard.masking import Masking
from millstream.delivery.timers import Timers
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits as HttpLimits
from millstream.http.routes import Routes
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.links.exchange import Exchange
from millstream.links.leafs import Leafs
from millstream.links.links import Links
from millstream.links.mesh import Mesh
from millstream.monitor.answers import counted
from millstream.monitor.facts import Facts, JetStreamFacts
from millstream.monitor.loop_meter import LoopMeter
from millstream.monitor.routes import monitor_routes
from millstream.nats.accounts.account_quotas import AccountQuotas
from millstream.nats.accounts.account_streams import AccountStreams
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.accounts.external_streams import ExternalStreams
from millstream.nats.accounts.global_account import GlobalAccount
from millstream.nats.accounts.sharing import Sharing
from millstream.nats.authenticator import Authenticator
from millstream.nats.door import NatsDoor
from millstream.nats.jetstream import shapes
from millstream.nats.jetstream.endpoint import JetStream
from millstream.nats.jetstream.server_limits import ServerLimits
from millstream.nats.jetstream.serving.shared_parts import ApiTerms, SharedParts
from millstream.nats.millstream_api import plan_endpoint, sink_endpoint
from millstream.nats.resolvers.account_fetch import AccountFetch
from millstream.nats.resolvers.claim_requests import ClaimRequests
from millstream.nats.session import NatsLimits
from millstream.nats.system.system import System
from millstream.nats.transport.proxies import Proxies
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.tls_transport import TlsPort
from millstream.nats.transport.trace import Tracing
from millstream.server.about import end_of_certificate, show
from millstream.server.access.http_gate import HttpGate, gate_of
from millstream.server.access.identity import identities_of
from millstream.server.access.resolver import directory_of, prepare_directory, source_of
from millstream.server.account_changes import AccountChanges
from millstream.server.link_facts import LinkObserver
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
from millstream.server.page_parts import PageParts, disk_of, kick, pressure_of
from millstream.server.system_account import subjects_of, system_of
from millstream.store.cold.options import ColdOptions
from millstream.store.disk.files import Files
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from millstream.store.wal.committer import Post
from millstream.store.wal.meter import MeteredFiles, meter_of
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import API_LEVEL
from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.streams.deposits.deposits import SECTION as SINKS_SECTION
from millstream.streams.deposits.deposits import Deposits
from millstream.streams.stream_table import StreamsByName
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.supervisor import Supervisor
from millstream.topics.context import Topics
from millstream.topics.openapi import openapi_route
from millstream.wire.info import ServerInfo, server_info

if TYPE_CHECKING:
    from millstream.accounts.callout.server_keys import ServerKeys

DEFAULT_MAX_CONSUMERS = 1000  # of a stream, as nats-server has it


class Footing(msgspec.Struct, frozen=True):
    """What a server stands on that no option names: a simulation brings its own."""

    files: Files
    sizes: StoreOptions = StoreOptions()
    slice_ns: int = NatsLimits().slice_ns


class Runtime(msgspec.Struct, frozen=True):
    """What every part runs on."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    timers: Timers
    footing: Footing
    supervisor: Supervisor

    def post_to(self, hub: Hub, call: Callable[[], None]) -> None:
        """Have the loop make a call that comes from a thread."""
        guarded = self.supervisor.once("the call of a thread", call)
        if not hub.post(guarded):
            self.loop.call_soon_threadsafe(guarded)

    def defer_to(self, hub: Hub, call: Callable[[], None]) -> None:
        """Have the loop make a call of its own in its next turn."""
        if not hub.defer(call):
            self.loop.call_soon(call)


class KeptParts(msgspec.Struct, frozen=True):
    """What is there only where records are kept."""

    store: Store
    shared: SharedParts
    everybody: GlobalAccount
    jetstream: JetStream
    accounts: AccountStreams
    topics: Topics
    sinks: Deposits

    def start(self) -> None:
        """Take up what the store recovered, then serve it."""
        self.shared.recover()
        self.everybody.look()
        self.jetstream.start()
        self.shared.consumers.open()
        self.accounts.start()
        self.topics.recover(self.store.recovery)
        self.sinks.recover(self.store.recovery)

    def sections(self) -> dict[str, bytes]:
        """Return what a snapshot keeps for everything above the store."""
        sinks = {SINKS_SECTION: self.sinks.section()}
        return {**self.shared.sections(), **self.topics.sections(), **sinks}

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
    proxies: Proxies | None = None

    def tls_port(self, options: Options) -> TlsPort | None:
        """Return what the NATS port offers, None when it speaks plain text only."""
        return None if self.tls is None else TlsPort(self.tls, options.allow_non_tls, self.proxies)


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
    changes: AccountChanges
    links: Links | None
    page: PageParts | None


def build(
    options: Options,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    orders: Mapping[str, Callable[[], None]] | None = None,
    files: Files | None = None,
    supervisor: Supervisor | None = None,
    footing: Footing | None = None,
) -> ServerParts:
    """Recover the data directory and connect everything; nothing listens yet.

    ``orders`` are what the system account may tell the server: ``RELOAD``. ``files`` is the disk,
    or ``footing`` the disk and more.
    ``supervisor`` learns of every thread, task and repeated call that ends or fails.
    """
    prepare_directory(options)
    supervisor = supervisor or Supervisor()
    timers = Timers(clock, loop, supervisor)
    footing = footing or Footing(files or MeteredFiles(clock))
    runtime = Runtime(loop, clock, timers, footing, supervisor)
    keys = server_keys(options)
    info = describe(options, keys)
    streams: StreamsByName = {}
    guard = guards(options, clock, streams)
    nats = nats_door(options, info, guard, runtime)
    sharing = Sharing(nats.hub, guard.accounts, clock, nats.sessions.session)
    kept = None
    if options.jetstream is not None:
        kept = keep(
            options.jetstream, info, nats, sharing, streams, runtime,
            TopicDefaults(options.monitor.durability),
        )  # fmt: skip
    links = links_of(options, nats, runtime)
    facts = monitored(options, info, nats, kept, runtime)
    if links is not None:
        facts = with_links(facts, LinkObserver(links))
    system = system_of(nats.sessions, clock, facts, options, orders)
    changes = account_changes(options, nats, sharing, system, kept, links, runtime)
    ask_services(options, nats, keys, runtime)
    gate = gate_to(options, guard, kept, clock) if options.monitor.listens else None
    page = page_of(options, facts, nats, kept, gate)
    http = http_door(options, facts, kept, gate, page, runtime) if options.monitor.listens else None
    return ServerParts(
        info, timers, guard, nats, sharing, kept, http, gate, facts, system, changes, links, page
    )


def page_of(
    options: Options, facts: Facts, nats: NatsDoor, kept: KeptParts | None, gate: HttpGate | None
) -> PageParts | None:
    """Return the API and the dashboard over it, None where the HTTP port only tells."""
    if kept is None or options.jetstream is None or not options.monitor.topics:
        return None
    return PageParts(
        facts,
        kept.topics,
        kept.shared.consumers,
        nats.hub,
        nats.sessions.reception,
        gate,
        str(options.jetstream.directory),
        Masking(options.monitor.mask_rules),
    )


def with_links(facts: Facts, seen: LinkObserver) -> Facts:
    """Add what there is to ask about links to other servers."""
    return msgspec.structs.replace(
        facts,
        traffic=seen.totals,
        links=seen.links,
        link_traffic=seen.traffic,
        connect_urls=seen.connect_urls,
        cluster=seen.cluster,
        leafnodes=seen.leafnodes,
    )


def links_of(options: Options, nats: NatsDoor, runtime: Runtime) -> Links | None:
    """Return what connects this server to others, None where nothing is configured."""
    if options.leafnodes is None and options.cluster is None:
        return None
    loop, supervisor = runtime.loop, runtime.supervisor
    exchange = Exchange(nats.sessions, runtime.clock, loop)
    leafs = mesh = None
    if options.leafnodes is not None:
        plain = frozenset(name for name, domain in options.default_js_domains if not domain)
        leafs = Leafs(loop, exchange, options.leafnodes, supervisor, plain)
    if options.cluster is not None:
        mesh = Mesh(loop, exchange, options.cluster, supervisor)
    return Links(exchange, leafs, mesh)


def nats_door(options: Options, info: ServerInfo, guard: Guards, runtime: Runtime) -> NatsDoor:
    """Return the NATS port, which lets in whom ``guard`` believes."""
    return NatsDoor(
        runtime.loop,
        runtime.clock,
        guard.accounts.interests[GLOBAL_ACCOUNT],
        info,
        limits_of(options, runtime.footing.slice_ns),
        guard.reception,
        guard.tls_port(options),
        tracing_of(options.log),
        runtime.supervisor,
        guard.proxies,
    )


def account_changes(
    options: Options,
    nats: NatsDoor,
    sharing: Sharing,
    system: System,
    kept: KeptParts | None,
    links: Links | None,
    runtime: Runtime,
) -> AccountChanges:
    """Return what puts other accounts in force, which the system account may ask for too."""
    renewals: list[Callable[[], object]] = [sharing.renew, system.renew]
    if kept is not None:
        renewals += [kept.accounts.start, kept.shared.catalog.refresh_feeds]
    if links is not None:
        renewals.append(links.renew)
    changes = AccountChanges(options, nats.sessions, renewals)
    resolve_accounts(options, nats, system, changes, runtime)
    return changes


def resolve_accounts(
    options: Options, nats: NatsDoor, system: System, changes: AccountChanges, runtime: Runtime
) -> None:
    """Have account JWTs kept, handed over and looked for as the resolver says."""
    sessions, timers = nats.sessions, runtime.timers
    space = sessions.reception.accounts.system
    post = partial(runtime.post_to, nats.hub)
    directory = directory_of(options, runtime.supervisor, post, runtime.clock)
    if space is not None:
        ClaimRequests(sessions, space, system.card, changes, directory)
    if directory is not None and directory.terms.ttl:
        pause = min(directory.terms.ttl / 2, 60.0)
        timers.every(pause, "the cache of account JWTs", directory.expire)
    source = source_of(options, sessions, space, timers, runtime.loop)
    if source is not None:
        sessions.reception.referees.add(AccountFetch(sessions, source, changes, directory))


def ask_services(options: Options, nats: NatsDoor, keys: "ServerKeys | None", at: Runtime) -> None:
    """Have the services of accounts asked who clients are, where there may be some."""
    if keys is None:
        return
    from millstream.nats.auth_callout import AuthCallout  # it loads the library for keys

    sessions = nats.sessions
    sessions.reception.referees.add(AuthCallout(sessions, keys, at.timers, at.clock))


def server_keys(options: Options) -> "ServerKeys | None":
    """Return keys for what the server asks and signs, None where nothing is asked."""
    if options.authorization.callout is None and not options.trust.required:
        return None
    from millstream.accounts.callout.server_keys import ServerKeys

    return ServerKeys()


def http_door(
    options: Options,
    facts: Facts,
    kept: KeptParts | None,
    gate: HttpGate | None,
    page: PageParts | None,
    runtime: Runtime,
) -> HttpDoor:
    """Return the HTTP port: monitoring, and topics within their caps."""
    caps = options.monitor.caps
    door = HttpDoor(
        runtime.loop,
        counted(routes(options, facts, page, gate), facts.statuses, facts.http_traffic),
        runtime.clock,
        HttpLimits(body_bytes=caps.max_body_bytes),
        hosts=options.monitor.allowed_hosts,
        turns=kept.topics.turns if kept is not None else None,
        supervisor=runtime.supervisor,
        unread=kept.topics.unread if kept is not None else None,
    )
    if kept is not None:
        kept.topics.cap(**capped(caps))
    return door


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
        "max_unread_bytes": caps.max_unread_bytes,
        "max_unread_per_key": caps.max_unread_bytes_per_key,
        "max_unread_per_connection": caps.max_unread_bytes_per_connection,
    }


def guards(options: Options, clock: Clock, streams: StreamsByName) -> Guards:
    """Return who is let in, how they come, and which accounts there are.

    Who may read or write a stream depends on what it holds, which ``streams`` will tell.
    """
    known = identities_of(options)
    accounts = Accounts(
        known.accounts,
        global_interest=subject_space(options),
        system=known.system_account,
        make_interest=partial(subject_space, options),
    )
    websocket = options.websocket.tls if options.websocket is not None else None
    return Guards(
        accounts,
        Authenticator(
            accounts, clock, known.credentials, known.by_kind, partial(subjects_of, streams)
        ),
        Tls(options.tls) if options.tls is not None else None,
        Tls(websocket) if websocket is not None else None,
        Proxies(options.trusted_proxies) if options.proxy_protocol else None,
    )


def keep(
    options: JetStreamOptions,
    info: ServerInfo,
    nats: NatsDoor,
    sharing: Sharing,
    streams: StreamsByName,
    runtime: Runtime,
    defaults: TopicDefaults,
) -> KeptParts:
    """Recover what is kept, and connect what serves it to every account that has JetStream."""
    hub, loop, clock, timers = nats.hub, runtime.loop, runtime.clock, runtime.timers
    accounts, supervisor = nats.sessions.reception.accounts, runtime.supervisor
    post, defer = partial(runtime.post_to, hub), partial(runtime.defer_to, hub)
    store = open_store(options, clock, post, runtime.footing, supervisor, defer)
    catalog = catalog_of(options, store, hub, accounts, streams, runtime)
    store.pressure.watch(catalog.hold_publishers)
    consumers = Registry(
        catalog,
        store,
        clock,
        timers,
        hub,
        accounts.interests,
        sharing.is_awaited,
        consumers_by_default(options.limits),
    )
    shared = SharedParts(
        hub,
        store,
        clock,
        loop,
        timers,
        catalog,
        consumers,
        api_terms(options, info),
        nats.sessions.clients,
        partial(system_subjects, accounts),
        supervisor,
    )
    sinks = Deposits(catalog, store, clock)
    readers = Readers(consumers)
    endpoints = partial(register_endpoints, shared, sinks, readers, nats.sessions.clients.sight_of)
    everybody = GlobalAccount(lambda: accounts.configured[GLOBAL_ACCOUNT], catalog)
    jetstream = JetStream(shared, GLOBAL_ACCOUNT, accounts.interests[GLOBAL_ACCOUNT], everybody)
    endpoints(GLOBAL_ACCOUNT, jetstream.interest)
    served = AccountStreams(jetstream, accounts, endpoints)
    topics = Topics(
        catalog, clock, store, timers, sinks, readers, supervisor=supervisor, defaults=defaults
    )
    return KeptParts(store, shared, everybody, jetstream, served, topics, sinks)


def catalog_of(
    options: JetStreamOptions,
    store: Store,
    hub: Hub,
    accounts: Accounts,
    streams: StreamsByName,
    runtime: Runtime,
) -> Catalog:
    """Return the streams of all accounts, within the limits of each."""
    limits = options.limits
    batches = BatchLimits.of(
        limits.max_batch_inflight_per_stream, limits.max_batch_inflight_total,
        limits.max_batch_size, limits.max_batch_timeout,
    )  # fmt: skip
    durability = Durability.FSYNC if options.sync_interval is None else Durability.DISK
    return Catalog(
        store,
        runtime.clock,
        runtime.timers,
        hub,
        accounts.interests,
        default_durability=durability,
        batch_limits=batches,
        quotas=AccountQuotas(accounts, options.max_memory, options.max_store),
        streams=streams,
        reach=ExternalStreams(accounts, options.domain).reach,
        domain=options.domain,
    )


def api_terms(options: JetStreamOptions, info: ServerInfo) -> ApiTerms:
    """Return what the options say about the JetStream API."""
    limits = options.limits
    most = ServerLimits(
        limits.max_ack_pending, limits.max_request_batch, round(limits.duplicate_window * 1e9),
        options.max_memory, options.max_store,
    )  # fmt: skip
    return ApiTerms(info.server_name, options.domain, most, options.strict)


def system_subjects(accounts: Accounts) -> Interest | None:
    """Return the subjects of the system account, None where there is none."""
    return accounts.system.interest if accounts.system is not None else None


def register_endpoints(
    shared: SharedParts,
    sinks: Deposits,
    readers: Readers,
    sight_of: plan_endpoint.SightOf,
    account: str,
    interest: Interest,
) -> list[int]:
    """Have an account's streams read by plan and written through sinks; return the handles."""
    hub, catalog, store = shared.hub, shared.catalog, shared.store
    return [
        *plan_endpoint.register(
            hub,
            interest,
            catalog,
            lambda stream: store.plan(stream.log.log_id),
            account,
            sight_of=sight_of,
            cold_of=lambda stream: store.cold_plan(stream.incarnation),
        ),
        *sink_endpoint.register(hub, interest, catalog, sinks, readers, account),
    ]


def open_store(
    options: JetStreamOptions,
    clock: Clock,
    post: Post,
    footing: Footing,
    supervisor: Supervisor,
    defer: Post,
) -> Store:
    """Lock and recover the data directory; ``post`` takes calls of its threads to the loop."""
    directory = options.directory.resolve()
    segments = options.segments
    sizes = replace(
        footing.sizes,
        log=replace(
            footing.sizes.log,
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
    return Store.open(str(directory), footing.files, clock, post, sizes, supervisor, defer)


def limits_of(options: Options, slice_ns: int = NatsLimits().slice_ns) -> NatsLimits:
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
        slice_ns=slice_ns,
    )


def tracing_of(log: LoggingOptions) -> Tracing:
    """Return what the log shows of conversations."""
    return Tracing(log.trace, log.trace_headers, log.max_traced_message)


def describe(options: Options, keys: "ServerKeys | None" = None) -> ServerInfo:
    """Return what clients are told; the id is new with every start."""
    info = server_info(
        keys.public if keys is not None else secrets.token_bytes(32),
        host=options.host,
        port=options.port,
        name=options.server_name,
        jetstream=options.jetstream is not None,
        max_payload=options.limits.max_payload,
    )
    domain = options.jetstream.domain if options.jetstream is not None else ""
    return info.with_(
        headers=options.headers,
        cluster=cluster_name_of(options),
        domain=domain,
        api_lvl=API_LEVEL,
        xkey=keys.xkey if keys is not None else "",
    )


def cluster_name_of(options: Options) -> str:
    """Return the cluster's name; a cluster without one has a name until it meets another."""
    if options.cluster is None or options.cluster_name:
        return options.cluster_name
    return secrets.token_hex(11).upper()


def monitored(
    options: Options,
    info: ServerInfo,
    nats: NatsDoor,
    kept: KeptParts | None,
    runtime: Runtime,
) -> Facts:
    """Return what the monitoring endpoints may ask about."""
    clock, most_closed = runtime.clock, options.limits.max_closed_clients
    observer = Observer(nats.sessions, clock, runtime.timers, most_closed)
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
        end_of=end_of_certificate,
        health=runtime.supervisor.problems,
        loop=LoopMeter(clock.monotonic),
        close_connection=partial(kick, nats.sessions),
    )
    show(facts, options, facts.started_ns)
    if kept is None or options.jetstream is None:
        return facts
    return with_records(facts, options.jetstream, kept)


def with_records(facts: Facts, options: JetStreamOptions, kept: KeptParts) -> Facts:
    """Add what there is to ask about where records are kept."""
    return msgspec.structs.replace(
        facts,
        health=kept.store.health,
        jetstream=stored(options, kept),
        storage=partial(wal_figures, kept.store),
        cold=kept.store.cold.figures,
        pressure=partial(pressure_of, kept.topics),
        disk=partial(disk_of, str(options.directory)),
        wal=meter_of(kept.store),
    )


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


def consumers_by_default(limits: JetStreamLimits) -> int:
    """Return how many consumers a stream may have that names no bound; -1 means any number."""
    return max(limits.default_max_consumers, -1) or DEFAULT_MAX_CONSUMERS


def _limits_shown(limits: JetStreamLimits) -> dict[str, int]:
    """Return the bounds that are set, as the reference names them."""
    named = {
        "max_request_batch": limits.max_request_batch,
        "default_max_consumers": consumers_by_default(limits),
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
    return gate_of(options, guard.reception, clock, kept.shared.catalog, kept.topics.wake)


def routes(
    options: Options, facts: Facts, page: PageParts | None, gate: HttpGate | None = None
) -> Routes:
    """Return what the HTTP port serves: monitoring, and the API with its page where asked for."""
    base = options.monitor.base_path.rstrip("/")
    found = monitor_routes(facts, "/" if page is None else "/monitoring")
    table = [msgspec.structs.replace(route, pattern=base + route.pattern) for route in found]
    if page is not None:
        table += page.routes()
        table.append(openapi_route(lambda: table))
    return Routes(table, None if gate is None else gate.authorize)
