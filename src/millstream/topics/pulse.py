"""Pulse: a topic's changes, told to everyone who waits, and what they all send because of one.

Watchers that one commit wakes want the same bytes. The first to look renders them, the others
send what it made; the next change throws it away, so nothing stale is ever sent. When they are
woken is the scheduler's to say: a topic that changes again meanwhile wakes them once.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

MOST_CHUNKS = 16

Schedule = Callable[["Stream", Callable[[], int]], None]  # runs it when it is the topic's turn
MayPush = Callable[["Stream"], bool]  # whether watchers may be sent records just now


class Variant:
    """One way to see a topic: what was rendered for it since the last change, by position."""

    __slots__ = ("__weakref__", "chunks")

    def __init__(self) -> None:
        self.chunks: dict[int, Any] = {}

    def keep(self, at: int, chunk: object) -> None:
        """Remember what a look from a position has rendered, for those who look next."""
        if len(self.chunks) < MOST_CHUNKS:
            self.chunks[at] = chunk


class Pulse:
    """The changes of one stream while somebody watches it."""

    def __init__(
        self,
        stream: "Stream",
        ended: Callable[[], None],
        schedule: "Schedule | None" = None,
        may_push: MayPush = lambda stream: False,
    ) -> None:
        self._stream = stream
        self._schedule = schedule
        self._may_push = may_push
        self._variants: WeakValueDictionary[Hashable, Variant] = WeakValueDictionary()
        self._wakes: dict[object, Callable[[], None]] = {}
        self._ended = ended
        self._undo = stream.watch(self._beat)
        self.is_telling = False  # and whoever is told may send at once
        self.told_at = 0.0  # on the loop's clock

    @property
    def may_share(self) -> bool:
        """Say whether what one has rendered is true for all until the next change.

        Records that expire do so without a change, but not while everyone is being told.
        """
        return self.is_telling or self._stream.config.max_age <= 0

    def variant(self, key: Hashable) -> Variant:
        """Return what is shared by all who see the topic in one way; it goes with the last."""
        known = self._variants.get(key)
        if known is None:
            known = self._variants[key] = Variant()
        return known

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` after each change; returns the undo, which may be called twice."""
        key = object()
        self._wakes[key] = wake

        def forget() -> None:
            if self._wakes.pop(key, None) is not None and not self._wakes:
                self._undo()
                self._ended()

        return forget

    def later(self) -> None:
        """Wake everyone when it is the topic's turn."""
        if self._schedule is None:
            self._tell()
        else:
            self._schedule(self._stream, self._tell)

    def _beat(self) -> None:
        self._forget_chunks()
        self.later()

    def _forget_chunks(self) -> None:
        for variant in self._variants.values():
            variant.chunks.clear()

    def _tell(self) -> int:
        wakes = list(self._wakes.values())
        self.is_telling = self._may_push(self._stream)
        self.told_at = asyncio.get_running_loop().time()
        try:
            for wake in wakes:
                wake()
        finally:
            self.is_telling = False
            if not self.may_share:
                self._forget_chunks()
        return len(wakes)


class Pulses:
    """One pulse per watched stream."""

    def __init__(
        self, schedule: "Schedule | None" = None, may_push: MayPush = lambda stream: False
    ) -> None:
        self._schedule = schedule
        self._may_push = may_push
        self._pulses: dict[int, Pulse] = {}

    def __len__(self) -> int:
        return len(self._pulses)

    def of(self, stream: "Stream") -> Pulse:
        """Return the pulse of a stream; it ends with its last listener."""
        known = self._pulses.get(stream.incarnation)
        if known is None:
            ended = partial(self._forget, stream.incarnation)
            known = Pulse(stream, ended, self._schedule, self._may_push)
            self._pulses[stream.incarnation] = known
        return known

    def _forget(self, incarnation: int) -> None:
        self._pulses.pop(incarnation, None)
