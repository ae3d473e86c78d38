"""Writing: a batch of records, whole or absent, in one commit, whichever door it came by."""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import BadRequest, Forbidden, StreamExists
from millstream.http.request import Caller
from millstream.kernel._batch import Batch
from millstream.queues.settings import is_queue
from millstream.queues.stored_jobs import READY_AT
from millstream.store.log.log import Durability
from millstream.subjects.matcher import matcher
from millstream.subjects.subject import has_wildcard, is_pattern
from millstream.topics import bodies
from millstream.topics.context import Topics
from millstream.topics.directory import check_capture, check_letters
from millstream.topics.errors import BatchTooLarge, RecordAboveLimit
from millstream.topics.limits.idempotency import Written
from millstream.topics.page import json_text
from millstream.topics.page.performance import Stopwatch

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

MOST_RECORDS = 10_000
LARGEST_RECORD = 1024 * 1024
LARGEST_META = 16 * 1024
MOST_META_KEYS = 64
LONGEST_TAG = 256
LONGEST_NODE = 128
LONGEST_KEY = 256
LONGEST_DELAY_MS = 366 * 86_400_000


class Checked(msgspec.Struct, frozen=True):
    """A write whose every field is within its limits."""

    batch: Batch
    subjects: frozenset[str]  # those that the stream must allow
    key: str | None
    size: int = 0  # data and meta


class Outcome(msgspec.Struct, frozen=True):
    """A write that is done, or was done before."""

    topic: str
    written: Written
    created: bool
    deduped: bool
    performance: dict[str, float]
    near: str | None = None  # a topic that was perhaps meant by one that was just created

    def shown(self) -> dict[str, Any]:
        """Return the members of an answer, all but the sequences one by one."""
        return {
            "topic": self.topic,
            "first_seq": self.written.first_seq,
            "last_seq": self.written.last_seq,
            "head_seq": self.written.head_seq,
            "count": self.written.last_seq - self.written.first_seq + 1,
            "created": self.created,
            "deduped": self.deduped,
            "performance": self.performance,
        }

    def seqs(self) -> list[int]:
        """Return every sequence of the write."""
        return list(range(self.written.first_seq, self.written.last_seq + 1))


async def carry_out(
    body: bodies.WriteBody,
    name: str,
    caller: Caller,
    topics: Topics,
    watch: Stopwatch,
    header_key: bytes | None = None,
    *,
    shares: bool = False,
) -> Outcome:
    """Write what a body says, in the order of checks that both ways in share.

    Where it ``shares``, the commit waits for what others write in the same turn of the loop.
    """
    checked = check_write(body, name, header_key, topics.clock.time_ns() // 1_000_000)
    if not body.disable_backpressure:
        topics.check_pace()
    known = topics.directory.find_or_none(name, caller)
    if body.delay_ms:
        _check_delay(name, known, body)
    near = None if known else topics.directory.one_edit_away(name, caller)
    stream, created = (known, False) if known else await _create(body, name, caller, topics)
    _check_subjects(stream, checked.subjects)
    began, throttle_ms = topics.clock.monotonic(), topics.commit_wait_ms(stream)
    if checked.key is None:
        written, deduped = await _append_now(stream, checked, topics, shares), False
    else:
        written, deduped = await topics.idempotency.once(
            stream.incarnation,
            checked.key,
            stream.config.duplicate_window,
            topics.clock.time_ns,
            partial(_append_now, stream, checked, topics, shares),
        )
    append_ms = round((topics.clock.monotonic() - began) * 1000, 3)
    synced = stream.log.durability is Durability.FSYNC
    performance = watch.performance(
        wal_append_ms=append_ms,
        fsync_ms=max(append_ms, 0.001) if synced else 0.0,
        throttle_wait_ms=throttle_ms,
    )
    return Outcome(name, written, created, deduped, performance, near if created else None)


def check_write(
    body: bodies.WriteBody, topic: str, header_key: bytes | None, now_ms: int = 0
) -> Checked:
    """Check every limit in the documented order and lay the records out for the log."""
    records = body.records
    if not records:
        raise BadRequest("records must hold at least one record")
    if len(records) > MOST_RECORDS:
        raise BatchTooLarge(f"a write holds at most {MOST_RECORDS} records")
    key = body.idempotency_key
    if key is None and header_key is not None:
        key = header_key.decode("utf-8", "replace")
    if key is not None and len(key.encode()) > LONGEST_KEY:
        raise BadRequest(f"an idempotency key holds at most {LONGEST_KEY} bytes")
    default_node = _short(body.node, "node", LONGEST_NODE) if body.node else b""
    batch, subjects, size = Batch(), set(), 0
    own_subject, absent = topic.encode(), bodies.ABSENT
    delay_ms = bodies.unsigned(body.delay_ms, "delay_ms", 0, LONGEST_DELAY_MS)
    for item in records:
        payload = bytes(item.data)
        meta = b"" if item.meta is absent else _meta(bytes(item.meta))
        if delay_ms:
            meta = _delayed(meta, now_ms + delay_ms)
        size += len(payload) + len(meta)
        if len(payload) + len(meta) > LARGEST_RECORD:
            raise RecordAboveLimit(f"data and meta of a record hold at most {LARGEST_RECORD} bytes")
        if len(payload) > json_text.DEEPEST and json_text.too_deep(payload):
            raise BadRequest(f"data may be at most {json_text.DEEPEST} levels deep")
        if payload[:3] == b'{"$':
            payload = json_text.payload_of(payload)
        subject = own_subject
        if item.subject is not None and item.subject != topic:
            subjects.add(item.subject)
            subject = item.subject.encode()
        batch.add(
            subject,
            b"",
            b"",
            payload,
            _short(item.tag, "tag", LONGEST_TAG) if item.tag else b"",
            _short(item.node, "node", LONGEST_NODE) if item.node else default_node,
            meta,
        )
    return Checked(batch, frozenset(subjects), key, size)


def _delayed(meta: bytes, ready_at_ms: int) -> bytes:
    """Return a job's meta with the time from which on it may be claimed."""
    fields = json_text.decode(meta or b"{}", dict[str, msgspec.Raw])
    return msgspec.json.encode({**fields, READY_AT: ready_at_ms})


def _check_delay(name: str, known: "Stream | None", body: bodies.WriteBody) -> None:
    """Refuse to put records off that nobody claims."""
    config = known.config if known is not None else None
    kind = (body.config or {}).get("type", "log")
    if is_queue(config) if config is not None else kind == "queue":
        return
    raise BadRequest(
        f"delay_ms puts jobs off, and {name} is no queue: create it with type queue, or schedule "
        "messages of a stream with `millstream schedule`",
        {"topic": name},
    )


def _short(value: str, name: str, most: int) -> bytes:
    encoded = value.encode()
    if len(encoded) > most:
        raise BadRequest(f"a {name} holds at most {most} bytes")
    return encoded


def _meta(meta: bytes) -> bytes:
    if meta == b"null":
        return b""
    if len(meta) > LARGEST_META:
        raise BadRequest(f"meta holds at most {LARGEST_META} bytes")
    if json_text.too_deep(meta):
        raise BadRequest(f"meta may be at most {json_text.DEEPEST} levels deep")
    if meta[:1] == b"{" and meta.count(b":") > MOST_META_KEYS:
        keys = json_text.decode(meta, dict[str, Any])
        if len(keys) > MOST_META_KEYS:
            raise BadRequest(f"meta holds at most {MOST_META_KEYS} keys")
    return meta


async def _create(
    body: bodies.WriteBody, name: str, caller: Caller, topics: Topics
) -> "tuple[Stream, bool]":
    if not _may_create(body):
        raise topics.directory.absent(name, caller)
    if body.config is not None and "admin" not in caller.scopes:
        raise Forbidden("creating a topic with a config needs the admin scope", {"topic": name})
    check_letters(body.config or {}, name, caller, topics.directory)
    config = topics.defaults.config(name, body.config or {})
    check_capture(config, caller)
    try:
        with topics.topic_limit.reserved(caller.account, name):
            return await topics.unbroken.run(topics.catalog.create(config, caller.account))
    except StreamExists:  # somebody else was first, and their config counts
        return topics.directory.find(name, caller), False


def _may_create(body: bodies.WriteBody) -> bool:
    if body.create is not None:
        return body.create
    wish = (body.config or {}).get("auto_create")
    return True if wish is None else bool(wish)


def _check_subjects(stream: "Stream", subjects: frozenset[str]) -> None:
    """Refuse subjects that the stream would not capture from NATS either."""
    if not subjects:
        return
    allowed = stream.config.subjects
    match = matcher(allowed) if allowed else lambda subject: False
    for subject in subjects:
        legal = is_pattern(subject) and not has_wildcard(subject)
        if not legal or (match is not None and not match(subject.encode())):
            raise BadRequest(
                f"subject {subject!r} is not one that this topic takes",
                {"topic": stream.name, "subjects": list(allowed)},
            )


async def _append_now(stream: "Stream", checked: Checked, topics: Topics, shares: bool) -> Written:
    settle = topics.quota.take(checked.size)
    kept = False
    topics.commits.enter()
    try:
        batch = stream.admission.renamed(checked.batch)
        first, last = await topics.begin_append(stream, batch, shares=shares)
        kept = True
    finally:
        topics.commits.leave()
        settle(kept)
    return Written(first, last, max(last, stream.log.committed_seq))
