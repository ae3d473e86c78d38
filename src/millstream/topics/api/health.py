"""Health and readiness as the topics API answers them; /healthz is the monitor's."""

from millstream import __version__
from millstream.http.request import Request
from millstream.http.response import Response, error_body, json_response
from millstream.topics.context import Topics


async def health(request: Request, topics: Topics) -> Response:
    """Answer that the process is alive, and what is wrong with it; always 200."""
    uptime_ms = (topics.clock.time_ns() - topics.started_ns) // 1_000_000
    problems = topics.store.health() if topics.store is not None else []
    told = {"status": "unavailable", "error": "; ".join(problems)} if problems else {"status": "ok"}
    return json_response({**told, "version": __version__, "uptime_ms": uptime_ms})


async def ready(request: Request, topics: Topics) -> Response:
    """Answer whether recovery is over."""
    if topics.ready:
        count = topics.catalog.table.count(request.caller.account)
        return json_response({"status": "ready", "wal_replay_complete": True, "topics": count})
    return not_ready({"replay_progress": topics.replay_progress})


def not_owner(why: str) -> Response:
    """Return what a member of a fleet answers while another one serves."""
    return Response(503, error_body("not_owner", why), headers=((b"Retry-After", b"1"),))


def not_ready(detail: dict[str, object] | None) -> Response:
    """Return what is answered while the log is being replayed."""
    body = error_body("not_ready", "the log is being replayed", detail)
    return Response(503, body, headers=((b"Retry-After", b"1"),))
