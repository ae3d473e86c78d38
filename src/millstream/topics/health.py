"""Health and readiness as the topics API answers them; /healthz is the monitor's."""

from millstream import __version__
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.topics.context import Topics


async def health(request: Request, topics: Topics) -> Response:
    """Answer that the process is alive; always 200."""
    uptime_ms = (topics.clock.time_ns() - topics.started_ns) // 1_000_000
    return json_response({"status": "ok", "version": __version__, "uptime_ms": uptime_ms})


async def ready(request: Request, topics: Topics) -> Response:
    """Answer whether recovery is over."""
    if topics.ready:
        count = len(topics.catalog.streams(request.caller.account))
        return json_response({"status": "ready", "wal_replay_complete": True, "topics": count})
    error = {
        "code": "not_ready",
        "message": "the log is being replayed",
        "detail": {"replay_progress": topics.replay_progress},
    }
    answer = json_response({"error": error}, 503)
    return Response(503, answer.body, headers=((b"Retry-After", b"1"),))
