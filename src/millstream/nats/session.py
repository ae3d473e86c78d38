"""Session: one client's conversation beside its messages. It decides; the hub moves the bytes."""

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.permissions import Permissions
from millstream.accounts.rights import Rights, text_of
from millstream.kernel import _hub
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Space
from millstream.nats.authenticator import Admitted, Authenticator, presented_by
from millstream.nats.client_info import label, refused_user
from millstream.nats.liveness import Due, Liveness
from millstream.nats.publish_rights import PublishRights
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.transport import Transport
from millstream.wire import errors
from millstream.wire.connect import ConnectOptions, MalformedConnect, parse_connect
from millstream.wire.info import ServerInfo

if TYPE_CHECKING:
    from millstream.accounts.credentials import Identity

log = logging.getLogger(__name__)

_OK = b"+OK\r\n"
_PONG = b"PONG\r\n"
_PING = b"PING\r\n"
_SLOW_HANDSHAKE = 4


# What the kernel refuses, as the client reads it; the rest ends without a word.
_REFUSALS = {
    _hub.UNKNOWN_OPERATION: (errors.UNKNOWN_OPERATION, Closed.PROTOCOL),
    _hub.PAYLOAD_TOO_LARGE: (errors.MAXIMUM_PAYLOAD, Closed.MAX_PAYLOAD),
    _hub.LINE_TOO_LONG: (errors.MAXIMUM_CONTROL_LINE, Closed.MAX_CONTROL_LINE),
}


class NatsLimits(msgspec.Struct, frozen=True):
    """What one client may take of the server."""

    max_payload: int = 1 << 20
    max_pending: int = 8 << 20
    max_control_line: int = 4096
    max_connections: int = 65536
    max_subscriptions: int = 0  # per connection; 0 = no limit
    max_subject_tokens: int = 0  # of a subscription; 0 = no limit
    ping_interval: float = 120.0
    ping_max: int = 2
    handshake_timeout: float = 5.0
    write_deadline: float = 10.0
    holds_publishers: bool = True  # while a client that they publish to is nearly full
    measure_after: float = math.inf  # when a client is first asked how far away it is
    auth_timeout: float = 0.0  # where clients must say who they are; 0 = handshake_timeout
    slice_ns: int = 1_000_000  # so long a connection may keep the loop in one turn


class Session:
    """State of one connection: who it is, what it asked for, whether it is alive.

    Until it is admitted it is in nobody's subject space, and anything but CONNECT ends it.
    """

    def __init__(
        self,
        cid: int,
        hub: Hub,
        info: ServerInfo,
        limits: NatsLimits,
        transport: Transport,
        now: float,
        reception: Authenticator,
        interest: Interest,
        admitted: Admitted | None,
        started_ns: int = 0,
    ) -> None:
        self.cid = cid
        self.transport = transport
        self.limits = limits
        self.options = ConnectOptions()
        self.presented = presented_by(self.options, transport, info.nonce)
        self.connected = False
        self.identity: Identity | None = None
        self.space: Space | None = None
        self._reception = reception
        self.hub = hub
        self._interest = interest
        self.greeting = info  # which tells the client where it came
        self._give(Permissions())
        waits = limits.handshake_timeout
        if admitted is None:
            waits = transport.auth_timeout or limits.auth_timeout or waits
        self.liveness = Liveness(
            now,
            started_ns,
            handshake=waits,
            longest=_SLOW_HANDSHAKE * limits.handshake_timeout,
            ping=transport.ping_interval or limits.ping_interval,
            measure=limits.measure_after,
        )
        hub.write(cid, info.line())
        if admitted is None:
            self.configure()
        else:
            self._enter(admitted)

    def connect(self, options: bytes, now: float) -> None:
        """Take CONNECT; a second one amends the first and starts without subscriptions.

        So does a first one that makes somebody else of the guest who came before it. How long
        the client took to answer the greeting is a first guess at how far away it is.
        """
        try:
            asked = parse_connect(options, self.options)
        except MalformedConnect:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        if not self.connected:
            self.liveness.greeted(now)
        self.presented = presented_by(asked, self.transport, self.greeting.nonce)
        self.options = asked
        admitted = self._reception.admit(self.presented)
        if self._reception.referees:
            self.hub.hold(self.cid)  # what the client says next waits for the verdict
        self._reception.referees.judge(self, admitted, self._judged)

    def _judged(self, admitted: Admitted | None) -> None:
        """Let the client in, or say why not; then hear what else it said."""
        asked = self.options
        if self.connected or admitted is None or not admitted.is_as(self.identity, self.space):
            self.hub.unsubscribe_all(self.cid)
        self._leave()
        if admitted is None:
            self._reception.events.refused(self)
            self.complain(f"authentication error - {refused_user(self)}")
            self._violation()
        elif admitted.space.is_full:
            self.end(errors.MAXIMUM_ACCOUNT_CONNECTIONS, Closed.ACCOUNT_FULL)
        elif (refusal := _refusal(asked, self.greeting)) is not None:
            self.end(*refusal)
        else:
            self._accept(admitted)
        self.hub.go_on(self.cid)

    def _accept(self, admitted: Admitted) -> None:
        is_first, self.connected = not self.connected, True
        self.liveness.proven()
        self._enter(admitted)
        if is_first:
            self._reception.events.connected(self)
        if self.options.verbose:
            self.hub.write(self.cid, _OK)

    # ---- who it is -----------------------------------------------------------------------------

    def _enter(self, admitted: Admitted) -> None:
        """Take up a place in the account, with the rights that come with the identity."""
        self.identity = admitted.identity
        self.space = admitted.space
        self._give(admitted.identity.permissions)
        if self.space.interest is not self._interest:
            self._interest = self.space.interest
            self.hub.move(self.cid, self._interest)
        self.space.enter(self)
        self.configure()

    def _leave(self) -> None:
        if self.space is not None:
            self.space.leave(self.cid)
        self.identity = self.space = None
        self._give(Permissions())

    def _give(self, permissions: Permissions) -> None:
        """Hold the client to these permissions from now on."""
        account = self.space.name if self.space is not None else ""
        self.rights = Rights(permissions)
        self.publishing = PublishRights(
            self.rights, account, self._reception.subjects_of, self.greeting.domain
        )

    def closed(self) -> None:
        """Give up the place in the account: the connection is over."""
        if self.space is not None:
            self.space.leave(self.cid)
            if self.connected:
                self._reception.events.left(self.space)

    def configure(self) -> None:
        """Tell the hub what was negotiated, what the limits are, and how closely to look."""
        asked = self.options
        self.hub.configure(
            self.cid,
            verbose=asked.verbose,
            pedantic=asked.pedantic,
            echo=asked.echo,
            headers=asked.headers and self.greeting.headers,
            no_responders=asked.no_responders,
            guarded=self.identity is None or self.rights.guards_publishing,
            choosy=self.rights.guards_replies,
            track_replies=self.rights.answers_requests,
            mapped=self.space is not None and self.space.mapper is not None,
            parents=self.space is not None and self.space.account.trace is not None,
            max_payload=_max_payload(self),
        )

    def still_welcome(self) -> bool:
        """Say whether those who are believed now would admit this client; take over its rights.

        Other rights are no reason to go: what they no longer allow is taken away.
        """
        if self.space is None or self.identity is None:
            return True  # it has said nothing yet, and is judged when it does
        shown = replace(self.presented, believed_before=True)
        admitted = self._reception.again(shown, self.identity)
        if admitted is None or admitted.space is not self.space:
            return False
        if self.identity.name and admitted.identity.name != self.identity.name:
            return False  # who was not asked for a name before may have one now
        has_other_rights = admitted.identity.permissions != self.identity.permissions
        self.identity = admitted.identity
        if has_other_rights:
            self._change_rights(self.space, admitted.identity.permissions)
        self.configure()
        return True

    def _change_rights(self, space: Space, permissions: Permissions) -> None:
        """Let go of subscriptions that are forbidden now, and hide from others what is hidden."""
        before = self.rights
        self._give(permissions)
        for subject, queue, sid, delivered, limit in self.hub.subscriptions(self.cid):
            hidden = self.rights.hidden(queue)
            if not self.rights.may_subscribe(subject, queue):
                self.hub.unsubscribe(self.cid, sid, 0)
                space.unlistened(self.cid, sid)
                self._say(errors.removed_subscription(subject, queue, sid))
            elif hidden != before.hidden(queue):
                self.hub.unsubscribe(self.cid, sid, 0)
                self.hub.subscribe(self.cid, subject, queue, sid, hidden)
                if limit:
                    self.hub.unsubscribe(self.cid, sid, limit - delivered)

    def complain(self, what: str, text: str = "") -> None:
        """Tell the log what the client was refused, and the client too where there is a text."""
        log.error("%s - %s", label(self, self.hub.connection_stats(self.cid)), what)
        if text:
            self._say(text)

    def _violation(self) -> None:
        self.end(errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION)

    # ---- what it does --------------------------------------------------------------------------

    def may_publish(self, subject: bytes, now: float) -> int:
        """Judge a publish, and say so where it is not allowed."""
        if self.identity is None:
            self._violation()
            return _hub.DENIED
        verdict = self.publishing.judge(subject, now)
        if verdict == _hub.DENIED:
            plain = self.publishing.plain(subject)
            what = f"Publish Violation - Subject {errors.quoted(plain)}"
            self.complain(what, errors.publish_violation(plain))
        return verdict

    def sub(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        """Subscribe, or say why not; the connection goes on either way."""
        if self.space is None:
            self._violation()
        elif not self.rights.may_subscribe(subject, queue):
            group = f", Queue: {errors.quoted(queue)}" if queue else ""
            about = f"Subject {errors.quoted(subject)}{group}, SID {text_of(sid)}"
            text = errors.subscription_violation(subject, queue)
            self.complain(f"Subscription Violation - {about}", text)
        elif 0 < self.limits.max_subject_tokens <= subject.count(b"."):
            self._say(errors.too_many_tokens(subject))
        elif _has_all_subscriptions(self, self.space, self.hub):
            self._say(errors.MAXIMUM_SUBSCRIPTIONS)
        elif not self.hub.subscribe(self.cid, subject, queue, sid, self.rights.hidden(queue)):
            self._say(errors.INVALID_SUBJECT)
        else:
            self.space.listened(self.cid, sid, subject)
            if self.options.verbose:
                self.hub.write(self.cid, _OK)

    def unsub(self, sid: bytes, max_msgs: int) -> None:
        """Unsubscribe now or after ``max_msgs``; a sid that is not there is fine."""
        if self.space is None:
            self._violation()
            return
        self.hub.unsubscribe(self.cid, sid, max_msgs)
        if not max_msgs:
            self.space.unlistened(self.cid, sid)
        if self.options.verbose:
            self.hub.write(self.cid, _OK)

    def first_ping(self) -> None:
        """Answer, and tell a client with INFO where it ended up; refuse who is not let in yet."""
        if self.space is None:
            self._violation()
            return
        self.hub.write(self.cid, _PONG)
        if self.options.protocol >= 1:
            info = self.greeting.with_(
                connect_info=True,
                remote_account=self.space.name,
                acc_is_sys=self.space is self._reception.accounts.system,
            )
            self.hub.write(self.cid, info.line())

    def announce(self, **changes: Any) -> None:
        """Tell the client what changed in INFO, if it understands: other servers, a departure."""
        self.greeting = self.greeting.with_(**changes)
        if self.options.protocol >= 1:
            self.hub.write(self.cid, self.greeting.line())

    def pong(self, now: float) -> None:
        """Note that the client is alive, and how long its answer took."""
        self.liveness.ponged(now)
        if self.space is None:
            self._violation()

    def info(self, info: bytes) -> None:
        """Ignore a client's INFO, unless it is none."""
        if self.space is None:
            self._violation()
            return
        try:
            parse_connect(info, self.options)
        except MalformedConnect:
            self.hub.close_connection(self.cid, Closed.PROTOCOL)

    def refuse(self, code: int) -> None:
        """Say why the kernel closes the connection, where clients expect a word."""
        # A CONNECT that is too long is told so, or nobody would think of the length of a JWT.
        if self.space is None and code != _hub.LINE_TOO_LONG:
            self._violation()
        elif code in _REFUSALS:
            self.end(*_REFUSALS[code])

    def tick(self, now: float, unix_seconds: float) -> None:
        """Look at the deadlines: handshake, credentials, pings, silence."""
        if self.identity is not None and 0 < self.identity.account_expires <= unix_seconds:
            self.end(errors.ACCOUNT_EXPIRED, Closed.EXPIRED)
        elif self.identity is not None and 0 < self.identity.expires <= unix_seconds:
            self.end(errors.AUTHENTICATION_EXPIRED, Closed.EXPIRED)
        elif now >= self.liveness.next_at:
            interval = self.transport.ping_interval or self.limits.ping_interval
            due = self.liveness.due(now, interval, connected=self.connected)
            if due is Due.HANDSHAKE:
                self._check_handshake(now)
            elif due is Due.MEASURE or (due is Due.PING and _is_silent(self, self.hub)):
                self.liveness.pinged(now)
                self.hub.write(self.cid, _PING)

    def _check_handshake(self, now: float) -> None:
        """Close whoever sent nothing; without CONNECT, any operation proves a client.

        One that is in the middle of its first operation gets longer while bytes of it keep coming,
        not for ever.
        """
        if self.space is None:
            self.end(errors.AUTHENTICATION_TIMEOUT, Closed.HANDSHAKE)
            return
        if self.hub.take_activity(self.cid):
            self.liveness.proven()
            return
        unfinished = self.hub.connection_stats(self.cid)["unfinished_bytes"]
        if not self.liveness.goes_on(now, unfinished) or self.liveness.is_late(now):
            self.end(errors.AUTHENTICATION_TIMEOUT, Closed.HANDSHAKE)

    def _say(self, text: str) -> None:
        self.hub.write(self.cid, errors.err(text))

    def end(self, text: str, reason: Closed) -> None:
        """Say why, and close the connection."""
        self._say(text)
        self.hub.close_connection(self.cid, reason)


def _is_silent(session: Session, hub: Hub) -> bool:
    """Say whether to ping the client; one that left too many pings unanswered is ended."""
    if hub.take_activity(session.cid):
        session.liveness.heard()
        return False
    if session.liveness.is_stale(session.limits.ping_max):
        session.end(errors.STALE_CONNECTION, Closed.STALE)
        return False
    return True


def _refusal(asked: ConnectOptions, info: ServerInfo) -> tuple[str, Closed] | None:
    """Return why these options cannot be served, if so."""
    if asked.account or asked.new_account:
        return errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION
    if asked.protocol not in (0, 1):
        return errors.INVALID_CLIENT_PROTOCOL, Closed.CLIENT_PROTOCOL
    if asked.no_responders and not (asked.headers and info.headers):
        return errors.NO_RESPONDERS_REQUIRES_HEADERS, Closed.NO_RESPONDERS
    return None


def _max_payload(session: Session) -> int:
    """Return the least of what server, account and user allow; nothing to a stranger."""
    if session.identity is None or session.space is None:
        return 0
    further = (session.identity.max_payload, session.space.account.limits.max_payload)
    return min([session.limits.max_payload, *(limit for limit in further if limit >= 0)])


def _has_all_subscriptions(session: Session, space: Space, hub: Hub) -> bool:
    """Say whether connection, user or account have as many as they may."""
    own = [session.limits.max_subscriptions or -1]
    own += [session.identity.max_subscriptions] if session.identity is not None else []
    together = space.account.limits.max_subscriptions
    if max(*own, together) < 0:
        return False
    held = hub.connection_stats(session.cid)["subscriptions"]
    if any(0 <= limit <= held for limit in own):
        return True
    return 0 <= together <= space.subscriptions(hub)
