"""Arrivals: servers that connect to a port for links, in plain text or through TLS."""

import asyncio
import logging
import os
import socket
from typing import Protocol

from millstream.links.encrypted import EncryptedLink
from millstream.links.exchange import Exchange
from millstream.links.peer_link import PeerLink
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.tls import Tls
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)

MOST_STRANGERS = 1024  # links that have not said yet who they are


class Host(Protocol):
    """Who takes the links of a port."""

    def received(self, cid: int, peer: str) -> PeerLink:
        """Return the link of a connection that came."""
        ...

    def greet(self, link: PeerLink) -> bytes:
        """Return what it is greeted with."""
        ...

    def knows(self, link: PeerLink, names: tuple[str, ...]) -> None:
        """Take the names in the certificate that it showed."""
        ...


class Arrivals:
    """Takes accepted sockets to the hub."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exchange: Exchange,
        host: Host,
        tls: Tls | None,
        supervisor: Supervisor,
        *,
        tls_first: bool = False,
    ) -> None:
        """``tls_first``: nothing is said before the handshake, as between members."""
        self._loop = loop
        self._exchange = exchange
        self._host = host
        self._tls = tls
        self._supervisor = supervisor
        self._tls_first = tls_first or (tls is not None and tls.terms.handshake_first)
        self._tasks: set[asyncio.Task[None]] = set()
        if tls is not None and tls.terms.verify:
            import millstream.nats.transport.certificate  # noqa: F401  (nobody shall wait for it)

    def accepted(self, fd: int, peer: str) -> None:
        """Take a connected socket."""
        strangers = sum(not link.is_open for link in self._exchange.all())
        if strangers + len(self._tasks) >= MOST_STRANGERS:
            log.warning("too many servers are connecting: %s is turned away", peer)
            os.close(fd)
        elif self._tls is None:
            cid = self._exchange.sessions.open_link(fd)
            link = self._host.received(cid, peer)
            self._exchange.add(link)
            link.hub.write(cid, self._host.greet(link))
            link.hub.flush()
        else:
            task = self._loop.create_task(self._secured(self._tls, fd, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _secured(self, tls: Tls, fd: int, peer: str) -> None:
        sock = socket.socket(fileno=fd)
        carrier = EncryptedLink(self._exchange.hub)
        cid = self._exchange.sessions.open_link(None, carrier)
        carrier.bind(cid)
        link = self._host.received(cid, peer)
        self._exchange.add(link)
        greeting = self._host.greet(link)
        try:
            if not self._tls_first:
                await self._loop.sock_sendall(sock, greeting)
            await self._loop.connect_accepted_socket(
                lambda: carrier,
                sock,
                ssl=tls.context,
                ssl_handshake_timeout=max(tls.terms.timeout, 0.1),
            )
        except (OSError, TimeoutError) as error:
            log.info("TLS handshake of a link failed peer=%s error=%s", peer, error)
            sock.close()
            link.hub.close_connection(cid, Closed.TLS_HANDSHAKE)
            return
        certificate = carrier.certificate
        if not tls.accepts(certificate):
            link.hub.close_connection(cid, Closed.TLS_HANDSHAKE)
            return
        self._host.knows(link, tls.names(certificate))
        if self._tls_first:
            link.hub.write(cid, greeting)
        link.hub.flush()

    def stop(self) -> None:
        """Give up on handshakes that are under way."""
        for task in list(self._tasks):
            task.cancel()


def places(host: str, port: int, advertise: str) -> list[str]:
    """Return where others reach a port: as it is advertised, or else by each address we have."""
    if advertise:
        return [advertise if _has_port(advertise) else f"{advertise}:{port}"]
    if host not in ("0.0.0.0", "::", ""):
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        addresses = sorted({str(item[4][0]) for item in found})
    except OSError:
        addresses = []
    outside = [address for address in addresses if not address.startswith("127.")]
    return [f"{address}:{port}" for address in outside or ["127.0.0.1"]]


def _has_port(place: str) -> bool:
    _, colon, port = place.rpartition(":")
    return bool(colon) and port.isdecimal()
