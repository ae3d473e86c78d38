"""Read plans: where a topic's records lie, for readers that open the files themselves."""

from millstream.errors import BadRequest
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.streams.read_plan import plan_for
from millstream.topics.context import Topics, topic_of


async def plan(request: Request, topics: Topics) -> Response:
    """Return the plan by which Spark reads the whole topic, or the page of it at ``from_seq``."""
    stream = topics.find(topic_of(request), request.caller)
    text = request.query.get("from_seq", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequest("from_seq must be a number that is not negative")
    segments = [] if topics.store is None else topics.store.plan(stream.incarnation)
    return json_response(plan_for(stream, segments, int(text)))
