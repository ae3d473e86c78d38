"""Writing records over HTTP: a batch, whole or absent, in one commit."""

from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import check_name, topic_of
from millstream.topics.page.performance import Stopwatch
from millstream.topics.writing import carry_out


async def write(request: Request, topics: Topics) -> Response:
    """Append records; the topic is created on the way unless that is refused."""
    watch = Stopwatch(topics.clock)
    name = topic_of(request)
    check_name(name, request.caller)
    body = bodies.write_body(request)
    done = await carry_out(
        body, name, request.caller, topics, watch, request.header(b"idempotency-key")
    )
    if done.near is not None:
        request.warnings = (
            *request.warnings,
            f"created the topic {name!r}, which is one character away from {done.near!r}: "
            "pass create=false to write only to topics that exist",
        )
    answer = done.shown()
    if request.flag("return_seqs", True):
        answer["seqs"] = done.seqs()
    return json_response(answer, 201 if done.created else 200)
