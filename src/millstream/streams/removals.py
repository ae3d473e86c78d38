"""Removals: what went lately, so that whoever counts records knows whether to count anew."""

from collections import deque

_REMEMBERED = 64
EVERYTHING = 2**64


class Removals:
    """A count of removals, and how high each of the latest reached."""

    def __init__(self) -> None:
        self.count = 0
        self._reached: deque[int] = deque(maxlen=_REMEMBERED)

    def note(self, highest: int = EVERYTHING) -> None:
        """Note a removal that touched nothing above ``highest``."""
        self.count += 1
        self._reached.append(highest)

    def reached_since(self, count: int) -> int:
        """Return the highest sequence touched since there were ``count`` removals, 0 if none."""
        missed = self.count - count
        if missed > len(self._reached):
            return EVERYTHING
        return max((self._reached[-at] for at in range(1, missed + 1)), default=0)
