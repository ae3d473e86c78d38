"""Messages over HTTP: publish to a subject, or ask on one and wait for the answers."""

import asyncio
import base64
import binascii
import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import BadRequest, Forbidden, MillstreamError
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.streams.schedules.schedules import SOURCE, TARGET
from millstream.subjects.subject import has_wildcard, is_pattern
from millstream.topics import bodies
from millstream.topics.limits.slots import Slots
from millstream.topics.page.browsing import header_pairs, shown_payload
from millstream.topics.page.performance import Stopwatch
from millstream.wire import headers as header_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.clock import Clock
    from millstream.kernel._batch import Batch
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

DEFAULT_WAIT_MS = 2_000
LONGEST_WAIT_MS = 30_000
MOST_REPLIES = 100
MOST_PAYLOAD = 64 * 1024 * 1024
MOST_WAITING = 1_000


class NobodyAnswers(MillstreamError):
    """Nobody listens on the subject of a request."""

    code = "no_responders"
    http_status = 404
    status = 503


class NoAnswerInTime(MillstreamError):
    """Somebody listens, but has not answered in time."""

    code = "timeout"
    http_status = 504
    status = 504


class GatheredReplies:
    """A sink that gathers what comes to one inbox."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.messages: list[tuple[bytes, bytes, bytes]] = []  # subject, headers, payload
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(self, batch: "Batch") -> None:
        """Keep answers until there are enough."""
        for at in range(len(batch)):
            subject, _, headers, payload, _ = batch.message(at)
            if len(self.messages) < self._wanted:
                self.messages.append((bytes(subject), bytes(headers), bytes(payload)))
        if len(self.messages) >= self._wanted and not self.enough.done():
            self.enough.set_result(None)


class MessageCalls:
    """Sends messages into the subject space of the caller's account."""

    def __init__(
        self, hub: "Hub", interests: "Mapping[str, Interest]", clock: "Clock", max_payload: int
    ) -> None:
        self._hub = hub
        self._interests = interests
        self._clock = clock
        self._max_payload = max_payload
        self._waiting = Slots("max_waiting_requests", MOST_WAITING)

    async def publish(self, request: Request) -> Response:
        """Publish a message; with ``ack`` wait until a stream says that it is stored."""
        watch = Stopwatch(self._clock)
        body: bodies.MessageBody = bodies.json_body(request, bodies.MessageBody)
        payload, headers = self._checked(body, request.caller)
        answer: dict[str, Any] = {"subject": body.subject, "size": len(payload)}
        if body.ack:
            found = await self._ask(body, request.caller, payload, headers, 1)
            answer["ack"] = _pub_ack(found)
        else:
            reply = (body.reply or "").encode()
            interest = self._interests[request.caller.account]
            answer["receivers"] = self._hub.publish(
                interest, body.subject.encode(), reply, headers, payload
            )
            self._hub.flush()
        answer["performance"] = watch.performance()
        return json_response(answer)

    async def request(self, request: Request) -> Response:
        """Send a request and return its answers."""
        watch = Stopwatch(self._clock)
        body: bodies.MessageBody = bodies.json_body(request, bodies.MessageBody)
        payload, headers = self._checked(body, request.caller)
        wanted = bodies.unsigned(body.max_replies, "max_replies", 1)
        found = await self._ask(
            body, request.caller, payload, headers, max(1, min(wanted, MOST_REPLIES))
        )
        answer = {
            "subject": body.subject,
            "replies": [_shown(*each) for each in found],
            "performance": watch.performance(),
        }
        return json_response(answer)

    def _checked(self, body: bodies.MessageBody, caller: Caller) -> tuple[bytes, bytes]:
        """Return payload and header block; refuse what may not be sent."""
        if not is_pattern(body.subject) or has_wildcard(body.subject):
            raise BadRequest("subject is not one that can be published to: use words and dots")
        if not caller.may_publish(body.subject):
            raise Forbidden(
                f"this credential may not publish to {body.subject}", {"subject": body.subject}
            )
        if body.reply and not (is_pattern(body.reply) and caller.may_publish(body.reply)):
            raise Forbidden("this credential may not have answers sent there")
        _check_schedule(body.headers or {}, caller)
        payload = _payload(body)
        if len(payload) > self._max_payload:
            raise BadRequest(f"a message holds at most {self._max_payload} bytes (max_payload)")
        return payload, _header_block(body.headers)

    async def _ask(
        self,
        body: bodies.MessageBody,
        caller: Caller,
        payload: bytes,
        headers: bytes,
        wanted: int,
    ) -> list[tuple[bytes, bytes, bytes]]:
        wait_ms = bodies.unsigned(body.timeout_ms, "timeout_ms", DEFAULT_WAIT_MS)
        interest = self._interests[caller.account]
        if not interest.has_interest(body.subject.encode()):
            raise NobodyAnswers(f"nobody listens on {body.subject}, and no stream takes it")
        inbox = f"_INBOX.{secrets.token_hex(11)}".encode()
        replies = GatheredReplies(wanted)
        leave = self._waiting.take(caller.key)
        handle = interest.add_sink(inbox, replies)
        try:
            self._hub.publish(interest, body.subject.encode(), inbox, headers, payload)
            self._hub.flush()
            timeout = min(wait_ms, LONGEST_WAIT_MS) / 1000
            await asyncio.wait([replies.enough], timeout=timeout)
        finally:
            interest.remove_sink(handle)
            leave()
        if not replies.messages:
            raise NoAnswerInTime(f"nobody answered on {body.subject} within {wait_ms} ms")
        return replies.messages


def _check_schedule(headers: "Mapping[str, str | list[str]]", caller: Caller) -> None:
    """Refuse a schedule that would publish, or show, what the caller may not."""
    for name, judge in ((TARGET, caller.may_publish), (SOURCE, caller.may_capture)):
        value = headers.get(name.decode(), ())
        for subject in [value] if isinstance(value, str) else value:
            if not judge(subject):
                raise Forbidden(f"this credential may not use {subject} in a schedule")


def _payload(body: bodies.MessageBody) -> bytes:
    given = [body.data is not bodies.ABSENT, body.text is not None, body.base64 is not None]
    if sum(given) > 1:
        raise BadRequest("give one of data (JSON), text and base64")
    if body.text is not None:
        return body.text.encode()
    if body.base64 is not None:
        try:
            return base64.b64decode(body.base64, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("base64 holds something that is not base64") from None
    return b"" if body.data is bodies.ABSENT else bytes(body.data)


def _header_block(given: dict[str, str | list[str]] | None) -> bytes:
    if not given:
        return b""
    fields = []
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            if not name or ":" in name or any(ord(c) < 33 or ord(c) == 127 for c in name):
                raise BadRequest(f"{name!r} is not the name of a header")
            if "\r" in each or "\n" in each:
                raise BadRequest(f"the value of the header {name} has a line break")
            fields.append((name.encode(), each.encode()))
    return header_blocks.encode_headers(fields)


def _pub_ack(found: list[tuple[bytes, bytes, bytes]]) -> Any:
    """Return what a stream said, or raise what it refused with."""
    _, headers, payload = found[0]
    said = header_blocks.status(headers) if headers else None
    if said is not None and said[0] == 503:
        raise NobodyAnswers("no stream takes this subject; publish without ack")
    try:
        ack = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("somebody else than a stream answered; publish without ack") from None
    if isinstance(ack, dict) and "error" in ack:
        raise BadRequest(str(ack["error"].get("description", "refused")), {"error": ack["error"]})
    return ack


def _shown(subject: bytes, headers: bytes, payload: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = {"subject": subject.decode("utf-8", "replace"), "size": len(payload)}
    if headers:
        shown["headers"] = header_pairs(headers)
        said = header_blocks.status(headers)
        if said is not None:
            shown["status"] = said[0]
    return shown | shown_payload(payload)
