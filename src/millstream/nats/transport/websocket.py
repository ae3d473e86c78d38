"""WebsocketClient: a client of the WebSocket port: TLS, the HTTP request, then NATS in frames."""

import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from millstream.http.limits import Limits
from millstream.http.parser import Refusal, RequestParser
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.fed_client import FedClient
from millstream.nats.transport.handshakes import Handshakes
from millstream.nats.transport.pump import Pump
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.transport import Cookies, Kind, Transport
from millstream.nats.transport.upgrade import Upgrade, WebsocketTerms, refusal_answer, upgrade
from millstream.wire import errors, websocket
from millstream.wire.info import ServerInfo
from millstream.wire.websocket import FrameError, FrameReader, Status

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_REQUEST = Limits(head_bytes=8 * 1024, body_bytes=0)
_CONTROL_COST = 1024  # what a frame without data counts as
_TOGETHER = 64 << 10  # what the hub is fed at a time, before it is asked whether it takes more
_TURN = 1 << 20  # what one client may have carried out before the others have their turn

# What a close frame says, by why the connection ends.
_STATUSES = {
    Closed.CLIENT: Status.NORMAL,
    Closed.PROTOCOL: Status.PROTOCOL_ERROR,
    Closed.WRITE: Status.GOING_AWAY,
    Closed.STALE: Status.GOING_AWAY,
    Closed.SHUTDOWN: Status.GOING_AWAY,
    Closed.INTERNAL: Status.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class WebsocketPort:
    """What the WebSocket port offers: its terms, TLS unless ``no_tls``, and its own address."""

    terms: WebsocketTerms
    tls: Tls | None
    host: str = ""
    port: int = 0

    def info(self, info: ServerInfo) -> ServerInfo:
        """Return INFO as clients of this port read it: other ports' addresses mean nothing here."""
        secure = self.tls is not None
        return info.with_(
            host=self.host,
            port=self.port,
            tls_required=secure,
            tls_available=secure,
            tls_verify=self.tls is not None and self.tls.terms.verify,
            connect_urls=[self.terms.advertise] if self.terms.advertise else [],
        )


class WebsocketStage(Enum):
    """How far a client has come."""

    SHAKING = auto()
    ASKING = auto()  # its HTTP request is under way
    OPEN = auto()
    OVER = auto()


class WebsocketClient(FedClient):
    """Brings one client in, then carries its bytes in frames."""

    def __init__(self, entrance: Handshakes, port: WebsocketPort, fd: int, peer: str) -> None:
        super().__init__(entrance, fd, peer)
        self._port = port
        self._stage = WebsocketStage.ASKING
        self._names: tuple[str, ...] = ()
        self._certificate: Mapping[str, str] | None = None
        self._parser: RequestParser | None = RequestParser(_REQUEST)
        self._frames = FrameReader()
        self._compressed = False
        self._pong: bytes | None = None  # the answer to the latest ping, until it is sent
        self._close_sent = False
        self._held = False  # frames that have come wait to be carried out
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        """Wait for a handshake or for the request."""
        self._entrance.expect(self, self._port.terms.handshake_timeout)
        tls = self._port.tls
        if tls is None:
            self._link.receive()
        elif tls.allows(self._entrance.clock.monotonic()):
            self._stage = WebsocketStage.SHAKING
            self._link.secure(tls.context)
        else:
            self._end(Closed.MAX_CONNECTIONS)

    def sniffed(self, first: int) -> None:
        """Never asked for here."""

    def secured(self, certificate: bytes | None) -> None:
        """Wait for the request."""
        assert self._port.tls is not None
        if not self._port.tls.accepts(certificate):
            self._fail("certificate not pinned")
            return
        self._names = self._port.tls.names(certificate)
        self._certificate = self._port.tls.shown(certificate)
        self._stage = WebsocketStage.ASKING
        self._link.receive()

    def received(self, data: bytes) -> None:
        """Read the request, then frames."""
        if self._parser is not None:
            self._ask(self._parser, data)
            return
        self._frames.feed(data)
        self._go_on()

    def drained(self) -> None:
        """Send on."""
        if self._stage is WebsocketStage.OPEN and self._pump is not None:
            self._answer_ping()
            self._pump.pull()

    def output(self, cid: int) -> None:
        """Send what the hub has; read on if the client may be read."""
        if self._pump is None:
            self._pump = Pump(self._sessions, self._link, cid, self._framed)
        self._pump.pull()
        self._brake()

    def closed(self, reason: int) -> None:
        """Say why, and hang up."""
        if self._stage is WebsocketStage.OPEN:
            known = Closed(reason)
            self._say_close(_STATUSES.get(known, Status.POLICY), known.text)
        self._stage = WebsocketStage.OVER
        self._entrance.forget(self)
        self._link.close()

    def ended(self, why: str) -> None:
        """Take the client's leave, or a handshake that failed."""
        if self._stage is WebsocketStage.SHAKING:
            self._fail(why)
        else:
            self._end(Closed.CLIENT)

    def expire(self) -> None:
        """Cut a client that took too long to ask."""
        if self._stage is WebsocketStage.SHAKING:
            self._fail("timeout")
        else:
            self._refuse(Refusal(408, "request_timeout", "the request did not arrive in time"))

    def _ask(self, parser: RequestParser, data: bytes) -> None:
        parser.feed(data)
        request = parser.next()
        if request is None:
            return
        if isinstance(request, Refusal):
            self._refuse(request)
            return
        answer = upgrade(request, self._port.terms, self._port.tls is not None)
        if isinstance(answer, Refusal):
            self._refuse(answer)
        elif parser.buffered:
            early = "frames were sent before the answer to the request"
            self._refuse(Refusal(400, "websocket_refused", early))
        else:
            self._open(answer)

    def _refuse(self, refusal: Refusal) -> None:
        log.info("websocket refused peer=%s error=%s", self._peer, refusal.message)
        self._link.send(refusal_answer(refusal))
        self._end(Closed.PROTOCOL)

    def _open(self, answer: Upgrade) -> None:
        self._parser = None
        self._entrance.forget(self)
        self._compressed = answer.compressed
        if answer.compressed:
            limits = self._sessions.limits
            self._frames = FrameReader(limits.max_payload + limits.max_control_line)
        self._link.send(answer.answer)
        self._stage = WebsocketStage.OPEN
        self._sessions.open_fed(
            self, self._transport(answer.cookies), self._port.info(self._sessions.info)
        )

    def _transport(self, cookies: Cookies) -> Transport:
        secure, every = self._port.tls is not None, self._port.terms.ping_interval
        version, cipher = self._link.tls_terms
        return Transport(
            Kind.WEBSOCKET,
            self._peer,
            secure,
            self._names,
            cookies,
            every,
            self._link.port,
            version,
            cipher,
            auth_timeout=self._port.terms.auth_timeout,
            certificate=self._certificate,
        )

    def _go_on(self) -> None:
        """Carry out what has come, a turn's worth of it, while the hub takes it."""
        if self._stage is not WebsocketStage.OPEN:
            return
        self._held = False
        try:
            self._held = not self._read_frames()
        except FrameError as error:
            self._break(error)
        self._answer_ping()
        self._brake()

    def _read_frames(self) -> bool:
        """Feed the hub; False when frames are left because this turn, or the hub, has enough."""
        assert self._pump is not None
        fed = 0
        while self._stage is WebsocketStage.OPEN:
            payload, event = self._next_run()
            if payload:
                self._pump.feed(payload)
                fed += len(payload)
                if self._stage is not WebsocketStage.OPEN:
                    break
            match event:
                case None if not payload:
                    return True
                case FrameError():
                    raise event
                case websocket.PingFrame(data):
                    self._pong = websocket.pong(data)
                    fed += _CONTROL_COST
                case websocket.Close(status):
                    self._say_close(status, "")
                    self._end(Closed.CLIENT)
                case websocket.PongFrame():
                    fed += _CONTROL_COST
            if fed >= _TURN or self._stalled:
                return False
        return True

    def _next_run(self) -> tuple[bytes, websocket.Event | FrameError | None]:
        """Return the data of frames that came one behind the other, and what came behind them.

        They are fed together, so that what answers them leaves together: a client may have put
        its PING before a SUB and a PUB, and still take the PONG for the end of all three.
        """
        payloads: list[bytes] = []
        size = 0
        while size < _TOGETHER:
            try:
                event = self._frames.next()
            except FrameError as error:
                return b"".join(payloads), error
            if not isinstance(event, websocket.Data):
                return b"".join(payloads), event
            payloads.append(event.payload)
            size += len(event.payload)
        return b"".join(payloads), None

    @property
    def _stalled(self) -> bool:
        assert self._pump is not None
        return self._stage is WebsocketStage.OPEN and self._hub.is_stalled(self._pump.cid)

    def _brake(self) -> None:
        """Read from the socket only when every frame that has come is carried out."""
        if self._stage is not WebsocketStage.OPEN or self._link.closed or self._pump is None:
            return
        if not self._held:
            self._pump.brake()
            return
        self._link.pause()
        if not self._stalled and self._turn is None:
            self._turn = self._entrance.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._go_on()

    def _answer_ping(self) -> None:
        """Answer the latest ping, which answers those before it; one is kept, never a queue."""
        if self._pong is not None and not self._link.full:
            pong, self._pong = self._pong, None
            self._link.send(pong)

    def _break(self, error: FrameError) -> None:
        """End a client that sends what no client may, and say what that was."""
        log.info("websocket protocol error peer=%s error=%s", self._peer, error)
        assert self._pump is not None
        if error.status is Status.TOO_BIG:
            self._hub.write(self._pump.cid, errors.err(errors.MAXIMUM_PAYLOAD))
            self._pump.pull()
        self._say_close(error.status, str(error))
        self._end(Closed.PROTOCOL)

    def _say_close(self, status: int, text: str) -> None:
        if not self._close_sent:
            self._close_sent = True
            self._link.send(websocket.close(status, text))

    def _framed(self, data: bytes) -> bytes:
        return websocket.encode(data, self._compressed)
