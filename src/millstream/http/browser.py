"""BrowserGuard: keeps web pages of other sites away from a server on this machine.

A page can make the browser send requests to 127.0.0.1, and with DNS rebinding even read the
answers. Such requests show themselves by their Host or Origin, or, as those for an image, by
Sec-Fetch-Site alone; other clients are not affected.
"""

import re
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from ipaddress import ip_address

from millstream.http.request import Request
from millstream.http.response import Answer, Response, error_body

ELSEWHERE = (b"cross-site", b"same-site")  # what a browser calls pages that are not our own
OTHER_ORIGIN = "requests from pages of other origins are refused"
HOST_NAME = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d*)?|([^:]*)(?::\d*)?")


class BrowserGuard:
    """An application in front of another.

    ``hosts`` are the names under which the server may be addressed, beside loopback ones;
    None accepts any name, as for a server that is meant to be reached from elsewhere.
    """

    def __init__(
        self,
        app: Callable[[Request], Awaitable[Answer]],
        hosts: Collection[str] | None = (),
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self._origins = frozenset(origin.lower() for origin in origins)
        self._judged = lru_cache(maxsize=256)(self._judge)  # mostly the same few again

    def __call__(self, request: Request) -> Awaitable[Answer]:
        """Refuse what a foreign page sent, pass on the rest."""
        reason = self._judged(request.header(b"host") or b"", request.header(b"origin"))
        if reason is None and self._is_fetched_from_elsewhere(request):
            reason = OTHER_ORIGIN
        return self._app(request) if reason is None else _refused(reason)

    def _judge(self, named: bytes, origin: bytes | None) -> str | None:
        """Return why a request to this Host from this Origin is refused, None when it is not."""
        host = named.decode("latin-1").lower()
        if host and self._hosts is not None and not self._known(host):
            return "this Host is not served here; serve with --allowed-host to open it"
        if origin is not None and not self._same_site(origin.decode("latin-1").lower(), host):
            return OTHER_ORIGIN
        return None

    def _is_fetched_from_elsewhere(self, request: Request) -> bool:
        """Say whether a foreign page asks, other than by a link that somebody followed."""
        site = request.header(b"sec-fetch-site")
        if site is None or site.lower() not in ELSEWHERE:
            return False
        origin = request.header(b"origin")
        if origin is not None and origin.decode("latin-1").lower() in self._origins:
            return False
        return not _is_visit(request)

    def _known(self, host: str) -> bool:
        match = HOST_NAME.fullmatch(host)
        if match is None:
            return False
        name = match.group(1) or match.group(2) or ""
        return name in (self._hosts or ()) or is_loopback(name)

    def _same_site(self, origin: str, host: str) -> bool:
        return origin in (f"http://{host}", f"https://{host}") or origin in self._origins


def _is_visit(request: Request) -> bool:
    """Say whether a request opens a page in its own window; under /v0 even a GET may change."""
    return (
        request.method == "GET"
        and request.header(b"sec-fetch-mode") == b"navigate"
        and request.header(b"sec-fetch-dest") == b"document"
        and request.path.split("/", 2)[1:2] != ["v0"]
    )


async def _refused(reason: str) -> Answer:
    return Response(403, error_body("forbidden", reason))


def is_loopback(name: str) -> bool:
    """Return whether a host name or literal address stays on this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
