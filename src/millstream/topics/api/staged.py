"""Staged writes: a sink's batches, sent in parts and made visible by one commit."""

from typing import TypeVar

import msgspec

from millstream.consumers.readers import HoldRequest
from millstream.errors import BadRequest
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.streams.deposits.deposits import AbortRequest, CommitRequest, Deposits, StageRequest
from millstream.topics.bodies import query_number
from millstream.topics.context import Topics
from millstream.topics.directory import topic_of

_Shape = TypeVar("_Shape")


async def stage(request: Request, topics: Topics) -> Response:
    """Keep a part of a batch where no reader sees it; the body is entries as they are stored."""
    stream = topics.directory.find(topic_of(request), request.caller)
    asked = StageRequest(
        sink=_text(request, "sink"),
        batch=_number(request, "batch"),
        id=_text(request, "id"),
        at=_number(request, "at", 0),
    )
    return json_response({"staged": await _sinks(topics).stage(stream, asked, request.body)})


async def commit(request: Request, topics: Topics) -> Response:
    """Append a staged batch whole, once, however often this is asked."""
    stream = topics.directory.find(topic_of(request), request.caller)
    answer = await _sinks(topics).commit(stream, _body(request, CommitRequest))
    return json_response(msgspec.to_builtins(answer))


async def abort(request: Request, topics: Topics) -> Response:
    """Forget what was staged for a batch."""
    stream = topics.directory.find(topic_of(request), request.caller)
    await _sinks(topics).abort(stream, _body(request, AbortRequest))
    return json_response({})


async def hold(request: Request, topics: Topics) -> Response:
    """Show how far a reader is that keeps its own position, and let limits wait for it."""
    stream = topics.directory.find(topic_of(request), request.caller)
    if topics.readers is None:
        raise BadRequest("this server does not keep positions of readers")
    await topics.readers.hold(stream, _body(request, HoldRequest))
    return json_response({})


def _sinks(topics: Topics) -> Deposits:
    if topics.deposits is None:
        raise BadRequest("this server cannot stage records")
    return topics.deposits


def _text(request: Request, name: str) -> str:
    if name not in request.query:
        raise BadRequest(f"the query must name {name}")
    return request.query[name]


def _number(request: Request, name: str, default: int | None = None) -> int:
    given = query_number(request, name)
    if given is None and default is None:
        raise BadRequest(f"the query must name {name}")
    return given if given is not None else default or 0


def _body(request: Request, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(request.body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"cannot read the request: {error}") from error
