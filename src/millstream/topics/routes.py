"""The topics API as one table of routes."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import msgspec

from millstream.http.request import Request
from millstream.http.response import Answer, Response
from millstream.http.routes import Route
from millstream.topics.api.browse import Browse
from millstream.topics.api.config import delete_topic, get_topic, list_topics, put_topic
from millstream.topics.api.consumers import ConsumerCalls
from millstream.topics.api.diff import diff
from millstream.topics.api.flow import FlowCalls
from millstream.topics.api.frames import FrameReads
from millstream.topics.api.health import health, ready
from millstream.topics.api.messages import MessageCalls
from millstream.topics.api.plan import plan
from millstream.topics.api.queues import ack, claim, extend, nack, work
from millstream.topics.api.records import write
from millstream.topics.api.redrive import Redrives
from millstream.topics.api.removal import delete_records
from millstream.topics.api.routers import delete_router, get_router, list_routers, put_router
from millstream.topics.api.staged import abort, commit, hold, stage
from millstream.topics.api.whoami import whoami
from millstream.topics.context import Topics
from millstream.topics.metrics import Metrics
from millstream.topics.watch.socket import open_socket
from millstream.topics.watch.watch import Watches, tail

Handler = Callable[[Request], Awaitable[Answer]]

TOPIC = "/v0/topics/{topic}"
ROUTER = "/v0/routers/{router}"
CONSUMER = f"{TOPIC}/consumers/{{consumer}}"
# What goes into the log, beside writes, which may ask to be taken in any case.
CHANGES = (
    *(put_topic, delete_topic, delete_records, put_router, delete_router),
    *(claim, ack, nack, extend),
)
# What is done to its end although the client leaves: half of it would be true only after a restart.
# A sink's commit sees to that itself, at every door.
UNBROKEN = (put_topic, delete_topic, delete_records, put_router, delete_router, hold)


class Operation(Protocol):
    """What answers a request."""

    def __call__(self, request: Request, topics: Topics) -> Awaitable[Answer]:
        """Return the answer."""
        ...


Entry = tuple[str, str, Operation, str, str]  # method, path, what answers, scope, summary


class ExtraCalls(msgspec.Struct, frozen=True):
    """What the API offers where the server has the parts for it."""

    browse: Browse
    consumers: ConsumerCalls
    messages: MessageCalls
    flow: FlowCalls


def topics_routes(topics: Topics, extra: ExtraCalls | None = None) -> list[Route]:
    """Return every operation of the API, bound to its state."""
    watches = Watches()
    frames = FrameReads().frames
    in_parts = (plan, frames)
    routes = [
        Route(
            method, path, _handler(operation, topics), scope, summary, parts=operation in in_parts
        )
        for method, path, operation, scope, summary in _operations(watches, frames)
    ]
    look = extra.browse if extra is not None else Browse()
    routes += [
        Route("POST", f"{TOPIC}/browse", _handler(look.browse, topics), "read", BROWSES),
        Route("GET", "/v0/whoami", partial(whoami, topics=topics), "", WHO, believed=True),
    ]
    if extra is not None:
        routes += _consumers(extra.consumers, topics) + _messages(extra.messages)
        routes += [
            Route("GET", "/v0/flow", extra.flow.flow, "read", "Show how records are copied"),
            Route("GET", "/v0/pipelines", extra.flow.pipelines, "read", READERS),
        ]
    return [*routes, *_streams(watches, topics)]


READERS = "Show who reads and writes topics in batches"
BROWSES = "Look at messages and search them, without taking any"
WHO = "Say who is asking, and what they may do"


def _consumers(calls: ConsumerCalls, topics: Topics) -> list[Route]:
    """Return the operations on consumers; what changes one is done to its end."""
    return [
        Route("GET", "/v0/consumers", calls.everything, "read", "List the consumers of all topics"),
        Route("GET", f"{TOPIC}/consumers", calls.listing, "read", "List a topic's consumers"),
        Route("GET", CONSUMER, calls.show, "read", "Show a consumer, and what it waits for"),
        Route(
            *("PUT", CONSUMER, partial(_unbroken, calls.put, topics), "admin"),
            "Create or change a consumer",
        ),
        Route(
            *("DELETE", CONSUMER, partial(_unbroken, calls.delete, topics), "delete"),
            "Delete a consumer",
        ),
        Route(
            *("POST", f"{CONSUMER}/pause", partial(_unbroken, calls.pause, topics), "admin"),
            "Pause a consumer, or let it go on",
        ),
        Route(
            *("POST", f"{CONSUMER}/reset", partial(_unbroken, calls.reset, topics), "admin"),
            "Have a consumer deliver anew",
        ),
    ]


def _messages(calls: MessageCalls) -> list[Route]:
    return [
        Route("POST", "/v0/publish", calls.publish, "write", "Publish a message to a subject"),
        Route("POST", "/v0/request", calls.request, "write", "Send a request, return the answers"),
    ]


def _operations(watches: Watches, frames: Operation) -> list[Entry]:
    return [
        ("GET", "/v0/health", health, "", "Say that the process is alive"),
        ("GET", "/v0/ready", ready, "", "Say whether recovery is over"),
        ("GET", "/readyz", ready, "", "Say whether recovery is over"),
        ("GET", "/v0/metrics", Metrics(watches).show, "read", "Figures for Prometheus"),
        ("GET", "/v0/topics", list_topics, "read", "List topics"),
        ("PUT", TOPIC, put_topic, "admin", "Create a topic or replace its configuration"),
        ("GET", TOPIC, get_topic, "read", "Show a topic"),
        ("DELETE", TOPIC, delete_topic, "delete", "Delete a topic"),
        ("POST", TOPIC, write, "write", "Write records"),
        ("POST", f"{TOPIC}/diff", diff, "read", "Read records after a position"),
        ("POST", f"{TOPIC}/delete", delete_records, "delete", "Delete records"),
        ("GET", f"{TOPIC}/tail", tail, "read", "Stream records as they come"),
        ("GET", f"{TOPIC}/plan", plan, "read", "Show where the records are, for Spark"),
        ("GET", f"{TOPIC}/frames", frames, "read", "Read a range of raw records, for Spark"),
        ("POST", f"{TOPIC}/stage", stage, "write", "Send a part of a batch, not visible yet"),
        ("POST", f"{TOPIC}/commit", commit, "write", "Make a staged batch visible, once"),
        ("POST", f"{TOPIC}/abort", abort, "write", "Drop what was staged"),
        ("POST", f"{TOPIC}/hold", hold, "read", "Show a reader's position, and hold the rest"),
        ("POST", f"{TOPIC}/claim", claim, "read+write", "Lease jobs of a queue"),
        ("POST", f"{TOPIC}/ack", ack, "write", "Finish leased jobs"),
        ("POST", f"{TOPIC}/nack", nack, "write", "Give leased jobs back"),
        ("POST", f"{TOPIC}/extend", extend, "write", "Keep leased jobs for longer"),
        ("GET", "/v0/routers", list_routers, "read", "List routers"),
        ("PUT", ROUTER, put_router, "admin", "Create or change a router"),
        ("GET", ROUTER, get_router, "read", "Show a router"),
        ("DELETE", ROUTER, delete_router, "delete", "Delete a router"),
        (
            "POST",
            f"{TOPIC}/redrive",
            Redrives().redrive,
            "read+write+delete",
            "Send dead letters back to their queues",
        ),
        ("POST", "/v0/watch", watches.create, "read", "Open a watch over topics"),
    ]


def _streams(watches: Watches, topics: Topics) -> list[Route]:
    """Return what a browser opens, which cannot send a header with its token."""
    push = partial(work, topics=topics)
    stream = partial(watches.stream, topics=topics)
    socket = partial(open_socket, topics=topics)
    jobs = "Stream jobs of a queue to a worker"
    events = "Stream the events of a watch"
    both = "Read and write topics over a WebSocket"
    return [
        Route("GET", f"{TOPIC}/work", push, "read+write", jobs, query_token=True),
        Route("GET", "/v0/watch/{wid}", stream, "read", events, query_token=True),
        Route("GET", "/v0/ws", socket, "", both, believed=True),
    ]


def _handler(operation: Operation, topics: Topics) -> Handler:
    handler: Handler = partial(_with_warnings, partial(operation, topics=topics))
    if operation in UNBROKEN:
        handler = partial(_unbroken, handler, topics)
    return partial(_paced, handler, topics) if operation in CHANGES else handler


async def _with_warnings(handler: Handler, request: Request) -> Answer:
    """Answer, and say what of the request was ignored."""
    answer = await handler(request)
    if request.warnings and isinstance(answer, Response) and answer.body.endswith(b"}"):
        told = msgspec.json.encode(request.warnings)
        body = b'%b,"warnings":%b}' % (answer.body[:-1], told)
        return msgspec.structs.replace(answer, body=body)
    return answer


def _unbroken(handler: Handler, topics: Topics, request: Request) -> Awaitable[Answer]:
    return topics.unbroken.run(handler(request))


def _paced(handler: Handler, topics: Topics, request: Request) -> Awaitable[Answer]:
    """Carry out what goes into the log, unless that has all that it takes."""
    topics.check_pace()
    return handler(request)
