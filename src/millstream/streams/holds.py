"""Holds: readers that have not taken everything yet, and for how long limits wait for them."""

from typing import NamedTuple

from millstream.errors import Throttled

MOST_HOLDS = 1_000  # of one stream
LONGEST = 86_400.0


class _Hold(NamedTuple):
    first: int
    until: float


class Holds:
    """Pure: callers pass ``now``. A hold that is not renewed ends by itself."""

    def __init__(self) -> None:
        self._holds: dict[str, _Hold] = {}

    def put(self, holder: str, taken: int, seconds: float, now: float) -> None:
        """Keep what is above ``taken`` for so many seconds; 0 lets go of everything."""
        self._drop_expired(now)
        if seconds <= 0:
            self._holds.pop(holder, None)
            return
        if holder not in self._holds and len(self._holds) >= MOST_HOLDS:
            raise Throttled("holds of a stream", MOST_HOLDS)
        self._holds[holder] = _Hold(taken + 1, now + min(seconds, LONGEST))

    def first(self, now: float) -> int | None:
        """Return the oldest sequence that somebody holds, None when nobody does."""
        if not self._holds:
            return None
        self._drop_expired(now)
        return min((hold.first for hold in self._holds.values()), default=None)

    def _drop_expired(self, now: float) -> None:
        for holder in [name for name, hold in self._holds.items() if hold.until <= now]:
            del self._holds[holder]
