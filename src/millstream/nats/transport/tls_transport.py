"""TlsClient: a client of the NATS port where TLS is required or offered.

Usually INFO goes out in plain text and the client answers it with a handshake. With
``handshake_first`` the handshake is waited for, for a moment or for as long as it may take.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from millstream.nats.transport.closed import Closed
from millstream.nats.transport.fed_client import FedClient
from millstream.nats.transport.handshakes import Handshakes
from millstream.nats.transport.proxies import Proxies
from millstream.nats.transport.pump import Pump
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.transport import Kind, Transport
from millstream.wire import errors

if TYPE_CHECKING:
    import asyncio

_HANDSHAKE = 0x16  # the first byte of a TLS handshake; no NATS operation begins with it


class TlsPort(msgspec.Struct, frozen=True):
    """What the NATS port offers; ``optional`` lets clients stay in plain text."""

    tls: Tls
    optional: bool = False
    proxies: Proxies | None = None


class TlsStage(Enum):
    """How far a client has come."""

    WAITING = auto()  # for a handshake that INFO would come too early for
    GREETED = auto()  # INFO is out in plain text
    SHAKING = auto()
    OPEN = auto()
    OVER = auto()


class TlsClient(FedClient):
    """Brings one client in, then carries its bytes."""

    def __init__(self, entrance: Handshakes, port: TlsPort, fd: int, peer: str) -> None:
        super().__init__(entrance, fd, peer, port.proxies)
        self._port = port
        self._stage = TlsStage.WAITING
        self._fallback: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin as the port's terms say."""
        terms = self._port.tls.terms
        self._entrance.expect(self, terms.timeout)
        if not terms.handshake_first:
            self._greet()
            return
        self._link.sniff()
        if terms.fallback_delay:
            later = self._entrance.loop.call_later
            self._fallback = later(terms.fallback_delay, self._greet)

    def sniffed(self, first: int) -> None:
        """Take the first byte for what it is: a proxy's header, a handshake, or plain text."""
        if self._proxies is not None:
            if self._introduced(self._proxies):
                self._link.sniff()
        elif self._stage is TlsStage.WAITING or first == _HANDSHAKE:
            self._shake()
        elif self._port.optional:
            self._open()
        else:
            self._refuse(errors.TLS_REQUIRED)

    def secured(self, certificate: bytes | None) -> None:
        """Let the client in, unless its key is not among the pinned ones."""
        tls = self._port.tls
        if not tls.accepts(certificate):
            self._fail("certificate not pinned")
            return
        version, cipher = self._link.tls_terms
        transport = Transport(
            Kind.STANDARD,
            self._peer,
            True,
            tls.names(certificate),
            port=self._port_told or self._link.port,
            tls_version=version,
            tls_cipher=cipher,
            tls_first=self._pump is None,
            certificate=tls.shown(certificate),
        )
        if self._pump is None:
            info = self._sessions.info.with_(tls_required=True)
            self._stage = TlsStage.OPEN
            self._sessions.open_fed(self, transport, info)
        else:
            self._sessions.secured(self._pump.cid, transport)
        self._open()

    def received(self, data: bytes) -> None:
        """Feed the hub."""
        assert self._pump is not None
        self._pump.feed(data)
        if self._stage is TlsStage.OPEN:
            self._pump.brake()

    def drained(self) -> None:
        """Send on."""
        if self._pump is not None and self._stage is not TlsStage.SHAKING:
            self._pump.pull()

    def output(self, cid: int) -> None:
        """Send what the hub has, unless a handshake is under way; read on if it may be read."""
        if self._pump is None:
            self._pump = Pump(self._sessions, self._link, cid)
        if self._stage in (TlsStage.GREETED, TlsStage.OPEN):
            self._pump.pull()
        if self._stage is TlsStage.OPEN and not self._link.closed:
            self._pump.brake()

    def closed(self, reason: int) -> None:
        """Hang up."""
        self._stage = TlsStage.OVER
        self._arrived()
        self._link.close()

    def ended(self, why: str) -> None:
        """Take the client's leave, or a handshake that failed."""
        if self._stage is TlsStage.SHAKING:
            self._fail(why)
        else:
            self._end(Closed.CLIENT)

    def expire(self) -> None:
        """Refuse a client whose handshake has not ended, or never began."""
        if self._stage is TlsStage.GREETED and self._port.optional:
            self._open()  # a person at a terminal: the session has a deadline of its own
        elif self._stage is TlsStage.GREETED:
            self._refuse(errors.TLS_REQUIRED)
        else:
            self._fail("timeout")

    def _greet(self) -> None:
        self._stop_waiting()
        self._stage = TlsStage.GREETED
        self._link.pause()
        self._sessions.open_fed(self, self._plain_transport())
        if self._stage is TlsStage.GREETED:
            self._link.sniff()

    def _shake(self) -> None:
        self._stop_waiting()
        tls = self._port.tls
        if not tls.allows(self._entrance.clock.monotonic()):
            self._refuse(errors.THROTTLED)
            return
        self._stage = TlsStage.SHAKING
        self._link.secure(tls.context)

    def _open(self) -> None:
        """Read from here on; what waited for the handshake goes out."""
        if self._stage is TlsStage.OVER:
            return
        self._arrived()
        self._stage = TlsStage.OPEN
        self._link.receive()
        if self._pump is not None:
            self.output(self._pump.cid)

    def _refuse(self, text: str) -> None:
        if self._pump is None:
            self._link.send(errors.err(text))
        else:
            self._hub.write(self._pump.cid, errors.err(text))
        self._end(Closed.TLS_HANDSHAKE)

    def _arrived(self) -> None:
        self._stop_waiting()
        self._entrance.forget(self)

    def _stop_waiting(self) -> None:
        if self._fallback is not None:
            self._fallback.cancel()
            self._fallback = None
