"""Browsing: messages of any stream, newest or oldest first, without taking any of them."""

import asyncio
import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.streams.reading.cold_reads import once_here
from millstream.topics.page.rendering import Fields
from millstream.topics.page.search import Search
from millstream.wire.headers import MalformedHeaders, parse_headers

if TYPE_CHECKING:
    from millstream.streams.reading.subject_index import Selection
    from millstream.streams.stream import Stream

BLOCK = 128  # records that are looked at before everybody else has had a turn
BLOCK_BYTES = 4 * 1024 * 1024
MOST_ANSWER = 8 * 1024 * 1024  # bytes of payloads in one answer


class BrowseQuery(msgspec.Struct, frozen=True):
    """One look: from a sequence on, in either direction, within a time and within a search."""

    search: Search
    from_seq: int = 0  # 0: from the end that the order begins with
    newest_first: bool = True
    limit: int = 50
    most_scanned: int = 20_000
    preview_bytes: int = 16_384
    since_ns: int | None = None
    until_ns: int | None = None
    last_per_subject: bool = False


class FoundMessages(msgspec.Struct):
    """What a look found, and where the next one goes on (0: there is no more)."""

    records: list[Fields] = msgspec.field(default_factory=list)
    next_seq: int = 0
    scanned: int = 0


class Browsing:
    """A look under way; it gives the loop back after each block."""

    def __init__(self, stream: "Stream", query: BrowseQuery) -> None:
        self._stream = stream
        self._query = query
        self._test = query.search.test()
        self._chosen: Selection | None = None
        if query.search.subject is not None:
            self._chosen = stream.index.select([query.search.subject])
        state = stream.state()
        self._low, self._high = state.first_seq, state.last_seq
        if query.since_ns is not None:
            self._low = max(self._low, stream.log.seek_time(query.since_ns))
        if query.until_ns is not None:
            self._high = min(self._high, stream.log.seek_time(query.until_ns) - 1)
        if query.from_seq and query.newest_first:
            self._high = min(self._high, query.from_seq)
        elif query.from_seq:
            self._low = max(self._low, query.from_seq)
        self._used = 0
        self.found = FoundMessages()

    async def run(self) -> FoundMessages:
        """Look until there are enough, or nothing is left, or this look took long enough."""
        found, query = self.found, self._query
        while self._low <= self._high and not self._stream.is_closed:
            if len(found.records) >= query.limit or self._used >= MOST_ANSWER:
                break
            if found.scanned >= query.most_scanned:
                break
            await once_here(self._step)
            await asyncio.sleep(0)
        if self._low <= self._high:
            found.next_seq = self._high if query.newest_first else self._low
        return found

    def _step(self) -> None:
        if self._query.last_per_subject:
            self._last_of_each()
        elif self._query.newest_first:
            self._down()
        else:
            self._up()

    def _down(self) -> None:
        """Look at the block below where we stand."""
        if self._chosen is not None:
            seq = self._stream.index.last_seq(self._chosen, self._high)
            if seq < self._low or not seq:
                self._high = self._low - 1
                return
            self._high = seq
            block = list(self._stream.index.read(self._chosen, seq, 1, BLOCK_BYTES))
            self._take(iter(block), seq - 1)
            return
        start = max(self._low, self._high - self._block() + 1)
        block = self._between(start, self._high)
        self._take(reversed(block), start - 1)

    def _block(self) -> int:
        """Return how many records to look at in one go."""
        return max(1, min(BLOCK, self._query.most_scanned - self.found.scanned))

    def _between(self, start: int, stop: int) -> list[Fields]:
        """Return all records of a short range, however large they are."""
        block: list[Fields] = []
        while start <= stop:
            frames = self._stream.read(start, stop - start + 1, BLOCK_BYTES)
            got = [record for record in frames if record[0] <= stop]
            if not got:
                break
            block += got
            start = got[-1][0] + 1
        return block

    def _up(self) -> None:
        index, chosen = self._stream.index, self._chosen
        if chosen is not None:
            frames = index.read(chosen, self._low, self._block(), BLOCK_BYTES)
        else:
            frames = self._stream.read(self._low, self._block(), BLOCK_BYTES)
        block = [record for record in frames if record[0] <= self._high]
        if not block:
            self._low = self._high + 1
            return
        self._take(iter(block), block[-1][0] + 1)

    def _last_of_each(self) -> None:
        """Look at the newest record of each subject, which the index knows."""
        index = self._stream.index
        chosen = self._chosen or index.select([">"])
        seqs = [s for s in index.last_seqs(chosen, self._high) if s >= self._low]
        wanted = seqs[::-1] if self._query.newest_first else seqs
        if not wanted:
            self._low = self._high + 1
            return
        block = wanted[:BLOCK]
        records = [record for seq in block for record in self._stream.read(seq, 1, BLOCK_BYTES)]
        after = block[-1] - 1 if self._query.newest_first else block[-1] + 1
        if len(wanted) == len(block):
            after = self._low - 1 if self._query.newest_first else self._high + 1
        self._take(iter(records), after)

    def _take(self, records: Iterator[Fields], after: int) -> None:
        """Keep what matches; stand behind the last record looked at, or at ``after``."""
        found, query, test = self.found, self._query, self._test
        for record in records:
            full = len(found.records) >= query.limit or self._used >= MOST_ANSWER
            if full:
                self._stand(record[0])
                return
            found.scanned += 1
            if test is None or test(record):
                found.records.append(record)
                self._used += min(len(record[3]), query.preview_bytes)
        self._stand(after)

    def _stand(self, seq: int) -> None:
        if self._query.newest_first:
            self._high = seq
        else:
            self._low = seq


def shown_message(record: Fields, topic: bytes, preview: int) -> dict[str, Any]:
    """Return a message with all that it carries; a payload is cut at ``preview`` bytes."""
    seq, ts_ns, subject, payload, headers, tag, node, meta = record
    shown: dict[str, Any] = {
        "seq": seq,
        "ts": ts_ns // 1_000_000,
        "subject": (subject or topic).decode("utf-8", "replace"),
        "size": len(payload),
    }
    if headers:
        shown["headers"] = header_pairs(headers)
    for name, value in (("tag", tag), ("node", node), ("meta", meta)):
        if value:
            shown[name] = value.decode("utf-8", "replace")
    cut = payload[:preview]
    shown |= shown_payload(cut)
    if len(cut) < len(payload):
        shown["cut"] = True
    return shown


def header_pairs(block: bytes) -> list[list[str]]:
    """Return a header block as names and values, in order."""
    try:
        fields = parse_headers(block)
    except MalformedHeaders:
        return []
    return [[n.decode("utf-8", "replace"), v.decode("utf-8", "replace")] for n, v in fields]


def shown_payload(payload: bytes) -> dict[str, str]:
    """Return bytes as text where they are some, else in base64."""
    for trim in range(4 if len(payload) > 3 else 1):  # a cut may have parted a character
        try:
            return {"text": payload[: len(payload) - trim].decode()}
        except UnicodeDecodeError as error:
            if error.start < len(payload) - 4:
                break
    return {"base64": base64.b64encode(payload).decode()}
