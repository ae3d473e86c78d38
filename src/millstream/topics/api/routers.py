"""Routers over HTTP: create, show, list and delete them."""

import re
from typing import TYPE_CHECKING, Any

from millstream.errors import BadRequest, Forbidden, StreamExists
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.routers.errors import RouterCycle, RouterRepointed
from millstream.routers.registry import RouterRequest
from millstream.routers.router import GUARANTEES, Router
from millstream.routers.tag_filter import TagFilter
from millstream.topics import bodies
from millstream.topics.api.config import cursor, make_cursor, page_size
from millstream.topics.context import Topics
from millstream.topics.directory import check_name, may_see
from millstream.topics.errors import TopicNotFound
from millstream.topics.page.performance import Stopwatch

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


async def put_router(request: Request, topics: Topics) -> Response:
    """Create a router, or change how one that exists goes on."""
    watch = Stopwatch(topics.clock)
    name, caller = request.params["router"], request.caller
    _check_own_name(name, caller)
    body: bodies.RouterBody = bodies.json_body(request, bodies.RouterBody)
    for topic, scope in ((body.source, "read"), (body.dest, "write")):
        check_name(topic, caller)
        check_name(topic, caller.asking_for(scope, topic))
    wish = _wish(name, body, caller, topics)
    if body.create_dest is False and topics.directory.find_or_none(wish.dest, caller) is None:
        raise TopicNotFound(wish.dest)

    async def streams() -> "tuple[Stream, Stream]":
        # Before anything is made: a router that cannot be must leave no topic behind.
        with topics.topic_limit.reserved(caller.account, wish.source, wish.dest):
            source = await _stream(wish.source, caller, topics)
            return source, await _stream(wish.dest, caller, topics)

    try:
        router, created = await topics.routers.put(wish, streams)
    except (RouterCycle, RouterRepointed) as error:
        error.keep_to(lambda topic: topic in (wish.source, wish.dest) or _reads(caller, topic))
        raise
    answer = {
        "router": name,
        "created": created,
        **_defined(router),
        "performance": watch.performance(),
    }
    return json_response(answer, 201 if created else 200)


def _wish(name: str, body: bodies.RouterBody, caller: Caller, topics: Topics) -> RouterRequest:
    """Check what a body asks for, in the documented order."""
    if _NAME.fullmatch(name) is None:
        raise BadRequest("a router's name has 1 to 255 letters, digits and . _ : - >")
    if body.source == body.dest:
        raise BadRequest("source and dest must be two topics")
    for topic in (body.source, body.dest):
        known = topics.directory.find_or_none(topic, caller) is not None
        if not known and _TOPIC.fullmatch(topic) is None:
            raise BadRequest("a topic's name has 1 to 255 letters, digits and . _ : -")
    guarantee = body.guarantee or GUARANTEES[0]
    if guarantee not in GUARANTEES:
        raise BadRequest(f"guarantee is {' or '.join(GUARANTEES)}")
    return RouterRequest(
        account=caller.account,
        name=name,
        source=body.source,
        dest=body.dest,
        preserve_node=body.preserve_node is not False,
        preserve_tag=body.preserve_tag is not False,
        filter=None if body.filter is None else TagFilter.read(body.filter),
        allow_cycle=bool(body.allow_cycle),
        guarantee=guarantee,
    )


async def _stream(name: str, caller: Caller, topics: Topics) -> "Stream":
    known = topics.directory.find_or_none(name, caller)
    if known is not None:
        return known
    try:
        return (await topics.catalog.create(topics.defaults.config(name, {}), caller.account))[0]
    except StreamExists:  # somebody else was first, and their config counts
        return topics.catalog.get(name, caller.account)


async def get_router(request: Request, topics: Topics) -> Response:
    """Show a router, brought up to its source first."""
    watch = Stopwatch(topics.clock)
    name = request.params["router"]
    _check_own_name(name, request.caller)
    router = topics.routers.get(name, request.caller.account)
    _check_ends(router, request.caller)
    await topics.routers.drive(router)
    answer = {
        "router": name,
        **_defined(router),
        "forwarded_total": router.forwarded,
        "performance": watch.performance(),
    }
    return json_response(answer)


async def list_routers(request: Request, topics: Topics) -> Response:
    """List routers by name, a page at a time."""
    watch = Stopwatch(topics.clock)
    query, size, after = request.query, page_size(request), cursor(request)
    found = [
        router
        for router in topics.routers.all_of(request.caller.account)
        if router.definition.name.startswith(query.get("prefix", ""))
        and query.get("source") in (None, "", router.definition.source)
        and query.get("dest") in (None, "", router.definition.dest)
        and (after is None or router.definition.name > after)
        and may_see(router, request.caller)
    ]
    page = found[:size]
    answer: dict[str, Any] = {"routers": [_listed(router) for router in page]}
    if len(found) > size:
        answer["next_cursor"] = make_cursor(page[-1].definition.name)
    answer["performance"] = watch.performance()
    return json_response(answer)


async def delete_router(request: Request, topics: Topics) -> Response:
    """Delete a router; what it copied stays, and one that is absent is no error."""
    watch = Stopwatch(topics.clock)
    name, caller = request.params["router"], request.caller
    _check_own_name(name, caller)
    router = topics.routers.find(name, caller.account)
    if router is not None:
        _check_ends(router, caller)
    deleted = await topics.routers.delete(name, caller.account)
    return json_response({"router": name, "deleted": deleted, "performance": watch.performance()})


def _check_own_name(name: str, caller: Caller) -> None:
    if caller.prefixes and not name.startswith(caller.prefixes):
        raise Forbidden(f"this key may not touch {name}", {"router": name})


def _check_ends(router: Router, caller: Caller) -> None:
    """Refuse a router with an end that the caller may not touch, and do not say which."""
    name = router.definition.name
    if not may_see(router, caller):
        raise Forbidden(f"this key may not touch a topic of {name}", {"router": name})


def _reads(caller: Caller, topic: str) -> bool:
    reader = caller.asking_for("read", topic)
    return "read" in reader.scopes and reader.may_touch(topic)


def _defined(router: Router) -> dict[str, Any]:
    one = router.definition
    return {
        "source": one.source,
        "dest": one.dest,
        "preserve_node": one.preserve_node,
        "preserve_tag": one.preserve_tag,
        "filter": None if router.tags is None else router.tags.shown(),
        "allow_cycle": one.allow_cycle,
        "guarantee": one.guarantee,
    }


def _listed(router: Router) -> dict[str, Any]:
    one = router.definition
    return {
        "router": one.name,
        "source": one.source,
        "dest": one.dest,
        "guarantee": one.guarantee,
        "forwarded_total": router.forwarded,
    }
