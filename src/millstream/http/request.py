"""Request: one HTTP request as a value, whatever protocol version carried it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol
from urllib.parse import parse_qsl

import msgspec

Headers = list[tuple[bytes, bytes]]
Sees = Callable[[bytes], bool]  # subject → whether its records may be read


class Standing(msgspec.Struct):
    """Whether a credential still counts; answers that go on for long look at it as they go."""

    revoked: bool = False


EVERY_SCOPE = frozenset(("read", "write", "delete", "admin"))
BUCKETS = (("$KV.", "KV_"), ("$O.", "OBJ_"))  # subjects of a bucket → the name of its stream


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking, once an authorizer has looked: an account and the names it may touch."""

    account: str = "$G"
    prefixes: tuple[str, ...] = ()  # empty = any name
    key: str = ""  # an opaque id of the credential, never the credential
    scopes: frozenset[str] = EVERY_SCOPE
    covers: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)
    standing: Standing = field(default_factory=Standing, compare=False, repr=False)
    narrowed: "Callable[[str, str], Caller] | None" = field(
        default=None, compare=False, repr=False
    )  # (scope, topic) → this caller as it is judged for that; None: scopes say it all
    sees: Callable[[str], Sees | None] | None = field(default=None, compare=False, repr=False)
    hears: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)
    says: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)
    is_unlimited: bool = False  # a user whom nothing is denied

    @property
    def revoked(self) -> bool:
        """Return whether the credential was taken back since the request came in."""
        return self.standing.revoked

    @property
    def sees_server(self) -> bool:
        """Return whether the caller may know of every account and stream."""
        if self.covers is not None:
            return "server" in self.scopes
        return not self.prefixes and self.account == "$G"

    def asking_for(self, scope: str, topic: str) -> "Caller":
        """Return the caller as it is judged for another operation than its request was."""
        return self if self.narrowed is None else self.narrowed(scope, topic)

    def sight_of(self, name: str) -> Sees | None:
        """Return which subjects of a topic the caller may read, None for all."""
        return None if self.sees is None else self.sees(name)

    def may_touch(self, name: str) -> bool:
        """Return whether the allow-list, or what is in its place, covers a topic's name."""
        if self.covers is not None and not self.covers(name):
            return False
        return not self.prefixes or name.startswith(self.prefixes)

    def may_capture(self, subject: str) -> bool:
        """Return whether a topic of the caller may take what is published to a subject."""
        if self.hears is not None and not self.hears(subject):
            return False
        return not self.prefixes or _fixed_part(subject).startswith(self.prefixes)

    def may_publish(self, subject: str) -> bool:
        """Return whether the caller may send a message to a subject.

        The server's own subjects begin with ``$``: they can do what every scope can, so a key needs
        all of them, and a user must be one whom nothing is denied. Who is behind such a request is
        not known where it is answered. Those of a bucket belong to the bucket's stream.
        """
        is_own = subject.startswith("$") and not subject.startswith(("$KV.", "$O."))
        if self.says is not None:
            return self.says(subject) and (self.is_unlimited or not is_own)
        for sign, stream in BUCKETS:
            bucket = subject.removeprefix(sign).partition(".")[0]
            if subject.startswith(sign) and self.prefixes:
                return self.may_touch(stream + bucket)
        if is_own or subject.startswith("_INBOX."):
            return not self.prefixes and self.scopes >= EVERY_SCOPE
        return not self.prefixes or subject.startswith(self.prefixes)


def _fixed_part(subject: str) -> str:
    """Return what everything begins with that a subject stands for."""
    tokens = subject.split(".")
    fixed = list(takewhile(lambda token: token not in ("*", ">"), tokens))
    return subject if len(fixed) == len(tokens) else "".join(f"{token}." for token in fixed)


ANYONE = Caller()
MOST_BODY = 64 * 1024 * 1024
FLAGS = {"true": True, "1": True, "false": False, "0": False}


class AnswerRoom(Protocol):
    """What the client holds unread, and may."""

    @property
    def is_full(self) -> bool:
        """Say whether no further answer is to be made for now."""
        ...

    async def room(self) -> None:
        """Wait until one may be made."""
        ...


class Request(msgspec.Struct):
    """A whole request; ``path`` is still percent-encoded, ``params`` are decoded by the routes."""

    method: str
    path: str
    query_string: str = ""
    headers: Headers = msgspec.field(default_factory=list)  # names in lower case
    body: bytes = b""
    keep_alive: bool = True
    version: str = "1.1"
    params: dict[str, str] = msgspec.field(default_factory=dict)
    caller: Caller = ANYONE
    peer: str = ""  # the client's address
    most_body: int = MOST_BODY  # bytes that the door takes; they hold for it unpacked too
    room: AnswerRoom | None = None  # asked anew by who makes an answer only after a long wait
    warnings: tuple[str, ...] = ()  # what was ignored, for the answer to say
    _query: dict[str, str] | None = None
    _named: dict[bytes, bytes] | None = None  # the headers by their names

    def again(self) -> "Request":
        """Return the same request as it was before anybody looked at it, without its body."""
        return Request(
            self.method,
            self.path,
            self.query_string,
            self.headers,
            b"",
            self.keep_alive,
            self.version,
            _query=self.query,
            _named=self._by_name(),
        )

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a header, by its lower-case name."""
        return (self._named or self._by_name()).get(name)

    def _by_name(self) -> dict[bytes, bytes]:
        if self._named is None:
            self._named = dict(reversed(self.headers))  # the first of a repeated name counts
        return self._named

    @property
    def query(self) -> dict[str, str]:
        """Return the query's parameters; the first of a repeated name counts."""
        if self._query is None:
            pairs = (
                parse_qsl(self.query_string, keep_blank_values=True) if self.query_string else ()
            )
            self._query = {}
            for key, value in pairs:
                self._query.setdefault(key, value)
        return self._query

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean of the query: ``true``/``1``, ``false``/``0``, else the default."""
        return FLAGS.get(self.query.get(name, ""), default)
