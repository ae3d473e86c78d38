"""Topics themselves: create, show, list and delete them."""

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.eager_task import next_turn
from millstream.errors import BadRequest, StreamExists
from millstream.http.number import whole_number
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.streams.config.data_size import data_bytes
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import check_capture, check_letters, check_name, may_see, topic_of
from millstream.topics.errors import TopicNotEmpty
from millstream.topics.page.current_state import current_state
from millstream.topics.page.performance import Stopwatch
from millstream.topics.unknown_fields import note_topic_config

if TYPE_CHECKING:
    from millstream.streams.stream import Stream


IN_A_TURN = 1000  # names that are looked at before others have the loop
MUCH = 1 << 20


async def put_topic(request: Request, topics: Topics) -> Response:
    """Create a topic, or replace the whole configuration of one that exists."""
    watch = Stopwatch(topics.clock)
    wish = bodies.json_body(request, dict[str, Any], may_be_empty=True)
    await next_turn(len(request.body))
    name = topic_of(request)
    check_name(name, request.caller)
    note_topic_config(request, wish)
    check_letters(wish, name, request.caller, topics.directory)
    stream, created = await _create_or_update(topics, request, name, wish)
    await next_turn(len(request.body))
    answer = {
        "topic": name,
        "created": created,
        "config": stream.config.to_topic(),
        "performance": watch.performance(),
    }
    return json_response(answer, 201 if created else 200)


async def _create_or_update(
    topics: Topics, request: Request, name: str, wish: dict[str, Any]
) -> "tuple[Stream, bool]":
    account = request.caller.account
    known = topics.directory.find_or_none(name, request.caller)
    if known is None:
        config = topics.defaults.config(name, wish)
        await next_turn(len(request.body))
        check_capture(config, request.caller)
        try:
            with topics.topic_limit.reserved(account, name):
                return await topics.catalog.create(config, account)
        except StreamExists:  # somebody else created it while we were looking
            known = topics.directory.find(name, request.caller)
    config = topics.defaults.config(name, wish, known.config)
    await next_turn(len(request.body))
    check_capture(config, request.caller, known.config.subjects)
    return await topics.catalog.update(config, account), False


async def get_topic(request: Request, topics: Topics) -> Response:
    """Show a topic's state and configuration."""
    watch = Stopwatch(topics.clock)
    stream = topics.directory.find(topic_of(request), request.caller)
    await topics.routers.catch_up(stream)
    if request.flag("touch", True):
        topics.priorities.touch(stream)
    state, config = current_state(stream, topics.clock.time_ns()), stream.config.to_topic()
    answer = {
        "topic": stream.name,
        "type": config["type"],
        "head_seq": state.last_seq,
        "earliest_seq": state.first_seq,
        "next_seq": state.last_seq + 1,
        "count": state.messages,
        "bytes": data_bytes(stream.log, stream.name, state.first_seq),
        "config": config,
        "effective_priority": topics.priorities.of(stream),
        "last_write_ts": state.last_ts_ns // 1_000_000 if state.last_seq else None,
        "last_read_ts": topics.priorities.last_read_ms(stream),
    }
    if config["type"] == "queue":
        answer["queue"] = msgspec.structs.asdict(topics.queues.of(stream).counters())
    answer["performance"] = watch.performance()
    return json_response(answer)


async def list_topics(request: Request, topics: Topics) -> Response:
    """List topics by name, a page at a time."""
    watch = Stopwatch(topics.clock)
    prefix, size, after = request.query.get("prefix", ""), page_size(request), cursor(request)
    page: list[Stream] = []
    more = False
    for looked, stream in enumerate(topics.directory.listed(request.caller, after, prefix)):
        if stream is not None:
            more = len(page) == size
            if more:
                break
            page.append(stream)
        if looked % IN_A_TURN == IN_A_TURN - 1:
            await next_turn(MUCH)
    if request.flag("touch", False):
        for stream in page:
            topics.priorities.touch(stream)
    answer: dict[str, Any] = {"topics": [_listed(topics, stream) for stream in page]}
    if more:
        answer["next_cursor"] = make_cursor(page[-1].name)
    answer["performance"] = watch.performance()
    return json_response(answer)


def _listed(topics: Topics, stream: "Stream") -> dict[str, Any]:
    state = current_state(stream, topics.clock.time_ns())
    return {
        "topic": stream.name,
        "head_seq": state.last_seq,
        "earliest_seq": state.first_seq,
        "count": state.messages,
        "bytes": data_bytes(stream.log, stream.name, state.first_seq),
        "durable": stream.config.to_topic()["durable"],
        "effective_priority": topics.priorities.of(stream),
    }


async def delete_topic(request: Request, topics: Topics) -> Response:
    """Delete a topic with its records; one that is absent is no error."""
    watch = Stopwatch(topics.clock)
    name = topic_of(request)
    check_name(name, request.caller)
    stream = topics.directory.find_or_none(name, request.caller)
    routers: list[str] = []
    if stream is not None:
        routers = [
            router.definition.name
            for router in topics.routers.touching(stream)
            if may_see(router, request.caller)
        ]
        count = current_state(stream, topics.clock.time_ns()).messages
        if request.flag("if_empty", False) and count:
            raise TopicNotEmpty(name, count)
        await topics.catalog.delete(name, request.caller.account)
    answer = {
        "topic": name,
        "deleted": stream is not None,
        "routers_removed": routers,
        "performance": watch.performance(),
    }
    return json_response(answer)


def page_size(request: Request) -> int:
    """Return the page size asked for: garbage means the default, and so does an endless number."""
    size = whole_number(request.query.get("page_size", ""), 2**128)
    return 100 if size is None else min(max(size, 1), 1000)


def cursor(request: Request) -> str | None:
    """Return the name after which a list goes on."""
    text = request.query.get("cursor")
    if not text:
        return None
    try:
        raw = base64.urlsafe_b64decode(
            text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4)
        )
        return msgspec.json.decode(raw, type=dict[str, str])["after"]
    except (binascii.Error, ValueError, KeyError, msgspec.DecodeError) as error:
        raise BadRequest("the cursor is not one that this server gave out") from error


def make_cursor(after: str) -> str:
    """Return an opaque cursor that can be pasted into a query as it is."""
    raw = msgspec.json.encode({"after": after})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
