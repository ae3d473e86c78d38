"""WebFiles: the page's own files, read once and served with strict rules for the browser."""

import hashlib
from importlib import resources
from typing import Any

import msgspec

from millstream.http.request import Request
from millstream.http.response import Answer, Response, error_body
from millstream.http.routes import Route

# Nothing but our own files runs, styles, or is asked; no page may frame this one.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)
GUARDS = (
    (b"Content-Security-Policy", POLICY),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Cache-Control", b"no-cache"),  # asked each time, answered 304 while nothing changed
)
KINDS = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}
INDEX = "index.html"


class WebFile(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    body: bytes
    kind: bytes
    tag: bytes


class WebFiles:
    """The files of the page by their names, ``pages/streams.js`` for example."""

    def __init__(self) -> None:
        self._files = dict(_walk(resources.files("millstream.dashboard") / "web", ""))

    def routes(self) -> list[Route]:
        """Return what serves them: the page at ``/``, everything else below ``/ui``."""
        return [
            Route("GET", "/", self._index, "", "The dashboard"),
            Route("GET", "/ui/{file}", self._one, "", "A file of the dashboard"),
            Route("GET", "/ui/{folder}/{file}", self._one, "", "A file of the dashboard"),
        ]

    async def _index(self, request: Request) -> Answer:
        return self._send(request, INDEX)

    async def _one(self, request: Request) -> Answer:
        folder = request.params.get("folder")
        name = request.params["file"]
        return self._send(request, f"{folder}/{name}" if folder else name)

    def _send(self, request: Request, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            return Response(404, error_body("not_found", "no such file"))
        headers = (*GUARDS, (b"ETag", found.tag))
        if found.tag in (request.header(b"if-none-match") or b""):
            return Response(304, b"", b"", headers)
        return Response(200, found.body, found.kind, headers)


def _walk(folder: Any, path: str) -> list[tuple[str, WebFile]]:
    found = []
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        ending = each.name.rpartition(".")[2]
        if each.is_dir():
            found += _walk(each, f"{path}{each.name}/")
        elif ending in KINDS:
            body = each.read_bytes()
            tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
            found.append((path + each.name, WebFile(body, KINDS[ending], tag)))
    return found
