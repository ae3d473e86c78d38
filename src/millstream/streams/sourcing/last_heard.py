"""LastHeard: when an intake heard of its origin last."""

from millstream.clock import Clock

_HEARTBEAT_NS = 10**9


class LastHeard:
    """An origin that is followed is heard of at the latest a heartbeat ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_ns = 0
        self._is_followed = False

    def note(self) -> None:
        """Take note that it was heard of now."""
        self._at_ns = self._clock.time_ns()
        self._is_followed = True

    def note_once(self) -> None:
        """Take note that it was heard of now, which says nothing of what comes."""
        self._at_ns = self._clock.time_ns()
        self._is_followed = False

    def end(self) -> None:
        """Hear no more of it."""
        self._at_ns = self._when_ns()
        self._is_followed = False

    def ago_ns(self) -> int:
        """Return how long ago that was, -1 for never."""
        heard = self._when_ns()
        return self._clock.time_ns() - heard if heard else -1

    def _when_ns(self) -> int:
        if not self._is_followed or not self._at_ns:
            return self._at_ns
        now = self._clock.time_ns()
        return now - max(0, now - self._at_ns) % _HEARTBEAT_NS
