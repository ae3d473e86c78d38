"""Read plans: where a topic's records lie, for readers that open the files themselves."""

from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.streams.reading.read_plan import PlanRequest, plan_for
from millstream.topics.bodies import query_number
from millstream.topics.context import Topics
from millstream.topics.directory import topic_of


async def plan(request: Request, topics: Topics) -> Response:
    """Return the plan by which Spark reads the topic, or the page of it at ``from_seq``."""
    stream = topics.directory.find(topic_of(request), request.caller)
    asked = PlanRequest(
        *(query_number(request, name) or 0 for name in PlanRequest.__struct_fields__)
    )
    store = topics.store
    segments = [] if store is None else store.plan(stream.incarnation)
    cold = None if store is None else store.cold_plan(stream.incarnation)
    whole = request.caller.sight_of(stream.name) is None
    return json_response(plan_for(stream, segments, asked, whole=whole, cold=cold))
