"""Sessions: every client's session by connection id."""

import base64
import logging
import secrets
from collections.abc import Callable

from millstream.accounts.credentials import Credentials
from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.authenticator import Admitted, Authenticator
from millstream.nats.client_info import label
from millstream.nats.operations import Operations
from millstream.nats.phrases import PHRASES
from millstream.nats.session import NatsLimits, Session
from millstream.nats.session_clients import SessionClients
from millstream.nats.transport.closed import SLOW_CONSUMERS, Closed, reason_text
from millstream.nats.transport.trace import Trace, Tracing
from millstream.nats.transport.transport import Carrier, Kind, Transport
from millstream.wire import errors
from millstream.wire.headers import with_extras
from millstream.wire.info import ServerInfo

log = logging.getLogger(__name__)

Closing = Callable[[int, int], None]

_NONCE_BYTES = 11


class Sessions:
    """Opens a session per connection, over a hub of its own, and looks after all of them."""

    def __init__(
        self,
        clock: Clock,
        interest: Interest,
        info: ServerInfo,
        limits: NatsLimits,
        reception: Authenticator | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """Without a ``reception``, everyone is in the global account and may do everything."""
        self.info = info
        self.reception = reception or Authenticator(
            Accounts(global_interest=interest), clock, Credentials()
        )
        self.tracing = tracing or Tracing()
        self._clock = clock
        self._lobby = Interest()  # nobody listens here, and nobody may
        self._limits = limits
        self._operations = operations = Operations(clock, lambda: self.info)
        self._sessions = operations.sessions
        self.clients = SessionClients(operations.sessions, operations.links)
        self.links = operations.links  # connections to other servers, by id
        self._closing: list[Closing] = []
        self.hub = Hub(
            operations,
            PHRASES,
            max_payload=limits.max_payload,
            max_pending=limits.max_pending,
            decorate=with_extras,
            write_deadline=limits.write_deadline,
            max_control_line=limits.max_control_line,
            holds_publishers=limits.holds_publishers,
            on_closing=self._tell_closing,
            slice_ns=limits.slice_ns,
        )

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def limits(self) -> NatsLimits:
        """What a client may take now."""
        return self._limits

    def all(self) -> list[Session]:
        """Return every open session."""
        return list(self._sessions.values())

    def set_limits(self, limits: NatsLimits) -> None:
        """Hold everybody to other limits; outboxes keep the bound that they were opened with."""
        self._limits = limits
        self.info = self.info.with_(max_payload=limits.max_payload)
        self.hub.max_payload = limits.max_payload
        self.hub.max_control_line = limits.max_control_line
        self.hub.write_deadline = limits.write_deadline
        self.hub.holds_publishers = limits.holds_publishers
        for session in self._sessions.values():
            session.limits = limits
            session.configure()
        for surplus in self.all()[limits.max_connections :]:  # those that came last
            surplus.end(errors.MAXIMUM_CONNECTIONS, Closed.MAX_CONNECTIONS)
        self.hub.flush()

    def open(self, fd: int, peer: str) -> None:
        """Serve a connected non-blocking socket, which the hub owns from here on."""
        transport = Transport(Kind.STANDARD, peer)
        admitted = self.reception.guest(transport)
        interest = self._lobby if admitted is None else admitted.space.interest
        self._begin(self.hub.attach(fd, interest), transport, self.info, admitted)

    def open_fed(
        self, carrier: Carrier, transport: Transport, info: ServerInfo | None = None
    ) -> int:
        """Serve a connection whose carrier calls ``hub.feed`` and ``hub.take``.

        The carrier may be asked for output, and be told that all is over, before this returns.
        """
        admitted = self.reception.guest(transport)
        cid = self.hub.attach_fed(self._lobby if admitted is None else admitted.space.interest)
        self._operations.carriers[cid] = carrier
        self._begin(cid, transport, info or self.info, admitted)
        return cid

    def open_link(self, fd: int | None, carrier: Carrier | None = None) -> int:
        """Open a connection to another server, which is in nobody's subject space yet.

        Whoever asks for it puts its link into ``links`` before anything is read.
        """
        if fd is not None:
            return self.hub.attach(fd, self._lobby)
        cid = self.hub.attach_fed(self._lobby)
        if carrier is not None:
            self._operations.carriers[cid] = carrier
        return cid

    def trace(self, cid: int) -> Trace | None:
        """Return who reads along with a connection that begins now, if anybody does."""
        if not self.tracing.on:
            return None
        trace = Trace(self.tracing, lambda: self.label(cid), lambda: self._sids(cid))
        return self._operations.traces.setdefault(cid, trace)

    def _sids(self, cid: int) -> list[bytes]:
        return [sid for _, _, sid, *_ in self.hub.subscriptions(cid)]

    def label(self, cid: int) -> str:
        """Return how the log names a connection."""
        session = self._sessions.get(cid)
        return f"cid:{cid}" if session is None else label(session, self.hub.connection_stats(cid))

    def secured(self, cid: int, transport: Transport) -> None:
        """Note that a connection that began in plain text is encrypted from here on."""
        session = self._sessions.get(cid)
        if session is not None:
            session.transport = transport

    def located(self, cid: int, transport: Transport) -> None:
        """Note where a client is that a proxy connected."""
        session = self._sessions.get(cid)
        if session is not None:
            session.transport = transport
            session.greeting = session.greeting.with_(client_ip=transport.peer)

    def _begin(
        self, cid: int, transport: Transport, info: ServerInfo, admitted: Admitted | None
    ) -> None:
        info = info.with_(
            client_id=cid,
            client_ip=transport.peer if transport.is_told else "",
            auth_required=self.reception.required(transport.kind),
            nonce=_nonce() if self.reception.wants_nonce(transport.kind) else "",
        )
        if len(self._sessions) >= self._limits.max_connections:
            # Greeted first: clients read INFO before anything else.
            self.hub.write(cid, info.line() + errors.err(errors.MAXIMUM_CONNECTIONS))
            self.hub.close_connection(cid, Closed.MAX_CONNECTIONS)
            return
        now = self._clock.monotonic()
        started_ns = self._clock.time_ns()
        interest = self._lobby if admitted is None else admitted.space.interest
        self._sessions[cid] = Session(
            cid,
            self.hub,
            info,
            self._limits,
            transport,
            now,
            self.reception,
            interest,
            admitted,
            started_ns,
        )
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s - Client connection created", self.label(cid))
        self.hub.flush()

    def apply(self) -> int:
        """Close whom the reception would not admit now, and give others the rights they now have.

        Returns how many had to go.
        """
        dropped = [session for session in self.all() if not session.still_welcome()]
        for session in dropped:
            by_token = bool(session.presented.jwt)
            text = errors.AUTHENTICATION_REVOKED if by_token else errors.AUTHORIZATION_VIOLATION
            session.end(text, Closed.REVOKED)
        gone = {session.cid for session in dropped}
        spaces = self.reception.accounts
        crowded = [session for space in spaces for session in space.surplus(gone)]
        for session in crowded:
            session.end(errors.MAXIMUM_ACCOUNT_CONNECTIONS, Closed.ACCOUNT_FULL)
        self.hub.flush()
        return len(dropped) + len(crowded)

    def watch_closing(self, closing: Closing) -> None:
        """Call ``closing(cid, reason)`` while a connection that ends can still be looked at."""
        self._closing.append(closing)

    def _tell_closing(self, cid: int, reason: int) -> None:
        session = self._sessions.get(cid)
        if session is not None and session.space is not None:
            moved = self.hub.connection_stats(cid)
            session.space.ended(moved, slow=reason in SLOW_CONSUMERS)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s - Client connection closed: %s", self.label(cid), reason_text(reason))
        if cid in self._operations.traces:
            self._operations.traces[cid].closed()
        for closing in self._closing:
            closing(cid, reason)

    def session(self, cid: int) -> Session | None:
        """Return an open session."""
        return self._sessions.get(cid)

    def tick(self) -> None:
        """Look at every session's deadlines; once a second is enough."""
        now, unix_seconds = self._clock.monotonic(), self._clock.time_ns() / 1e9
        for session in list(self._sessions.values()):
            session.tick(now, unix_seconds)
        self.hub.flush()

    def close(self) -> None:
        """End every connection."""
        self.hub.close()


def _nonce() -> str:
    """Return something that nobody signed before."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_NONCE_BYTES)).decode().rstrip("=")
