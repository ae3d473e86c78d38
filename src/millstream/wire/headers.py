"""The ``NATS/1.0`` header block, as bytes in and out."""

import re
from collections.abc import Collection, Iterable
from itertools import takewhile
from urllib.parse import quote_from_bytes

_VERSION = b"NATS/1.0"
_END = b"\r\n"
_BREAK = re.compile(rb"[\r\n]")
TAG = b"Millstream-Tag"
NODE = b"Millstream-Node"
META = b"Millstream-Meta"

# Where a record is, as the server says it: a publisher's field of such a name does not go out
# beside the server's own.
PLACE_FIELDS = frozenset(
    (
        b"nats-stream",
        b"nats-subject",
        b"nats-sequence",
        b"nats-time-stamp",
        b"nats-num-pending",
        b"nats-last-sequence",
        b"nats-upto-sequence",
    )
)


class MalformedHeaders(ValueError):
    """The bytes are not a NATS/1.0 header block."""


def parse_headers(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields in order; names keep their case and may repeat."""
    if not block:
        return []
    lines = block.split(_END)
    if not lines[0].startswith(_VERSION) or lines[-2:] != [b"", b""]:
        raise MalformedHeaders("a header block is NATS/1.0, fields, and an empty line")
    return [_field(line) for line in lines[1:-2]]


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name:
        raise MalformedHeaders(f"not a header field: {line[:80]!r}")
    return name, value.strip(b" \t")


def header(block: bytes, name: bytes) -> bytes | None:
    """Return the first value of ``name``, None when absent."""
    if name not in block:
        return None
    return next((value for key, value in parse_headers(block) if key == name), None)


def status(block: bytes) -> tuple[int, str] | None:
    """Return the inline status (code, description) of the first line, None without one."""
    words = block.partition(_END)[0][len(_VERSION) :].split(None, 1)
    if not words or not words[0].isdigit():
        return None
    return int(words[0]), words[1].decode("utf-8", "replace") if len(words) > 1 else ""


def encode_headers(fields: Iterable[tuple[bytes, bytes]], status_line: bytes = b"") -> bytes:
    """Return a block of ``fields``; ``status_line`` (``404 No Messages``) goes inline."""
    first = _VERSION + (b" " + status_line if status_line else b"") + _END
    return first + b"".join(name + b": " + value + _END for name, value in fields) + _END


def with_extras(block: bytes, tag: bytes, node: bytes, meta: bytes) -> bytes:
    """Add a record's tag, node and meta to its header block, as NATS clients see them."""
    extras = b"".join(
        name + b": " + _printable(value) + _END
        for name, value in ((TAG, tag), (NODE, node), (META, meta))
        if value
    )
    if not block:
        return _VERSION + _END + extras + _END
    return block[: -len(_END)] + extras + _END


def without(block: bytes, names: Collection[bytes]) -> bytes:
    """Return a whole block without the fields of these names, which are in lower case.

    Publishers write what they like: clients also end a line at a bare line feed, and take a block
    that has no end as it comes. What is behind the first empty line no client reads.
    """
    if not block:
        return b""
    first, _, rest = block.partition(_END)
    lines = takewhile(bool, rest.split(_END))
    kept = [line for line in lines if not any(_name(part) in names for part in _BREAK.split(line))]
    return _END.join([first, *kept, _END])


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()


def _printable(value: bytes) -> bytes:
    """Percent-encode control characters, which would otherwise end the field."""
    if not any(byte < 0x20 or byte == 0x7F for byte in value):
        return value
    return b"".join(
        quote_from_bytes(bytes([byte])).encode() if byte < 0x20 or byte == 0x7F else bytes([byte])
        for byte in value
    )
