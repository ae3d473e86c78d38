"""Sessions: every client's session by connection id; what the hub calls for control operations."""

import logging
from collections.abc import Callable

from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.session import Closed, NatsLimits, Session
from millstream.wire import errors
from millstream.wire.headers import with_extras
from millstream.wire.info import ServerInfo

log = logging.getLogger(__name__)

Write = Callable[[bytes], None]


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
        self._writers: dict[int, Write] = {}
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

    def open(self, fd: int, peer: str) -> None:
        """Serve a connected non-blocking socket, which the hub owns from here on."""
        self._begin(self.hub.attach(fd, self._interest), peer)

    def open_fed(self, write: Write, peer: str) -> int:
        """Serve a connection whose transport calls ``hub.feed`` and sends what ``write`` gets."""
        cid = self.hub.attach_fed(self._interest)
        self._writers[cid] = write
        self._begin(cid, peer)
        return cid

    def _begin(self, cid: int, peer: str) -> None:
        if len(self._sessions) >= self._limits.max_connections:
            self.hub.write(cid, errors.err(errors.MAXIMUM_CONNECTIONS))
            self.hub.close_connection(cid, Closed.MAX_CONNECTIONS)
            return
        info = self.info.with_(client_id=cid, client_ip=peer)
        now = self._clock.monotonic()
        self._sessions[cid] = Session(cid, self.hub, info, self._limits, peer, now)
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
        """Hand a fed connection's output to its transport."""
        data = self.hub.take(cid)
        if data:
            self._writers[cid](data)

    def may_publish(self, cid: int, subject: bytes) -> bool:
        """Allow everything: nobody is guarded yet."""
        return True

    def on_closed(self, cid: int, reason: int) -> None:
        """Forget the session."""
        self._sessions.pop(cid, None)
        self._writers.pop(cid, None)
        if reason == Closed.SLOW_CONSUMER:
            log.warning("slow consumer closed cid=%d", cid)
