"""Sessions: every client's session by connection id; what the hub calls for control operations."""

import base64
import logging
import secrets
from collections.abc import Callable
from typing import Any

from millstream.accounts.credentials import Credentials
from millstream.accounts.sight import BLIND, Sight
from millstream.clock import Clock
from millstream.kernel._hub import ALLOWED, Hub
from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Accounts
from millstream.nats.authenticator import Admitted, Authenticator
from millstream.nats.session import NatsLimits, Session
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
    """Opens a session per connection and routes the hub's callbacks to it."""

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
        self._traces: dict[int, Trace] = {}
        self._lobby = Interest()  # nobody listens here, and nobody may
        self._limits = limits
        self._sessions: dict[int, Session] = {}
        self._carriers: dict[int, Carrier] = {}
        self._closing: list[Closing] = []
        self.hub = Hub(
            self,
            max_payload=limits.max_payload,
            max_pending=limits.max_pending,
            decorate=with_extras,
            write_deadline=limits.write_deadline,
            max_control_line=limits.max_control_line,
            holds_publishers=limits.holds_publishers,
            on_closing=self._tell_closing,
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
            session.refresh()
        for surplus in self.all()[limits.max_connections :]:  # those that came last
            surplus.turn_away()
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
        self._carriers[cid] = carrier
        self._begin(cid, transport, info or self.info, admitted)
        return cid

    def trace(self, cid: int) -> Trace | None:
        """Return who reads along with a connection that begins now, if anybody does."""
        if not self.tracing.on:
            return None
        trace = Trace(self.tracing, lambda: self.label(cid), lambda: self._sids(cid))
        return self._traces.setdefault(cid, trace)

    def _sids(self, cid: int) -> list[bytes]:
        return [sid for _, _, sid, *_ in self.hub.subscriptions(cid)]

    def label(self, cid: int) -> str:
        """Return how the log names a connection."""
        session = self._sessions.get(cid)
        return f"cid:{cid}" if session is None else session.label(self.hub.connection_stats(cid))

    def secured(self, cid: int, transport: Transport) -> None:
        """Note that a connection that began in plain text is encrypted from here on."""
        session = self._sessions.get(cid)
        if session is not None:
            session.transport = transport

    def _begin(
        self, cid: int, transport: Transport, info: ServerInfo, admitted: Admitted | None
    ) -> None:
        info = info.with_(
            client_id=cid,
            client_ip=transport.peer,
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
            session.revoke()
        gone = {session.cid for session in dropped}
        spaces = self.reception.accounts
        crowded = [session for space in spaces for session in space.surplus(gone)]
        for session in crowded:
            session.crowd_out()
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
        if cid in self._traces:
            self._traces[cid].closed()
        for closing in self._closing:
            closing(cid, reason)

    def may_deliver(self, cid: int, account: str, subject: str, group: str) -> bool:
        """Say whether a client may have the server deliver to ``subject`` of its account.

        Whoever asks through an import is judged by what the import lets it ask.
        """
        session = self._sessions.get(cid)
        if session is None:
            return cid == 0
        if session.space is None or session.space.name != account:
            return True
        place = (text.encode("utf-8", "surrogateescape") for text in (subject, group))
        return session.may_be_sent_to(*place)

    def client_of(self, cid: int) -> dict[str, Any]:
        """Return what advisories tell of a client, nothing when it is gone."""
        session = self._sessions.get(cid)
        return session.client_info() if session is not None else {}

    def sight_of(self, cid: int, account: str, stream: str) -> Sight | None:
        """Return what a client sees of a stream of ``account``, None for everything.

        Whoever asks through an import sees what the import shows; whoever is gone, nothing.
        """
        session = self._sessions.get(cid)
        if session is None:
            return None if cid == 0 else BLIND
        if session.space is None or session.space.name != account:
            return None
        return session.sight_of(stream)

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

    def on_connect(self, cid: int, options: bytes) -> None:
        """Take CONNECT."""
        self._sessions[cid].connect(options, self._clock.monotonic())

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
        self._sessions[cid].pong(self._clock.monotonic())

    def on_info(self, cid: int, info: bytes) -> None:
        """Take an INFO, which only servers send; from a client it means nothing."""
        self._sessions[cid].info(info)

    def on_error(self, cid: int, code: int) -> None:
        """Say why input was refused; the hub closes the connection."""
        self._sessions[cid].refuse(code)

    def on_output(self, cid: int) -> None:
        """Tell a fed connection's carrier that there is something to do."""
        self._carriers[cid].output(cid)

    def on_delivered_reply(self, cid: int, reply: bytes) -> None:
        """Note that a client was asked something, which it may now answer."""
        session = self._sessions.get(cid)
        if session is not None:
            session.rights.asked(reply, self._clock.monotonic())

    def may_publish(self, cid: int, subject: bytes) -> int:
        """Judge a publish of a guarded connection."""
        session = self._sessions[cid]
        if subject in session.rights.settled:
            return ALLOWED
        return session.may_publish(subject, self._clock.monotonic())

    def map_subject(self, cid: int, subject: bytes) -> bytes:
        """Return where a publish goes by the account's mappings."""
        space = self._sessions[cid].space
        to = subject if space is None else space.mapped(subject)
        if self._traces and to != subject and cid in self._traces:
            self._traces[cid].mapped(subject, to)
        return to

    def on_closed(self, cid: int, reason: int) -> None:
        """Forget the session."""
        session = self._sessions.pop(cid, None)
        if session is not None:
            session.closed()
        self._traces.pop(cid, None)
        carrier = self._carriers.pop(cid, None)
        if carrier is not None:
            carrier.closed(reason)
        if reason in SLOW_CONSUMERS:
            log.warning("slow consumer closed cid=%d reason=%s", cid, Closed(reason).text)


def _nonce() -> str:
    """Return something that nobody signed before."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_NONCE_BYTES)).decode().rstrip("=")
