"""Trace: what a client says and hears, line by line in the log.

Only clients that come while tracing is on are traced: a conversation is read from its start.
"""

import logging
import re
from collections.abc import Callable, Iterator

import msgspec

from millstream.accounts.rights import text_of
from millstream.wire.errors import quoted

TRACE = 5  # below DEBUG
_IN, _OUT, _BOTH = "<<-", "->>", "<->"
_BODIED = (b"PUB", b"HPUB", b"MSG", b"HMSG")
# A value is hidden whole, quotes that it escapes included.
_SECRETS = re.compile(
    rb'("(?:pass|auth_token|jwt|nkey|sig|proxy_sig)[^"]*"\s*:\s*")((?:[^"\\]|\\.)*)', re.IGNORECASE
)

log = logging.getLogger(__name__)


class Tracing(msgspec.Struct):
    """Whether and what to trace; it may change while the server runs."""

    on: bool = False
    headers_only: bool = False
    longest: int = 0  # bytes of a payload that are shown, 0 = all


class Trace:
    """Reads both directions of one client's conversation."""

    def __init__(
        self, tracing: Tracing, who: Callable[[], str], sids: Callable[[], list[bytes]]
    ) -> None:
        """``sids`` tells what the client is subscribed to now."""
        self._tracing = tracing
        self._who = who
        self._sids = sids
        self._limited: set[bytes] = set()  # subscriptions that end by themselves
        self._coming = _Lines()
        self._going = _Lines()

    def incoming(self, data: bytes) -> Iterator[bytes]:
        """Note what the client says; gives it back cut so that each part ends an operation.

        Whoever carries out a part before it asks for the next has answers noted in their place.
        """
        done = 0
        for line, body, end in self._coming.feed(data):
            self._said(_IN, line, body)
            ending = self._ending(line)
            yield data[done:end]
            done = end
            if ending is not None:
                self._ended(ending)
        if done < len(data):
            yield data[done:]

    def outgoing(self, data: bytes) -> None:
        """Note what it is told."""
        for line, body, _ in self._going.feed(data):
            self._said(_OUT, line, body)
            if self._limited and body is not None and (sid := line.split()[2]) in self._limited:
                self._ended(sid)

    def closed(self) -> None:
        """Note that all subscriptions end with the connection."""
        for sid in self._sids():
            self._note_end(sid)

    def _ending(self, line: bytes) -> bytes | None:
        """Return the subscription that a line may end."""
        words = line.split()
        is_unsub = len(words) > 1 and words[0].upper() == b"UNSUB" and words[1] in self._sids()
        return words[1] if is_unsub else None

    def _ended(self, sid: bytes) -> None:
        """Note the end of a subscription, unless it goes on for some more messages."""
        if sid in self._sids():
            self._limited.add(sid)
        else:
            self._limited.discard(sid)
            self._note_end(sid)

    def _note_end(self, sid: bytes) -> None:
        if self._tracing.on:
            self._log(f"{_BOTH} [DELSUB {text_of(sid)}]")

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

    def __init__(self) -> None:
        self._rest = b""  # an operation whose end has not come

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Go through the operations that end in ``data``: line, payload, and where they end."""
        before, text, at = len(self._rest), self._rest + data, 0
        while (found := _operation(text, at)) is not None:
            line, body, at = found
            yield line, body, at - before
        self._rest = text[at:]


def _operation(text: bytes, at: int) -> tuple[bytes, bytes | None, int] | None:
    """Return the operation that begins at ``at`` and where it ends, None while it is not whole."""
    end = text.find(b"\n", at) + 1
    if not end:
        return None
    line = text[at:end].rstrip(b"\r\n")
    words = line.split()
    if not words or words[0].upper() not in _BODIED or not words[-1].isdigit():
        return line, None, end
    body_end = end + int(words[-1])
    return (line, text[end:body_end], body_end + 2) if body_end + 2 <= len(text) else None


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
