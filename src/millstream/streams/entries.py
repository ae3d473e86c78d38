"""StreamEntries: which streams there are, as control frames and the snapshot hold it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.errors import MillstreamError
from millstream.store.log.log import Committed, Log
from millstream.store.recovery.recovery import Control
from millstream.streams.config.config import StreamConfig
from millstream.streams.ephemeral_heads import KeptHead
from millstream.streams.retention.departures import settle

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

STREAM_SET = 16
STREAM_GONE = 17


class EntryStore(Protocol):
    """What entries ask of the store."""

    def log(self, log_id: int) -> Log | None:
        """Return a log that exists."""
        ...

    def drop_log(self, log_id: int) -> None:
        """Delete a log and its records."""
        ...

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


class StreamEntry(msgspec.Struct, frozen=True):
    """One stream as control frames and the snapshot hold it."""

    account: str
    name: str
    id: int
    created_ns: int
    config: dict[str, Any]

    @classmethod
    def of(cls, stream: "Stream", config: StreamConfig | None = None) -> "StreamEntry":
        """Return the entry of a stream, with another configuration where one is given."""
        shown = msgspec.to_builtins(config or stream.config)
        return cls(stream.account, stream.name, stream.incarnation, stream.created_ns, shown)


class CatalogSection(msgspec.Struct, frozen=True):
    """The catalog in a snapshot."""

    next_id: int
    streams: list[msgspec.Raw]  # of a ``StreamEntry`` each: all at once would fill the memory
    sources: list[msgspec.Raw] = []
    heads: dict[int, KeptHead] = {}  # of streams in memory alone


class _EntryId(msgspec.Struct, frozen=True):
    id: int


class StreamEntries:
    """Gives out ids and writes entries. An id is never given out again."""

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._next_id = 1

    def make(self, config: StreamConfig, account: str, created_ns: int) -> StreamEntry:
        """Return the entry of a new stream."""
        taken, self._next_id = self._next_id, self._next_id + 1
        return StreamEntry(account, config.name, taken, created_ns, msgspec.to_builtins(config))

    async def write(self, kind: int, entry: StreamEntry) -> None:
        """Write an entry; returns once it is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.control(kind, entry.id, msgspec.json.encode(entry), partial(settle, done))
        await done

    def drop(self, entry: StreamEntry) -> None:
        """Write that a stream is gone that nobody waits for, and delete its log."""
        body = msgspec.json.encode(entry)
        self._store.control(STREAM_GONE, entry.id, body, _log_failure)
        self._store.drop_log(entry.id)

    def replay(self, saved: CatalogSection, controls: Iterable[Control]) -> Iterator[StreamEntry]:
        """Go through the streams that there are by the snapshot and the control frames after it.

        Applying a frame twice changes nothing: entries are keyed by the incarnation.
        """
        self._next_id = max(self._next_id, saved.next_id)
        decode_id = msgspec.json.Decoder(_EntryId).decode
        entries = {decode_id(body).id: body for body in saved.streams}
        for control in controls:
            if control.kind not in (STREAM_SET, STREAM_GONE):
                continue
            entry = msgspec.json.decode(control.body, type=StreamEntry)
            self._next_id = max(self._next_id, entry.id + 1)
            if control.kind == STREAM_SET:
                entries[entry.id] = msgspec.Raw(control.body)
            else:
                entries.pop(entry.id, None)
                if self._store.log(entry.id) is not None:
                    self._store.drop_log(entry.id)
        decode = msgspec.json.Decoder(StreamEntry).decode
        return (decode(entries[log_id]) for log_id in sorted(entries))

    def section(
        self, streams: "list[Stream]", sources: list[msgspec.Raw], heads: dict[int, KeptHead]
    ) -> Callable[[], bytes]:
        """Return who encodes the catalog as a snapshot holds it, on any thread.

        A stream that changes meanwhile may be there as it is then: the WAL says so too.
        """
        return partial(_encoded, self._next_id, streams, sources, heads)


def _encoded(
    next_id: int,
    streams: "list[Stream]",
    sources: list[msgspec.Raw],
    heads: dict[int, KeptHead],
) -> bytes:
    # One by one: no other thread runs while a single call encodes.
    entries = [msgspec.Raw(msgspec.json.encode(StreamEntry.of(each))) for each in streams]
    return msgspec.json.encode(CatalogSection(next_id, entries, sources, heads))


def decode_section(section: bytes | None) -> CatalogSection:
    """Return a snapshot's section; an empty catalog where there is none."""
    if not section:
        return CatalogSection(1, [])
    return msgspec.json.decode(section, type=CatalogSection)


def _log_failure(error: MillstreamError | None) -> None:
    if error is not None:
        log.warning("removal of an unfinished restore not written error=%s", error)
