"""Operations: what the hub calls for control operations, by connection."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.kernel._hub import ALLOWED
from millstream.nats.sending import may_reply, may_schedule
from millstream.nats.transport.closed import SLOW_CONSUMERS, Closed
from millstream.wire.info import ServerInfo

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest
    from millstream.nats.server_link import ServerLink
    from millstream.nats.session import Session
    from millstream.nats.tracing.tracer import Tracer
    from millstream.nats.transport.trace import Trace
    from millstream.nats.transport.transport import Carrier

log = logging.getLogger(__name__)


class Operations:
    """Hands each operation to the session of its connection; ``Sessions`` fills the tables."""

    def __init__(self, clock: Clock, info: Callable[[], ServerInfo]) -> None:
        self.sessions: dict[int, Session] = {}
        self.links: dict[int, ServerLink] = {}  # connections to other servers
        self.carriers: dict[int, Carrier] = {}  # of connections that are fed
        self.traces: dict[int, Trace] = {}  # of connections that somebody reads along with
        self._clock = clock
        self._info = info
        self._tracer: Tracer | None = None  # made when somebody asks for a trace

    def _name(self, cid: int) -> str:
        session = self.sessions.get(cid)
        return "" if session is None else session.options.name

    def on_connect(self, cid: int, options: bytes) -> None:
        """Take CONNECT."""
        if cid in self.links:
            self.links[cid].connect(options)
        else:
            self.sessions[cid].connect(options, self._clock.monotonic())

    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None:
        """Take SUB."""
        self.sessions[cid].sub(subject, queue, sid)

    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None:
        """Take UNSUB."""
        self.sessions[cid].unsub(sid, max_msgs)

    def on_ping(self, cid: int) -> None:
        """Answer a connection's first PING; the hub answers the others."""
        self.sessions[cid].first_ping()

    def on_pong(self, cid: int) -> None:
        """Take PONG."""
        if cid in self.links:
            self.links[cid].pong()
        else:
            self.sessions[cid].pong(self._clock.monotonic())

    def on_info(self, cid: int, info: bytes) -> None:
        """Take an INFO, which only servers send; from a client it means nothing."""
        if cid in self.links:
            self.links[cid].info(info)
        else:
            self.sessions[cid].info(info)

    def on_error(self, cid: int, code: int) -> None:
        """Say why input was refused; the hub closes the connection."""
        if cid in self.links:
            self.links[cid].refuse(code)
        else:
            self.sessions[cid].refuse(code)

    def on_wish(
        self, cid: int, account: bytes, subject: bytes, queue: bytes, weight: int, origin: bytes
    ) -> None:
        """Take what another server wants."""
        self.links[cid].wish(account, (subject, queue), weight, origin)

    def on_err(self, cid: int, text: bytes) -> None:
        """Take what another server complains of."""
        self.links[cid].err(text.decode("utf-8", "replace").strip(" '"))

    def space_of(self, cid: int, account: bytes) -> "Interest | None":
        """Return the subjects of an account that another server names."""
        return self.links[cid].space_of(account)

    def on_output(self, cid: int) -> None:
        """Tell a fed connection's carrier that there is something to do."""
        self.carriers[cid].output(cid)

    def on_delivered_reply(self, cid: int, reply: bytes) -> None:
        """Note that a client was asked something, which it may now answer."""
        session = self.sessions.get(cid)
        if session is not None:
            session.rights.asked(reply, self._clock.monotonic())

    def may_publish(self, cid: int, subject: bytes) -> int:
        """Judge a publish of a guarded connection."""
        if cid in self.links:
            return self.links[cid].may_publish(subject)
        session = self.sessions[cid]
        if subject in session.rights.settled:
            return ALLOWED
        return session.may_publish(subject, self._clock.monotonic())

    def may_reply(self, cid: int, reply: bytes) -> int:
        """Judge where a message of a guarded connection wants its answers."""
        return may_reply(self.sessions[cid], reply)

    def may_schedule(self, cid: int, headers: bytes) -> bool:
        """Judge a message of a guarded connection that has others published later."""
        return may_schedule(self.sessions[cid], headers)

    def traced(
        self, cid: int, subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> bool:
        """Trace a message that asks for it; False when it goes its way like any other."""
        if self._tracer is None:
            from millstream.nats.tracing.tracer import Tracer

            self._tracer = Tracer(self._clock, self._info, self._name)
        return self._tracer.take(self.sessions[cid], subject, reply, headers, payload)

    def map_subject(self, cid: int, subject: bytes) -> bytes:
        """Return where a publish goes by the account's mappings."""
        if cid in self.links:
            return self.links[cid].mapped(subject)
        space = self.sessions[cid].space
        to = subject if space is None else space.mapped(subject)
        if self.traces and to != subject and cid in self.traces:
            self.traces[cid].mapped(subject, to)
        return to

    def on_closed(self, cid: int, reason: int) -> None:
        """Forget the session."""
        session = self.sessions.pop(cid, None)
        if session is not None:
            session.closed()
        link = self.links.pop(cid, None)
        if link is not None:
            link.closed(reason)
        self.traces.pop(cid, None)
        carrier = self.carriers.pop(cid, None)
        if carrier is not None:
            carrier.closed(reason)
        if reason in SLOW_CONSUMERS:
            log.warning("slow consumer closed cid=%d reason=%s", cid, Closed(reason).text)
