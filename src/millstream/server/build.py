"""From a configuration to connected parts: the only module that knows them all."""

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.http.door import HttpDoor
from millstream.http.routes import Routes
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.monitor.facts import Facts
from millstream.monitor.routes import monitor_routes
from millstream.nats import plan_endpoint
from millstream.nats.door import NatsDoor
from millstream.nats.jetstream.endpoint import JetStream
from millstream.nats.session import NatsLimits
from millstream.server.config import ServeConfig
from millstream.store.file_log import LogOptions
from millstream.store.files import OsFiles
from millstream.store.store import Store, StoreOptions
from millstream.streams.catalog import Catalog
from millstream.topics.context import Topics
from millstream.topics.routes import topics_routes
from millstream.wire.info import ServerInfo, server_info


@dataclass(frozen=True, slots=True)
class Parts:
    """What the server starts and stops; each part holds only what it needs of the others."""

    timers: Timers
    store: Store
    nats: NatsDoor
    jetstream: JetStream
    topics: Topics
    http: HttpDoor


def build(config: ServeConfig, loop: asyncio.AbstractEventLoop, clock: Clock) -> Parts:
    """Recover the data directory and connect everything; nothing listens yet."""
    store = open_store(config, loop, clock)
    timers = Timers(clock, loop)
    interest = Interest()
    info = describe(config)
    nats = NatsDoor(loop, clock, interest, info, NatsLimits(max_payload=config.max_payload))
    jetstream = JetStream(nats.hub, interest, store, clock, loop, timers)
    catalog = jetstream.catalog
    plan_endpoint.register(
        nats.hub, interest, catalog, lambda stream: store.plan(stream.log.log_id)
    )
    topics = Topics(catalog, clock, store)
    facts = monitored(config, info, clock, store, nats.hub, catalog)
    routes = Routes([*topics_routes(topics), *monitor_routes(facts)])
    return Parts(timers, store, nats, jetstream, topics, HttpDoor(loop, routes, clock))


def open_store(config: ServeConfig, loop: asyncio.AbstractEventLoop, clock: Clock) -> Store:
    """Lock and recover the data directory."""
    directory = str(Path(config.data_dir).resolve())
    segments = LogOptions(
        segment_records=config.segment_max_events,
        segment_bytes=config.segment_max_bytes,
        segment_age=config.segment_max_age_ms / 1000,
    )
    options = StoreOptions(log=segments)
    return Store.open(directory, OsFiles(), clock, loop.call_soon_threadsafe, options)


def describe(config: ServeConfig) -> ServerInfo:
    """Return what clients are told; the id is new with every start."""
    return server_info(
        secrets.token_bytes(32),
        host=config.host,
        port=config.port,
        name=config.server_name or "",
        jetstream=True,
        max_payload=config.max_payload,
    )


def monitored(
    config: ServeConfig, info: ServerInfo, clock: Clock, store: Store, hub: Hub, catalog: Catalog
) -> Facts:
    """Return what the monitoring endpoints may ask about."""
    return Facts(
        clock=clock,
        started_ns=clock.time_ns(),
        server_id=info.server_id,
        server_name=info.server_name,
        nats_version=info.version,
        host=config.host,
        port=config.port,
        http_host=config.http_host,
        http_port=config.http_port,
        max_payload=config.max_payload,
        health=store.health,
        traffic=hub.stats,
        catalog=catalog,
    )
