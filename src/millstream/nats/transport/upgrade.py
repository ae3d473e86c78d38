"""Upgrade: whether an HTTP request may become a WebSocket, and the answer to it either way."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from millstream.http.parser import Refusal
from millstream.http.request import Request
from millstream.http.upgrade import offers_deflate, refused, switch_headers, websocket_problem
from millstream.nats.transport.transport import Cookies

_PORTS = {"http": 80, "https": 443}
_HEADER_TEXT = re.compile(r"[\t -~\x80-\xff]*")


class WebsocketTerms(Protocol):
    """What a ``websocket`` block says; ``server.options.WebsocketOptions`` is one."""

    @property
    def advertise(self) -> str:
        """Where clients should look for this server, if not where it listens."""
        ...

    @property
    def same_origin(self) -> bool:
        """Whether a page must come from the host that it connects to."""
        ...

    @property
    def allowed_origins(self) -> Sequence[str]:
        """The only origins that pages may come from; empty = any."""
        ...

    @property
    def handshake_timeout(self) -> float:
        """How long TLS and the request may take together."""
        ...

    @property
    def compression(self) -> bool:
        """Whether messages may be compressed."""
        ...

    @property
    def jwt_cookie(self) -> str:
        """The cookie that holds a user's JWT."""
        ...

    @property
    def user_cookie(self) -> str:
        """The cookie that holds a user's name."""
        ...

    @property
    def pass_cookie(self) -> str:
        """The cookie that holds a password."""
        ...

    @property
    def token_cookie(self) -> str:
        """The cookie that holds a token."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """What to add to the answer."""
        ...

    @property
    def auth_timeout(self) -> float:
        """How long a client may take to say who it is; 0 = as everywhere."""
        ...

    @property
    def ping_interval(self) -> float | None:
        """How often silent clients are asked whether they live; None = as everywhere."""
        ...


class Upgrade(msgspec.Struct, frozen=True):
    """A request that may become a WebSocket."""

    answer: bytes
    compressed: bool
    cookies: Cookies


def upgrade(request: Request, terms: WebsocketTerms, tls: bool) -> Upgrade | Refusal:
    """Decide; the order of the checks is nats-server's."""
    problem = _problem(request) or _origin_problem(request, terms, tls)
    if problem is not None:
        return problem
    compressed = terms.compression and offers_deflate(request)
    answer = _switch(request, compressed, terms.headers)
    return Upgrade(answer, compressed, _cookies(request, terms))


def refusal_answer(refusal: Refusal) -> bytes:
    """Return the answer to a request that does not become a WebSocket."""
    body = f"{refusal.message}\n".encode()
    phrase = HTTPStatus(refusal.status).phrase
    return (
        f"HTTP/1.1 {refusal.status} {phrase}\r\nSec-WebSocket-Version: 13\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


def _problem(request: Request) -> Refusal | None:
    if request.path.endswith("/mqtt"):
        return refused(404, "MQTT over WebSocket is not served here")
    if request.path.endswith("/leafnode"):
        return refused(404, "leafnodes over WebSocket are not served here: use the leafnode port")
    return websocket_problem(request)


def _origin_problem(request: Request, terms: WebsocketTerms, tls: bool) -> Refusal | None:
    """Keep pages of other sites out; clients that are no browsers send no Origin and pass."""
    if not terms.same_origin and not terms.allowed_origins:
        return None
    said = request.header(b"origin") or request.header(b"sec-websocket-origin")
    if not said:
        return None
    origin = _place(said.decode("latin-1"))
    if origin is None:
        return refused(403, "the origin is not allowed: it cannot be read")
    if terms.same_origin:
        host = (request.header(b"host") or b"").decode("latin-1")
        if origin != _place(f"{'https' if tls else 'http'}://{host}"):
            return refused(403, "the origin is not allowed: it is another site's")
    if terms.allowed_origins and origin not in map(_place, terms.allowed_origins):
        return refused(403, "the origin is not allowed: it is not on the list")
    return None


def _place(origin: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin, None when it is none."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if not parts.hostname or not scheme:
        return None
    if port is None:
        port = _PORTS.get(scheme, 80)
    return scheme, parts.hostname.lower(), port


def _switch(request: Request, compressed: bool, extra: Sequence[tuple[str, str]]) -> bytes:
    lines = [b"HTTP/1.1 101 Switching Protocols"]
    lines += [b"%b: %b" % header for header in switch_headers(request, compressed)]
    lines += [
        f"{name}: {value}".encode("latin-1")
        for name, value in extra
        if _HEADER_TEXT.fullmatch(value)
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _cookies(request: Request, terms: WebsocketTerms) -> Cookies:
    jar: dict[str, str] = {}
    for key, value in request.headers:
        if key == b"cookie":
            for part in value.decode("latin-1").split(";"):
                name, _, text = part.strip().partition("=")
                jar[name] = text.strip('"')
    jar.pop("", None)
    return Cookies(
        jwt=jar.get(terms.jwt_cookie, ""),
        user=jar.get(terms.user_cookie, ""),
        password=jar.get(terms.pass_cookie, ""),
        token=jar.get(terms.token_cookie, ""),
    )
