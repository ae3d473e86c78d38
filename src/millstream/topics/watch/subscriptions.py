"""Subscriptions: the topics that one socket listens to, and where it stands in each."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.errors import NotHere
from millstream.http.request import Caller
from millstream.streams.reading.cold_reads import look_again
from millstream.topics.audience.pulse import Pulse
from millstream.topics.audience.seat import Variant
from millstream.topics.context import Topics
from millstream.topics.page.page import Page, Query, read_page
from millstream.topics.watch.events import anew
from millstream.wire import websocket

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

WORTH_COMPRESSING = 1024  # below this a frame costs more time than bytes

_encode = msgspec.json.encode


class TopicSubscription(msgspec.Struct):
    """One topic of a socket: its position, and what is to be shown."""

    name: str
    cursor: int
    query: Query
    caller: Caller  # as it was judged when it subscribed
    at_tail: bool = False  # the client was told that it has seen everything
    stream: "Stream | None" = None  # whose the position is
    pulse: Pulse | None = None
    variant: Variant | None = None
    undo: Callable[[], None] | None = None

    def ignore(self) -> None:
        """Hear no more of the topic."""
        if self.undo is not None:
            self.undo()
        self.stream = self.pulse = self.variant = self.undo = None


class Subscriptions:
    """What to send next; ``wake`` is called when there may be something."""

    def __init__(self, topics: Topics, wake: Callable[[], None], compressed: bool) -> None:
        self._topics = topics
        self._wake = wake
        self._compressed = compressed
        self._known: dict[str, TopicSubscription] = {}
        self._dirty: dict[str, None] = {}  # those that may have something, oldest first
        self.held: str | None = None  # a topic whose records wait: its ack must go first

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def add(self, subscription: TopicSubscription) -> None:
        """Begin with a topic, or begin anew with one that is known."""
        self.remove(subscription.name)
        self._known[subscription.name] = subscription
        self._mark(subscription.name)

    def remove(self, name: str) -> bool:
        """End with a topic; returns whether it was subscribed to."""
        known = self._known.pop(name, None)
        self._dirty.pop(name, None)
        if known is not None:
            known.ignore()
        return known is not None

    def clear(self) -> None:
        """End with every topic."""
        for name in list(self._known):
            self.remove(name)

    def release(self) -> None:
        """Let the topic that was held back go on."""
        name, self.held = self.held, None
        if name in self._known:
            self._mark(name)

    def look_everywhere(self) -> None:
        """Look at every topic again, whatever was heard of it."""
        for name in self._known:
            self._mark(name)

    def barred(self) -> list[str]:
        """Return the topics that the caller may no longer read."""
        return [
            each.name
            for each in self._known.values()
            if each.caller.revoked or not each.caller.may_touch(each.name)
        ]

    def next(self) -> bytes | None:
        """Return the frames of the next topic that has any, None when there is nothing.

        They are empty where so much was passed over that others should have a turn first.
        """
        while self._dirty:
            name = next((name for name in self._dirty if name != self.held), None)
            if name is None:
                return None
            del self._dirty[name]
            found = self._look(self._known[name])
            if found or name in self._dirty:
                return found
        return None

    def _mark_known(self, name: str) -> None:
        """Look again at a topic that was waited for, if it is still wanted."""
        if name in self._known:
            self._mark(name)

    def _mark(self, name: str) -> None:
        self._dirty[name] = None
        self._wake()

    def _look(self, each: TopicSubscription) -> bytes:
        """Return what there is to send of a topic, and move the position past it."""
        topics = self._topics
        stream = topics.find_or_none(each.name, each.caller)
        if stream is None:
            self.remove(each.name)
            return self._frame({"op": "topic_deleted", **_gone(each.name)})
        pulse, variant = self._listen(each, stream)
        topics.touch(stream)
        before, shared = each.cursor, each.at_tail and pulse.may_share
        if shared and before in variant.chunks:
            frames: bytes
            frames, each.cursor = variant.chunks[before]
            return frames
        query = replace(each.query, from_seq=each.cursor)
        try:
            page = read_page(stream, query, topics.clock.time_ns(), topics.last_page)
        except NotHere as missing:
            missing.wait(partial(look_again, lambda: self._mark_known(each.name)))
            return b""
        frames = self._render(each, page)
        if shared and each.at_tail and page.count:
            variant.keep(before, (frames, each.cursor))
        if not page.caught_up:
            self._dirty[each.name] = None  # behind the others, so that each has its turn
        return frames

    def _listen(self, each: TopicSubscription, stream: "Stream") -> tuple[Pulse, Variant]:
        if each.stream is stream and each.pulse is not None and each.variant is not None:
            return each.pulse, each.variant
        if each.stream is not None and each.stream is not stream:
            each.cursor = anew(each.cursor)
        each.ignore()
        each.stream, each.pulse = stream, self._topics.pulses.of(stream)
        each.variant = each.pulse.variant(("socket", self._compressed, each.query))
        each.undo = each.pulse.listen(lambda: self._mark(each.name))
        return each.pulse, each.variant

    def _render(self, each: TopicSubscription, page: Page) -> bytes:
        frames, start = [], each.cursor
        if page.tombstone is not None:
            start = page.after_loss
            shown = page.tombstone.shown()
            del shown["missed_estimate"]
            frames.append(self._frame({"op": "tombstone", "topic": each.name, **shown}))
        if page.count:
            frames.append(self._encoded(_records(each.name, start, page)))
        each.cursor = page.next_from_seq
        if not page.caught_up or page.tombstone is not None:
            each.at_tail = False
        if page.caught_up and not each.at_tail:
            each.at_tail = True
            tail = {"op": "caught_up", "topic": each.name, "head_seq": page.head_seq}
            frames.append(self._frame(tail))
        return b"".join(frames)

    def _frame(self, message: dict[str, object]) -> bytes:
        return self._encoded(_encode(message))

    def _encoded(self, text: bytes) -> bytes:
        return websocket.encode(
            text, self._compressed and len(text) >= WORTH_COMPRESSING, text=True
        )


def _gone(name: str) -> dict[str, object]:
    return {"topic": name, "head_seq": 0, "reason": "deleted"}


def _records(name: str, from_seq: int, page: Page) -> bytes:
    return b'{"op":"record","topic":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]}' % (
        _encode(name),
        from_seq,
        page.next_from_seq,
        page.head_seq,
        page.records,
    )
