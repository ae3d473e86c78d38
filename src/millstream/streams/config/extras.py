"""Header blocks as streams need them, and the extras (tag, node, meta) that travel in headers.

HTTP writes tag, node and meta beside the payload; NATS clients see and send them as the headers
``Millstream-Tag``, ``Millstream-Node`` and ``Millstream-Meta``, percent-encoded where a header
value could not hold them. ``wire.headers.with_extras`` is the way out, this is the way in.
"""

import re

VERSION = b"NATS/1.0\r\n"
REQUEST_INFO = b"Nats-Request-Info"  # which a service import adds
_EXTRA = re.compile(rb"\r\nMillstream-(Tag|Node|Meta):[ \t]*([^\r\n]*)")
_ENCODED = re.compile(rb"%([01][0-9A-Fa-f]|7[Ff])")  # control characters only


def first_values(block: bytes) -> dict[bytes, bytes]:
    """Return the first value of each header; keys are case-sensitive, as on the server."""
    values: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon and key not in values:
            values[key] = value.strip()
    return values


def with_value(block: bytes, key: bytes, value: bytes) -> bytes:
    """Return the block with a header set: in its place, or behind the others."""
    line = b"%s: %s" % (key, value)
    lines = block.removesuffix(b"\r\n\r\n").split(b"\r\n") if block else [VERSION[:-2]]
    for at, one in enumerate(lines):
        if at and one.partition(b":")[0] == key:
            lines[at] = line
            break
    else:
        lines.append(line)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def without(block: bytes, key: bytes) -> bytes:
    """Return the block without a header."""
    lines = block.split(b"\r\n")
    return b"\r\n".join(line for line in lines if line.partition(b":")[0] != key)


def is_special(block: bytes) -> bool:
    """Whether a header asks the stream for something."""
    return b"\nNats-" in block or b"\nMillstream-" in block or not block.startswith(VERSION)


def take_extras(headers: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Split a published block into (headers to store, tag, node, meta)."""
    found = {name: _ENCODED.sub(_decode, value) for name, value in _EXTRA.findall(headers)}
    rest = _EXTRA.sub(b"", headers) if found else headers
    if rest == VERSION + b"\r\n":
        rest = b""
    return rest, found.get(b"Tag", b""), found.get(b"Node", b""), found.get(b"Meta", b"")


def without_status(headers: bytes) -> bytes:
    """Drop an inline status line: it is about a delivery, not about the record."""
    if not headers or headers.startswith(VERSION):
        return headers
    end = headers.find(b"\r\n")
    rest = headers[end + 2 :]
    return b"" if rest in (b"", b"\r\n") else VERSION + rest


def as_published(headers: bytes) -> bytes:
    """Drop what is not about the record: a status line, and who asked from another account."""
    headers = without_status(headers)
    if b"\n" + REQUEST_INFO not in headers:
        return headers
    rest = without(headers, REQUEST_INFO)
    return b"" if rest == VERSION + b"\r\n" else rest


def _decode(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)])
