"""Atomic batches: messages that publishers send one by one and that are stored together.

Pure: callers pass what came and carry out what is returned. Nothing of a batch is in the log
before its commit; a batch that is not committed within ten idle seconds is forgotten.
"""

from typing import NamedTuple

import msgspec

from millstream.streams.config import extras
from millstream.streams.writing import preconditions
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.preconditions import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQ,
    Duplicate,
    PublishRefused,
    StreamFacts,
)
from millstream.subjects.matcher import matcher

MOST_BYTES = 64 * 1024 * 1024  # of all open batches of a stream
LONGEST_ID = 64


class Abandoned(PublishRefused):
    """A message whose whole batch is given up, for a reason that others hear of too."""

    def __init__(self, batch_id: bytes, reason: str, refusal: PublishRefused) -> None:
        super().__init__(refusal.status, refusal.err_code, refusal.message)
        self.batch_id = batch_id
        self.reason = reason


class BatchPart(NamedTuple):
    """One message of a batch."""

    subject: bytes
    headers: bytes
    payload: bytes
    values: dict[bytes, bytes]  # its headers by name


class _OpenAtomicBatch(msgspec.Struct):
    parts: list[BatchPart] = msgspec.field(default_factory=list)
    size: int = 0
    idle_at: int = 0


class Ahead:
    """A stream's facts as they would be behind the messages of a batch so far."""

    def __init__(self, facts: StreamFacts, *, by_pattern: bool = True) -> None:
        self._facts = facts
        self._by_pattern = by_pattern  # whether patterns find messages of the batch
        self._last = facts.last_seq()
        self._subjects: dict[bytes, int] = {}
        self._counts: dict[bytes, int] = {}
        self._ids: set[bytes] = set()

    def add(self, subject: bytes, msg_id: bytes) -> None:
        """Count a message in; raises Duplicate when the batch has its id already."""
        if msg_id in self._ids:
            raise Duplicate(self._last)
        if msg_id:
            self._ids.add(msg_id)
        self._last += 1
        self._subjects[subject] = self._last
        self._counts[subject] = self.count_of(subject) + 1

    def __bool__(self) -> bool:
        return bool(self._subjects)

    def count_of(self, subject: bytes) -> int:
        """Return how many messages of the batch so far have a subject."""
        return self._counts.get(subject, 0)

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
        if not self._by_pattern:
            return self._facts.last_of_subject(pattern)
        match = matcher([pattern.decode("utf-8", "surrogateescape")])
        found = (seq for one, seq in self._subjects.items() if match is None or match(one))
        return max(found, default=0) or self._facts.last_of_subject(pattern)


def check_expectations(values: dict[bytes, bytes], subject: bytes, ahead: Ahead) -> None:
    """Raise where something is expected that earlier messages of the same batch decide."""
    if not ahead:
        return
    if values.get(preconditions.EXPECTED_LAST_SEQ) == b"%d" % ahead.last_seq():
        raise PublishRefused(400, 10164, "wrong last sequence")
    if preconditions.EXPECTED_SUBJECT_SEQ in values and ahead.count_of(
        values.get(preconditions.EXPECTED_SUBJECT) or subject
    ):
        raise PublishRefused(400, 10164, "wrong last sequence")


def check_rollup(values: dict[bytes, bytes], subject: bytes, ahead: Ahead) -> None:
    """Raise where a roll-up would take earlier messages of the same batch along."""
    rollup = values.get(preconditions.ROLLUP, b"").lower()
    if (rollup == b"all" and ahead) or (rollup == b"sub" and ahead.count_of(subject)):
        raise PublishRefused(500, 10111, f"batch rollup {rollup.decode()} invalid")


class AtomicBatches:
    """The batches of one stream that are still open."""

    def __init__(self, limits: BatchLimits | None = None) -> None:
        self._limits = limits or BatchLimits()
        self._open: dict[bytes, _OpenAtomicBatch] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._open)

    def take(self, part: BatchPart, now_ns: int) -> list[BatchPart] | None:
        """Add a message to its batch; returns the whole batch once it is committed."""
        batch_id, position, commit = _read(part.values)
        found = self._find(batch_id, position, commit == b"eob")
        if commit not in (b"", b"1", b"eob"):
            self.forget(batch_id)
            raise PublishRefused(400, 10200, "atomic publish batch commit is invalid")
        part = self._without_level(batch_id, part)
        if position != len(found.parts) + 1 or (position == 1 and commit == b"eob"):
            raise self._abandoned(batch_id, "incomplete", _incomplete())
        if position - (commit == b"eob") > self._limits.most_messages:
            raise self._abandoned(batch_id, "large", self._too_large())
        if commit != b"eob":
            self._keep(batch_id, found, part, now_ns)
        if not commit:
            return None
        whole = self.forget(batch_id)
        return [*whole[:-1], _closing(whole[-1])] if commit == b"eob" else whole

    def _find(self, batch_id: bytes, position: int, is_end: bool) -> _OpenAtomicBatch:
        found = self._open.get(batch_id)
        if found is not None:
            return found
        if position != 1:
            # Like the reference, which counts without a sign: fewer than none are too many.
            if not 0 <= position - is_end <= self._limits.most_messages:
                raise self._too_large()
            raise _incomplete()
        self._limits.atomic.take(len(self._open))
        return self._open.setdefault(batch_id, _OpenAtomicBatch())

    def _without_level(self, batch_id: bytes, part: BatchPart) -> BatchPart:
        if preconditions.LEVEL not in part.values:
            return part
        try:
            return part._replace(headers=preconditions.without_level(part.headers))
        except PublishRefused as error:
            raise self._abandoned(batch_id, "unsupported", error) from None

    def _keep(self, batch_id: bytes, found: _OpenAtomicBatch, part: BatchPart, now_ns: int) -> None:
        size = len(part.subject) + len(part.headers) + len(part.payload)
        if self._size + size > MOST_BYTES:
            self.forget(batch_id)
            raise PublishRefused(429, 10210, "atomic publish too many inflight")
        found.parts.append(part)
        found.size += size
        found.idle_at = now_ns + int(self._limits.idle * 1e9)
        self._size += size

    def _abandoned(self, batch_id: bytes, reason: str, refusal: PublishRefused) -> Abandoned:
        self.forget(batch_id)
        return Abandoned(batch_id, reason, refusal)

    def _too_large(self) -> PublishRefused:
        most = self._limits.most_messages
        return PublishRefused(400, 10199, f"atomic publish batch is too large: {most}")

    def forget(self, batch_id: bytes) -> list[BatchPart]:
        """Close a batch; returns its messages."""
        found = self._open.pop(batch_id, None)
        if found is None:
            return []
        self._limits.atomic.give_back()
        self._size -= found.size
        return found.parts

    def clear(self) -> None:
        """Forget all of them."""
        for batch_id in list(self._open):
            self.forget(batch_id)

    def expire(self, now_ns: int) -> list[bytes]:
        """Forget what nobody went on with; returns which those were."""
        idle = [key for key, one in self._open.items() if one.idle_at <= now_ns]
        for batch_id in idle:
            self.forget(batch_id)
        return idle

    @property
    def idle_at(self) -> int | None:
        """Return when the first of them is to be forgotten, None when none is open."""
        return min((one.idle_at for one in self._open.values()), default=None)


def _closing(part: BatchPart) -> BatchPart:
    """Return the last message of a batch that a marker ended, as one that ends it itself."""
    return part._replace(headers=extras.with_value(part.headers, BATCH_COMMIT, b"1"))


def _incomplete() -> PublishRefused:
    return PublishRefused(400, 10176, "atomic publish batch is incomplete")


def _read(values: dict[bytes, bytes]) -> tuple[bytes, int, bytes]:
    """Return a message's batch, its position there, and its commit header."""
    batch_id = values[BATCH_ID]
    if not 0 < len(batch_id) <= LONGEST_ID:
        raise PublishRefused(400, 10179, "atomic publish batch ID is invalid")
    text = values.get(BATCH_SEQ, b"")
    if not text.isdigit():
        raise PublishRefused(400, 10175, "atomic publish sequence is missing")
    return batch_id, int(text), values.get(BATCH_COMMIT, b"")
