"""What keeps records: store, streams, consumers and all that serves them.

A module of its own, so that a server without JetStream never imports it.
"""

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.consumers.readers import Readers
from millstream.consumers.registry import Registry
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.monitor.facts import Facts, JetStreamFacts
from millstream.nats.accounts.account_quotas import AccountQuotas
from millstream.nats.accounts.account_streams import AccountStreams
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.accounts.external_streams import ExternalStreams
from millstream.nats.accounts.global_account import GlobalAccount
from millstream.nats.accounts.sharing import Sharing
from millstream.nats.door import NatsDoor
from millstream.nats.jetstream import shapes
from millstream.nats.jetstream.endpoint import JetStream
from millstream.nats.jetstream.server_limits import ServerLimits
from millstream.nats.jetstream.serving.shared_parts import ApiTerms, SharedParts
from millstream.nats.millstream_api import plan_endpoint, sink_endpoint
from millstream.queues.consumer_letters import ConsumerLetters
from millstream.queues.dead_letters import DeadLetters
from millstream.server.figures import disk_of, memory_of_machine, pressure_of, room_on_disk
from millstream.server.options.auth_options import GLOBAL_ACCOUNT
from millstream.server.options.encryption import key_ring
from millstream.server.options.options import JetStreamLimits, JetStreamOptions
from millstream.store.checkpoints import Sections
from millstream.store.cold.options import ColdOptions
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.shards import Engines
from millstream.store.store import Store
from millstream.store.wal.committer import Post
from millstream.store.wal.meter import meter_of
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import API_LEVEL
from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.streams.deposits.deposits import SECTION as SINKS_SECTION
from millstream.streams.deposits.deposits import Deposits
from millstream.streams.stream_table import StreamsByName
from millstream.streams.topic_limit import TopicLimit
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.supervisor import Supervisor
from millstream.wire.info import ServerInfo

if TYPE_CHECKING:
    from millstream.server.build import Footing, Runtime
    from millstream.store.recovery.recovery import Recovery
    from millstream.topics.context import Topics

TOPIC_CONTROLS = (25, 31, 32)  # lease events, routers made and deleted
TOPIC_SECTIONS = ("queues", "routers")  # of a snapshot
DEFAULT_MAX_CONSUMERS = 1000  # of a stream, as nats-server has it


class KeptParts(msgspec.Struct, frozen=True):
    """What is there only where records are kept."""

    store: Store
    shared: SharedParts
    everybody: GlobalAccount
    jetstream: JetStream
    accounts: AccountStreams
    topics: "Topics | None"  # where HTTP serves them, or the directory has something of theirs
    sinks: Deposits
    letters: ConsumerLetters

    def start(self) -> None:
        """Take up what the store recovered, then serve it."""
        self.shared.recover()
        self.everybody.look()
        self.jetstream.start()
        self.shared.consumers.open()
        self.accounts.start()
        if self.topics is not None:
            self.topics.recover(self.store.recovery)
        self.sinks.recover(self.store.recovery)
        self.store.recovery.taken_up()

    def sections(self) -> Sections:
        """Return what a snapshot keeps for everything above the store."""
        sinks = {SINKS_SECTION: self.sinks.section()}
        topics = self.topics.sections() if self.topics is not None else {}
        return {**self.shared.sections(), **topics, **sinks}

    def checkpoint_if_due(self) -> None:
        """Make a snapshot once the write-ahead log has grown enough."""
        if self.store.checkpoint_due:
            self.store.checkpoint_soon(self.sections)


def keep(
    options: JetStreamOptions,
    info: ServerInfo,
    nats: NatsDoor,
    sharing: Sharing,
    streams: StreamsByName,
    runtime: "Runtime",
    defaults: TopicDefaults,
    *,
    has_http: bool,
) -> KeptParts:
    """Recover what is kept, and connect what serves it to every account that has JetStream."""
    hub, loop, clock, timers = nats.hub, runtime.loop, runtime.clock, runtime.timers
    accounts, supervisor = nats.sessions.reception.accounts, runtime.supervisor
    post, defer = partial(runtime.post_to, hub), partial(runtime.defer_to, hub)
    engines = None if runtime.fleet is None else runtime.fleet.engines
    store = open_store(options, clock, post, runtime.footing, supervisor, defer, engines)
    catalog = catalog_of(options, store, hub, accounts, streams, runtime)
    store.pressure.watch(catalog.hold_publishers)
    topic_limit = TopicLimit(catalog)
    letters = ConsumerLetters(DeadLetters(catalog, topic_limit.reserved, defaults))
    consumers = Registry(
        *(catalog, store, clock, timers, hub, accounts.interests),
        sharing.is_awaited,
        consumers_by_default(options.limits),
        letters,
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
    space = accounts.get(GLOBAL_ACCOUNT)
    assert space is not None  # it is always there
    everybody = GlobalAccount(space, catalog)
    jetstream = JetStream(shared, GLOBAL_ACCOUNT, accounts.interests[GLOBAL_ACCOUNT], everybody)
    endpoints(GLOBAL_ACCOUNT, jetstream.interest)
    served = AccountStreams(jetstream, accounts, endpoints)
    topics = None
    if has_http or is_of_topics(store.recovery):
        from millstream.topics.context import Topics

        topics = Topics(
            *(catalog, clock, store, timers, sinks, readers),
            supervisor=supervisor,
            defaults=defaults,
            topic_limit=topic_limit,
        )
    return KeptParts(store, shared, everybody, jetstream, served, topics, sinks, letters)


def is_of_topics(found: "Recovery") -> bool:
    """Whether a server with topics used this directory, or somebody made a queue in it."""
    if any(name in found.sections for name in TOPIC_SECTIONS):
        return True
    said = (*found.sections.values(), *(control.body for control in found.controls))
    return any(control.kind in TOPIC_CONTROLS for control in found.controls) or any(
        b"millstream.type" in text for text in said
    )


def catalog_of(
    options: JetStreamOptions,
    store: Store,
    hub: Hub,
    accounts: Accounts,
    streams: StreamsByName,
    runtime: "Runtime",
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
    footing: "Footing",
    supervisor: Supervisor,
    defer: Post,
    engines: Engines | None = None,
) -> Store:
    """Lock and recover the data directory; ``post`` takes calls of its threads to the loop."""
    directory = options.directory.resolve()
    segments = options.segments
    given = footing.sizes or StoreOptions()
    sizes = replace(
        given,
        log=replace(
            given.log,
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
    return Store.open(str(directory), footing.files, clock, post, sizes, supervisor, defer, engines)


def stored(options: JetStreamOptions, kept: KeptParts) -> JetStreamFacts:
    """Return what the monitor may ask about the records."""
    interval = options.sync_interval
    return JetStreamFacts(
        accounts=kept.accounts.all,
        shapes=shapes,
        store_dir=str(options.directory),
        max_memory=options.max_memory if options.max_memory >= 0 else memory_of_machine(),
        max_storage=options.max_store
        if options.max_store >= 0
        else room_on_disk(options.directory),
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


def with_records(facts: Facts, options: JetStreamOptions, kept: KeptParts) -> Facts:
    """Add what there is to ask about where records are kept."""
    return msgspec.structs.replace(
        facts,
        health=kept.store.health,
        jetstream=stored(options, kept),
        storage=partial(wal_figures, kept.store),
        cold=kept.store.cold.figures,
        pressure=facts.pressure if kept.topics is None else partial(pressure_of, kept.topics),
        disk=partial(disk_of, str(options.directory)),
        wal=meter_of(kept.store),
    )
