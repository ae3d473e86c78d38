"""Who is asking: what a credential is called, and what it may do."""

from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.topics.context import Topics


async def whoami(request: Request, topics: Topics) -> Response:
    """Show the caller to itself; the credential is never part of it."""
    caller = request.caller
    is_user = caller.covers is not None
    return json_response(
        {
            "who": shown_key(caller.key) or "anyone",
            "kind": "user" if is_user else "key" if caller.key else "open",
            "account": caller.account,
            "scopes": sorted(_scopes(request)),
            "prefixes": list(caller.prefixes),
            "whole_server": caller.sees_server,
        }
    )


def _scopes(request: Request) -> set[str]:
    """Return what may be asked for; a user's rights are judged for each topic instead."""
    caller = request.caller
    if caller.covers is not None:
        return {"read", "write", "delete", "admin"}
    return set(caller.scopes)


def shown_key(key: str) -> str:
    """Return a credential's name as people know it: ``key:<id>`` or ``user:<name>``."""
    kind, _, rest = key.partition(":")
    if kind == "key":
        return f"key:{rest.rpartition(':')[0]}"
    if kind == "user":
        return f"user:{rest.partition(chr(0))[2]}"
    return ""
