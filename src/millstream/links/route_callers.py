"""RouteCallers: keep a route to each member that is configured, and call those we hear of."""

import asyncio
import logging
import random
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING

from millstream.links.demand import LinkKind
from millstream.links.dialing import dial, encrypt, first_info
from millstream.links.encrypted import EncryptedLink
from millstream.links.member_route import MemberRoute
from millstream.links.peer_link import Remote
from millstream.links.terms import MAX_PENDING, ServerAddress
from millstream.nats.transport.closed import Closed
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    from millstream.links.mesh import Mesh

log = logging.getLogger(__name__)

_DELAY = 1.0
_LONGEST_DELAY = 30.0
_JITTER = 0.3
_DIAL_TIMEOUT = 1.0
_TOLD_EVERY = 30
_MOST = 256  # members that we call, whoever tells us of more


class RouteCallers:
    """One task for each member that we call."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, mesh: "Mesh", supervisor: Supervisor
    ) -> None:
        self._loop = loop
        self._mesh = mesh
        self._supervisor = supervisor
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_over = False

    def keep(self, address: ServerAddress, *, implicit: bool) -> None:
        """Call a member; one that is not ``implicit`` is called until it answers, and again."""
        place = address.place
        if place in self._tasks or (implicit and len(self._tasks) >= _MOST):
            return
        task = self._loop.create_task(self._call_again(address, implicit=implicit))
        self._tasks[place] = task
        self._supervisor.task(
            f"the route {place}",
            task,
            lambda: implicit or self._is_over or place not in self._tasks,
            lambda error: None,
        )
        task.add_done_callback(lambda _: self._tasks.pop(place, None))

    def forget(self, kept: Collection[str]) -> None:
        """Call only these from now on."""
        for place in [place for place in self._tasks if place not in kept]:
            self._tasks.pop(place).cancel()

    def stop(self) -> None:
        """Call nobody any more."""
        self._is_over = True
        for task in list(self._tasks.values()):
            task.cancel()

    async def _call_again(self, address: ServerAddress, *, implicit: bool) -> None:
        failures = 0
        while not self._is_over:
            delay = _DELAY
            if self._mesh.terms.connect_backoff:
                delay = min(_DELAY * 2**failures, _LONGEST_DELAY)
            try:
                route = await self._call(address, implicit=implicit)
            except (OSError, TimeoutError, ValueError) as error:
                if failures % _TOLD_EVERY == 0:
                    log.error(
                        "Error trying to connect to route %s (attempt %d): %s",
                        address.place, failures + 1, error or "no answer in time",
                    )  # fmt: skip
                failures += 1
                if implicit and failures > self._mesh.terms.connect_retries:
                    return
            else:
                await route.gone.wait()
                failures = 0
                if (
                    route.is_duplicate
                    and route.remote.id == self._mesh.exchange.sessions.info.server_id
                ):
                    await self._for_ever()
                await self._while_connected(route.remote.id)
                if implicit and not route.was_open:
                    return
            await asyncio.sleep(delay + random.uniform(0, _JITTER))

    async def _for_ever(self) -> None:
        """Wait: this address is our own."""
        await asyncio.Event().wait()

    async def _while_connected(self, remote_id: str) -> None:
        """Wait while another route leads to the same member."""
        while True:
            other = next(
                (r for r in self._mesh.all() if r.is_open and r.remote.id == remote_id), None
            )
            if other is None:
                return
            await other.gone.wait()

    async def _call(self, address: ServerAddress, *, implicit: bool) -> MemberRoute:
        sock = await dial(address, _DIAL_TIMEOUT)
        try:
            return await self._introduce(address, sock, implicit=implicit)
        except BaseException:
            sock.close()
            raise

    async def _introduce(
        self, address: ServerAddress, sock: socket.socket, *, implicit: bool
    ) -> MemberRoute:
        hub, tls, said = self._mesh.exchange.hub, self._mesh.terms.dial_tls, b""
        carrier = EncryptedLink(hub)
        if tls is None:
            said = await first_info(sock, self._mesh.terms.auth_timeout)
            cid = self._mesh.exchange.sessions.open_link(sock.detach())
        else:
            cid = self._mesh.exchange.sessions.open_link(None, carrier)
            carrier.bind(cid)
        hub.wishes.link(cid, LinkKind.ROUTE, MAX_PENDING)
        there = Remote(peer=address.host, host=address.host, port=address.port)
        route = MemberRoute(self._mesh, cid, there, address, implicit=implicit)
        self._mesh.exchange.add(route)
        if tls is not None:
            try:
                await encrypt(sock, tls, address.host, lambda: carrier)
            except BaseException:
                hub.close_connection(cid, Closed.TLS_HANDSHAKE)
                raise
        if said:
            route.info(said)
        hub.flush()
        return route
