"""Header blocks as streams need them, and the extras (tag, node, meta) that travel in headers.

HTTP writes tag, node and meta beside the payload; NATS clients see and send them as the headers
``Millstream-Tag``, ``Millstream-Node`` and ``Millstream-Meta``. Control characters and ``%`` are
percent-encoded there, since a header value ends at its line.
"""

import re

VERSION = b"NATS/1.0\r\n"
_EXTRA = re.compile(rb"\r\nMillstream-(Tag|Node|Meta):[ \t]*([^\r\n]*)")
_UNSAFE = re.compile(rb"[\x00-\x1f\x7f%]")
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")


def first_values(block: bytes) -> dict[bytes, bytes]:
    """Return the first value of each header; keys are case-sensitive, as on the server."""
    values: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon and key not in values:
            values[key] = value.strip()
    return values


def is_special(block: bytes) -> bool:
    """Whether a header asks the stream for something."""
    return b"\nNats-" in block or b"\nMillstream-" in block or not block.startswith(VERSION)


def with_extras(headers: bytes, tag: bytes, node: bytes, meta: bytes) -> bytes:
    """Return the block as NATS clients see it: the stored headers, then the extras."""
    extras = b"".join(
        b"Millstream-%s: %s\r\n" % (name, _UNSAFE.sub(_encode, value))
        for name, value in ((b"Tag", tag), (b"Node", node), (b"Meta", meta))
        if value
    )
    if not extras:
        return headers
    return (headers[:-2] if headers else VERSION) + extras + b"\r\n"


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


def _encode(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _decode(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)])
