"""Idleness: ends what nobody has used for its threshold."""

from collections.abc import Callable

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers

OFTEN = 1.0  # seconds; what may be at work is not looked at more often


class Idleness:
    """Watches the time since the last use; ``is_used`` says whether it is in use right now.

    ``busy_until`` is how long who used it last may still be at work without a word.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Clock,
        is_used: Callable[[], bool],
        ended: Callable[[], None],
        busy_until: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._is_used = is_used
        self._ended = ended
        self._busy_until = busy_until
        self._threshold = 0.0
        self._last_used = clock.monotonic()
        self._timer: Timer | None = None

    def used(self) -> None:
        """Start the time anew."""
        self._last_used = self._clock.monotonic()

    def watch(self, threshold: float) -> None:
        """End after so many seconds without use; 0 means never."""
        self.stop()
        self._threshold = threshold
        if threshold > 0:
            self._timer = self._timers.at(self._last_used + threshold, self._check)

    def stop(self) -> None:
        """Never end."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        now = self._clock.monotonic()
        if self._is_used():
            self._last_used = now
        if self._last_used + self._threshold > now:
            self.watch(self._threshold)
            return
        end = self._busy_until() + self._threshold
        if end <= now:
            self._ended()
        else:  # or sooner, should it be done with its work
            soon = min(end, now + max(self._threshold, OFTEN))
            self._timer = self._timers.at(soon, self._check)
