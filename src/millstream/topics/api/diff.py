"""Diff: everything after a position, at once or as soon as there is something."""

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from millstream.http.request import Request
from millstream.http.response import Response
from millstream.store.log.file_log import FileLog
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import topic_of
from millstream.topics.page.page import MOST_BYTES, MOST_RECORDS, Page, Query, read_on
from millstream.topics.page.performance import Stopwatch

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

import msgspec

DEFAULT_LIMIT = 256
LONGEST_WAIT_MS = 30_000
DEFAULT_BYTES = 1024 * 1024


async def diff(request: Request, topics: Topics) -> Response:
    """Return the records after ``from_seq``; with ``wait_ms`` wait for the first new one."""
    watch = Stopwatch(topics.clock)
    body: bodies.DiffBody = bodies.json_body(request, bodies.DiffBody, may_be_empty=True)
    query = read_query(body)
    wait_ms = min(bodies.unsigned(body.wait_ms, "wait_ms", 0), LONGEST_WAIT_MS)
    stream = topics.directory.find(topic_of(request), request.caller)
    await topics.routers.catch_up(stream)
    topics.priorities.touch(stream)
    page = await read_on(stream, query, topics.clock)
    if wait_ms and page.caught_up and not page.count and page.tombstone is None:
        page = await _poll(stream, query, page, wait_ms, request, topics)
    cold = cold_segments(stream, page) if page.scanned else 0
    return Response(200, encode_page(stream.name, page, watch, cold))


async def _poll(
    stream: "Stream", query: Query, seen: Page, wait_ms: int, request: Request, topics: Topics
) -> Page:
    head = seen.head_seq

    def moved() -> bool:
        return stream.state().last_seq > head or request.caller.revoked

    if not moved() and not topics.stop_signal.is_set:
        await topics.stop_signal.wait_for([stream], wait_ms / 1000, moved)
    if request.room is not None and request.room.is_full:
        await request.room.room()  # many may wake at once, and each would make an answer
    stream = topics.directory.find(stream.name, request.caller)  # it may be gone by now
    return await read_on(stream, query, topics.clock)


def read_query(body: bodies.DiffBody) -> Query:
    """Return the read that a body asks for, every number within its range."""
    limit = bodies.unsigned(body.limit, "limit", 0, bodies.U32)
    budget = bodies.unsigned(body.max_batch_bytes, "max_batch_bytes", 0)
    return Query(
        from_seq=bodies.unsigned(body.from_seq, "from_seq", 0),
        limit=min(limit or DEFAULT_LIMIT, MOST_RECORDS),
        max_bytes=min(budget or DEFAULT_BYTES, MOST_BYTES),
        without_nodes=bodies.nodes(body.node),
        include_tags=bool(body.include_tags),
        include_meta=body.include_meta is not False,
        filter=bodies.read_filter(body.filter),
    )


def cold_segments(stream: "Stream", page: Page) -> int:
    """Return how many segments of cold history a page was read from."""
    segments = stream.log.segments if isinstance(stream.log, FileLog) else []
    if not segments or segments[0].cold is None:
        return 0  # the oldest go first
    at = bisect_right(segments, page.start, key=lambda each: each.base_seq)
    found = 0
    for segment in islice(segments, max(at - 1, 0), None):
        if segment.base_seq > page.next_from_seq:
            break
        found += segment.cold is not None and segment.last_seq > page.start
    return found


def encode_page(topic: str, page: Page, watch: Stopwatch, cold: int = 0) -> bytes:
    """Return the answer; the records are JSON already and are only joined."""
    more = {"cold_segments_read": cold} if cold else {}
    tombstone = None if page.tombstone is None else page.tombstone.shown()
    rest = msgspec.json.encode(
        {
            "next_from_seq": page.next_from_seq,
            "head_seq": page.head_seq,
            "earliest_seq": page.earliest_seq,
            "caught_up": page.caught_up,
            "tombstone": tombstone,
            "lag": page.head_seq - page.next_from_seq,
            "performance": watch.performance(records_scanned=page.scanned, **more),
        }
    )
    return b'{"topic":%b,"records":[%b],%b' % (
        msgspec.json.encode(topic),
        page.records,
        rest[1:],
    )
