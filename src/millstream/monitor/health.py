"""/healthz by nats-server's rules, with the version and the uptime beside."""

from typing import Any

from millstream import __version__
from millstream.errors import StreamNotFound
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.monitor.facts import Facts


async def healthz(request: Request, facts: Facts) -> Response:
    """Answer 200 while every part works, 503 with the reason otherwise."""
    status, code, error = _judge(request, facts)
    answer: dict[str, Any] = {"status": status}
    if error:
        answer["error"] = error
    answer["version"] = __version__
    answer["uptime_ms"] = (facts.clock.time_ns() - facts.started_ns) // 1_000_000
    return json_response(answer, code)


def _judge(request: Request, facts: Facts) -> tuple[str, int, str]:
    account, stream = request.query.get("account", ""), request.query.get("stream", "")
    if stream and not account:
        return "error", 400, '"account" must not be empty when checking stream health'
    problems = facts.health()
    if problems:
        return "unavailable", 503, "; ".join(problems)
    if stream and facts.catalog is not None:
        try:
            facts.catalog.get(stream, account)
        except StreamNotFound:
            return "unavailable", 404, f"JetStream stream '{account} > {stream}' not found"
    return "ok", 200, ""
