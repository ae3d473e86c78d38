"""Sessions: every client's session by connection id; what the hub calls for control operations."""

import logging

from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.session import Closed, NatsLimits, Session
from millstream.nats.transport import Carrier, Kind, Transport
from millstream.wire import errors
from millstream.wire.headers import with_extras
from millstream.wire.info import ServerInfo

log = logging.getLogger(__name__)


class Sessions:
    """Opens a session per connection and routes the hub's callbacks to it."""

    def __init__(
        self, clock: Clock, interest: Interest, info: ServerInfo, limits: NatsLimits
    ) -> None:
        self.info = info
        self._clock = clock
        self._interest = interest
        self._limits = limits
        self._sessions: dict[int, Session] = {}
        self._carriers: dict[int, Carrier] = {}
        self.hub = Hub(
            self,
            max_payload=limits.max_payload,
            max_pending=limits.max_pending,
            decorate=with_extras,
        )

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[Session]:
        """Return every open session."""
        return list(self._sessions.values())

    def set_limits(self, limits: NatsLimits) -> None:
        """Hold everybody to other limits; those of the hub stay as they are."""
        self._limits = limits
        for session in self._sessions.values():
            session.limits = limits

    def open(self, fd: int, peer: str) -> None:
        """Serve a connected non-blocking socket, which the hub owns from here on."""
        self._begin(self.hub.attach(fd, self._interest), Transport(Kind.STANDARD, peer), self.info)

    def open_fed(
        self, carrier: Carrier, transport: Transport, info: ServerInfo | None = None
    ) -> int:
        """Serve a connection whose carrier calls ``hub.feed`` and ``hub.take``.

        The carrier may be asked for output, and be told that all is over, before this returns.
        """
        cid = self.hub.attach_fed(self._interest)
        self._carriers[cid] = carrier
        self._begin(cid, transport, info or self.info)
        return cid

    def secured(self, cid: int, transport: Transport) -> None:
        """Note that a connection that began in plain text is encrypted from here on."""
        session = self._sessions.get(cid)
        if session is not None:
            session.transport = transport

    def _begin(self, cid: int, transport: Transport, info: ServerInfo) -> None:
        if len(self._sessions) >= self._limits.max_connections:
            self.hub.write(cid, errors.err(errors.MAXIMUM_CONNECTIONS))
            self.hub.close_connection(cid, Closed.MAX_CONNECTIONS)
            return
        info = info.with_(client_id=cid, client_ip=transport.peer)
        now = self._clock.monotonic()
        self._sessions[cid] = Session(cid, self.hub, info, self._limits, transport, now)
        self.hub.flush()

    def tick(self) -> None:
        """Look at every session's deadlines; once a second is enough."""
        now = self._clock.monotonic()
        for session in list(self._sessions.values()):
            session.tick(now)
        self.hub.flush()

    def close(self) -> None:
        """End every connection."""
        self.hub.close()

    def on_connect(self, cid: int, options: bytes) -> None:
        """Take CONNECT."""
        self._sessions[cid].connect(options)

    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None:
        """Take SUB."""
        self._sessions[cid].sub(subject, queue, sid)

    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None:
        """Take UNSUB."""
        self._sessions[cid].unsub(sid, max_msgs)

    def on_ping(self, cid: int) -> None:
        """Take a connection's first PING; the hub answered it."""
        self._sessions[cid].first_ping()

    def on_pong(self, cid: int) -> None:
        """Take PONG."""
        self._sessions[cid].pong()

    def on_info(self, cid: int, info: bytes) -> None:
        """Take an INFO, which only servers send; from a client it means nothing."""
        self._sessions[cid].info(info)

    def on_error(self, cid: int, code: int) -> None:
        """Say why input was refused; the hub closes the connection."""
        self._sessions[cid].refuse(code)

    def on_output(self, cid: int) -> None:
        """Tell a fed connection's carrier that there is something to do."""
        self._carriers[cid].output(cid)

    def may_publish(self, cid: int, subject: bytes) -> bool:
        """Allow everything: nobody is guarded yet."""
        return True

    def on_closed(self, cid: int, reason: int) -> None:
        """Forget the session."""
        self._sessions.pop(cid, None)
        carrier = self._carriers.pop(cid, None)
        if carrier is not None:
            carrier.closed(reason)
        if reason == Closed.SLOW_CONSUMER:
            log.warning("slow consumer closed cid=%d", cid)
