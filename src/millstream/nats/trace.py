"""Trace: what a client says and hears, line by line in the log.

Only clients that come while tracing is on are traced: a conversation is read from its start.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from millstream.accounts.rights import text_of
from millstream.wire.errors import quoted

TRACE = 5  # below DEBUG
_IN, _OUT = "<<-", "->>"
_BODIED = (b"PUB", b"HPUB", b"MSG", b"HMSG")
# A value is hidden whole, quotes that it escapes included.
_SECRETS = re.compile(
    rb'("(?:pass|auth_token|jwt|nkey|sig|proxy_sig)[^"]*"\s*:\s*")((?:[^"\\]|\\.)*)', re.IGNORECASE
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Tracing:
    """Whether and what to trace; it may change while the server runs."""

    on: bool = False
    headers_only: bool = False
    longest: int = 0  # bytes of a payload that are shown, 0 = all


class Trace:
    """Reads both directions of one client's conversation."""

    def __init__(self, tracing: Tracing, who: Callable[[], str]) -> None:
        self._tracing = tracing
        self._who = who
        self._coming = _Lines(lambda op, body: self._said(_IN, op, body))
        self._going = _Lines(lambda op, body: self._said(_OUT, op, body))

    def incoming(self, data: bytes) -> None:
        """Note what the client says."""
        self._coming.feed(data)

    def outgoing(self, data: bytes) -> None:
        """Note what it is told."""
        self._going.feed(data)

    def mapped(self, subject: bytes, to: bytes) -> None:
        """Note that a message goes elsewhere."""
        if self._tracing.on:
            self._log(f"{_IN} [MAPPING {text_of(subject)} -> {text_of(to)}]")

    def _said(self, way: str, line: bytes, body: bytes | None) -> None:
        if not self._tracing.on:
            return
        shown = _shown(line)
        if shown:
            self._log(f"{way} [{shown}]")
        if body is not None:
            self._payload(way, line, body)

    def _payload(self, way: str, line: bytes, body: bytes) -> None:
        if self._tracing.headers_only:
            body = body[: _headers_size(line)].removesuffix(b"\r\n\r\n")
        longest = self._tracing.longest
        if not body:
            return
        if 0 < longest < len(body):
            self._log(f'{way} MSG_PAYLOAD: [{quoted(body[:longest])[:-1]}..."]')
        else:
            self._log(f"{way} MSG_PAYLOAD: [{quoted(body)}]")

    def _log(self, text: str) -> None:
        # What is no text would not pass every way that a log can take.
        log.log(TRACE, "%s - %s", self._who(), text.encode("utf-8", "replace").decode())


class _Lines:
    """Cuts a stream of protocol bytes into lines, each with the payload that follows it."""

    def __init__(self, found: Callable[[bytes, bytes | None], None]) -> None:
        self._found = found
        self._rest = bytearray()
        self._line = b""
        self._missing = 0  # bytes until the payload of ``_line`` and its CRLF are there

    def feed(self, data: bytes) -> None:
        self._rest += data
        while self._body() or self._next():
            pass

    def _body(self) -> bool:
        if not self._missing or len(self._rest) < self._missing:
            return False
        body = bytes(self._rest[: self._missing - 2])
        del self._rest[: self._missing]
        self._missing = 0
        self._found(self._line, body)
        return True

    def _next(self) -> bool:
        end = -1 if self._missing else self._rest.find(b"\n")
        if end < 0:
            return False
        self._line = bytes(self._rest[:end]).removesuffix(b"\r")
        del self._rest[: end + 1]
        verb, *_, last = self._line.split() or [b"", b""]
        if verb.upper() in _BODIED and last.isdigit():
            self._missing = int(last) + 2
        else:
            self._found(self._line, None)
        return True


def _shown(line: bytes) -> str:
    """Return a line as it is shown, nothing where the reference shows nothing."""
    verb, _, rest = line.partition(b" ")
    name = verb.upper()
    if name == b"INFO":
        return ""
    if name == b"+OK":
        return "OK"
    if name == b"-ERR":
        rest = rest.removeprefix(b"'").removesuffix(b"'")
    if name == b"CONNECT":
        rest = _SECRETS.sub(rb"\1[REDACTED]", rest)
    return text_of(name + b" " + rest if rest else name)


def _headers_size(line: bytes) -> int:
    words = line.split()
    return int(words[-2]) if words[0].upper() in (b"HPUB", b"HMSG") else 0
