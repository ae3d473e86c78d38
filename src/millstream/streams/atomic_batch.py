"""Atomic batches: messages that publishers send one by one and that are stored together.

Pure: callers pass what came and carry out what is returned. Nothing of a batch is in the log
before its commit; a batch that is not committed within ten idle seconds is forgotten.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.streams.preconditions import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQ,
    Duplicate,
    Facts,
    PublishRefused,
)
from millstream.subjects.matcher import matcher

MOST_MESSAGES = 1000
MOST_OPEN = 50
MOST_BYTES = 64 * 1024 * 1024  # of all open batches of a stream
IDLE_NS = 10 * 10**9
LONGEST_ID = 64


class Part(NamedTuple):
    """One message of a batch."""

    subject: bytes
    headers: bytes
    payload: bytes
    values: dict[bytes, bytes]  # its headers by name


@dataclass(slots=True)
class _Open:
    parts: list[Part] = field(default_factory=list)
    size: int = 0
    idle_at: int = 0


class Ahead:
    """A stream's facts as they would be behind the messages of a batch so far."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._last = facts.last_seq()
        self._subjects: dict[bytes, int] = {}
        self._ids: set[bytes] = set()

    def add(self, subject: bytes, msg_id: bytes) -> None:
        """Count a message in; raises Duplicate when the batch has its id already."""
        if msg_id in self._ids:
            raise Duplicate(self._last)
        if msg_id:
            self._ids.add(msg_id)
        self._last += 1
        self._subjects[subject] = self._last

    def last_seq(self) -> int:
        """Return the newest sequence."""
        return self._last

    def last_msg_id(self) -> bytes:
        """Return the stream's newest message id; batches cannot ask for it."""
        return self._facts.last_msg_id()

    def last_headers(self, subject: bytes) -> bytes | None:
        """Return the headers of a subject's newest record before the batch."""
        return self._facts.last_headers(subject)

    def last_of_subject(self, pattern: bytes) -> int:
        """Return the newest sequence of a subject or pattern."""
        match = matcher([pattern.decode("utf-8", "surrogateescape")])
        found = (seq for one, seq in self._subjects.items() if match is None or match(one))
        return max(found, default=0) or self._facts.last_of_subject(pattern)


class AtomicBatches:
    """The batches of one stream that are still open."""

    def __init__(self) -> None:
        self._open: dict[bytes, _Open] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._open)

    def take(self, part: Part, now_ns: int) -> list[Part] | None:
        """Add a message to its batch; returns the whole batch once it is committed."""
        self.expire(now_ns)
        batch_id, position, commit = _read(part.values)
        found = self._find(batch_id, position, commit == b"eob")
        if commit not in (b"", b"1", b"eob"):
            raise self._refused(batch_id, 10200, "atomic publish batch commit is invalid")
        if position != len(found.parts) + 1 or (position == 1 and commit == b"eob"):
            raise self._refused(batch_id, 10176, "atomic publish batch is incomplete")
        if position - (commit == b"eob") > MOST_MESSAGES:
            raise self._refused(
                batch_id, 10199, f"atomic publish batch is too large: {MOST_MESSAGES}"
            )
        if commit != b"eob":
            self._keep(batch_id, found, part, now_ns)
        return self.forget(batch_id) if commit else None

    def _find(self, batch_id: bytes, position: int, is_end: bool) -> _Open:
        found = self._open.get(batch_id)
        if found is not None:
            return found
        if position != 1:
            if position - is_end > MOST_MESSAGES:
                why = f"atomic publish batch is too large: {MOST_MESSAGES}"
                raise PublishRefused(400, 10199, why)
            raise PublishRefused(400, 10176, "atomic publish batch is incomplete")
        if len(self._open) >= MOST_OPEN:
            raise PublishRefused(429, 10210, "atomic publish too many inflight")
        return self._open.setdefault(batch_id, _Open())

    def _keep(self, batch_id: bytes, found: _Open, part: Part, now_ns: int) -> None:
        size = len(part.subject) + len(part.headers) + len(part.payload)
        if self._size + size > MOST_BYTES:
            self.forget(batch_id)
            raise PublishRefused(429, 10210, "atomic publish too many inflight")
        found.parts.append(part)
        found.size += size
        found.idle_at = now_ns + IDLE_NS
        self._size += size

    def _refused(self, batch_id: bytes, err_code: int, why: str) -> PublishRefused:
        self.forget(batch_id)
        return PublishRefused(400, err_code, why)

    def forget(self, batch_id: bytes) -> list[Part]:
        """Close a batch; returns its messages."""
        found = self._open.pop(batch_id, _Open())
        self._size -= found.size
        return found.parts

    def expire(self, now_ns: int) -> None:
        """Forget what nobody went on with."""
        for batch_id in [key for key, one in self._open.items() if one.idle_at <= now_ns]:
            self.forget(batch_id)


def _read(values: dict[bytes, bytes]) -> tuple[bytes, int, bytes]:
    """Return a message's batch, its position there, and its commit header."""
    batch_id = values[BATCH_ID]
    if not 0 < len(batch_id) <= LONGEST_ID:
        raise PublishRefused(400, 10179, "atomic publish batch ID is invalid")
    text = values.get(BATCH_SEQ, b"")
    if not text.isdigit():
        raise PublishRefused(400, 10175, "atomic publish sequence is missing")
    return batch_id, int(text), values.get(BATCH_COMMIT, b"")
