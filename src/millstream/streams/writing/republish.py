"""Republish: committed records go out once more, under another subject, with where they are kept.

Subscribers see the record's own headers followed by ``Nats-Stream``, ``Nats-Subject``,
``Nats-Sequence``, ``Nats-Time-Stamp`` and ``Nats-Last-Sequence`` (the sequence before it of the
same subject, 0 when it is the first), so that they notice what they missed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from millstream.streams.config.extras import VERSION
from millstream.streams.config.feature_rules import transform_of
from millstream.streams.config.times import rfc3339
from millstream.subjects.subject import has_wildcard, is_pattern
from millstream.subjects.transform import SubjectTransform
from millstream.wire.headers import PLACE_FIELDS, without

SIZE = b"Nats-Msg-Size"


class RepublishedCopy(NamedTuple):
    """A message to publish."""

    subject: bytes
    headers: bytes
    payload: bytes


class Republish:
    """Decides what is published for a committed record."""

    def __init__(self, stream: str, transform: SubjectTransform, headers_only: bool) -> None:
        self._stream = stream.encode()
        self._transform = transform
        self._headers_only = headers_only

    @classmethod
    def of(cls, stream: str, asked: Mapping[str, Any] | None) -> "Republish | None":
        """Return what a stream's configuration asks for."""
        transform = transform_of(asked)
        if asked is None or transform is None:
            return None
        return cls(stream, transform, bool(asked.get("headers_only")))

    def wants(self, subject: bytes) -> bool:
        """Whether records of this subject go out once more."""
        return self._transform.matches(subject.decode("utf-8", "surrogateescape"))

    def copy(
        self, seq: int, ts_ns: int, subject: bytes, payload: bytes, headers: bytes, previous: int
    ) -> RepublishedCopy | None:
        """Return what to publish for a record; None when no subject could carry it."""
        target = self._transform.apply(subject.decode("utf-8", "surrogateescape"))
        if not is_pattern(target) or has_wildcard(target):
            return None
        lines = [
            (b"Nats-Stream", self._stream),
            (b"Nats-Subject", subject),
            (b"Nats-Sequence", b"%d" % seq),
            (b"Nats-Time-Stamp", rfc3339(ts_ns).encode()),
            (b"Nats-Last-Sequence", b"%d" % previous),
        ]
        if self._headers_only:
            lines.append((SIZE, b"%d" % len(payload)))
        named = {name.lower() for name, _ in lines} | PLACE_FIELDS
        block = (without(headers, named).removesuffix(b"\r\n") or VERSION) + b"".join(
            b"%s: %s\r\n" % line for line in lines
        )
        body = b"" if self._headers_only else payload
        return RepublishedCopy(target.encode("utf-8", "surrogateescape"), block + b"\r\n", body)
