"""Server-sent events: what every event stream of the API begins, and may end, with."""

from collections.abc import Iterable

import msgspec

from millstream.http.request import Caller, Request
from millstream.topics.errors import NotAcceptable

RETRY = b"retry: 2000\n\n"

_encode = msgspec.json.encode

SHUTTING_DOWN = _encode(
    {"code": "server_shutting_down", "message": "the server is stopping; connect again later"}
)

_REVOKED = _encode({"code": "unauthorized", "message": "the credential was revoked"})
_FORBIDDEN = _encode({"code": "forbidden", "message": "the topic takes other subjects now"})


def check_accept(request: Request) -> None:
    """Refuse a client that would not read an event stream."""
    accept = request.header(b"accept") or b""
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise NotAcceptable("this route sends text/event-stream")


def why_barred(caller: Caller, names: Iterable[str]) -> bytes:
    """Return why a stream must end that was allowed when it was opened, empty while it goes on."""
    if caller.revoked:
        return _REVOKED
    return b"" if all(caller.may_touch(name) for name in names) else _FORBIDDEN


def heartbeat(now_ms: int) -> bytes:
    """Return the comment that keeps a silent stream open."""
    return b": hb %d\n\n" % now_ms
