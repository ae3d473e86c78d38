"""RecordKey: what of a record says which others it must not overtake."""

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from millstream.wire.headers import MalformedHeaders, header

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames

KEY = "millstream.key"  # in the metadata of a consumer or queue
LONGEST_KEY = 64  # bytes; a longer key is kept as its digest, so that memory stays bounded
LONGEST_NAME = 128
HOW = "token:N (the N-th token of the subject), header:NAME, tag, or tag:NAME"
_NAME = re.compile(r"[!-9;-~]+")  # what a header field may be called


class RecordKey(msgspec.Struct, frozen=True):
    """Where a record's key is found: a token of its subject, a header field, or its tag."""

    kind: str
    name: str = ""
    token: int = 0

    @classmethod
    def read(cls, text: str) -> "RecordKey":
        """Read ``token:2``, ``header:Order-Id``, ``tag`` or ``tag:customer``; raises ValueError."""
        kind, colon, name = text.partition(":")
        if kind == "token" and name.isascii() and name.isdigit() and 1 <= int(name[:4]) <= 999:
            return cls("token", token=int(name[:4]))
        if text == "tag":
            return cls("tag")
        named = colon and len(name) <= LONGEST_NAME and _NAME.fullmatch(name)
        if kind in ("header", "tag") and named:
            return cls(kind, name)
        raise ValueError(f"a key is {HOW}, not {text!r}")

    @property
    def text(self) -> str:
        """Return it as it is written in metadata."""
        name = self.name or (str(self.token) if self.token else "")
        return f"{self.kind}:{name}" if name else self.kind

    def of(self, subject: bytes, headers: bytes, tag: bytes) -> bytes:
        """Return a record's key, empty when it has none: nothing then waits for it."""
        if self.kind == "token":
            tokens = subject.split(b".", self.token)
            key = tokens[self.token - 1] if len(tokens) >= self.token else b""
        elif self.kind == "header":
            key = _field(headers, self.name.encode())
        else:
            key = _tagged(tag, self.name.encode()) if self.name else tag
        return key if len(key) <= LONGEST_KEY else b"#" + blake2b(key, digest_size=16).digest()

    def of_frame(self, frames: "Frames", at: int) -> bytes:
        """Return the key of one of the frames."""
        _, _, subject, _, headers, tag, *_ = frames.record(at)
        return self.of(subject, headers, tag)


def shown_key(key: bytes) -> str:
    """Return a key for people; of a long one only the digest is known."""
    if key.startswith(b"#") and len(key) == 17:
        return f"#{key[1:].hex()}"
    return key.decode("utf-8", "replace")


def _field(headers: bytes, name: bytes) -> bytes:
    try:
        return header(headers, name) or b""
    except MalformedHeaders:
        return b""


def _tagged(tag: bytes, name: bytes) -> bytes:
    """Return the value of NAME in a tag such as ``customer=7,region=eu`` or ``customer:7``."""
    for pair in re.split(rb"[,; ]+", tag):
        found = re.fullmatch(re.escape(name) + rb"[=:](.+)", pair, re.DOTALL)
        if found:
            return found[1]
    return b""
