"""Upgrade: whether a request may become a WebSocket, and what the answer says about it."""

import base64
import binascii
import hashlib

from millstream.http.parser import Refusal
from millstream.http.request import Request

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_DEFLATE = "permessage-deflate"
_AGREED = f"{_DEFLATE}; server_no_context_takeover; client_no_context_takeover".encode()


def websocket_problem(request: Request) -> Refusal | None:
    """Return why a request cannot become a WebSocket, None when it can."""
    if request.method != "GET":
        return refused(405, "the method of a WebSocket request must be GET")
    if request.version != "1.1" or request.body:
        return refused(400, "a WebSocket request is an HTTP/1.1 request without a body")
    if "websocket" not in _tokens(request, b"upgrade"):
        return refused(400, "the header Upgrade must say websocket: nothing else is spoken here")
    if "upgrade" not in _tokens(request, b"connection"):
        return refused(400, "the header Connection must say Upgrade")
    if not _good_key(request.header(b"sec-websocket-key") or b""):
        return refused(400, "the header Sec-WebSocket-Key must hold 16 bytes in base64")
    if "13" not in _tokens(request, b"sec-websocket-version"):
        return refused(400, "the header Sec-WebSocket-Version must be 13")
    return None


def offers_deflate(request: Request) -> bool:
    """Return whether the client would compress messages; parameters are ours to set."""
    offers = _tokens(request, b"sec-websocket-extensions")
    return any(offer.split(";")[0].strip() == _DEFLATE for offer in offers)


def switch_headers(request: Request, compressed: bool) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of the 101 that accepts a request."""
    key = request.header(b"sec-websocket-key") or b""
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    headers = (
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Accept", accept),
    )
    return (*headers, (b"Sec-WebSocket-Extensions", _AGREED)) if compressed else headers


def refused(status: int, message: str) -> Refusal:
    """Return the refusal of a request that asks for a WebSocket."""
    return Refusal(status, "websocket_refused", message)


def _tokens(request: Request, name: bytes) -> set[str]:
    values = b",".join(value for key, value in request.headers if key == name)
    return {token.strip().lower() for token in values.decode("latin-1").split(",")}


def _good_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False
