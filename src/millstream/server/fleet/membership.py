"""Membership: what the server does as a member of a fleet, from its start to its end."""

import asyncio
import gc
import logging
import os
import secrets
import socket as sockets_of
import sys
from socket import socket

from millstream.clock import SystemClock
from millstream.http import sockets
from millstream.server.opening import Opening, http_place
from millstream.server.options.encryption import key_ring
from millstream.server.options.options import FleetOptions, JetStreamOptions, Options
from millstream.server.process.orders import Order
from millstream.server.start_failures import listening
from millstream.server.waiting_room import WaitingRoom
from millstream.store.fleet.engines import FleetEngines, LogTaken
from millstream.store.fleet.leases import MemberCard
from millstream.store.fleet.member import FleetMember, MemberTerms
from millstream.store.wal.meter import MeteredFiles
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)

LOOK = 0.05  # seconds between two looks whether it is our turn


def start_over(why: str) -> None:
    """Become a standby at once, with nothing answered in between: the process begins anew.

    Whatever a client still waits for, the end of its connection tells it no more than is known.
    """
    log.error("not the owner any more, standing by: %s", why)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)


class Membership:
    """Stands by until the log is to be taken over, then checks the lease at every turn."""

    def __init__(self, options: Options, supervisor: Supervisor) -> None:
        assert options.fleet is not None
        assert options.jetstream is not None
        self._options = options
        self._supervisor = supervisor
        self._clock = SystemClock()
        self._member = member_of(options, options.fleet, options.jetstream, supervisor)
        self._opening: Opening | None = None
        self._is_over = False

    async def await_turn(self, orders: "asyncio.Queue[Order]") -> bool:
        """Stand by, with the HTTP port open; False where an order says stop first."""
        gc.enable()  # a standby may wait for months
        self._opening = self._open()
        self._member.start()
        while self._member.engines is None:
            if self._member.failure is not None:
                raise self._member.failure
            try:
                order = await asyncio.wait_for(orders.get(), LOOK)
            except TimeoutError:
                continue
            if order is Order.STOP:
                return False
        return True

    def take_opening(self) -> Opening:
        """Return the open HTTP port, for the recovery that comes now."""
        opening, self._opening = self._opening, None
        return opening or Opening(MeteredFiles(self._clock))

    @property
    def engines(self) -> FleetEngines:
        """Return what commits to the log."""
        assert self._member.engines is not None
        return self._member.engines

    def failed(self, error: BaseException) -> None:
        """Stand by again where another member was faster; everything else ends the start."""
        if isinstance(error, LogTaken):
            start_over(error.message)

    def check(self) -> None:
        """Stop at once where somebody else may own the log (rule 14)."""
        if not self._is_over:
            self._member.check()

    def away(self) -> str:
        """Return why writes are refused, nothing while the store answers."""
        return self._member.away()

    def leave(self) -> None:
        """Let go of the log, once the store over it is closed; the next member is told."""
        self._is_over = True
        if self._opening is not None:
            self._opening.abandon()
        self._member.close()

    def _open(self) -> Opening:
        """Have the HTTP port tell who serves."""
        options, bound = self._options, list[socket]()
        if not options.monitor.listens:
            return Opening(MeteredFiles(self._clock))
        host, port, tls = http_place(options)
        with listening(options, "http", host, port):
            bound = sockets.bound(host, port)
        hosts = options.monitor.allowed_hosts
        share = None if options.monitor.probe_auth else lambda: 0.0
        room = WaitingRoom(
            host, bound, self._clock, tls, share, hosts, self._supervisor, self._owner
        )
        room.open()
        return Opening(MeteredFiles(self._clock), room, bound)

    def _owner(self) -> str:
        owner = self._member.owner
        if not owner.run or self._member.engines is not None:
            return ""
        return f"not the owner; the owner is {owner.name} at {owner.nats}"


def member_of(
    options: Options, fleet: FleetOptions, kept: JetStreamOptions, supervisor: Supervisor
) -> FleetMember:
    """Return the member that options describe."""
    nats = options.advertise or f"{options.host}:{options.port}"
    http = f"{options.monitor_host}:{options.monitor.port or options.monitor.tls_port or 0}"
    name = options.server_name or f"{sockets_of.gethostname()}:{options.port}"
    card = MemberCard(name, secrets.token_hex(8), nats, http)
    ring = key_ring(kept.encryption, os.environ)
    directory = kept.directory.resolve()
    terms = MemberTerms(fleet.url, fleet.shards, card, directory, ring)
    return FleetMember(terms, SystemClock(), supervisor, start_over)
