"""Answers: how many HTTP requests ended with which status."""

from collections.abc import Awaitable, Callable

from millstream.http.request import Request
from millstream.http.response import Answer, Response

App = Callable[[Request], Awaitable[Answer]]


def counted(app: App, statuses: dict[int, int], traffic: dict[str, int]) -> App:
    """Return the application with its answers counted; a stream counts when it begins.

    ``traffic`` gets the bodies of whole requests and answers, in bytes.
    """
    traffic |= {"in_bytes": 0, "out_bytes": 0, "requests": 0}

    async def answer(request: Request) -> Answer:
        given = await app(request)
        statuses[given.status] = statuses.get(given.status, 0) + 1
        traffic["requests"] += 1
        traffic["in_bytes"] += len(request.body)
        if isinstance(given, Response):
            traffic["out_bytes"] += len(given.body)
        return given

    return answer
