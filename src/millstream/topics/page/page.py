"""Page: one read of a topic, as diff, tail and watch all make it."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.errors import NotHere
from millstream.store.log.log import Durability
from millstream.streams.reading.cold_reads import once_here
from millstream.streams.state import StreamState
from millstream.subjects.matcher import matcher
from millstream.topics.page.current_state import current_state
from millstream.topics.page.rendering import Fields, Renderer
from millstream.topics.page.tombstone import Tombstone, start_reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.streams.stream import Stream

MOST_RECORDS = 1000
MOST_BYTES = 8 * 1024 * 1024
READ_AHEAD = 256  # records looked at in one go by a reader that passes over some
MOST_PASSED_OVER = 2048  # before everybody else has had a turn: that takes about a millisecond


class Filter(msgspec.Struct, frozen=True):
    """What a reader wants to see; None and empty mean everything."""

    tag: bytes | None = None
    tag_prefix: bytes | None = None
    node: bytes | None = None
    subject: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None


class Query(msgspec.Struct, frozen=True):
    """One read: everything after ``from_seq`` within the limits."""

    from_seq: int = 0
    limit: int = 256
    max_bytes: int = 1024 * 1024
    without_nodes: frozenset[bytes] = frozenset()
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    filter: Filter | None = None
    is_strong: bool = False  # shows only what is on stable storage


class Page(msgspec.Struct):
    """What a read found; ``next_from_seq`` is the last sequence that was looked at."""

    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    records: bytes = b""  # JSON objects with commas between them
    count: int = 0
    scanned: int = 0
    start: int = 0  # behind which it was read

    @property
    def caught_up(self) -> bool:
        """Return whether the reader has seen everything there is."""
        return self.next_from_seq == self.head_seq

    @property
    def after_loss(self) -> int:
        """Return where a reader stands that was told of the loss, and has none of the records.

        That is its end, but for a topic that was made anew: there it reads from the beginning.
        """
        return self.start if self.tombstone is None else min(self.tombstone.gap_to, self.start)


class PageMemo:
    """The page read last: watchers that a commit wakes together all want the same one."""

    def __init__(self) -> None:
        self.key: tuple[object, ...] = ()
        self.page: Page | None = None


def read_page(stream: "Stream", query: Query, now_ns: int, memo: PageMemo | None = None) -> Page:
    """Read until the limit, the byte budget, a loss to report, or the head.

    One that passes over a great many records ends earlier, and is not caught up.
    """
    state = current_state(stream, now_ns)
    if query.is_strong:
        state = stable(stream, state, query.from_seq)
    if memo is None:
        return _read_page(stream, query, state, now_ns)
    key = (stream.incarnation, stream.config, query, state)
    if memo.page is None or memo.key != key:
        memo.key, memo.page = key, _read_page(stream, query, state, now_ns)
    return memo.page


def stable(stream: "Stream", state: StreamState, from_seq: int) -> StreamState:
    """Return the state up to what is on stable storage, as a reader after ``from_seq`` sees it.

    Nothing is taken back from where the reader stands, nor from where the topic begins. An
    ephemeral topic has no disk to wait for.
    """
    if stream.log.durability is Durability.EPHEMERAL:
        return state
    stands = from_seq if from_seq <= state.last_seq else 0  # else the topic was made anew
    last = max(state.synced_seq, state.first_seq - 1, stands)
    return state if last >= state.last_seq else replace(state, last_seq=last)


async def read_on(stream: "Stream", query: Query, clock: "Clock") -> Page:
    """Read as ``read_page`` does, but to the end: what is passed over keeps nobody else waiting.

    Where records went meanwhile that nobody has looked at, the page ends before them.
    """
    reading = _Reading(stream, query, current_state(stream, clock.time_ns()))
    page = reading.page
    while not await once_here(partial(reading.go_on, clock.time_ns())):
        await asyncio.sleep(0)
        now = current_state(stream, clock.time_ns())
        if stream.is_closed or now.evict_floor > page.next_from_seq:
            break
    return reading.rendered()


def _read_page(stream: "Stream", query: Query, state: StreamState, now_ns: int) -> Page:
    reading = _Reading(stream, query, state)
    reading.go_on(now_ns)
    return reading.rendered()


class _Reading:
    """A page while it is being made."""

    def __init__(self, stream: "Stream", query: Query, state: StreamState) -> None:
        start = start_reading(state, query.from_seq)
        self.page = Page(start.cursor, state.last_seq, state.first_seq, start.tombstone)
        self.page.start = start.cursor
        self._stream = stream
        self._query = query
        self._found: list[Fields] = []
        self._used = 0
        self._stop = state.last_seq
        if start.stop_before is not None:
            self._stop = min(self._stop, start.stop_before - 1)

    def go_on(self, now_ns: int) -> bool:
        """Find records; False when so much was passed over that others should have a turn."""
        page, stream, stop, found = self.page, self._stream, self._stop, self._found
        skips = _skips(stream, self._query, now_ns)
        cursor, limit, budget = page.next_from_seq, self._query.limit, self._query.max_bytes
        patience = page.scanned - len(found) + MOST_PASSED_OVER
        while cursor < stop:
            missing = limit - len(found)
            wanted = missing if skips is None else max(missing, READ_AHEAD)
            try:
                frames = stream.read(cursor + 1, wanted, budget)
            except NotHere:
                if not page.scanned:
                    raise
                return True  # a short page now; the rest is on its way here
            if not len(frames):
                break
            if skips is None and not found and frames.last_seq <= stop:
                # Read whole and within the budget already, as far as it goes.
                found += frames
                page.next_from_seq = cursor = found[-1][0]
                page.scanned = len(found)
                if len(found) >= limit:
                    return True
                self._used = sum(len(record[3]) + len(record[7]) for record in found)
                continue
            for record in frames:
                seq = record[0]
                if seq > stop:
                    page.next_from_seq = stop
                    return True
                if skips is None or not skips(record):
                    self._used += len(record[3]) + len(record[7])
                    if found and self._used > budget:
                        return True
                    found.append(record)
                page.next_from_seq = cursor = seq
                page.scanned += 1
                if len(found) >= limit:
                    return True
            if page.scanned - len(found) >= patience and cursor < stop:
                return False
        page.next_from_seq = max(page.next_from_seq, stop)
        return True

    def rendered(self) -> Page:
        """Return the page with the records that were found."""
        query, page = self._query, self.page
        render = Renderer(
            self._stream.name, query.include_tags, query.include_meta, query.include_data
        )
        page.records, page.count = render.join(self._found), len(self._found)
        return page


def _skips(stream: "Stream", query: Query, now_ns: int) -> "Callable[[Fields], bool] | None":
    """Return the test for records that are passed over in silence, None when there are none."""
    config = stream.config
    oldest = now_ns - config.max_age if config.max_age > 0 else 0
    nodes = query.without_nodes
    if nodes and not config.to_topic()["dedupe_node"]:
        nodes = frozenset()
    wish = query.filter
    if not (oldest or nodes or wish):
        return None
    match = matcher([wish.subject]) if wish and wish.subject else None

    def skip(record: Fields) -> bool:
        _, ts_ns, subject, _, _, tag, node, _ = record
        if ts_ns < oldest or node in nodes:
            return True
        if wish is None:
            return False
        return (
            (wish.tag is not None and tag != wish.tag)
            or (wish.tag_prefix is not None and not (tag and tag.startswith(wish.tag_prefix)))
            or (wish.node is not None and node != wish.node)
            or (match is not None and not match(subject))
            or (wish.since_ns is not None and ts_ns < wish.since_ns)
            or (wish.until_ns is not None and ts_ns >= wish.until_ns)
        )

    return skip
