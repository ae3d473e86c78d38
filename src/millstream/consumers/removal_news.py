"""RemovalNews: lets a stream's consumers know what was removed from it."""

from typing import TYPE_CHECKING, Protocol

from millstream.delivery.timers import Timer, Timers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.consumer import Consumer
    from millstream.streams.stream import Stream

AFTER = 0.002  # seconds until consumers hear of removals, and so much more for each of them
AFTER_EACH = 0.000_005


class ConsumersOfStream(Protocol):
    """Where a stream's consumers are found."""

    def count(self, stream: "Stream") -> int:
        """Return how many a stream has."""
        ...

    def with_deliveries(self, stream: "Stream") -> "Sequence[Consumer]":
        """Return the consumers that await answers, or count what they gave up."""
        ...

    def purged(self, stream: "Stream", subject: str) -> None:
        """Let them know that records of ``subject``, or all, were purged."""
        ...


class RemovalNews:
    """Ends pending deliveries of what is removed, a moment later and for many at once."""

    def __init__(self, consumers: ConsumersOfStream, stream: "Stream", timers: Timers) -> None:
        self._consumers = consumers
        self._stream = stream
        self._timers = timers
        self._timer: Timer | None = None

    def on_drop(self) -> None:
        """Tell of what was dropped soon."""
        if self._timer is None or self._timer.callback is None:
            delay = AFTER + self._consumers.count(self._stream) * AFTER_EACH
            self._timer = self._timers.after(delay, self.on_drops_wanted)

    def on_drops_wanted(self) -> None:
        """Tell of what was dropped until now."""
        below, seqs = self._stream.removal.recent.take_dropped()
        for consumer in self._consumers.with_deliveries(self._stream) if below or seqs else ():
            consumer.on_drop(below, seqs)

    def on_roll_up(self, subject: str) -> None:
        """Treat what a roll-up replaced as purged."""
        self._consumers.purged(self._stream, subject)
