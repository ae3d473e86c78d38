"""Subscriptions: the topics that one socket follows, and which of them it reads next."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.http.request import Caller
from millstream.topics.audience.follower import Follower
from millstream.topics.audience.read_position import ReadPosition
from millstream.topics.context import Topics
from millstream.topics.page.page import Query
from millstream.topics.watch.socket_renderer import SocketRenderer

if TYPE_CHECKING:
    from millstream.streams.stream import Stream


class Subscriptions:
    """What to send next; ``wake`` is called when there may be something."""

    def __init__(self, topics: Topics, wake: Callable[[], None], compressed: bool) -> None:
        self._topics = topics
        self._wake = wake
        self._renderer = SocketRenderer(compressed)
        self._known: dict[str, Follower] = {}
        self._dirty: dict[str, None] = {}  # those that may have something, oldest first
        self.held: str | None = None  # a topic whose records wait: its ack must go first

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def add(self, stream: "Stream", start: int, query: Query, caller: Caller) -> None:
        """Begin with a topic, or begin anew with one that is known.

        The caller is what it was judged to be when it subscribed.
        """
        name, position = stream.name, ReadPosition(start, stream.incarnation)
        self.remove(name)
        waiter = _TopicWaiter(self, name)
        self._known[name] = Follower(name, position, query, caller, self._renderer, waiter)
        self.mark(name)

    def remove(self, name: str) -> bool:
        """End with a topic; returns whether it was subscribed to."""
        known = self._known.pop(name, None)
        self._dirty.pop(name, None)
        if known is not None:
            known.leave()
        return known is not None

    def clear(self) -> None:
        """End with every topic."""
        for name in list(self._known):
            self.remove(name)

    def release(self) -> None:
        """Let the topic that was held back go on."""
        name, self.held = self.held, None
        if name is not None:
            self.mark(name)

    def look_everywhere(self) -> None:
        """Look at every topic again, whatever was heard of it."""
        for name in self._known:
            self.mark(name)

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

    def mark(self, name: str) -> None:
        """Look at a topic again, if it is still wanted."""
        if name in self._known:
            self._dirty[name] = None
            self._wake()

    def _look(self, follower: Follower) -> bytes:
        """Return what there is to send of a topic."""
        topics, name = self._topics, follower.name
        stream = topics.directory.find_or_none(name, follower.caller)
        if stream is None:
            self.remove(name)
            return self._renderer.deleted(name)
        topics.audiences.follow(follower, stream)
        topics.priorities.touch(stream)
        frames, is_all = follower.look()
        if not is_all:
            self._dirty[name] = None  # behind the others, so that each has its turn
        return frames


class _TopicWaiter:
    """Has the socket read a topic on the loop's next turn."""

    is_waiting = False
    push = None  # a socket is pushed nothing: it orders what it sends

    def __init__(self, subscriptions: Subscriptions, name: str) -> None:
        self._subscriptions = subscriptions
        self._name = name

    def ring(self) -> None:
        """Look at the topic again."""
        self._subscriptions.mark(self._name)
