"""Dead letters: where jobs go that were delivered too often, and what is noted on them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from millstream.errors import StreamExists, StreamNotFound
from millstream.message import NewRecord, Record
from millstream.streams.catalog import Catalog
from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.streams.stream import Stream

FROM = "$dead_letter_from"
DELIVERIES = "$dead_letter_deliveries"
SOURCE_SEQ = "$dead_letter_src_seq"
SUBJECT = "$dead_letter_subject"

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


def _object(meta: bytes) -> dict[str, Any]:
    """Return a meta as the object it is; anything else cannot be added to and goes."""
    try:
        # Raw values keep numbers as they were written, but do not check their text.
        return dict(msgspec.json.decode(meta.decode(), type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
