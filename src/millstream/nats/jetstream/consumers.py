"""``$JS.API.CONSUMER.*``: create, change, look at and delete consumers."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream.consumers.config import (
    ConsumerConfig,
    ConsumerRefused,
    check_group_name,
)
from millstream.eager_task import next_turn
from millstream.errors import Forbidden
from millstream.nats.jetstream import (
    account_limits,
    request_shapes,
    shapes,
)
from millstream.nats.jetstream.asker import ASKER
from millstream.nats.jetstream.drawers import Drawer, drawing_from
from millstream.nats.jetstream.errors import (
    expect_empty,
    name_mismatch,
    read_as,
    read_loosely,
    read_optional,
)
from millstream.nats.jetstream.serving import sourcing_consumers
from millstream.nats.jetstream.serving.sourcing_consumers import Identified
from millstream.streams.config.config import InvalidJson, ReplicasUnsupported
from millstream.streams.config.times import ZERO_TIME, rfc3339, time_ns

if TYPE_CHECKING:
    from millstream.consumers.consumer import Consumer
    from millstream.nats.jetstream.endpoint import JetStream

NAMES_LIMIT = 1024
LIST_LIMIT = 256

Answer = dict[str, Any]


class _Create(msgspec.Struct, frozen=True):
    stream_name: str = ""
    config: dict[str, Any] = {}
    action: str = ""
    pedantic: bool = False


class _Pause(msgspec.Struct, frozen=True):
    pause_until: str = ""


class _Unpin(msgspec.Struct, frozen=True):
    group: str = ""


class _Reset(msgspec.Struct, frozen=True):
    seq: int = 0


class _ConsumerPage(msgspec.Struct, frozen=True):
    offset: int = 0


async def create_ephemeral(js: "JetStream", body: bytes, stream: str) -> Answer:
    """Create a consumer that the server names."""
    request = _request(js, body, stream)
    _check_path(request.config.get("name", ""))
    if request.config.get("durable_name"):
        raise ConsumerRefused(
            10020, "consumer expected to be ephemeral but a durable name was set in request"
        )
    return await _create(js, stream, request, len(body))


async def create(js: "JetStream", body: bytes, stream: str, name: str, *filters: str) -> Answer:
    """Create or update a consumer by name, perhaps with its filter in the subject."""
    request = _request(js, body, stream)
    _check_path(name)
    config = request.config
    if config.get("durable_name"):
        _check_durable(config, name)
    if filters:
        _check_filter(config, ".".join(filters))
    config["name"] = name  # whatever the body calls it
    return await _create(js, stream, request, len(body))


async def create_durable(js: "JetStream", body: bytes, stream: str, name: str) -> Answer:
    """Create or update a durable consumer, the older way."""
    request = _request(js, body, stream)
    _check_path(name)
    if not request.config.get("durable_name"):
        raise ConsumerRefused(
            10018, "consumer expected to be durable but a durable name was not set"
        )
    _check_durable(request.config, name)
    request.config["name"] = name
    return await _create(js, stream, request, len(body))


def _request(js: "JetStream", body: bytes, stream: str) -> _Create:
    request = read_as(body, request_shapes.CREATE_CONSUMER, _Create, strict=js.terms.is_strict)
    if request.stream_name != stream:
        raise name_mismatch()
    return request


def _check_path(name: object) -> None:
    if isinstance(name, str) and ("/" in name or "\\" in name):
        raise ConsumerRefused(10127, "Consumer name can not contain path separators")


def _check_durable(config: dict[str, Any], name: str) -> None:
    if config["durable_name"] != name:
        raise ConsumerRefused(
            10017, "consumer name in subject does not match durable name in request"
        )


def _check_replicas(config: dict[str, Any]) -> None:
    replicas = config.get("num_replicas")
    if isinstance(replicas, int) and replicas > 1:
        raise ReplicasUnsupported()


def _check_filter(config: dict[str, Any], named: str) -> None:
    if config.get("filter_subjects"):
        raise ConsumerRefused(
            10137, "consumer with multiple subject filters cannot use subject based API"
        )
    if config.get("filter_subject", "") != named:
        raise ConsumerRefused(
            10131, "Consumer create request did not match filtered subject from create subject"
        )


def _check_letters(js: "JetStream", stream: str, config: ConsumerConfig) -> None:
    """Refuse to copy records elsewhere for whoever must not hear some of them."""
    may_copy = js.parts.clients.may_copy
    if config.dead_letter and not may_copy(ASKER.get(), js.account, (), [stream], ()):
        raise Forbidden(
            f"dead letters of {stream} would show subjects that you may not subscribe to: "
            "have somebody create the consumer who may"
        )


async def _create(js: "JetStream", stream_name: str, request: _Create, size: int) -> Answer:
    await next_turn(size)
    _check_replicas(request.config)
    stream = js.catalog.get(stream_name, js.account)
    known = js.consumers.by_name(stream).get(request.config.get("name") or "")
    kept = sourcing_consumers.settled(request.config, stream, known)
    asked = js.terms.limits.fill_consumer(account_limits.with_ack_pending(js, kept))
    config = ConsumerConfig.from_request(asked, stream.config, pedantic=request.pedantic)
    await next_turn(size)
    js.terms.limits.check_consumer(config)
    account_limits.check_consumer(js, stream_name, config)
    js.check_deliver(config.deliver_subject, config.deliver_group)
    js.check_deliver(config.dead_letter, "")
    _check_letters(js, stream_name, config)
    if config.is_internal:
        sourcing_consumers.check_identity(stream)
    consumer, is_new = await js.consumers.create(stream, config, request.action)
    if is_new:
        js.advisories.tell_consumer("CREATED", "create", stream.name, consumer.name)
    if consumer.pause.left_ns > 0:
        consumer.pause.report()
    await next_turn(size)
    if not config.is_internal:
        return shapes.consumer_info(consumer, js.now_ns())
    if config.sourcing and not is_new:
        consumer.reset(0)  # whoever asks again has lost what was on its way
    return Identified.about(stream, shapes.consumer_info(consumer, js.now_ns()))


async def info(js: "JetStream", body: bytes, stream: str, name: str) -> Answer:
    """Return one consumer."""
    expect_empty(body)
    found = js.catalog.get(stream, js.account)
    if js.consumers.by_name(found).get(name) is None:
        for drawer in drawing_from(js, found):
            if drawer.name == name:
                return drawer.info(js.now_ns())
    return shapes.consumer_info(js.consumers.get(found, name), js.now_ns())


async def delete(js: "JetStream", body: bytes, stream: str, name: str) -> Answer:
    """Delete one consumer."""
    expect_empty(body)
    await js.consumers.delete(js.catalog.get(stream, js.account), name)
    js.advisories.tell_consumer("DELETED", "delete", stream, name)
    return {"success": True}


async def pause(js: "JetStream", body: bytes, stream: str, name: str) -> Answer:
    """Stop deliveries until a time; a time in the past lets them go on."""
    asked = read_optional(body, request_shapes.PAUSE, _Pause, strict=js.terms.is_strict)
    consumer = js.consumers.get(js.catalog.get(stream, js.account), name)
    until = rfc3339(time_ns(asked.pause_until)) if asked.pause_until else ZERO_TIME
    await js.consumers.pause(consumer, "" if until == ZERO_TIME else until)
    left = consumer.pause.left_ns
    shown: Answer = {"paused": left > 0, "pause_until": until}
    return {**shown, "pause_remaining": left} if left else shown


async def unpin(js: "JetStream", body: bytes, stream: str, name: str) -> Answer:
    """Let another client of a priority group be pinned."""
    asked = read_loosely(body, request_shapes.UNPIN, _Unpin)
    if not asked.group:
        raise InvalidJson("consumer group not specified")
    check_group_name(asked.group)
    consumer = js.consumers.get(js.catalog.get(stream, js.account), name)
    if asked.group not in consumer.config.priority_groups or consumer.pulls is None:
        raise ConsumerRefused(10160, "Provided priority group does not exist for this consumer")
    consumer.pulls.group.unpin("admin")
    consumer.pump.run()
    return {}


async def reset(js: "JetStream", body: bytes, stream: str, name: str) -> Answer:
    """Deliver anew, from a sequence or from the ack floor."""
    asked = read_loosely(body or b"{}", request_shapes.RESET, _Reset)
    consumer = js.consumers.get(js.catalog.get(stream, js.account), name)
    seq = consumer.reset(asked.seq)
    answer = {**shapes.consumer_info(consumer, js.now_ns()), "reset_seq": seq}
    if sourcing_consumers.names_identity():
        return Identified.about(consumer.stream, answer)
    return answer


async def names(js: "JetStream", body: bytes, stream: str) -> Answer:
    """Return a page of consumer names."""
    total, start, page = _page(js, body, stream, NAMES_LIMIT)
    shown = [consumer.name for consumer in page]
    return {"total": total, "offset": start, "limit": NAMES_LIMIT, "consumers": shown}


async def listing(js: "JetStream", body: bytes, stream: str) -> Answer:
    """Return a page of ConsumerInfos."""
    total, start, page = _page(js, body, stream, LIST_LIMIT)
    now = js.now_ns()
    shown = [
        one.info(now, full=False)
        if isinstance(one, Drawer)
        else shapes.consumer_info(one, now, full=False)
        for one in page
    ]
    return {"total": total, "offset": start, "limit": LIST_LIMIT, "consumers": shown}


def _page(
    js: "JetStream", body: bytes, stream: str, most: int
) -> tuple[int, int, list["Consumer | Drawer"]]:
    """Return how many consumers a list shows, where the page begins, and the page."""
    page = read_optional(body, request_shapes.CONSUMERS, _ConsumerPage, strict=js.terms.is_strict)
    origin = js.catalog.get(stream, js.account)
    found, drawers = js.consumers.by_name(origin), drawing_from(js, origin)
    total = found.listed + len(drawers)
    start = min(max(page.offset, 0), total)
    if not drawers:
        return total, start, [*found.page(start, most)]
    listed: list[Consumer | Drawer] = [*found.page(0, found.listed), *drawers]
    listed.sort(key=lambda one: one.name)
    return total, start, listed[start : start + most]
