"""The dashboard as a table of routes: its files, its feed, and who has access."""

from collections.abc import Callable
from typing import Any

from millstream.dashboard.live_feed import LiveFeed
from millstream.dashboard.web_files import WebFiles
from millstream.errors import Forbidden
from millstream.http.request import Request
from millstream.http.response import Answer, json_response
from millstream.http.routes import Route

Access = Callable[[], dict[str, Any]]


def dashboard_routes(feed: LiveFeed, access: Access, is_guarded: Callable[[], bool]) -> list[Route]:
    """Return every operation that the page has for itself."""

    async def show_login(request: Request) -> Answer:
        return json_response({"required": is_guarded()})

    async def show_access(request: Request) -> Answer:
        if not request.caller.sees_server:
            raise Forbidden("this credential may see only a part of the server")
        return json_response(access())

    return [
        *WebFiles().routes(),
        Route("GET", "/v0/login", show_login, "", "Say whether a credential is needed"),
        Route("GET", "/v0/feed", feed.open, "read", "Stream figures once a second", True),
        Route("GET", "/v0/feed/past", feed.past, "read", "Figures of the last minutes"),
        Route("GET", "/v0/access", show_access, "admin", "List accounts, users and keys"),
    ]
