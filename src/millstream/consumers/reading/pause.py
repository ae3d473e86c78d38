"""Pause: until when a consumer delivers nothing."""

from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.streams.config.times import time_ns

if TYPE_CHECKING:
    from millstream.consumers.advisories import Advisories


class Pause:
    """``until_ns`` is 0 where there is no pause, or where its end was noticed."""

    def __init__(self, until: str, clock: Clock, timers: Timers, advisories: "Advisories") -> None:
        self._clock = clock
        self._timers = timers
        self._advisories = advisories
        self._timer: Timer | None = None
        self.change(until)

    def change(self, until: str) -> None:
        """Let deliveries go on at another time, an empty one means now."""
        self._until = until
        self.until_ns = time_ns(until) if until else 0

    @property
    def left_ns(self) -> int:
        """Return for how long deliveries are still paused, 0 when they are not."""
        return max(0, self.until_ns - self._clock.time_ns()) if self.until_ns else 0

    def end_at(self) -> float:
        """Return the monotonic time when deliveries go on, 0 when they are not paused."""
        left = self.left_ns
        if not left:
            self.until_ns = 0
        return self._clock.monotonic() + left / 1e9 if left else 0.0

    def watch(self) -> None:
        """Report the end of the pause too."""
        self.stop()
        if self.left_ns > 0:
            self._timer = self._timers.after(self.left_ns / 1e9, self.report)

    def report(self) -> None:
        """Say whether deliveries are stopped, and until when."""
        self._advisories.pause(self._until, is_paused=self.left_ns > 0)

    def stop(self) -> None:
        """Report nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
