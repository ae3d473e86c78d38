"""ServiceImport: requests of one account that a service of another one answers.

The request goes to the service's owner with a reply subject that nobody can guess,
``_R_.<random>``. Whatever the service says there goes back to whoever asked, under the subject at
which it waits; neither side learns a name of the other's.
"""

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.accounts.account import Export, Import, ResponseType
from millstream.accounts.rights import text_of
from millstream.clock import Clock
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.nats.accounts.service_latency import Measure, ServiceLatency
from millstream.nats.client_info import client_info
from millstream.wire.headers import MalformedHeaders, encode_headers, parse_headers

if TYPE_CHECKING:
    from millstream.nats.accounts.accounts import Space
    from millstream.nats.session import Session
    from millstream.nats.tracing.tracer import TracedMessage

REPLY_PREFIX = b"_R_."
REQUEST_INFO = b"Nats-Request-Info"
MOST_WAITING = 65_536
_SWEEP_SECONDS = 10.0
_ACK_PREFIX = b"$JS.ACK."
_INFO_LOWER = REQUEST_INFO.lower()

FindSession = Callable[[int], "Session | None"]


class _WaitingReply(msgspec.Struct):
    """Somebody who asked, and until when an answer is passed on."""

    importer: "Space"
    reply: bytes
    kind: ResponseType
    seconds: float
    until: float
    measure: Measure | None = None


class Replies:
    """The answers that one account owes to others; a sink for its ``_R_`` subjects."""

    def __init__(self, hub: Hub, owner: "Space", clock: Clock, find_session: FindSession) -> None:
        self._hub = hub
        self._owner = owner
        self._clock = clock
        self._find_session = find_session
        self.latency = ServiceLatency(hub, owner, clock)
        self._waiting: dict[bytes, _WaitingReply] = {}
        self._sweep_at = 0.0
        self._handle = owner.interest.add_sink(REPLY_PREFIX + b"*", self, routed=True)

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(
        self, importer: "Space", reply: bytes, export: Export, measure: Measure | None = None
    ) -> bytes:
        """Return where the service shall answer; the oldest is forgotten above the bound."""
        now = self._clock.monotonic()
        if now >= self._sweep_at:
            self._sweep(now)
        if len(self._waiting) >= MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        subject = REPLY_PREFIX + secrets.token_hex(12).encode()
        seconds = export.response_seconds
        kind = export.response_type
        until = now + seconds
        self._waiting[subject] = _WaitingReply(importer, reply, kind, seconds, until, measure)
        return subject

    def awaited(self, subject: bytes) -> "tuple[Space, bytes] | None":
        """Return the account that waits for an answer there, and where; None when none does."""
        waiting = self._waiting.get(subject)
        if waiting is None or waiting.until <= self._clock.monotonic():
            return None
        return waiting.importer, waiting.importer.mapped(waiting.reply)

    def forget(self, subject: bytes) -> None:
        """Expect no answer there any more."""
        self._waiting.pop(subject, None)

    def _sweep(self, now: float) -> None:
        """Forget what was not answered in time."""
        self._sweep_at = now + _SWEEP_SECONDS
        for subject in [s for s, waiting in self._waiting.items() if waiting.until <= now]:
            self.latency.end(self._waiting.pop(subject).measure, 504)

    def close(self) -> None:
        """Pass nothing on any more."""
        self._owner.interest.remove_sink(self._handle)
        self._waiting.clear()

    def deliver(self, batch: Batch) -> None:
        """Pass answers on to whoever asked."""
        for at in range(len(batch)):
            subject, reply, headers, payload, origin = batch.message(at)
            waiting = self._waiting.get(subject)
            if waiting is None or waiting.until <= self._clock.monotonic():
                self.forget(subject)
                continue
            asker, answer_at = waiting.importer, waiting.importer.mapped(waiting.reply)
            shown, _, _ = batch.extras(at)  # a record's own subject
            delivered = self._hub.publish(asker.interest, answer_at, reply, headers, payload, shown)
            self._measured(waiting, origin, delivered=bool(delivered))
            is_last = not (headers or payload or shown)
            if waiting.kind is ResponseType.SINGLETON or is_last or not delivered:
                self.forget(subject)
            else:
                waiting.until = self._clock.monotonic() + waiting.seconds

    def _measured(self, waiting: _WaitingReply, origin: int, *, delivered: bool) -> None:
        """Tell how long the first answer took, if that is wanted."""
        measure, waiting.measure = waiting.measure, None
        if delivered:
            self.latency.end(measure, 200, self._find_session(origin))
        else:
            self.latency.end(measure, 408)


class ServiceImport:
    """A sink in the importing account that hands requests to the service's owner."""

    def __init__(
        self,
        hub: Hub,
        replies: Replies,
        owner: "Space",
        importer: "Space",
        item: Import,
        export: Export,
        find_session: FindSession,
    ) -> None:
        self._hub = hub
        self._replies = replies
        self._owner = owner
        self._importer = importer
        self._item = item
        self._export = export
        self._rename = item.outward()
        self._find_session = find_session
        self._handle = importer.interest.add_sink(item.local.encode(), self, routed=True)

    def close(self) -> None:
        """Hand nothing over any more."""
        self._importer.interest.remove_sink(self._handle)

    def deliver(self, batch: Batch) -> None:
        """Hand each request over; one that nobody takes is answered at once."""
        for at in range(len(batch)):
            subject, reply, headers, payload, origin = batch.message(at)
            self._request(subject, reply, headers, payload, origin, batch.extras(at)[0])

    def _request(
        self,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        origin: int,
        shown: bytes,
    ) -> None:
        def publish(asked: bytes, answer_at: bytes, told: bytes) -> int:
            space = self._owner.interest
            return self._hub.publish(space, asked, answer_at, told, payload, shown, origin=origin)

        self._ask(subject, reply, headers, origin, publish)

    def passes_on(
        self, message: "TracedMessage", subject: bytes, reply: bytes, headers: bytes
    ) -> bool:
        """Hand a traced request over; the export says whether it is followed."""
        if message.trace is not None:
            to = text_of(self._renamed(subject))
            message.trace.handed_over(self._owner.name, text_of(subject), to)
            if not self._export.allow_trace:
                message = message.unfollowed()
                if not message.really:
                    return False

        def publish(asked: bytes, answer_at: bytes, told: bytes) -> int:
            return int(message.route(self._owner, asked, answer_at, told))

        if not message.really:
            return bool(publish(self._owner.mapped(self._renamed(subject)), reply, headers))
        self._ask(subject, reply, headers, message.origin, publish)
        return True

    def _ask(
        self,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        origin: int,
        publish: Callable[[bytes, bytes, bytes], int],
    ) -> None:
        session = self._find_session(origin)
        told = _with_request_info(headers, self._importer, session, shared=self._item.share)
        latency = self._replies.latency
        measure = latency.begin(self._export.latency, headers, session, shared=self._item.share)
        answer_at = reply
        if reply and not reply.startswith(_ACK_PREFIX):
            answer_at = self._replies.expect(self._importer, reply, self._export, measure)
        else:
            latency.end(measure, 400)
        asked = self._owner.mapped(self._renamed(subject))
        if not publish(asked, answer_at, told):
            latency.end(measure if reply else None, 503)
            self._replies.forget(answer_at)
            if reply and session is not None and session.options.no_responders:
                self._nobody(subject, reply)

    def _nobody(self, subject: bytes, reply: bytes) -> None:
        headers = encode_headers([(b"Nats-Subject", subject)], b"503")
        self._hub.publish(self._importer.interest, reply, b"", headers, b"")

    def _renamed(self, subject: bytes) -> bytes:
        if self._rename is None:
            return subject
        return self._rename.apply(text_of(subject)).encode("utf-8", "surrogateescape")


def _with_request_info(
    headers: bytes, importer: "Space", session: "Session | None", *, shared: bool
) -> bytes:
    """Return the headers with who asks in them; what a client says of that itself is dropped."""
    info: dict[str, Any] = {"acc": importer.name}
    if session is not None:
        info = client_info(session, detailed=shared)
        if shared:
            info["server"] = session.greeting.server_name
        if session.space is not importer:
            info["svc"] = importer.name
    try:
        fields = [field for field in parse_headers(headers) if field[0].lower() != _INFO_LOWER]
    except MalformedHeaders:
        fields = []
    return encode_headers([*fields, (REQUEST_INFO, msgspec.json.encode(info))])
