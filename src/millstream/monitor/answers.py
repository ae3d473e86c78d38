"""Answers: how many HTTP requests ended with which status."""

from collections.abc import Awaitable, Callable

from millstream.http.request import Request
from millstream.http.response import Answer

App = Callable[[Request], Awaitable[Answer]]


def counted(app: App, statuses: dict[int, int]) -> App:
    """Return the application with its answers counted; a stream counts when it begins."""

    async def answer(request: Request) -> Answer:
        given = await app(request)
        statuses[given.status] = statuses.get(given.status, 0) + 1
        return given

    return answer
