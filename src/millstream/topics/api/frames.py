"""Frames: a range of a topic's records as raw bytes, for readers that decode them themselves."""

from millstream.http.request import Request
from millstream.http.response import Response
from millstream.streams.reading.cold_reads import once_here
from millstream.streams.reading.read_plan import READ_BYTES, RangeRequest, read_range
from millstream.streams.reading.views import Views
from millstream.topics.bodies import query_number
from millstream.topics.context import Topics
from millstream.topics.directory import topic_of

OCTETS = b"application/octet-stream"
MOST_BYTES = 8 * 1024 * 1024


class FrameReads:
    """Ranges of topics, and what is remembered between two of them about who sees what."""

    def __init__(self) -> None:
        self._views = Views()

    async def frames(self, request: Request, topics: Topics) -> Response:
        """Return the records ``from_seq..to_seq``; an empty answer means that none are left.

        At most ``max_bytes``, but at least one record however large. Those of subjects that the
        caller may not read are left out.
        """
        stream = topics.directory.find(topic_of(request), request.caller)
        asked = RangeRequest(
            from_seq=_number(request, "from_seq", 1),
            to_seq=_number(request, "to_seq", stream.state().last_seq),
            max_bytes=_number(request, "max_bytes", READ_BYTES),
        )
        topics.priorities.touch(stream)
        view = self._views.of(stream, request.caller.sight_of(stream.name))
        found = await once_here(lambda: read_range(stream, asked, MOST_BYTES, view))
        return Response(200, found, OCTETS)


def _number(request: Request, name: str, default: int) -> int:
    given = query_number(request, name)
    return default if given is None else given
