"""TraceRequest: what the headers of a message ask for."""

import msgspec

DEST = "Nats-Trace-Dest"
ONLY = "Nats-Trace-Only"
ORIGIN = "Nats-Trace-Origin-Account"
PARENT = "traceparent"
DISABLED = "trace disabled"  # no subject, so that nobody traces the message again
_VERSION = b"NATS/1.0\r\n"
_YES = ("1", "true", "on")


class TraceRequest(msgspec.Struct, frozen=True):
    """A message that asks for a trace.

    Without a ``dest`` it carries a ``traceparent`` that is sampled: the account says where to.
    """

    headers: dict[str, list[str]]
    dest: str = ""
    only: bool = False

    @property
    def is_old(self) -> bool:
        """Whether it came through a server that traced in an older way, which is not followed."""
        return ORIGIN in self.headers

    @property
    def encoding(self) -> str:
        """How the event may be compressed: ``snappy``, ``gzip`` or not at all."""
        asked = self.headers.get("Accept-Encoding", [""])[0].lower()
        if "snappy" in asked or "s2" in asked:
            return "snappy"
        return "gzip" if "gzip" in asked else ""


def trace_request(block: bytes) -> TraceRequest | None:
    """Return what a header block asks for, None when that is nothing."""
    if not block.startswith(_VERSION):
        return None
    fields = [(name, value) for name, value in _fields(block) if name and value]
    named = [value for name, value in fields if name == DEST]
    if named[:1] == [DISABLED]:
        return None
    parents = [value for name, value in fields if name.lower() == PARENT]
    if not named and not any(map(_is_sampled, parents)):
        return None
    headers: dict[str, list[str]] = {}
    for name, value in fields:
        headers.setdefault(name, []).append(value)
    if not named:
        return TraceRequest(headers)
    only = headers.get(ONLY, [""])[0].lower() in _YES
    return TraceRequest(headers, named[0], only)


def _fields(block: bytes) -> list[tuple[str, str]]:
    lines = block[len(_VERSION) :].decode("utf-8", "surrogateescape").split("\r\n")
    parted = [line.partition(":") for line in lines if ":" in line]
    return [(name, value.strip(" \t")) for name, _, value in parted]


def _is_sampled(parent: str) -> bool:
    """Whether the last byte of a W3C trace context says that the trace is wanted."""
    parts = parent.split("-")
    if len(parts) != 4 or len(parts[3]) != 2:
        return False
    try:
        flags = int(parts[3], 16)
    except ValueError:
        return False
    return flags < 0x80 and bool(flags & 1)


def disabled(block: bytes) -> bytes:
    """Return the headers of a message that nobody is to trace again."""
    kept = [
        line
        for line in block.removesuffix(b"\r\n\r\n").split(b"\r\n")
        if not line.startswith(DEST.encode() + b":")
    ]
    return b"\r\n".join([*kept, f"{DEST}: {DISABLED}".encode(), b"", b""])
