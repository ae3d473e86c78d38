"""Session: one client's conversation beside its messages. It decides; the hub moves the bytes."""

from dataclasses import dataclass
from enum import IntEnum

from millstream.kernel import _hub
from millstream.kernel._hub import Hub
from millstream.nats.transport import Transport
from millstream.wire import errors
from millstream.wire.connect import ConnectOptions, MalformedConnect, parse_connect
from millstream.wire.info import ServerInfo

_OK = b"+OK\r\n"
_PING = b"PING\r\n"
_SLOW_HANDSHAKE = 4


class Closed(IntEnum):
    """Why a connection ended: the kernel's reasons, then the door's own."""

    CLIENT = _hub.CLIENT_CLOSED
    WRITE = _hub.WRITE_FAILED
    SLOW_CONSUMER = _hub.SLOW_CONSUMER
    PROTOCOL = _hub.PROTOCOL_ERROR
    SHUTDOWN = _hub.SERVER_SHUTDOWN
    INTERNAL = _hub.INTERNAL_ERROR
    STALE = 100
    HANDSHAKE = 101
    MAX_CONNECTIONS = 102
    AUTHENTICATION = 103

    @property
    def text(self) -> str:
        """Return the reason as monitoring shows it."""
        return _TEXTS[self]


_TEXTS = {
    Closed.CLIENT: "Client Closed",
    Closed.WRITE: "Write Error",
    Closed.SLOW_CONSUMER: "Slow Consumer (Pending Bytes)",
    Closed.PROTOCOL: "Protocol Violation",
    Closed.SHUTDOWN: "Server Shutdown",
    Closed.INTERNAL: "Internal Error",
    Closed.STALE: "Stale Connection",
    Closed.HANDSHAKE: "Authentication Timeout",
    Closed.MAX_CONNECTIONS: "Maximum Connections Exceeded",
    Closed.AUTHENTICATION: "Authentication Failure",
}

# What the kernel refuses, as the client reads it; the rest ends without a word.
_REFUSALS = {
    _hub.UNKNOWN_OPERATION: errors.UNKNOWN_OPERATION,
    _hub.PAYLOAD_TOO_LARGE: errors.MAXIMUM_PAYLOAD,
    _hub.LINE_TOO_LONG: errors.MAXIMUM_CONTROL_LINE,
}


@dataclass(frozen=True, slots=True)
class NatsLimits:
    """What one client may take of the server."""

    max_payload: int = 1 << 20
    max_pending: int = 8 << 20
    max_connections: int = 65536
    max_subscriptions: int = 0  # per connection; 0 = no limit
    ping_interval: float = 120.0
    ping_max: int = 2
    handshake_timeout: float = 5.0


class Session:
    """State of one connection: what it asked for, whether it is alive."""

    def __init__(
        self,
        cid: int,
        hub: Hub,
        info: ServerInfo,
        limits: NatsLimits,
        transport: Transport,
        now: float,
    ) -> None:
        self.cid = cid
        self.transport = transport
        self.options = ConnectOptions()
        self.connected = False
        self._hub = hub
        self._info = info
        self.limits = limits
        self._pings_out = 0
        self._handshake_until: float | None = now + limits.handshake_timeout
        self._handshake_end = now + _SLOW_HANDSHAKE * limits.handshake_timeout
        self._ping_at = now + limits.ping_interval
        hub.write(cid, info.line())

    @property
    def peer(self) -> str:
        """The address that the client came from."""
        return self.transport.peer

    def connect(self, options: bytes) -> None:
        """Take CONNECT; a second one amends the first and starts without subscriptions."""
        try:
            asked = parse_connect(options, self.options)
        except MalformedConnect:
            self._hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        refusal = _refuses(asked)
        if refusal is not None:
            self._end(refusal, Closed.PROTOCOL)
            return
        if self.connected:
            self._hub.unsubscribe_all(self.cid)
        self._accept(asked)

    def _accept(self, asked: ConnectOptions) -> None:
        self.options = asked
        self.connected = True
        self._handshake_until = None
        self._hub.configure(
            self.cid,
            verbose=asked.verbose,
            pedantic=asked.pedantic,
            echo=asked.echo,
            headers=asked.headers and self._info.headers,
            no_responders=asked.no_responders,
        )
        self._ok()

    def sub(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        """Subscribe, or say why not; the connection goes on either way."""
        limit = self.limits.max_subscriptions
        if limit and self._hub.connection_stats(self.cid)["subscriptions"] >= limit:
            self._say(errors.MAXIMUM_SUBSCRIPTIONS)
        elif not self._hub.subscribe(self.cid, subject, queue, sid):
            self._say(errors.INVALID_SUBJECT)
        else:
            self._ok()

    def unsub(self, sid: bytes, max_msgs: int) -> None:
        """Unsubscribe now or after ``max_msgs``; a sid that is not there is fine."""
        self._hub.unsubscribe(self.cid, sid, max_msgs)
        self._ok()

    def first_ping(self) -> None:
        """Follow the first PONG with the INFO that tells a client where it ended up."""
        if self.options.protocol >= 1:
            info = self._info.with_(connect_info=True, remote_account="$G")
            self._hub.write(self.cid, info.line())

    def pong(self) -> None:
        """Note that the client is alive."""
        self._pings_out = 0

    def info(self, info: bytes) -> None:
        """Ignore a client's INFO, unless it is none."""
        try:
            parse_connect(info, self.options)
        except MalformedConnect:
            self._hub.close_connection(self.cid, Closed.PROTOCOL)

    def refuse(self, code: int) -> None:
        """Say why the kernel closes the connection, where clients expect a word."""
        text = _REFUSALS.get(code)
        if text is not None:
            self._say(text)

    def tick(self, now: float) -> None:
        """Look at the deadlines: handshake, pings, silence."""
        if self._handshake_until is not None and now >= self._handshake_until:
            self._check_handshake(now)
        elif now >= self._ping_at:
            self._ping_at = now + self.limits.ping_interval
            self._check_alive()

    def _check_handshake(self, now: float) -> None:
        """Close whoever sent nothing; without CONNECT, any operation proves a client.

        One that is in the middle of its first operation gets a little longer, not for ever.
        """
        if self._hub.take_activity(self.cid):
            self._handshake_until = None
            return
        begun = self._hub.connection_stats(self.cid)["unfinished_bytes"] > 0
        if not begun or now >= self._handshake_end:
            self._end(errors.AUTHENTICATION_TIMEOUT, Closed.HANDSHAKE)

    def _check_alive(self) -> None:
        if self._hub.take_activity(self.cid):
            self._pings_out = 0
            return
        if self._pings_out >= self.limits.ping_max:
            self._end(errors.STALE_CONNECTION, Closed.STALE)
            return
        self._pings_out += 1
        self._hub.write(self.cid, _PING)

    def _ok(self) -> None:
        if self.options.verbose:
            self._hub.write(self.cid, _OK)

    def _say(self, text: str) -> None:
        self._hub.write(self.cid, errors.err(text))

    def _end(self, text: str, reason: Closed) -> None:
        self._say(text)
        self._hub.close_connection(self.cid, reason)


def _refuses(asked: ConnectOptions) -> str | None:
    """Return why these options cannot be served, if so."""
    if asked.protocol not in (0, 1):
        return errors.INVALID_CLIENT_PROTOCOL
    if asked.no_responders and not asked.headers:
        return errors.NO_RESPONDERS_REQUIRES_HEADERS
    if asked.account or asked.new_account:
        return errors.AUTHORIZATION_VIOLATION
    return None
