"""Response: what a handler answers, and the one shape of every error."""

from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from millstream.errors import MillstreamError
from millstream.http.socket_writer import SocketWriter

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False


class Push(Protocol):
    """Sends to a client while somebody waits for the next piece of its stream."""

    def push(self, piece: bytes) -> bool:
        """Send a piece, framed by ``chunk``, at once; False when the client is behind or gone."""
        ...

    def writer(self, on_behind: Callable[[], None]) -> SocketWriter | None:
        """Return what sends framed pieces without asking, until ``on_behind`` is called.

        That is when the client falls behind, or leaves; None when it is so already. Who asks anew
        is no longer called for the last time.
        """
        ...


class StreamedResponse(msgspec.Struct, frozen=True):
    """An answer that goes on until ``chunks`` ends or the client leaves; it is closed then.

    ``attach`` is given the client's connection, where that can push pieces while somebody waits for
    the next chunk: that saves waking whoever waits.
    """

    chunks: AsyncIterator[bytes]
    status: int = 200
    content_type: bytes = EVENT_STREAM
    headers: tuple[tuple[bytes, bytes], ...] = (
        (b"Cache-Control", b"no-store"),
        (b"X-Accel-Buffering", b"no"),
    )
    attach: Callable[[Push], None] | None = None


class Upgraded(msgspec.Struct, frozen=True):
    """A connection that leaves HTTP: after a 101 with ``headers``, ``heir(door)`` has it.

    The heir is an ``asyncio.Protocol`` that the door counts, sweeps and stops like its others.
    ``refuse`` is called instead when the connection is gone or has no clean end of request.
    """

    headers: tuple[tuple[bytes, bytes], ...]
    heir: Callable[[Any], Any]
    refuse: Callable[[], None]
    status: int = 101


Answer = Response | StreamedResponse | Upgraded

REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


def json_response(content: object, status: int = 200) -> Response:
    """Return ``content`` as compact JSON."""
    return Response(status, msgspec.json.encode(content))


def error_body(code: str, message: str, detail: dict[str, object] | None = None) -> bytes:
    """Return the envelope that every refusal has, router-level ones too."""
    error: dict[str, object] = {"code": code, "message": message or code}
    if detail is not None:
        error["detail"] = detail
    return msgspec.json.encode({"error": error})


def error_response(error: MillstreamError, close: bool = False) -> Response:
    """Return an error of the tree as its HTTP answer."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if error.http_status in (429, 503):
        headers = ((b"Retry-After", b"1"),)
    elif error.http_status == 401:
        headers = ((b"WWW-Authenticate", b"Bearer"),)
    body = error_body(error.code, error.message, error.detail)
    return Response(error.http_status, body, headers=headers, close=close)


def chunk(data: bytes) -> bytes:
    """Return a piece of a streamed body as HTTP/1.1 frames it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_head(
    status: int,
    content_type: bytes,
    headers: tuple[tuple[bytes, bytes], ...],
    length: int | None,
    date: bytes,
    keep_alive: bool,
    chunked: bool = False,
) -> bytes:
    """Return the head of an HTTP/1.1 response; ``length`` None means that the body is streamed."""
    if length is not None and keep_alive and not headers:
        return _opening(status, content_type, date) + b"Content-Length: %d\r\n\r\n" % length
    lines = [_opening(status, content_type, date)]
    lines.extend(b"%b: %b\r\n" % (name, value) for name, value in headers)
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    elif chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    if not keep_alive:
        lines.append(b"Connection: close\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


@lru_cache(maxsize=32)
def _opening(status: int, content_type: bytes, date: bytes) -> bytes:
    """Return what most answers of a second begin with."""
    line = b"HTTP/1.1 %d %b\r\nDate: %b\r\n" % (status, REASONS.get(status, b"Unknown"), date)
    if content_type:
        line += b"Content-Type: %b\r\nX-Content-Type-Options: nosniff\r\n" % content_type
    return line
