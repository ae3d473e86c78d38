"""Watching: a one-step tail of a topic, and sessions over many that survive a reconnect."""

import secrets
from collections.abc import Iterator

from millstream.errors import BadRequest, Throttled, Unauthorized
from millstream.http.request import Request
from millstream.http.response import Answer, Response, json_response
from millstream.topics import bodies
from millstream.topics.audience.read_position import ReadPosition
from millstream.topics.context import Topics
from millstream.topics.directory import check_name, topic_of
from millstream.topics.errors import NotFound
from millstream.topics.page.current_state import current_state
from millstream.topics.page.page import MOST_BYTES, MOST_RECORDS, Query
from millstream.topics.page.performance import Stopwatch
from millstream.topics.sse import check_accept
from millstream.topics.watch.event_stream import heartbeat, respond
from millstream.topics.watch.session import Use, WatchSession

MOST_TOPICS = 256
SESSION_TTL_MS = 300_000
DEFAULT_BATCH_BYTES = 256 * 1024
UNSAID = 2**64  # no sequence


async def tail(request: Request, topics: Topics) -> Answer:
    """Stream a topic's records as they come: from the head, or from ``from_seq``."""
    check_accept(request)
    stream = topics.directory.find(topic_of(request), request.caller)
    start = bodies.query_number(request, "from_seq")
    position = ReadPosition(stream.state().last_seq if start is None else start, stream.incarnation)
    session = WatchSession(
        positions={stream.name: position},
        query=Query(
            limit=min(bodies.query_number(request, "limit") or 256, MOST_RECORDS),
            max_bytes=DEFAULT_BATCH_BYTES,
            without_nodes=bodies.nodes(request.query.get("node")),
            include_tags=request.flag("include_tags", True),
            include_meta=request.flag("include_meta", True),
            filter=bodies.read_filter(bodies.query_filter(request)),
        ),
        heartbeat_ms=heartbeat(topics, bodies.query_number(request, "heartbeat_ms")),
        caller=request.caller,
    )
    last_id = request.header(b"last-event-id")
    if last_id is not None:
        begin, position.cursor = position.cursor, UNSAID
        session.resume(last_id)  # the id alone says where to go on
        if position.cursor == UNSAID:
            position.cursor = begin
    return respond(topics, session)


class Watches:
    """The sessions of ``POST /v0/watch``; one that nobody reads goes after five minutes."""

    def __init__(self) -> None:
        self._sessions: dict[str, WatchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def create(self, request: Request, topics: Topics) -> Response:
        """Open a session over some topics."""
        watch = Stopwatch(topics.clock)
        body: bodies.WatchBody = bodies.json_body(request, bodies.WatchBody)
        if not 1 <= len(body.topics) <= MOST_TOPICS:
            raise BadRequest(f"a watch holds 1 to {MOST_TOPICS} topics")
        session = _session(body, request, topics)
        for name in body.topics:
            check_name(name, request.caller)
        self._collect(topics.now_ms())
        shown = dict(_positions(body, session.positions, request, topics))
        if topics.max_watch_sessions and len(self._sessions) >= topics.max_watch_sessions:
            raise Throttled("max_watch_sessions", topics.max_watch_sessions)
        wid = "wid_" + secrets.token_urlsafe(16)
        session.positions = {
            name: ReadPosition(
                position["from_seq"], topics.directory.find(name, request.caller).incarnation
            )
            for name, position in shown.items()
        }
        self._sessions[wid] = session
        answer = {
            "wid": wid,
            "stream_url": f"/v0/watch/{wid}",
            "session_ttl_ms": SESSION_TTL_MS,
            "topics": shown,
            "performance": watch.performance(),
        }
        return json_response(answer)

    async def stream(self, request: Request, topics: Topics) -> Answer:
        """Send a session's events; server-side cursors say where it goes on."""
        check_accept(request)
        self._collect(topics.now_ms())
        session = self._sessions.get(request.params["wid"])
        if session is None:
            raise NotFound("no such watch; open one with POST /v0/watch")
        if session.caller.key != request.caller.key:
            raise Unauthorized("this watch belongs to another key")
        own = session.continued(request.caller)
        own.resume(request.header(b"last-event-id"))
        answer = respond(topics, own)
        self._sessions[request.params["wid"]] = own
        return answer

    def _collect(self, now_ms: int) -> None:
        for wid, session in list(self._sessions.items()):
            use = session.use
            if not use.open_streams and now_ms - use.idle_since_ms > SESSION_TTL_MS:
                del self._sessions[wid]


def _positions(
    body: bodies.WatchBody, starts: dict[str, ReadPosition], request: Request, topics: Topics
) -> Iterator[tuple[str, dict[str, int]]]:
    lenient = request.flag("lenient", False)
    for name, wish in body.topics.items():
        if lenient and topics.directory.find_or_none(name, request.caller) is None:
            continue
        state = current_state(topics.directory.find(name, request.caller), topics.clock.time_ns())
        yield (
            name,
            {
                "from_seq": state.last_seq if wish.tail else starts[name].cursor,
                "head_seq": state.last_seq,
                "earliest_seq": state.first_seq,
            },
        )


def _session(body: bodies.WatchBody, request: Request, topics: Topics) -> WatchSession:
    """Return what a body asks for, every number within its range; no topic is looked at."""
    limit = bodies.unsigned(body.limit, "limit", 0, bodies.U32)
    budget = bodies.unsigned(body.max_batch_bytes, "max_batch_bytes", 0)
    asked = body.heartbeat_ms
    return WatchSession(
        positions={
            name: ReadPosition(bodies.unsigned(wish.from_seq, "from_seq", 0))
            for name, wish in body.topics.items()
        },
        query=Query(
            limit=min(limit or 256, MOST_RECORDS),
            max_bytes=min(budget or DEFAULT_BATCH_BYTES, MOST_BYTES),
            without_nodes=bodies.nodes(body.node),
            include_tags=bool(body.include_tags),
            include_meta=body.include_meta is not False,
            include_data=body.include_data is not False,
            filter=bodies.read_filter(body.filter),
            is_strong=body.consistency == "strong",
        ),
        heartbeat_ms=heartbeat(
            topics, None if asked is None else bodies.unsigned(asked, "heartbeat_ms", 0)
        ),
        caller=request.caller,
        use=Use(topics.now_ms()),
    )
