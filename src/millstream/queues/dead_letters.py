"""Dead letters: where jobs and records go that were given up, and what is noted on them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.errors import BadRequest, StreamExists, StreamNotFound
from millstream.message import NewRecord, Record
from millstream.streams.catalog import Catalog
from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.streams.stream import Stream
from millstream.wire.headers import encode_headers, without

if TYPE_CHECKING:
    from millstream.consumers.letters.letter_box import Letter

FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SOURCE_SEQ = "$dead_letter_src_seq"
SUBJECT = "$dead_letter_subject"
CONSUMER = "$dead_letter_consumer"
REASON = "$dead_letter_reason"
_HEADER = b"Millstream-Dead-Letter-"
_MOST_HEADERS = 65_000  # a record's headers have 16 bits for their length
_LONGEST_REASON = 512
_EMPTY = b"NATS/1.0\r\n\r\n"

# (account, topic) → room for a topic while it is made; raises where there is none
Reserved = Callable[[str, str], AbstractContextManager[None]]


class DeadLetters:
    """Copies jobs to their dead-letter topic, which is created when it is first needed."""

    def __init__(
        self, catalog: Catalog, reserved: Reserved, defaults: TopicDefaults | None = None
    ) -> None:
        self._catalog = catalog
        self._defaults = defaults or TopicDefaults()
        self._reserved = reserved

    async def bury(self, queue: Stream, topic: str, record: Record, max_deliveries: int) -> None:
        """Store a copy of the job; returns once the topic's durability class holds for it."""
        destination = await self._destination(topic, queue.account)
        await destination.append([copy_of(record, queue.name, max_deliveries)])

    async def bury_for(self, origin: Stream, to: str, letter: "Letter") -> None:
        """Store a copy of a consumer's record in a stream, a topic, or under a stream's subject."""
        copy = letter_of(letter, origin.name)
        captured = self._capturing(to, origin.account)
        if captured is None:
            captured = await self._destination(to, origin.account)
        else:
            copy = msgspec.structs.replace(copy, subject=to.encode())
        if captured is origin:
            raise BadRequest(f"{to} leads back into {origin.name}: dead letters go elsewhere")
        await captured.append([copy])

    def _capturing(self, subject: str, account: str) -> Stream | None:
        """Return the stream that captures a subject, where no stream goes by that name."""
        if self._catalog.find(subject, account) is not None:
            return None
        found = self._catalog.table.capturing(account, subject)
        return found[0] if found else None

    async def _destination(self, topic: str, account: str) -> Stream:
        try:
            return self._catalog.get(topic, account)
        except StreamNotFound:
            pass
        try:
            with self._reserved(account, topic):
                return (await self._catalog.create(self._defaults.config(topic, {}), account))[0]
        except StreamExists:  # somebody else created it while we were looking
            return self._catalog.get(topic, account)


def copy_of(record: Record, queue: str, max_deliveries: int) -> NewRecord:
    """Return the job as its dead-letter topic keeps it: all of it, and where it came from."""
    meta = _object(record.meta)
    meta[FROM] = queue
    meta[DELIVERIES] = str(max_deliveries)
    meta[SOURCE_SEQ] = str(record.seq)
    if record.subject != queue.encode():
        meta[SUBJECT] = record.subject.decode("utf-8", "replace")
    return NewRecord(
        b"", record.payload, record.headers, record.tag, record.node, msgspec.json.encode(meta)
    )


def letter_of(letter: "Letter", stream: str) -> NewRecord:
    """Return a record as its dead-letter stream keeps it: all of it, whose it was, and why.

    NATS clients read that from the headers, HTTP clients from the meta.
    """
    record = letter.record
    reason = " ".join(letter.reason.split())[:_LONGEST_REASON]
    meta = _object(record.meta)
    meta[FROM] = stream
    meta[CONSUMER] = letter.consumer
    meta[REASON] = reason
    meta[DELIVERIES] = str(letter.deliveries)
    meta[SOURCE_SEQ] = str(record.seq)
    meta[SUBJECT] = record.subject.decode("utf-8", "replace")
    told = {
        b"Reason": reason.encode(),
        b"Deliveries": b"%d" % letter.deliveries,
        b"Stream": stream.encode(),
        b"Seq": b"%d" % record.seq,
        b"Consumer": letter.consumer.encode(),
        b"Subject": record.subject,
    }
    headers = _with_fields(without_marks(record.headers), told)
    shown = msgspec.json.encode(meta)
    return NewRecord(b"", record.payload, headers, record.tag, record.node, shown)


def without_marks(headers: bytes) -> bytes:
    """Return headers without what a dead letter adds to them."""
    if _HEADER.lower() not in headers.lower():
        return headers
    marks = ("reason", "deliveries", "stream", "seq", "consumer", "subject")
    left = without(headers, {_HEADER.lower() + mark.encode() for mark in marks})
    return b"" if left == _EMPTY else left


def _with_fields(headers: bytes, told: dict[bytes, bytes]) -> bytes:
    """Return headers with the fields of a letter, unless they would become too long."""
    fields = encode_headers((_HEADER + name, value) for name, value in told.items())
    if not headers:
        return fields
    added = fields.partition(b"\r\n")[2]
    return headers if len(headers) + len(added) > _MOST_HEADERS else headers[:-2] + added


def _object(meta: bytes) -> dict[str, Any]:
    """Return a meta as the object it is; anything else cannot be added to and goes."""
    try:
        # Raw values keep numbers as they were written, but do not check their text.
        return dict(msgspec.json.decode(meta.decode(), type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
