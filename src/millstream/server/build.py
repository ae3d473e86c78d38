"""From options to connected parts: the only module that knows them all."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.monitor.facts import Facts
from millstream.monitor.loop_meter import LoopMeter
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.accounts.sharing import Sharing
from millstream.nats.authenticator import Authenticator
from millstream.nats.door import NatsDoor
from millstream.nats.record_reads import SubjectsOf, unknown_subjects
from millstream.nats.session import NatsLimits
from millstream.nats.system.system import System
from millstream.nats.transport.trace import Tracing
from millstream.server.about import end_of_certificate, show
from millstream.server.access.identity import identities_of
from millstream.server.account_changes import AccountChanges
from millstream.server.figures import kick
from millstream.server.observer import Observer
from millstream.server.options.auth_options import GLOBAL_ACCOUNT
from millstream.server.options.options import (
    LoggingOptions,
    Options,
    TlsOptions,
)
from millstream.server.system_account import system_of
from millstream.store.wal.meter import MeteredFiles
from millstream.streams.config.config import API_LEVEL
from millstream.supervisor import Supervisor
from millstream.wire.info import ServerInfo, server_info

if TYPE_CHECKING:
    from millstream.accounts.callout.server_keys import ServerKeys
    from millstream.links.links import Links
    from millstream.nats.transport.proxies import Proxies
    from millstream.nats.transport.tls import Tls
    from millstream.nats.transport.tls_transport import TlsPort
    from millstream.server.fleet.membership import Membership
    from millstream.server.http_parts import HttpParts
    from millstream.server.kept_parts import KeptParts
    from millstream.server.link_facts import LinkObserver
    from millstream.store.disk.files import Files
    from millstream.store.options import StoreOptions
    from millstream.streams.stream_table import StreamsByName


class Footing(msgspec.Struct, frozen=True):
    """What a server stands on that no option names: a simulation brings its own."""

    files: "Files"
    sizes: "StoreOptions | None" = None
    slice_ns: int = NatsLimits().slice_ns


class Runtime(msgspec.Struct, frozen=True):
    """What every part runs on."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    timers: Timers
    footing: Footing
    supervisor: Supervisor
    fleet: "Membership | None" = None

    def post_to(self, hub: Hub, call: Callable[[], None]) -> None:
        """Have the loop make a call that comes from a thread."""
        guarded = partial(self.supervisor.run_once, "the call of a thread", call)
        if not hub.post(guarded):
            self.loop.call_soon_threadsafe(guarded)

    def defer_to(self, hub: Hub, call: Callable[[], None]) -> None:
        """Have the loop make a call of its own in its next turn."""
        if not hub.defer(call):
            self.loop.call_soon(call)


class Guards(msgspec.Struct, frozen=True):
    """Who is let in, and behind which certificates."""

    accounts: Accounts
    reception: Authenticator
    tls: "Tls | None"
    websocket_tls: "Tls | None"
    proxies: "Proxies | None" = None

    def tls_port(self, options: Options) -> "TlsPort | None":
        """Return what the NATS port offers, None when it speaks plain text only."""
        if self.tls is None:
            return None
        from millstream.nats.transport.tls_transport import TlsPort

        return TlsPort(self.tls, options.allow_non_tls, self.proxies)


class ServerParts(msgspec.Struct, frozen=True):
    """What the server starts and stops; each part holds only what it needs of the others."""

    info: ServerInfo
    timers: Timers
    guards: Guards
    nats: NatsDoor
    sharing: Sharing
    kept: "KeptParts | None"
    http: "HttpParts | None"
    facts: Facts
    system: System
    changes: AccountChanges
    links: "Links | None"


def build(
    options: Options,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    orders: Mapping[str, Callable[[], None]] | None = None,
    files: "Files | None" = None,
    supervisor: Supervisor | None = None,
    fleet: "Membership | None" = None,
    footing: Footing | None = None,
) -> ServerParts:
    """Recover the data directory and connect everything; nothing listens yet.

    ``orders`` are what the system account may tell the server: ``RELOAD``. ``files`` is the disk,
    or ``footing`` the disk and more.
    ``supervisor`` learns of every thread, task and repeated call that ends or fails. ``fleet``
    commits elsewhere than in the directory, and is asked at every turn whether we may go on.
    """
    if options.trust.required:
        from millstream.server.access.resolver import prepare_directory

        prepare_directory(options)
    supervisor = supervisor or Supervisor()
    timers = Timers(clock, loop, supervisor)
    footing = footing or Footing(files or MeteredFiles(clock))
    runtime = Runtime(loop, clock, timers, footing, supervisor, fleet)
    keys = server_keys(options)
    info = describe(options, keys)
    streams: StreamsByName = {}
    guard = guards(options, clock, streams)
    nats = nats_door(options, info, guard, runtime)
    sharing = Sharing(nats.hub, guard.accounts, clock, nats.sessions.session)
    kept = None
    if options.jetstream is not None:
        from millstream.server.kept_parts import keep
        from millstream.streams.config.topic_defaults import TopicDefaults

        kept = keep(
            options.jetstream, info, nats, sharing, streams, runtime,
            TopicDefaults(options.monitor.durability), has_http=options.monitor.topics,
        )  # fmt: skip
    links = links_of(options, nats, runtime)
    facts = monitored(options, info, nats, kept, runtime)
    if links is not None:
        from millstream.server.link_facts import LinkObserver

        facts = with_links(facts, LinkObserver(links))
    system = system_of(nats.sessions, clock, facts, options, orders)
    changes = account_changes(options, nats, sharing, system, kept, links, runtime)
    ask_services(options, nats, keys, runtime)
    http = None
    if options.monitor.listens:
        from millstream.server.http_parts import http_parts

        http = http_parts(options, facts, nats, guard, kept, runtime)
    return ServerParts(
        info, timers, guard, nats, sharing, kept, http, facts, system, changes, links
    )


def with_links(facts: Facts, seen: "LinkObserver") -> Facts:
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


def links_of(options: Options, nats: NatsDoor, runtime: Runtime) -> "Links | None":
    """Return what connects this server to others, None where nothing is configured."""
    if options.leafnodes is None and options.cluster is None:
        return None
    from millstream.links.exchange import Exchange
    from millstream.links.leafs import Leafs
    from millstream.links.links import Links
    from millstream.links.mesh import Mesh

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
        None if runtime.fleet is None else runtime.fleet.check,
    )


def account_changes(
    options: Options,
    nats: NatsDoor,
    sharing: Sharing,
    system: System,
    kept: "KeptParts | None",
    links: "Links | None",
    runtime: Runtime,
) -> AccountChanges:
    """Return what puts other accounts in force, which the system account may ask for too."""
    renewals: list[Callable[[], object]] = [sharing.renew, system.renew]
    if kept is not None:
        renewals += [kept.accounts.start, kept.shared.catalog.refresh_feeds]
    if links is not None:
        renewals.append(links.renew)
    changes = AccountChanges(options, nats.sessions, renewals)
    if options.trust.required or options.accounts:  # else nobody can ask in the system account
        resolve_accounts(options, nats, system, changes, runtime)
    return changes


def resolve_accounts(
    options: Options, nats: NatsDoor, system: System, changes: AccountChanges, runtime: Runtime
) -> None:
    """Have account JWTs kept, handed over and looked for as the resolver says."""
    from millstream.nats.resolvers.account_fetch import AccountFetch
    from millstream.nats.resolvers.claim_requests import ClaimRequests
    from millstream.server.access.resolver import directory_of, source_of

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


def subject_space(options: Options) -> Interest:
    """Return an account's subjects, with a cache of matches unless that was turned off."""
    return Interest() if options.sublist_cache else Interest(cache=1, sweep=0)


def guards(options: Options, clock: Clock, streams: "StreamsByName") -> Guards:
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
    held: SubjectsOf = unknown_subjects
    if options.jetstream is not None:
        from millstream.streams.reading.held_subjects import HeldSubjects

        held = HeldSubjects(streams)
    proxies = None
    if options.proxy_protocol:
        from millstream.nats.transport.proxies import Proxies

        proxies = Proxies(options.trusted_proxies)
    return Guards(
        accounts,
        Authenticator(accounts, clock, known.credentials, known.by_kind, held),
        tls_of(options.tls),
        tls_of(websocket),
        proxies,
    )


def tls_of(options: TlsOptions | None) -> "Tls | None":
    """Return certificates that connections are behind, None where they are in plain text."""
    if options is None:
        return None
    from millstream.nats.transport.tls import Tls

    return Tls(options)


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
    kept: "KeptParts | None",
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
    from millstream.server.kept_parts import with_records

    return with_records(facts, options.jetstream, kept)
