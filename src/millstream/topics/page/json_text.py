"""JSON as text: compact, unescaped and bounded, without a Python object per value.

Stored data keeps its key order and its numbers as they were written; only blanks between tokens
go, and characters that JSON need not escape are written as themselves.
"""

import base64
import binascii
import re
from typing import Any

import msgspec

from millstream.errors import BadRequest

DEEPEST = 64
ESCAPE = re.compile(rb"\\(u[0-9A-Fa-f]{4}(?:\\u[dD][c-fC-F][0-9A-Fa-f]{2})?|.)", re.DOTALL)
BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
WRAPPED = re.compile(rb'\{"(\$+)base64[^"\\]*":')
ONLY_KEY = re.compile(r"\$+base64")

is_json = msgspec.json.Decoder(msgspec.Raw).decode
"""Raises DecodeError or RecursionError for what is no JSON; bytes in strings are not looked at."""

_format = msgspec.json.format


def decode(body: bytes, kind: Any) -> Any:
    """Decode a request's JSON into ``kind``; what is wrong with it becomes the answer."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"invalid JSON: {error}") from error
    except RecursionError:
        raise BadRequest(f"JSON may be at most {DEEPEST} levels deep") from None


def normal(text: bytes) -> bytes:
    """Return JSON compact and with unneeded escapes undone; raises BadRequest if it is none."""
    try:
        if b" " in text or b"\n" in text or b"\t" in text or b"\r" in text:
            text = _format(text, indent=-1)
        return normal_escapes(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"invalid JSON: {error}") from error
    except RecursionError:
        raise BadRequest(f"JSON may be at most {DEEPEST} levels deep") from None


def normal_escapes(text: bytes) -> bytes:
    """Return JSON text with characters that need no escape written as themselves."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise BadRequest("the body is not UTF-8") from error
    if b"\\u" in text or b"\\/" in text:
        return ESCAPE.sub(_unescape, text)
    return text


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match.group(1)
    if escape == b"/":
        return b"/"
    if escape[:1] != b"u":
        return match.group()
    first = int(escape[1:5], 16)
    if 0xD800 <= first < 0xDC00 and len(escape) == 11:
        second = int(escape[7:11], 16)
        return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).encode()
    if 0xD800 <= first < 0xE000:
        raise BadRequest("a string holds half of a surrogate pair")
    # A low surrogate that follows no high one was matched along: it is refused on its own.
    if len(escape) == 11:
        raise BadRequest("a string holds half of a surrogate pair")
    return msgspec.json.encode(chr(first))[1:-1]


def too_deep(text: bytes) -> bool:
    """Return whether JSON nests deeper than is read here; cheap for what cannot."""
    if text.count(b"[") + text.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for token in BRACKET.finditer(text):
        mark = token.group()
        if mark in (b"[", b"{"):
            depth += 1
            if depth > DEEPEST:
                return True
        elif mark in (b"]", b"}"):
            depth -= 1
    return False


def payload_of(data: bytes) -> bytes:
    """Return what is stored for ``data``: itself, or the bytes that a ``$base64`` object means."""
    if WRAPPED.match(data) is None:
        return data
    value = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if len(value) != 1:
        return data
    ((key, inner),) = value.items()
    if key.startswith("$$"):
        return b'{"' + data[3:]
    if key != "$base64":
        return data
    try:
        return base64.b64decode(msgspec.json.decode(inner, type=str), validate=True)
    except (ValueError, binascii.Error):
        raise BadRequest(
            'data.$base64 is not base64; write "$$base64" for an object with that key'
        ) from None


def shown(payload: bytes) -> bytes:
    """Return a stored payload as JSON: compact, or wrapped as base64 when it is none."""
    try:
        is_json(payload)
        if not payload.isascii():
            payload.decode()
        if b" " in payload or b"\n" in payload or b"\t" in payload or b"\r" in payload:
            payload = _format(payload, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b'{"$base64":"%b"}' % base64.b64encode(payload)
    if payload[:2] == b'{"' and (b"$base64" in payload or b"\\u" in payload):
        return _escaped(payload)
    return payload


def _escaped(payload: bytes) -> bytes:
    """Double the ``$`` of an object that would otherwise read as wrapped bytes."""
    value = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    if len(value) != 1:
        return payload
    ((key, inner),) = value.items()
    if ONLY_KEY.match(key) is None:
        return payload
    return b"{%b:%b}" % (msgspec.json.encode("$" + key), bytes(inner))


def compact_list(text: bytes) -> bytes:
    """Return JSON values with commas between them, without blanks between tokens."""
    if not text.isascii():
        text.decode()
    if b" " in text or b"\n" in text or b"\t" in text or b"\r" in text:
        return _format(b"[%b]" % text, indent=-1)[1:-1]
    return text
