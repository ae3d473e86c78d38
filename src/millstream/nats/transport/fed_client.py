"""FedClient: what every client has whose bytes Python moves."""

import logging

from millstream.nats.transport.closed import Closed
from millstream.nats.transport.handshakes import Handshakes
from millstream.nats.transport.link import LinkOwner
from millstream.nats.transport.proxies import HEADER_SECONDS, Proxies
from millstream.nats.transport.pump import Pump
from millstream.nats.transport.transport import Kind, Transport
from millstream.wire.proxy_header import ProxyHeader

log = logging.getLogger(__name__)


class FedClient(LinkOwner):
    """A link to the client and, from its session on, a pump between the link and the hub.

    Whoever brings a client in is told of the link's events and carries the session's bytes.
    """

    def __init__(
        self, entrance: Handshakes, fd: int, peer: str, proxies: Proxies | None = None
    ) -> None:
        """With ``proxies`` a header may stand before the client's own words."""
        self._proxies = proxies  # None once the client itself speaks
        self._entrance = entrance
        self._sessions = entrance.sessions
        self._hub = entrance.sessions.hub
        self._peer = peer
        self._pump: Pump | None = None
        self._link = entrance.link(fd, self)
        self._port_told = 0

    def _plain_transport(self) -> Transport:
        """Return how the client came, as far as that is known before it speaks."""
        port = self._port_told or self._link.port
        return Transport(Kind.STANDARD, self._peer, port=port, is_told=self._proxies is None)

    def _introduced(self, proxies: Proxies) -> bool:
        """Take the header of a proxy if one has come; False while that is not known yet."""
        header = ProxyHeader(0)

        def measure(data: bytes) -> int | None:
            nonlocal header
            found = proxies.read(data, self._peer)
            header = found or header
            return None if found is None else found.size

        try:
            if not self._link.take_head(measure):
                return False
        except ValueError as error:
            log.warning("PROXY header refused peer=%s error=%s", self._peer, error)
            self._end(Closed.PROTOCOL)
            return False
        self._proxies = None
        if header.source:
            self._peer, self._port_told = header.source, header.port
        if self._pump is not None:
            self._sessions.located(self._pump.cid, self._plain_transport())
        return True

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
    """A client in plain text that the hub could serve alone, but somebody wants to read along,

    or a proxy may speak first.
    """

    def __init__(self, entrance: Handshakes, proxies: Proxies | None, fd: int, peer: str) -> None:
        super().__init__(entrance, fd, peer, proxies)

    def start(self) -> None:
        """Greet, and read."""
        if self._proxies is not None:
            self._entrance.expect(self, HEADER_SECONDS)
        self._sessions.open_fed(self, self._plain_transport())
        if self._link.closed:
            return
        if self._proxies is None:
            self._link.receive()
        else:
            self._link.sniff()

    def sniffed(self, first: int) -> None:
        """Look who speaks first, then read."""
        if self._proxies is not None and self._introduced(self._proxies):
            self._entrance.forget(self)
            self._link.receive()

    def expire(self) -> None:
        """Hang up: neither a proxy nor a client has said a word."""
        self._end(Closed.PROTOCOL)

    def closed(self, reason: int) -> None:
        """Hang up."""
        self._entrance.forget(self)
        super().closed(reason)

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
        if not self._link.closed and self._proxies is None:
            self._pump.brake()
