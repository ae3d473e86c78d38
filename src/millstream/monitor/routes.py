"""The monitoring endpoints as one table of routes."""

from collections.abc import Awaitable, Callable
from functools import partial

from millstream.http.request import Request
from millstream.http.response import Answer
from millstream.http.routes import Route
from millstream.monitor.facts import Facts
from millstream.monitor.health import healthz
from millstream.monitor.varz import varz

Operation = Callable[[Request, Facts], Awaitable[Answer]]


def monitor_routes(facts: Facts) -> list[Route]:
    """Return every monitoring operation, bound to the server's facts."""
    table: list[tuple[str, str, Operation, str, str]] = [
        ("GET", "/healthz", healthz, "", "Tell whether the server works"),
        ("GET", "/varz", varz, "read", "Show the server at a glance"),
    ]
    return [
        Route(method, pattern, partial(_run, operation, facts), scope, summary)
        for method, pattern, operation, scope, summary in table
    ]


async def _run(operation: Operation, facts: Facts, request: Request) -> Answer:
    return await operation(request, facts)
