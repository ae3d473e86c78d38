"""LoopMeter: how long the loop is kept from its work, seen by a timer that comes too late."""

from collections.abc import Callable

PERIOD = 0.05
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)  # seconds


class LoopMeter:
    """Counts how late a timer is that should ring every twentieth of a second."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due = now() + PERIOD
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0
        self._longest = 0.0

    def ring(self) -> None:
        """Note how late it is."""
        now = self._now()
        late = max(0.0, now - self._due)
        self._due = now + PERIOD
        self.total += late
        self._longest = max(self._longest, late)
        place = next((at for at, bound in enumerate(BOUNDS) if late <= bound), len(BOUNDS))
        self.counts[place] += 1

    def take_longest(self) -> float:
        """Return the longest wait since this was last asked, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest
