"""Browse: look at messages and search them; nothing is taken, acked or counted as read."""

from collections.abc import Callable
from typing import Any

from millstream.errors import BadRequest
from millstream.http.request import Caller, Request
from millstream.http.response import Response, json_response
from millstream.subjects.subject import is_pattern
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import topic_of
from millstream.topics.page.browsing import MOST_ANSWER, BrowseQuery, Browsing, shown_message
from millstream.topics.page.performance import Stopwatch
from millstream.topics.page.search import Search, parse_path

MOST_SHOWN = 500
MOST_SCANNED = 100_000

# (caller, topic, messages) → the same messages with what the caller must not see covered up
Mask = Callable[[Caller, str, list[dict[str, Any]]], None]


def no_mask(caller: Caller, topic: str, messages: list[dict[str, Any]]) -> None:
    """Cover up nothing."""


class Browse:
    """Answers with messages as people look at them."""

    def __init__(self, mask: Mask = no_mask) -> None:
        self._mask = mask

    async def browse(self, request: Request, topics: Topics) -> Response:
        """Return a page of messages; ``next_seq`` says where the next one begins."""
        watch = Stopwatch(topics.clock)
        body: bodies.BrowseBody = bodies.json_body(request, bodies.BrowseBody, may_be_empty=True)
        query = browse_query(body)
        stream = topics.directory.find(topic_of(request), request.caller)
        found = await Browsing(stream, query).run()
        name, state = stream.name, stream.state()
        shown = [shown_message(each, name.encode(), query.preview_bytes) for each in found.records]
        self._mask(request.caller, name, shown)
        return json_response(
            {
                "topic": name,
                "records": shown,
                "next_seq": found.next_seq or None,
                "scanned": found.scanned,
                "first_seq": state.first_seq,
                "last_seq": state.last_seq,
                "performance": watch.performance(),
            }
        )


def browse_query(body: bodies.BrowseBody) -> BrowseQuery:
    """Return the look that a body asks for, every number within its range."""
    if body.subject is not None and not is_pattern(body.subject):
        raise BadRequest("subject is not one that could be subscribed to")
    wish = body.json
    return BrowseQuery(
        search=Search(
            subject=body.subject,
            tag=body.tag,
            node=body.node,
            text=body.text,
            header=None if body.header is None else (body.header.name, body.header.value),
            path=None if wish is None else parse_path(wish.path),
            op="eq" if wish is None else wish.op,
            value=None if wish is None else wish.value,
        ),
        from_seq=bodies.unsigned(body.from_seq, "from_seq", 0),
        newest_first=body.order != "oldest",
        limit=max(1, min(bodies.unsigned(body.limit, "limit", 50), MOST_SHOWN)),
        most_scanned=max(1, min(bodies.unsigned(body.max_scan, "max_scan", 20_000), MOST_SCANNED)),
        preview_bytes=min(
            bodies.unsigned(body.preview_bytes, "preview_bytes", 16_384), MOST_ANSWER
        ),
        since_ns=None if body.since is None else body.since * 1_000_000,
        until_ns=None if body.until is None else body.until * 1_000_000,
        last_per_subject=bool(body.last_per_subject),
    )
