"""TopicView: what all who read a topic with the same wishes are sent, rendered once for all."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.errors import NotHere
from millstream.topics.page.page import Page, PageMemo, Query, read_page

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.streams.stream import Stream

MOST_UPDATES = 16


class Update(msgspec.Struct, frozen=True):
    """What everybody who had seen all up to one position gets to see next, which is all again."""

    cursor: int
    plain: bytes = b""  # as a reader of this topic alone is sent it; empty: nothing to see
    chunked: bytes = b""  # the same as a chunk of HTTP/1.1
    records: bytes = b""  # the parts of it, for who reads other topics too
    caught_up: bytes = b""


Render = Callable[[str, int, Page], Update]  # a topic's page, read from a position


class TopicView:
    """A topic as one query shows it; keeps what it rendered since the last change."""

    __slots__ = ("__weakref__", "_clock", "_memo", "_query", "_render", "_stream", "_updates")

    def __init__(
        self, stream: "Stream", query: Query, render: Render, clock: "Clock", memo: PageMemo
    ) -> None:
        self._stream = stream
        self._query = query
        self._render = render
        self._clock = clock
        self._memo = memo
        self._updates: dict[int, Update] = {}  # by the position before

    def page(self, before: int) -> Page:
        """Return what there is to read after a position; raises NotHere like any read."""
        query = replace(self._query, from_seq=before)
        return read_page(self._stream, query, self._clock.time_ns(), self._memo)

    def update(self, before: int) -> Update | None:
        """Return what all who have seen everything before get now; None when there is more to it.

        That is a loss, more than a page, or records that have to be fetched first.
        """
        known = self._updates.get(before)
        if known is not None:
            return known
        try:
            page = self.page(before)
        except NotHere:
            return None
        if page.tombstone is not None or not page.caught_up:
            return None
        made = Update(page.next_from_seq)
        if page.count:
            made = self._render(self._stream.name, before, page)
        if len(self._updates) < MOST_UPDATES:
            self._updates[before] = made
        return made

    def forget(self) -> None:
        """Render anew from now on: the topic has changed."""
        self._updates.clear()
