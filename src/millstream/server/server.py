"""Server: starts the parts, follows orders, stops the parts in the order that keeps promises."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from millstream.clock import Clock, SystemClock
from millstream.monitor.loop_meter import PERIOD as LOOP_PERIOD
from millstream.server.about import advertised, websocket_shown
from millstream.server.build import ServerParts, build
from millstream.server.facts import RecoveredStream, ServerFacts
from millstream.server.opening import Opening, begin
from millstream.server.options.addresses import is_loopback
from millstream.server.options.loaded import Load
from millstream.server.options.options import FleetOptions, JetStreamOptions, Options
from millstream.server.process.descriptors import take_all
from millstream.server.process.heap import keep_heap
from millstream.server.process.launcher_files import LauncherFiles, pid_text, ports_file
from millstream.server.process.log_lines import lines_of
from millstream.server.process.log_output import LogOutput
from millstream.server.process.loop_guard import GuardedLoop, loop_factory
from millstream.server.process.orders import Order, from_signals, to_be_told
from millstream.server.process.service_manager import ServiceManager
from millstream.server.reload.lame_duck import departures, take
from millstream.server.reload.reloading import Reloading
from millstream.server.running import RunningParts, advertise
from millstream.server.start_failures import keeping, listening
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from millstream.http.door import HttpDoor
    from millstream.server.fleet.membership import Membership
    from millstream.server.kept_parts import KeptParts

log = logging.getLogger(__name__)

Announce = Callable[[ServerFacts], None]

_TICK = 1.0
_FLEET_TICK = 0.1
GARBAGE_AFTER = 10_000  # objects that came and did not go: next to nothing of it is a cycle


def run(
    options: Options,
    announce: Announce,
    load: Load | None = None,
    output: LogOutput | None = None,
    ready: "Sequence[socket]" = (),
) -> int:
    """Serve until an order says stop; returns the exit code.

    ``ready`` are sockets that listen for NATS clients already.
    """
    if output is None:
        handler = logging.StreamHandler()
        handler.setFormatter(lines_of(options.log.form))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    gc.disable()  # nothing that a start makes becomes garbage
    keep_heap()
    take_all()
    serving = _serve(options, announce, load, output, SystemClock(), ready)
    return uvloop.run(serving, loop_factory=loop_factory())


async def _serve(
    options: Options,
    announce: Announce,
    load: Load | None,
    output: LogOutput | None,
    clock: Clock,
    ready: "Sequence[socket]",
) -> int:
    started = clock.monotonic()
    new = options.jetstream is not None and not options.jetstream.directory.exists()
    loop = asyncio.get_running_loop()
    orders = from_signals(loop)
    manager = ServiceManager(os.environ)
    supervisor = Supervisor()
    fleet = membership(options, supervisor)
    if fleet is not None and not await fleet.await_turn(orders):
        fleet.leave()
        return 0
    parts, opening = assemble(options, orders, clock, supervisor, fleet)
    server = Server(options, parts, opening, fleet, ready)
    running = RunningParts(parts, output, server.write_files)
    try:
        await server.start()
        announce(server.facts(clock.monotonic() - started, new))
        manager.ready(f"serving {_url('nats', server.nats_address)}")
        if manager.watchdog_seconds:
            parts.timers.every(manager.watchdog_seconds, "the sign of life", manager.alive)
        gc.freeze()  # what is there now stays: collections that look at it again cost 40 ms
        gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
        gc.enable()
        if isinstance(loop, GuardedLoop):
            loop.guard.begin()
        await follow(orders, running, Reloading(options, load, running))
    finally:
        if isinstance(loop, GuardedLoop):
            loop.guard.end()
        manager.stopping()
        await server.stop()
    return 0


def membership(options: Options, supervisor: Supervisor) -> "Membership | None":
    """Return what makes the server a member of a fleet, None where it is alone."""
    if options.fleet is None:
        return None
    from millstream.server.fleet.membership import Membership  # who is alone pays nothing for it

    return Membership(options, supervisor)


def assemble(
    options: Options,
    orders: "asyncio.Queue[Order]",
    clock: Clock,
    supervisor: Supervisor | None = None,
    fleet: "Membership | None" = None,
) -> tuple[ServerParts, Opening]:
    """Recover the directory and connect the parts; nothing serves yet but the waiting room."""
    loop, supervisor = asyncio.get_running_loop(), supervisor or Supervisor()
    with keeping(options):
        opening = begin(options, clock, supervisor) if fleet is None else fleet.take_opening()
        try:
            parts = build(
                options, loop, clock, to_be_told(orders), opening.files, supervisor, fleet
            )
        except BaseException as error:
            if fleet is not None:
                fleet.failed(error)
            opening.abandon()
            raise
    return parts, opening


async def follow(
    orders: "asyncio.Queue[Order]", running: RunningParts, reloading: Reloading
) -> None:
    """Carry out orders until one says stop, or until the last client has left."""
    async with asyncio.TaskGroup() as group:
        leaving: asyncio.Task[None] | None = None
        while (order := await orders.get()) is not Order.STOP:
            log.info("Order received: %s", order.value)
            if order is Order.RELOAD:
                reloading.reload()
            elif order is Order.REOPEN:
                running.reopen_log()
            elif leaving is None:
                leaving = group.create_task(_leave(running, reloading, orders))
        if leaving is not None:
            leaving.cancel()


async def _leave(
    running: RunningParts, reloading: Reloading, orders: "asyncio.Queue[Order]"
) -> None:
    """Send clients elsewhere, a few at a time, and then order the stop."""
    times = reloading.options.lame_duck
    log.info("Entering lame duck mode, stop accepting new clients")
    running.stop_listening()
    if running.clients():
        await asyncio.sleep(times.grace_period)
    clients = running.clients()
    log.info("Closing existing clients: %d", len(clients))
    for leaving, pause in take(clients, departures(len(clients), times)):
        running.close_clients(leaving)
        await asyncio.sleep(pause)
    orders.put_nowait(Order.STOP)


class Server:
    """The running parts of one process."""

    def __init__(
        self,
        options: Options,
        parts: ServerParts,
        opening: Opening | None = None,
        fleet: "Membership | None" = None,
        ready: "Sequence[socket]" = (),
    ) -> None:
        self._options = options
        self._parts = parts
        self._opening = opening
        self._fleet = fleet
        self._ready = ready
        self._files = LauncherFiles()
        self.nats_address = ("", 0)
        self.http_address: tuple[str, int] | None = None
        self.websocket_address: tuple[str, int] | None = None

    async def start(self) -> None:
        """Open the doors; what was recovered is already in place."""
        parts, options = self._parts, self._options
        self.begin()
        if parts.http is not None:
            self.http_address = await self._start_http(parts.http.door)
            parts.facts.http_port = self.http_address[1]
        parts.system.start(parts.timers)
        with listening(options, "nats", options.host, options.port):
            self.nats_address = parts.nats.start(options.host, options.port, self._ready)
        advertise(parts, options)
        if options.websocket is not None:
            terms = options.websocket
            with listening(options, "websocket", terms.host, terms.port):
                self.websocket_address = parts.nats.start_websocket(
                    terms.host, terms.port, terms, parts.guards.websocket_tls
                )
            parts.facts.websocket = websocket_shown(terms, self.websocket_address)
        if parts.kept is not None and options.streams:
            from millstream.server.declared_streams import declare

            await declare(parts.kept.shared.catalog, options.streams)
        self._start_links(options)
        self.write_files(options)

    def begin(self) -> None:
        """Serve what was recovered and tend it from now on; nobody can come in yet."""
        if self._parts.kept is not None:
            self._parts.kept.start()
        self._start_ticks()

    def _start_links(self, options: Options) -> None:
        """Listen for other servers and call them, once clients are served."""
        links = self._parts.links
        if links is None:
            return
        for which, terms in (("leafnodes", options.leafnodes), ("cluster", options.cluster)):
            if terms is not None and terms.port is not None:
                with listening(options, which, terms.host, terms.port):
                    links.listen(which)
        from millstream.links.arrivals import places

        links.start(places(*advertised(options, self.nats_address), ""))

    async def _start_http(self, http: "HttpDoor") -> tuple[str, int]:
        """Listen for HTTP, or for HTTPS with the clients' certificates."""
        monitor, tls = self._options.monitor, self._parts.guards.tls
        context, port = None, monitor.port
        if monitor.tls_port is not None and tls is not None:
            context, port = tls.server_context(), monitor.tls_port
        host = self._options.monitor_host
        with listening(self._options, "http", host, port or 0):
            bound = self._opening.take() if self._opening is not None else None
            return host, await http.start(host, port or 0, context, bound)

    @property
    def http_url(self) -> str | None:
        """Where monitoring and the HTTP API are, if anywhere."""
        if self.http_address is None:
            return None
        secure = self._options.monitor.tls_port is not None
        return _url("https" if secure else "http", self.http_address)

    def write_files(self, options: Options) -> None:
        """Write what launchers wait for: the process id, and the ports that were taken."""
        self._files.write(self._launcher_files(options))

    async def stop(self) -> None:
        """Close the doors first, then let the store finish what it accepted."""
        parts = self._parts
        if self._opening is not None:
            self._opening.abandon()
        parts.system.shutting_down()
        if parts.links is not None:
            parts.links.stop()
        topics = parts.kept.topics if parts.kept is not None else None
        if topics is not None:
            topics.stop()
        if parts.http is not None:
            await parts.http.door.stop()
        if parts.kept is None:
            parts.nats.stop()
        else:
            await parts.kept.letters.work.finish()
            if topics is not None:
                await topics.finish()
            await parts.kept.accounts.close()
            await parts.kept.jetstream.finish()
            await parts.kept.sinks.finish()
            # Once all that was under way is there: the snapshot says that it covers it. Nothing may
            # wait between the two, as more would come meanwhile.
            parts.kept.shared.catalog.settle_heads()
            from millstream.store.checkpoints import whole

            sections = whole(parts.kept.sections())
            parts.kept.shared.close()
            parts.nats.stop()
            parts.kept.store.checkpoint(sections)
        parts.timers.close()
        if parts.kept is not None:
            parts.kept.store.close()
        if self._fleet is not None:
            self._fleet.leave()
        self._files.remove()

    def _start_ticks(self) -> None:
        """Tend each part about once a second, apart: one that fails must not stop the others."""
        every, kept, http = self._parts.timers.every, self._parts.kept, self._parts.http
        if kept is not None:
            every(_TICK, "the tending of logs and segments", kept.store.tick)
            every(_TICK, "the round of idle streams", kept.shared.catalog.tick)
            every(_TICK, "the sweep of staged records", kept.sinks.tick)
            every(_TICK, "the look whether a snapshot is due", kept.checkpoint_if_due)
        if kept is not None and self._fleet is not None:
            every(_FLEET_TICK, "the look at the fleet's store", partial(watch, kept, self._fleet))
        if self._parts.links is not None:
            every(_TICK, "the look at links", self._parts.links.tick)
        if http is not None and http.gate is not None:
            every(_TICK, "the look at revoked credentials", http.gate.check)
        if http is not None and http.page is not None:
            every(_TICK, "the dashboard's look at the server", http.page.sampler.look)
        if self._parts.facts.loop is not None:
            every(LOOP_PERIOD, "the meter of the loop", self._parts.facts.loop.ring)

    def _launcher_files(self, options: Options) -> dict[Path, str]:
        files: dict[Path, str] = {}
        if options.jetstream is not None:
            files[options.jetstream.directory / "millstream.pid"] = pid_text()
        if options.pid_file:
            files[Path(options.pid_file)] = pid_text()
        if options.http_port_file and self.http_address is not None:
            files[Path(options.http_port_file)] = "{}:{}".format(*self.http_address)
        if options.ports_file_dir:
            urls = {"nats": [_url("nats", self.nats_address)]}
            if self.http_url is not None:
                urls["monitoring"] = [self.http_url]
            if self.websocket_url is not None:
                urls["websocket"] = [self.websocket_url]
            links = self._parts.links
            if links is not None:
                urls |= {name: [_url("nats", at)] for name, at in links.addresses().items()}
            path, text = ports_file(options.ports_file_dir, options.program, urls)
            files[path] = text
        return files

    def facts(self, ready_seconds: float, data_is_new: bool) -> ServerFacts:
        """Return what the banner says."""
        options = self._options
        kept, http = self._parts.kept, self._parts.http
        http_keys = http is not None and http.gate is not None and http.gate.authorize.required
        open_hosts = [options.host] if http_keys else [options.host, options.monitor_host]
        return ServerFacts(
            data_dir=str(options.jetstream.directory) if options.jetstream is not None else "",
            data_is_new=data_is_new,
            nats_url=_url("nats", self.nats_address),
            http_url=self.http_url,
            http_offers=("API", "dashboard", "/metrics") if options.monitor.topics else ("/varz",),
            durability=_promise(options.jetstream, options.fleet),
            http_durability=options.monitor.durability,
            credentials=options.credentials,
            http_keys=http_keys,
            loopback_only=all(is_loopback(host) for host in open_hosts),
            ready_seconds=ready_seconds,
            recovered=self._recovered(),
            recovery_seconds=kept.store.recovery.seconds if kept is not None else 0.0,
            server_id=self._parts.info.server_id,
            server_name=self._parts.info.server_name,
            websocket_url=self.websocket_url,
            tls=options.tls is not None,
            proxy_protocol=options.proxy_protocol,
        )

    @property
    def websocket_url(self) -> str | None:
        """Where WebSocket clients connect."""
        if self.websocket_address is None:
            return None
        secure = self._parts.guards.websocket_tls is not None
        return _url("wss" if secure else "ws", self.websocket_address)

    def _recovered(self) -> tuple[RecoveredStream, ...]:
        kept, made = self._parts.kept, []
        if kept is None:
            return ()
        for stream in kept.jetstream.catalog.streams():
            found = kept.store.recovery.logs.get(stream.incarnation)
            if found is not None:
                counts = (found.records, found.lost, found.torn, found.unsynced)
                made.append(RecoveredStream(stream.name, *counts))
        return tuple(made)


def watch(kept: "KeptParts", fleet: "Membership") -> None:
    """Refuse writes while the fleet's object store is away, and stop where the lease has ended."""
    fleet.check()
    kept.store.say_away(fleet.away())


def _url(scheme: str, address: tuple[str, int]) -> str:
    host, port = address
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _promise(stream: JetStreamOptions | None, fleet: FleetOptions | None) -> str | None:
    """Return when an acknowledgement is sent unless a stream asks for another class."""
    if stream is None:
        return None
    if fleet is not None:
        return f"ack once {fleet.url} has it"
    if stream.sync_interval is None:
        return "fsync before ack"
    return f"ack after write, synced every {stream.sync_interval:g} s"
