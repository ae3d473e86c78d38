"""Tracer: serves a message that asks for a trace, step by step, and tells where it went.

It does what the kernel does for every other message: map, judge, route. What waits for a sink goes
before the message, so that a trace changes no order.
"""

import gzip
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.accounts.rights import text_of
from millstream.clock import Clock
from millstream.kernel import _hub
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.nats.phrases import RESERVED
from millstream.nats.sending import may_reply, may_schedule
from millstream.nats.system.server_card import ServerCard
from millstream.nats.tracing.message_trace import MessageTrace
from millstream.nats.tracing.stream_verdict import stream_verdict, when_stored
from millstream.nats.tracing.trace_request import TraceRequest, disabled, trace_request
from millstream.streams.stream import Stream
from millstream.subjects.subject import is_literal
from millstream.wire import errors
from millstream.wire.headers import encode_headers
from millstream.wire.info import ServerInfo

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.session import Session

log = logging.getLogger(__name__)

_OK = b"+OK\r\n"
_WHY = {
    _hub.NO_ECHO: "Not delivered because of no echo",
    _hub.HIDDEN: "Not delivered because subscription denies this subject",
    _hub.ENOUGH: "Not delivered because auto-unsubscribe exceeded",
    _hub.GONE: "Not delivered because client is closed",
}


class TracedMessage:
    """A message on its way through accounts; ``trace`` is None where it is not followed further."""

    def __init__(
        self,
        hub: Hub,
        trace: MessageTrace | None,
        names: Callable[[int], str],
        body: tuple[bytes, bytes],
        origin: int,
        *,
        really: bool,
    ) -> None:
        self.trace = trace
        self.really = really  # or only as if
        self.headers, self.payload = body
        self.origin = origin
        self.promised: list[tuple[Stream, int]] = []  # streams, and what they will hold
        self._hub = hub
        self._names = names

    def route(self, space: "Space", subject: bytes, reply: bytes, headers: bytes) -> bool:
        """Give the message to everyone in an account who listens; say whether somebody does."""
        really = self.really
        met = self._hub.witness(
            space.interest, subject, reply, headers, self.payload, self.origin, really
        )
        heard = False
        for who in met:
            if len(who) == 4:
                heard |= self._met_client(space, who)
            else:
                heard |= self._met_sink(who, subject, reply, headers)
        return heard

    def _met_client(self, space: "Space", who: tuple[int, bytes, bytes, int]) -> bool:
        cid, pattern, queue, why = who
        if self.trace is not None:
            error = _WHY.get(why, "")
            shown = (text_of(pattern), text_of(queue), error)
            self.trace.delivered(cid, self._names(cid), space.name, *shown)
        return why == 0

    def _met_sink(
        self, who: tuple[object, Any], subject: bytes, reply: bytes, headers: bytes
    ) -> bool:
        slot, sink = who
        if self.really:
            self._hub.serve(slot)
        if isinstance(sink, Stream):
            self._met_stream(sink, subject, reply, headers)
            return True
        passes_on = getattr(sink, "passes_on", None)
        if passes_on is not None:
            return bool(passes_on(self, subject, reply, headers))
        if self.really:
            sink.deliver(self._batch(subject, reply, headers))
        return True

    def _met_stream(self, stream: Stream, subject: bytes, reply: bytes, headers: bytes) -> None:
        if self.trace is not None:
            verdict = stream_verdict(stream, subject, headers, self.payload)
            self.trace.stored(stream.name, *verdict[:2], interest=verdict[2])
        if self.really:
            stream.deliver(self._batch(subject, reply, disabled(headers)))
            self.promised.append((stream, stream.writes.last_seq()))

    def _batch(self, subject: bytes, reply: bytes, headers: bytes) -> Batch:
        batch = Batch()
        batch.add(subject, reply, headers, self.payload, origin=self.origin)
        return batch

    def unfollowed(self) -> "TracedMessage":
        """Return the message for an account that does not let itself be traced."""
        body = (disabled(self.headers), self.payload)
        return TracedMessage(self._hub, None, self._names, body, self.origin, really=self.really)


class Tracer:
    """One for all clients of a server."""

    def __init__(
        self, clock: Clock, info: Callable[[], ServerInfo], names: Callable[[int], str]
    ) -> None:
        """``names`` says what a connection calls itself."""
        self._clock = clock
        self._card = ServerCard(info, clock)
        self._names = names

    def take(
        self, session: "Session", subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> bool:
        """Serve a message whose headers may ask for a trace; False: like any other, then."""
        request = trace_request(headers)
        if request is None or session.space is None:
            return False
        space, sampled = session.space, True
        if not request.dest:
            terms = space.account.trace
            if terms is None:
                return False
            request = TraceRequest(request.headers, terms.dest)
            sampled = terms.sampling >= 100 or random.randrange(100) <= terms.sampling
        elif request.is_old:
            log.error("message tracing disabled cid=%d: an older server traced it", session.cid)
            if request.only:
                return True
            sampled = False
        if not sampled:
            self._serve(session, space, None, subject, reply, (disabled(headers), payload))
            return True
        if not is_literal(request.dest):
            log.error("trace destination %r is not valid cid=%d", request.dest, session.cid)
            return request.only
        if not self._may_tell(session, request.dest):
            return True
        came = {"cid": session.cid, "name": session.options.name, "subject": text_of(subject)}
        size = len(headers) + len(payload)
        trace = MessageTrace(request, self._clock, space.name, size, **came)
        promised = self._serve(session, space, trace, subject, reply, (headers, payload))
        when_stored(promised, lambda: self._tell(session, space, request, trace))
        return True

    def _may_tell(self, session: "Session", dest: str) -> bool:
        """Whether the client itself may publish to the destination; it is told when not."""
        name = dest.encode("utf-8", "surrogateescape")
        now = self._clock.monotonic()
        reserved = any(name.startswith(prefix) for prefix in RESERVED)
        free = not session.rights.guards_publishing
        if not reserved and (
            free or (session.rights.may_publish(name) and session.publishing.judge(name, now))
        ):
            return True
        log.error("Publish Violation - Subject %s cid=%d", errors.quoted(name), session.cid)
        session.hub.write(session.cid, errors.err(errors.publish_violation(name)))
        return False

    def _serve(
        self,
        session: "Session",
        space: "Space",
        trace: MessageTrace | None,
        subject: bytes,
        reply: bytes,
        body: tuple[bytes, bytes],
    ) -> list[tuple[Stream, int]]:
        """Map the message, judge it, and give it to whoever listens; tell what will be stored."""
        hub, now = session.hub, self._clock.monotonic()
        to = space.mapped(subject)
        if to != subject and trace is not None:
            trace.mapped(text_of(to))
        if session.rights.guards_publishing and session.may_publish(to, now) == _hub.DENIED:
            if trace is not None:
                trace.refused(errors.publish_violation(to))
            return []
        if reply and session.rights.guards_replies and not may_reply(session, reply):
            if trace is not None:
                trace.refused(errors.reply_violation(reply))
            return []
        if session.rights.guards_publishing and not may_schedule(session, body[0]):
            return []
        if any(reply.startswith(prefix) for prefix in RESERVED):
            hub.write(session.cid, errors.err(errors.reply_violation(reply)))
            if trace is not None:
                trace.refused(errors.reply_violation(reply))
            return []
        if session.options.verbose:
            hub.write(session.cid, _OK)
        really = trace is None or not trace.only
        message = TracedMessage(hub, trace, self._names, body, session.cid, really=really)
        heard = message.route(space, to, reply, body[0])
        if not heard and reply and session.options.no_responders:
            nobody = encode_headers([(b"Nats-Subject", to)], b"503")
            hub.publish(space.interest, reply, b"", nobody, b"")
        return message.promised

    def _tell(
        self, session: "Session", space: "Space", request: TraceRequest, trace: MessageTrace
    ) -> None:
        payload, headers = trace.encoded(self._card.full()), b""
        encoding = request.encoding
        if encoding:
            headers = encode_headers([(b"Content-Encoding", encoding.encode())])
            payload = gzip.compress(payload) if encoding == "gzip" else _snappy(payload)
        dest = request.dest.encode("utf-8", "surrogateescape")
        session.hub.publish(space.interest, dest, b"", headers, payload)
        session.hub.flush()


def _snappy(payload: bytes) -> bytes:
    import cramjam  # loaded only where somebody asks for it

    return bytes(cramjam.snappy.compress(payload))
