"""What a NATS server sends, as values: bytes in, operations out, no sockets."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from millstream.client.headers import Headers, decode

# A server line is an INFO at most; one that never ends comes from something else than a server.
MAX_LINE = 1024 * 1024


class ProtocolError(Exception):
    """The peer does not speak the NATS client protocol."""


@dataclass(frozen=True)
class Message:
    """A delivered message; ``raw_headers`` is the ``NATS/1.0`` block as received, or empty."""

    subject: str
    payload: bytes
    reply: str | None = None
    raw_headers: bytes = b""
    sid: int = 0

    @cached_property
    def headers(self) -> Headers:
        """Return the header values by name, each name with all its values in order."""
        return decode(self.raw_headers)[1]

    @cached_property
    def status(self) -> int | None:
        """Return the inline status such as 503, or None on an ordinary message."""
        return decode(self.raw_headers)[0]


@dataclass(frozen=True, slots=True)
class Info:
    """The server's description of itself, still JSON."""

    json: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """The server asks whether we are alive."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The server has handled everything sent before our PING."""


@dataclass(frozen=True, slots=True)
class Ok:
    """An acknowledgement that only verbose connections get."""


@dataclass(frozen=True, slots=True)
class Err:
    """The server's complaint, without its quotes."""

    text: str


Op: TypeAlias = Message | Info | Ping | Pong | Ok | Err


@dataclass(frozen=True, slots=True)
class _Pending:
    """A message line whose body has not arrived in full."""

    subject: str
    sid: int
    reply: str | None
    headers_len: int
    size: int


class Parser:
    """Splits a byte stream into operations, however the network cut it."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._pending: _Pending | None = None

    def feed(self, data: bytes) -> list[Op]:
        """Return the operations that ``data`` completes, in order."""
        self._buffer += data
        self._at = 0
        ops: list[Op] = []
        while (op := self._next()) is not None:
            ops.append(op)
        del self._buffer[: self._at]
        return ops

    def _next(self) -> Op | None:
        if self._pending is not None:
            return self._body(self._pending)
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > MAX_LINE:
                raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
            return None
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return self._line(line)

    def _line(self, line: bytes) -> Op | None:
        verb, _, rest = line.partition(b" ")
        match verb.upper():
            case b"MSG" | b"HMSG":
                self._pending = _message_line(line)
                return self._body(self._pending)
            case b"INFO":
                return Info(rest.strip())
            case b"PING":
                return Ping()
            case b"PONG":
                return Pong()
            case b"+OK":
                return Ok()
            case b"-ERR":
                return Err(rest.strip().strip(b"'").decode(errors="replace"))
        raise ProtocolError(f"unexpected line {line[:40]!r}")

    def _body(self, pending: _Pending) -> Message | None:
        end = self._at + pending.size
        if len(self._buffer) < end + 2:
            return None
        if self._buffer[end : end + 2] != b"\r\n":
            raise ProtocolError("a message that does not end where its size says")
        body_at = self._at + pending.headers_len
        message = Message(
            subject=pending.subject,
            payload=bytes(memoryview(self._buffer)[body_at:end]),
            reply=pending.reply,
            raw_headers=bytes(memoryview(self._buffer)[self._at : body_at]),
            sid=pending.sid,
        )
        self._at = end + 2
        self._pending = None
        return message


def _message_line(line: bytes) -> _Pending:
    """Read ``MSG subject sid [reply] size`` or ``HMSG subject sid [reply] headers size``."""
    verb, *words = line.split()
    sizes = 2 if verb.upper() == b"HMSG" else 1
    optional = len(words) - 2 - sizes
    if optional not in (0, 1):
        raise ProtocolError(f"a malformed message line {line[:40]!r}")
    try:
        sid, size = int(words[1]), int(words[-1])
        headers_len = int(words[-2]) if sizes == 2 else 0
    except ValueError:
        raise ProtocolError(f"a malformed message line {line[:40]!r}") from None
    if not 0 <= headers_len <= size:
        raise ProtocolError(f"impossible sizes in {line[:40]!r}")
    reply = words[2].decode(errors="surrogateescape") if optional else None
    subject = words[0].decode(errors="surrogateescape")
    return _Pending(subject, sid, reply, headers_len, size)
