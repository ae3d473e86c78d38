"""What a publisher may demand of a write: the duplicate window and the expected-* headers."""

from collections import OrderedDict
from typing import Protocol

import msgspec

from millstream.errors import MillstreamError
from millstream.streams.config import durations, extras
from millstream.streams.config.config import API_LEVEL, StreamConfig
from millstream.streams.schedules import schedules

MSG_ID = b"Nats-Msg-Id"
TTL = b"Nats-TTL"
ROLLUP = b"Nats-Rollup"
INCR = b"Nats-Incr"
BATCH_ID = b"Nats-Batch-Id"
BATCH_SEQ = b"Nats-Batch-Sequence"
BATCH_COMMIT = b"Nats-Batch-Commit"
LEVEL = b"Nats-Required-Api-Level"

EXPECTED_STREAM = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_MSG_ID = b"Nats-Expected-Last-Msg-Id"
EXPECTED_SUBJECT_SEQ = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
STREAM_SOURCE = b"Nats-Stream-Source"
EXPECTATIONS = (
    EXPECTED_STREAM, EXPECTED_LAST_SEQ, EXPECTED_LAST_MSG_ID, EXPECTED_SUBJECT_SEQ,
    EXPECTED_SUBJECT,
)  # fmt: skip


class PublishRefused(MillstreamError):
    """A write that the stream turned away; the pair of codes depends on the reason."""

    http_status = 409
    code = "conflict"

    def __init__(self, status: int, err_code: int, message: str) -> None:
        super().__init__(message)
        self.status = status  # type: ignore[misc]
        self.err_code = err_code  # type: ignore[misc]


class WrongLastSequence(MillstreamError):
    """The publisher expected another last sequence: someone wrote first."""

    status = 400
    err_code = 10071
    http_status = 409
    code = "conflict"

    def __init__(self, last: int) -> None:
        super().__init__(f"wrong last sequence: {last}")
        self.last = last


class Duplicate(Exception):
    """The message id was stored before, as ``seq``."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


class DuplicateWindow:
    """Message ids of the last ``window_ns``, oldest first."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self._ids: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """Return the sequence stored under this id within the window, 0 when there is none."""
        self.expire(now_ns)
        return self._ids.get(msg_id, (0, 0))[0]

    def add(self, msg_id: bytes, seq: int, ts_ns: int) -> None:
        """Remember an id; the newest record of an id wins."""
        if self.window_ns > 0:
            self._ids[msg_id] = (seq, ts_ns)
            self._ids.move_to_end(msg_id)

    def forget(self, msg_id: bytes, seq: int) -> None:
        """Forget an id whose record never came to be."""
        if self._ids.get(msg_id, (0, 0))[0] == seq:
            del self._ids[msg_id]

    def expire(self, now_ns: int) -> None:
        """Drop what has left the window."""
        oldest_kept = now_ns - self.window_ns
        while self._ids:
            msg_id, (_, ts_ns) = next(iter(self._ids.items()))
            if ts_ns >= oldest_kept:
                return
            del self._ids[msg_id]

    def clear(self) -> None:
        """Forget everything."""
        self._ids.clear()


class StreamFacts(Protocol):
    """What the checks may ask about the stream, staged writes included."""

    def last_seq(self) -> int:
        """Return the newest sequence given out."""
        ...

    def last_msg_id(self) -> bytes:
        """Return the message id of the newest write, empty when it had none."""
        ...

    def last_of_subject(self, pattern: bytes) -> int:
        """Return the newest sequence of a subject or pattern, 0 when there is none."""
        ...

    def last_headers(self, subject: bytes) -> bytes | None:
        """Return the headers of a subject's newest record, None when there is none."""
        ...


def check(
    config: StreamConfig,
    subject: bytes,
    headers: dict[bytes, bytes],
    facts: StreamFacts,
    window: DuplicateWindow,
    now_ns: int,
) -> None:
    """Raise when a header demands what does not hold; Duplicate when the id was seen before."""
    if BATCH_ID in headers and not config.allow_atomic:
        raise PublishRefused(400, 10174, "atomic publish is disabled")
    if headers.get(EXPECTED_STREAM, config.name.encode()) != config.name.encode():
        raise PublishRefused(400, 10060, "expected stream does not match")
    if TTL in headers and not config.allow_msg_ttl and durations.lifetime(headers[TTL]) is not None:
        raise PublishRefused(400, 10166, "per-message TTL is disabled")
    _check_subject_sequence(subject, headers, facts)
    if EXPECTED_LAST_SEQ in headers and _number(headers[EXPECTED_LAST_SEQ]) != facts.last_seq():
        raise WrongLastSequence(facts.last_seq())
    schedules.check(config, subject, headers, facts, now_ns)
    if STREAM_SOURCE in headers:
        raise PublishRefused(400, 10227, "message stream source header is not allowed")
    if MSG_ID in headers and (seq := window.find(headers[MSG_ID], now_ns)):
        raise Duplicate(seq)
    wanted = headers.get(EXPECTED_LAST_MSG_ID)
    if wanted is not None and wanted != facts.last_msg_id():
        raise PublishRefused(400, 10070, f"wrong last msg ID: {extras_text(facts.last_msg_id())}")
    _check_rollup(config, headers)


def _check_subject_sequence(
    subject: bytes, headers: dict[bytes, bytes], facts: StreamFacts
) -> None:
    if EXPECTED_SUBJECT_SEQ not in headers:
        if EXPECTED_SUBJECT in headers:
            raise PublishRefused(
                400, 10193, "missing sequence for expected last sequence per subject"
            )
        return
    last = facts.last_of_subject(headers.get(EXPECTED_SUBJECT) or subject)
    if _number(headers[EXPECTED_SUBJECT_SEQ]) != last:
        raise WrongLastSequence(last)


def _check_rollup(config: StreamConfig, headers: dict[bytes, bytes]) -> None:
    if ROLLUP not in headers:
        return
    if not config.allow_rollup_hdrs or config.deny_purge:
        raise PublishRefused(500, 10111, "rollup not permitted")
    if headers[ROLLUP].lower() not in (b"sub", b"all"):
        quoted = msgspec.json.encode(extras_text(headers[ROLLUP])).decode()
        raise PublishRefused(500, 10111, f"rollup value invalid: {quoted}")


def _number(text: bytes) -> int:
    """Read a sequence; text that is none matches no sequence."""
    return int(text) if text.isdigit() else -1


def extras_text(value: bytes) -> str:
    """Return header bytes as text for an error message."""
    return value.decode("utf-8", "replace")


def ttl_seconds(text: bytes) -> float:
    """Return a ``Nats-TTL`` in whole seconds, 0 for ``never``; raise when it is no valid one."""
    seconds = durations.lifetime(text)
    if seconds is None:
        raise PublishRefused(400, 10165, "invalid per-message TTL")
    return float(seconds)


def without_level(headers: bytes) -> bytes:
    """Return a header block without the API level that it asks for; raises where we lack that."""
    asked = extras.first_values(headers).get(LEVEL)
    if asked is None:
        return headers
    if asked and (not asked.isdigit() or int(asked) > API_LEVEL):
        raise PublishRefused(412, 10185, "JetStream minimum api level required")
    return extras.without(headers, LEVEL)
