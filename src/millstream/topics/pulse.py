"""Pulse: a topic's changes, told to everyone who waits, and what they all send because of one.

Watchers that one commit wakes want the same bytes. The first to look renders them, the others
send what it made; the next change throws it away, so nothing stale is ever sent. When they are
woken is the scheduler's to say: a topic that changes again meanwhile wakes them once.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

MOST_CHUNKS = 16

Chunk = tuple[bytes, int]  # what to send, and the position after it
Schedule = Callable[["Stream", Callable[[], int]], None]  # runs it when it is the topic's turn
Key = tuple[Hashable, ...]  # what a watcher wants to see and how, and where it stands


class Pulse:
    """The changes of one stream while somebody watches it."""

    def __init__(
        self, stream: "Stream", ended: Callable[[], None], schedule: "Schedule | None" = None
    ) -> None:
        self._stream = stream
        self._schedule = schedule
        self.chunks: dict[Key, Chunk] = {}
        self._wakes: dict[object, Callable[[], None]] = {}
        self._ended = ended
        self._undo = stream.watch(self._beat)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` after each change; returns the undo, which may be called twice."""
        key = object()
        self._wakes[key] = wake

        def forget() -> None:
            if self._wakes.pop(key, None) is not None and not self._wakes:
                self._undo()
                self._ended()

        return forget

    def keep(self, key: Key, chunk: Chunk) -> None:
        """Remember what a look has rendered, for those who look next."""
        if len(self.chunks) < MOST_CHUNKS:
            self.chunks[key] = chunk

    def later(self) -> None:
        """Wake everyone when it is the topic's turn."""
        if self._schedule is None:
            self._tell()
        else:
            self._schedule(self._stream, self._tell)

    def _beat(self) -> None:
        self.chunks.clear()
        self.later()

    def _tell(self) -> int:
        wakes = list(self._wakes.values())
        for wake in wakes:
            wake()
        return len(wakes)


class Pulses:
    """One pulse per watched stream."""

    def __init__(self, schedule: "Schedule | None" = None) -> None:
        self._schedule = schedule
        self._pulses: dict[int, Pulse] = {}

    def __len__(self) -> int:
        return len(self._pulses)

    def of(self, stream: "Stream") -> Pulse:
        """Return the pulse of a stream; it ends with its last listener."""
        known = self._pulses.get(stream.incarnation)
        if known is None:
            known = Pulse(stream, partial(self._forget, stream.incarnation), self._schedule)
            self._pulses[stream.incarnation] = known
        return known

    def _forget(self, incarnation: int) -> None:
        self._pulses.pop(incarnation, None)
