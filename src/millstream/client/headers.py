"""The header block of a message: ``NATS/1.0[ status[ text]]``, then ``Name: value`` lines."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Headers: TypeAlias = dict[str, list[str]]
VERSION = "NATS/1.0"


def encode(headers: Mapping[str, str | Sequence[str]]) -> bytes:
    """Return the block for ``headers``; a name may carry one value or several."""
    lines = [VERSION]
    for name, given in headers.items():
        values = [given] if isinstance(given, str) else given
        lines.extend(_line(name, value) for value in values)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _line(name: str, value: str) -> str:
    if not name or any(c in name for c in ": \r\n"):
        raise ValueError(f"a header name cannot be {name!r}")
    if "\r" in value or "\n" in value:
        raise ValueError(f"the value of header {name} cannot span lines")
    return f"{name}: {value}"


def decode(block: bytes) -> tuple[int | None, Headers]:
    """Return the inline status, if there is one, and the values by name."""
    first, *lines = block.decode(errors="surrogateescape").split("\r\n")
    headers: Headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name, []).append(value.strip(" \t"))
    status = first.removeprefix(VERSION).split()
    return (int(status[0]) if status and status[0].isdecimal() else None), headers
