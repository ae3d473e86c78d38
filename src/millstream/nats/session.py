"""Session: one client's conversation beside its messages. It decides; the hub moves the bytes."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.permissions import Permissions
from millstream.accounts.rights import Rights, text_of
from millstream.accounts.sight import Sight
from millstream.kernel import _hub
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.nats.accounts.accounts import Space
from millstream.nats.authenticator import Admitted, Authenticator, presented_by
from millstream.nats.record_reads import (
    ReadRequest,
    may_read,
    may_write,
    read_request,
    sight_of,
    written_stream,
)
from millstream.nats.transport.closed import Closed
from millstream.nats.transport.transport import Kind, Transport
from millstream.wire import errors
from millstream.wire.connect import ConnectOptions, MalformedConnect, parse_connect
from millstream.wire.info import ServerInfo
from millstream.wire.times import rfc3339

if TYPE_CHECKING:
    from millstream.accounts.credentials import Identity

log = logging.getLogger(__name__)

_OK = b"+OK\r\n"
_PING = b"PING\r\n"
_SLOW_HANDSHAKE = 4


# How the log calls the ways to say who one is.
_WAYS = {"nkey": "Nkey", "jwt": "JWT User", "token": "Token"}

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
        self.options = ConnectOptions()
        self.connected = False
        self.identity: Identity | None = None
        self.space: Space | None = None
        self.rights = Rights(Permissions())
        self.started_ns = started_ns
        self._reception = reception
        self._presented = presented_by(self.options, transport, info.nonce)
        self._hub = hub
        self._info = info
        self.limits = limits
        self.rtt = 0.0  # seconds that the client's last PONG took, 0 = not known
        self._begun = now
        self._pings_out = 0
        self._pinged_at: float | None = None
        self._interest = interest
        self._domain = f"$JS.{info.domain}.API.".encode() if info.domain else b""
        waits = limits.handshake_timeout
        if admitted is None:
            waits = transport.auth_timeout or limits.auth_timeout or waits
        self._handshake_until: float | None = now + waits
        self._handshake_end = now + _SLOW_HANDSHAKE * limits.handshake_timeout
        self._ping_at = now + self._ping_interval
        self._measure_at = now + limits.measure_after
        hub.write(cid, info.line())
        if admitted is None:
            self._configure()
        else:
            self._enter(admitted)

    @property
    def _ping_interval(self) -> float:
        return self.transport.ping_interval or self.limits.ping_interval

    @property
    def peer(self) -> str:
        """The address that the client came from."""
        return self.transport.peer

    @property
    def server_name(self) -> str:
        """What the client knows the server by."""
        return self._info.server_name

    def label(self, stats: Mapping[str, int]) -> str:
        """Return how the log names the client: where from, and who since it has said so."""
        asked, kind = self.options, "wid" if self.transport.kind is Kind.WEBSOCKET else "cid"
        words = [f"{self.peer}:{self.transport.port or stats['port']} - {kind}:{self.cid}"]
        if not self.connected:
            return words[0]
        program = [f"v{asked.version}" if asked.version else "", asked.lang, asked.name]
        if any(program):
            words.append(errors.quoted(":".join(filter(None, program)).encode()))
        way, user = self._claim()
        if way and self.space is not None:
            user = way if way == "token" else f"{way}:{user}"
            words.append(errors.quoted(f"{self.space.name}/{user}".encode()))
        return " - ".join(words)

    @property
    def user(self) -> str:
        """Who the client is by its own word, or by what it was taken for; no secret."""
        known = self.identity.name if self.identity is not None and self.connected else ""
        return self._claim()[1] or known

    def _claim(self) -> tuple[str, str]:
        """Return in which way the client says who it is, and the name."""
        shown = self._presented
        if shown.nkey:
            return "nkey", shown.nkey
        if shown.user:
            return "user", shown.user
        if shown.jwt:
            return "jwt", self.identity.name if self.identity is not None else ""
        return ("token", "[REDACTED]") if shown.token else ("", "")

    def connect(self, options: bytes, now: float) -> None:
        """Take CONNECT; a second one amends the first and starts without subscriptions.

        So does a first one that makes somebody else of the guest who came before it. How long
        the client took to answer the greeting is a first guess at how far away it is.
        """
        try:
            asked = parse_connect(options, self.options)
        except MalformedConnect:
            self._hub.close_connection(self.cid, Closed.PROTOCOL)
            return
        if not self.connected:
            self.rtt = now - self._begun
        self._presented = presented_by(asked, self.transport, self._info.nonce)
        admitted = self._reception.admit(self._presented)
        self.options = asked
        if self.connected or not self._stays(admitted):
            self._hub.unsubscribe_all(self.cid)
        self._leave()
        if admitted is None:
            self._reception.events.refused(self)
            way, user = self._claim()
            named = f"{_WAYS.get(way, 'User')} {errors.quoted((user or 'N/A').encode())}"
            self._complain(f"authentication error - {named}")
            self._violation()
        elif admitted.space.is_full:
            self._end(errors.MAXIMUM_ACCOUNT_CONNECTIONS, Closed.ACCOUNT_FULL)
        elif (refusal := self._refuses(asked)) is not None:
            self._end(*refusal)
        else:
            self._accept(admitted)

    def _refuses(self, asked: ConnectOptions) -> tuple[str, Closed] | None:
        """Return why these options cannot be served, if so."""
        if asked.account or asked.new_account:
            return errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION
        if asked.protocol not in (0, 1):
            return errors.INVALID_CLIENT_PROTOCOL, Closed.CLIENT_PROTOCOL
        if asked.no_responders and not (asked.headers and self._info.headers):
            return errors.NO_RESPONDERS_REQUIRES_HEADERS, Closed.NO_RESPONDERS
        return None

    def _stays(self, admitted: Admitted | None) -> bool:
        """Whether the client is who it was, in the account where it was."""
        if admitted is None:
            return False
        return admitted.space is self.space and admitted.identity == self.identity

    def _accept(self, admitted: Admitted) -> None:
        is_first, self.connected = not self.connected, True
        self._handshake_until = None
        self._enter(admitted)
        if is_first:
            self._reception.events.connected(self)
        self._ok()

    # ---- who it is -----------------------------------------------------------------------------

    def _enter(self, admitted: Admitted) -> None:
        """Take up a place in the account, with the rights that come with the identity."""
        self.identity = admitted.identity
        self.space = admitted.space
        self.rights = Rights(admitted.identity.permissions)
        if self.space.interest is not self._interest:
            self._interest = self.space.interest
            self._hub.move(self.cid, self._interest)
        self.space.enter(self)
        self._configure()

    def _leave(self) -> None:
        if self.space is not None:
            self.space.leave(self.cid)
        self.identity = self.space = None
        self.rights = Rights(Permissions())

    def closed(self) -> None:
        """Give up the place in the account: the connection is over."""
        if self.space is not None:
            self.space.leave(self.cid)
            if self.connected:
                self._reception.events.left(self.space)

    def _configure(self) -> None:
        """Tell the hub what CONNECT negotiated and how closely to look at publishes."""
        asked = self.options
        self._hub.configure(
            self.cid,
            verbose=asked.verbose,
            pedantic=asked.pedantic,
            echo=asked.echo,
            headers=asked.headers and self._info.headers,
            no_responders=asked.no_responders,
            guarded=self.identity is None or self.rights.guards_publishing,
            track_replies=self.rights.answers_requests,
            mapped=self.space is not None and self.space.mapper is not None,
            max_payload=self._max_payload(),
        )

    def _max_payload(self) -> int:
        """Return the least of what server, account and user allow; nothing to a stranger."""
        if self.identity is None or self.space is None:
            return 0
        further = (self.identity.max_payload, self.space.account.limits.max_payload)
        return min([self.limits.max_payload, *(limit for limit in further if limit >= 0)])

    def still_welcome(self) -> bool:
        """Say whether those who are believed now would admit this client; take over its rights.

        Other rights are no reason to go: what they no longer allow is taken away.
        """
        if self.space is None or self.identity is None:
            return True  # it has said nothing yet, and is judged when it does
        admitted = self._reception.admit(replace(self._presented, believed_before=True))
        if admitted is None or admitted.space is not self.space:
            return False
        if self.identity.name and admitted.identity.name != self.identity.name:
            return False  # who was not asked for a name before may have one now
        has_other_rights = admitted.identity.permissions != self.identity.permissions
        self.identity = admitted.identity
        if has_other_rights:
            self._change_rights(self.space, admitted.identity.permissions)
        self._configure()
        return True

    def _change_rights(self, space: Space, permissions: Permissions) -> None:
        """Let go of subscriptions that are forbidden now, and hide from others what is hidden."""
        before, self.rights = self.rights, Rights(permissions)
        for subject, queue, sid, delivered, limit in self._hub.subscriptions(self.cid):
            hidden = self.rights.hidden(queue)
            if not self.rights.may_subscribe(subject, queue):
                self._hub.unsubscribe(self.cid, sid, 0)
                space.unlistened(self.cid, sid)
                self._say(errors.removed_subscription(subject, queue, sid))
            elif hidden != before.hidden(queue):
                self._hub.unsubscribe(self.cid, sid, 0)
                self._hub.subscribe(self.cid, subject, queue, sid, hidden)
                if limit:
                    self._hub.unsubscribe(self.cid, sid, limit - delivered)

    def refresh(self) -> None:
        """Take over what limits and mappings have become."""
        self._configure()

    def revoke(self) -> None:
        """End the connection of a client that is no longer believed, or not as before."""
        by_token = bool(self._presented.jwt)
        text = errors.AUTHENTICATION_REVOKED if by_token else errors.AUTHORIZATION_VIOLATION
        self._end(text, Closed.REVOKED)

    def client_info(self, *, detailed: bool = True) -> dict[str, Any]:
        """Return what others may learn of this client: account and distance, or all of it."""
        account = self.space.name if self.space is not None else ""
        distance = round(self.rtt * 1e9)
        if not detailed:
            return {"acc": account, **({"rtt": distance} if distance else {})}
        info = {
            "start": rfc3339(self.started_ns),
            "host": self.peer,
            "id": self.cid,
            "acc": account,
            "user": self.user,
            "name": self.options.name,
            "lang": self.options.lang,
            "ver": self.options.version,
            "rtt": distance,
            "name_tag": self.identity.label if self.identity is not None else "",
            "kind": "Client",
            "client_type": "websocket" if self.transport.kind is Kind.WEBSOCKET else "nats",
        }
        return {key: value for key, value in info.items() if value}

    def _complain(self, what: str) -> None:
        """Tell the log what the client was refused."""
        log.error("%s - %s", self.label(self._hub.connection_stats(self.cid)), what)

    def _violation(self) -> None:
        self._end(errors.AUTHORIZATION_VIOLATION, Closed.AUTHENTICATION)

    # ---- what it does --------------------------------------------------------------------------

    def may_publish(self, subject: bytes, now: float) -> int:
        """Judge a publish, and say so where it is not allowed."""
        if self.identity is None:
            self._violation()
            return _hub.DENIED
        asked = subject
        if self._domain and subject.startswith(self._domain):
            subject = b"$JS.API." + subject[len(self._domain) :]  # what it is another name of
        request = self._read_request(subject)
        if request is not None and not self._may_read(request):
            return self._deny(subject)
        target = written_stream(text_of(subject)) if subject.startswith(b"$") else None
        if target is not None and not self._may_write(target):
            return self._deny(subject)
        if self.rights.may_publish(subject):
            if request is not None or target is not None:
                return _hub.ALLOWED_ONCE  # what the stream holds can change
            self.rights.remember(asked)
            return _hub.ALLOWED
        if self.rights.may_answer(subject, now):
            return _hub.ALLOWED_ONCE
        return self._deny(subject)

    def _deny(self, subject: bytes) -> int:
        self._complain(f"Publish Violation - Subject {errors.quoted(subject)}")
        self._say(errors.publish_violation(subject))
        return _hub.DENIED

    def may_be_sent_to(self, subject: bytes, queue: bytes) -> bool:
        """Say whether the server may be told to send there: a place of the client's own."""
        return self.rights.may_publish(subject) or self.rights.may_subscribe(subject, queue)

    def _read_request(self, subject: bytes) -> ReadRequest | None:
        """Return the request for records that this is, if there are records to hide."""
        if self.rights.reads_all or not subject.startswith(b"$"):
            return None
        return read_request(text_of(subject))

    def _may_read(self, request: ReadRequest) -> bool:
        account = self.space.name if self.space is not None else ""
        patterns = self._reception.subjects_of(account, request.stream)
        return may_read(self.rights.permissions.subscribe, request, patterns)

    def sight_of(self, stream: str) -> Sight | None:
        """Return what this client sees of a stream in its account, None for everything."""
        if self.rights.reads_all:
            return None
        account = self.space.name if self.space is not None else ""
        patterns = self._reception.subjects_of(account, stream)
        return sight_of(self.rights.permissions.subscribe, stream, patterns)

    def _may_write(self, stream: str) -> bool:
        account = self.space.name if self.space is not None else ""
        patterns = self._reception.subjects_of(account, stream)
        return may_write(self.rights.permissions.publish, patterns)

    def sub(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        """Subscribe, or say why not; the connection goes on either way."""
        if self.space is None:
            self._violation()
        elif not self.rights.may_subscribe(subject, queue):
            group = f", Queue: {errors.quoted(queue)}" if queue else ""
            about = f"Subject {errors.quoted(subject)}{group}, SID {text_of(sid)}"
            self._complain(f"Subscription Violation - {about}")
            self._say(errors.subscription_violation(subject, queue))
        elif 0 < self.limits.max_subject_tokens <= subject.count(b"."):
            self._say(errors.too_many_tokens(subject))
        elif self._has_all_subscriptions(self.space):
            self._say(errors.MAXIMUM_SUBSCRIPTIONS)
        elif not self._hub.subscribe(self.cid, subject, queue, sid, self.rights.hidden(queue)):
            self._say(errors.INVALID_SUBJECT)
        else:
            self.space.listened(self.cid, sid, subject)
            self._ok()

    def _has_all_subscriptions(self, space: Space) -> bool:
        """Say whether connection, user or account have as many as they may."""
        own = [self.limits.max_subscriptions or -1]
        own += [self.identity.max_subscriptions] if self.identity is not None else []
        together = space.account.limits.max_subscriptions
        if max(*own, together) < 0:
            return False
        held = self._hub.connection_stats(self.cid)["subscriptions"]
        if any(0 <= limit <= held for limit in own):
            return True
        return 0 <= together <= space.subscriptions(self._hub)

    def unsub(self, sid: bytes, max_msgs: int) -> None:
        """Unsubscribe now or after ``max_msgs``; a sid that is not there is fine."""
        if self.space is None:
            self._violation()
            return
        self._hub.unsubscribe(self.cid, sid, max_msgs)
        if not max_msgs:
            self.space.unlistened(self.cid, sid)
        self._ok()

    def first_ping(self) -> None:
        """Follow the first PONG with the INFO that tells a client where it ended up."""
        if self.space is None:
            self._violation()
        elif self.options.protocol >= 1:
            info = self._info.with_(
                connect_info=True,
                remote_account=self.space.name,
                acc_is_sys=self.space is self._reception.accounts.system,
            )
            self._hub.write(self.cid, info.line())

    def turn_away(self) -> None:
        """End the connection: fewer may be here now."""
        self._end(errors.MAXIMUM_CONNECTIONS, Closed.MAX_CONNECTIONS)

    def crowd_out(self) -> None:
        """End the connection: fewer of the account may be here now."""
        self._end(errors.MAXIMUM_ACCOUNT_CONNECTIONS, Closed.ACCOUNT_FULL)

    def send_away(self) -> None:
        """Tell the client to look for another server, if it understands."""
        if self.options.protocol >= 1:
            self._hub.write(self.cid, self._info.with_(ldm=True).line())

    def pong(self, now: float) -> None:
        """Note that the client is alive, and how long its answer took."""
        self._pings_out = 0
        if self._pinged_at is not None:
            self.rtt, self._pinged_at = max(now - self._pinged_at, 0.0), None
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
            self._hub.close_connection(self.cid, Closed.PROTOCOL)

    def refuse(self, code: int) -> None:
        """Say why the kernel closes the connection, where clients expect a word."""
        # A CONNECT that is too long is told so, or nobody would think of the length of a JWT.
        if self.space is None and code != _hub.LINE_TOO_LONG:
            self._violation()
        elif code in _REFUSALS:
            self._end(*_REFUSALS[code])

    def tick(self, now: float, unix_seconds: float) -> None:
        """Look at the deadlines: handshake, credentials, pings, silence."""
        if self.identity is not None and 0 < self.identity.account_expires <= unix_seconds:
            self._end(errors.ACCOUNT_EXPIRED, Closed.EXPIRED)
        elif self.identity is not None and 0 < self.identity.expires <= unix_seconds:
            self._end(errors.AUTHENTICATION_EXPIRED, Closed.EXPIRED)
        elif self._handshake_until is not None and now >= self._handshake_until:
            self._check_handshake(now)
        elif now >= self._ping_at:
            self._ping_at = now + self._ping_interval
            self._check_alive(now)
        elif self.connected and now >= self._measure_at:
            self._measure_at = math.inf
            self._ping(now)

    def _check_handshake(self, now: float) -> None:
        """Close whoever sent nothing; without CONNECT, any operation proves a client.

        One that is in the middle of its first operation gets a little longer, not for ever.
        """
        if self.space is None:
            self._end(errors.AUTHENTICATION_TIMEOUT, Closed.HANDSHAKE)
            return
        if self._hub.take_activity(self.cid):
            self._handshake_until = None
            return
        begun = self._hub.connection_stats(self.cid)["unfinished_bytes"] > 0
        if not begun or now >= self._handshake_end:
            self._end(errors.AUTHENTICATION_TIMEOUT, Closed.HANDSHAKE)

    def _check_alive(self, now: float) -> None:
        if self._hub.take_activity(self.cid):
            self._pings_out = 0
            return
        if self._pings_out >= self.limits.ping_max:
            self._end(errors.STALE_CONNECTION, Closed.STALE)
            return
        self._pings_out += 1
        self._ping(now)

    def _ping(self, now: float) -> None:
        self._pinged_at = now
        self._hub.write(self.cid, _PING)

    def _ok(self) -> None:
        if self.options.verbose:
            self._hub.write(self.cid, _OK)

    def _say(self, text: str) -> None:
        self._hub.write(self.cid, errors.err(text))

    def _end(self, text: str, reason: Closed) -> None:
        self._say(text)
        self._hub.close_connection(self.cid, reason)
