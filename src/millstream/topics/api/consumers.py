"""Consumers over HTTP: list, create, look at, pause, move and delete them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.client.jetstream.consumer_state import why_of
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.readers import MARK
from millstream.errors import BadRequest, Forbidden
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.streams.config.times import rfc3339, time_ns
from millstream.topics import bodies
from millstream.topics.api.config import cursor, make_cursor, page_size
from millstream.topics.context import Topics
from millstream.topics.directory import check_name, topic_of

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.consumers.registry import Registry
    from millstream.streams.stream import Stream

LONGEST_PAUSE = 10 * 365 * 86_400.0


class ConsumerShapes(Protocol):
    """How a consumer looks in JetStream's words."""

    def consumer_info(
        self, consumer: "Consumer", now_ns: int, *, full: bool = True
    ) -> dict[str, Any]:
        """Return a ConsumerInfo."""
        ...


class ConsumerCalls:
    """The consumers of streams, as HTTP asks for them."""

    def __init__(self, topics: Topics, registry: "Registry", shapes: ConsumerShapes) -> None:
        self._topics = topics
        self._registry = registry
        self._shapes = shapes

    async def listing(self, request: Request) -> Response:
        """List a topic's consumers by name, a page at a time."""
        stream = self._stream(request)
        size, after = page_size(request), cursor(request)
        found = sorted(self._registry.listed(stream), key=lambda each: each.name)
        left = [each for each in found if after is None or each.name > after]
        answer: dict[str, Any] = {
            "topic": stream.name,
            "consumers": [self.shown(each) for each in left[:size]],
            "total": len(found),
        }
        if len(left) > size:
            answer["next_cursor"] = make_cursor(left[size - 1].name)
        return json_response(answer)

    async def everything(self, request: Request) -> Response:
        """List the consumers of all topics that the caller may see, a page at a time."""
        size, after = page_size(request), cursor(request)
        kept: list[Consumer] = []
        total = 0
        for stream in self._topics.directory.visible(request.caller):
            if not self._registry.count(stream):
                continue
            listed = sorted(self._registry.listed(stream), key=lambda each: each.name)
            total += len(listed)
            for each in listed:
                if len(kept) <= size and (after is None or _place(each) > after):
                    kept.append(each)
        answer: dict[str, Any] = {
            "consumers": [self.shown(each) for each in kept[:size]],
            "total": total,
        }
        if len(kept) > size:
            answer["next_cursor"] = make_cursor(_place(kept[size - 1]))
        return json_response(answer)

    async def show(self, request: Request) -> Response:
        """Show one consumer, and why it stands where it does."""
        return json_response(self.shown(self._consumer(request)))

    async def put(self, request: Request) -> Response:
        """Create a durable consumer, or change one, by JetStream's configuration."""
        wish = bodies.json_body(request, dict[str, Any], may_be_empty=True)
        stream, name = self._stream(request), request.params["consumer"]
        known = name in (each.name for each in self._registry.listed(stream))
        asked = {"ack_policy": "explicit", **wish, "name": name, "durable_name": name}
        try:
            config = ConsumerConfig.from_request(asked, stream.config)
        except (msgspec.ValidationError, TypeError, AttributeError) as error:
            raise BadRequest(f"this is no configuration of a consumer: {error}") from None
        _check_deliver(config.deliver_subject, request.caller)
        if config.dead_letter:  # records must not go where the caller may not, nor unread ones
            check_name(config.dead_letter, request.caller)
            writer = request.caller.asking_for("write", config.dead_letter)
            check_name(config.dead_letter, writer)
            check_name(stream.name, request.caller.asking_for("read", stream.name))
        consumer, _ = await self._registry.create(stream, config)
        return json_response(self.shown(consumer), 200 if known else 201)

    async def delete(self, request: Request) -> Response:
        """Delete a consumer and its position."""
        stream, name = self._stream(request), request.params["consumer"]
        await self._registry.delete(stream, name)
        return json_response({"topic": stream.name, "consumer": name, "deleted": True})

    async def pause(self, request: Request) -> Response:
        """Stop deliveries for a time; zero seconds let them go on."""
        body: bodies.PauseBody = bodies.json_body(request, bodies.PauseBody, may_be_empty=True)
        consumer = self._consumer(request)
        await self._registry.pause(consumer, self._until(body))
        return json_response(self.shown(consumer))

    async def reset(self, request: Request) -> Response:
        """Deliver anew from a sequence, or from the ack floor."""
        body: bodies.ResetBody = bodies.json_body(request, bodies.ResetBody, may_be_empty=True)
        seq = bodies.unsigned(body.seq, "seq", 0)
        consumer = self._consumer(request)
        begins = consumer.reset(seq)
        return json_response({**self.shown(consumer), "reset_seq": begins})

    def _until(self, body: bodies.PauseBody) -> str:
        """Return the end of a pause as the configuration keeps it, empty for none."""
        if body.until is not None:
            try:
                datetime.fromisoformat(body.until)
            except ValueError:
                raise BadRequest("until is a time such as 2030-01-31T12:00:00Z") from None
            return rfc3339(time_ns(body.until))
        seconds = 0.0 if body.seconds is None else body.seconds
        if not 0 <= seconds <= LONGEST_PAUSE:
            raise BadRequest(f"seconds must be between 0 and {LONGEST_PAUSE:.0f}")
        if not seconds:
            return ""
        end = self._topics.clock.time_ns() / 1e9 + seconds
        return datetime.fromtimestamp(end, UTC).isoformat().replace("+00:00", "Z")

    def _stream(self, request: Request) -> "Stream":
        return self._topics.directory.find(topic_of(request), request.caller)

    def _consumer(self, request: Request) -> "Consumer":
        return self._registry.get(self._stream(request), request.params["consumer"])

    def shown(self, consumer: "Consumer") -> dict[str, Any]:
        """Return a consumer as JetStream shows it, with what it waits for."""
        info = self._shapes.consumer_info(consumer, self._topics.clock.time_ns())
        reason = why_of(info, consumer.stream.config.subjects)
        info["why"], info["reason"] = reason.text(), reason.code
        reader = consumer.config.metadata.get(MARK)
        if reader is not None:
            info["reader"] = reader
        return info


def _check_deliver(subject: str, caller: Caller) -> None:
    """Refuse to deliver where the caller may not publish: a consumer speaks for who made it."""
    if subject and not caller.may_publish(subject):
        raise Forbidden(
            f"this credential may not have records delivered to {subject}", {"subject": subject}
        )


def _place(consumer: "Consumer") -> str:
    return f"{consumer.stream.name}\0{consumer.name}"
