"""FedClient: what every client has whose bytes Python moves."""

import logging

from millstream.nats.transport.closed import Closed
from millstream.nats.transport.handshakes import Handshakes
from millstream.nats.transport.link import LinkOwner
from millstream.nats.transport.pump import Pump
from millstream.nats.transport.transport import Kind, Transport

log = logging.getLogger(__name__)


class FedClient(LinkOwner):
    """A link to the client and, from its session on, a pump between the link and the hub.

    Whoever brings a client in is told of the link's events and carries the session's bytes.
    """

    def __init__(self, entrance: Handshakes, fd: int, peer: str) -> None:
        self._entrance = entrance
        self._sessions = entrance.sessions
        self._hub = entrance.sessions.hub
        self._peer = peer
        self._pump: Pump | None = None
        self._link = entrance.link(fd, self)

    def closed(self, reason: int) -> None:
        """Hang up."""
        self._link.close()

    def abandon(self) -> None:
        """Hang up: the server stops."""
        self._end(Closed.SHUTDOWN)

    def _fail(self, why: str) -> None:
        log.info("tls handshake failed peer=%s error=%s", self._peer, why)
        self._end(Closed.TLS_HANDSHAKE)

    def _end(self, reason: Closed) -> None:
        if self._pump is None:
            self.closed(reason)
        else:
            self._hub.close_connection(self._pump.cid, reason)


class PlainClient(FedClient):
    """A client in plain text that the hub could serve alone, but somebody wants to read along."""

    def __init__(self, entrance: Handshakes, port: None, fd: int, peer: str) -> None:
        super().__init__(entrance, fd, peer)

    def start(self) -> None:
        """Greet, and read."""
        transport = Transport(Kind.STANDARD, self._peer, port=self._link.port)
        self._sessions.open_fed(self, transport)
        if not self._link.closed:
            self._link.receive()

    def sniffed(self, first: int) -> None:
        """Never asked for here."""

    def secured(self, certificate: bytes | None) -> None:
        """Never asked for here."""

    def received(self, data: bytes) -> None:
        """Feed the hub."""
        assert self._pump is not None
        self._pump.feed(data)
        if not self._link.closed:
            self._pump.brake()

    def drained(self) -> None:
        """Send on."""
        if self._pump is not None:
            self._pump.pull()

    def ended(self, why: str) -> None:
        """Take the client's leave."""
        self._end(Closed.CLIENT)

    def output(self, cid: int) -> None:
        """Send what the hub has; read on if the client may be read."""
        if self._pump is None:
            self._pump = Pump(self._sessions, self._link, cid)
        self._pump.pull()
        if not self._link.closed:
            self._pump.brake()
