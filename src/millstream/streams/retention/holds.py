"""Holds: readers that have not taken everything yet, and for how long limits wait for them.

Several readers may go by one name, as the queries of one pipeline do. Each holds what it has not
taken itself; whoever asks for the name sees the one that is furthest behind.
"""

from typing import NamedTuple

from millstream.errors import Throttled

MOST_HOLDS = 1_000  # readers of one stream
LONGEST = 86_400.0
LINGER = 120.0  # seconds for which a reader that holds nothing counts as there


class _Hold(NamedTuple):
    taken: int
    until: float  # limits wait so long
    there_until: float


class Holds:
    """Pure: callers pass ``now``. A hold that is not renewed ends by itself."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, str], _Hold] = {}

    def __bool__(self) -> bool:
        return bool(self._holds)

    def put(self, holder: str, taken: int, seconds: float, now: float, reader: str = "") -> int:
        """Keep what is above ``taken`` for so many seconds; 0 lets go of everything.

        Returns how far the last of the readers is that go by the holder's name.
        """
        self._drop_expired(now)
        if (holder, reader) not in self._holds and len(self._holds) >= MOST_HOLDS:
            raise Throttled("holds of a stream", MOST_HOLDS)
        seconds = min(seconds, LONGEST)
        self._holds[holder, reader] = _Hold(taken, now + seconds, now + max(seconds, LINGER))
        return min(hold.taken for (name, _), hold in self._holds.items() if name == holder)

    def first(self, now: float) -> int | None:
        """Return the oldest sequence that somebody holds, None when nobody does."""
        if not self._holds:
            return None
        self._drop_expired(now)
        held = (hold.taken + 1 for hold in self._holds.values() if hold.until > now)
        return min(held, default=None)

    def unheld(self, first_kept: int, now: float) -> int:
        """Return the first sequence that stays when limits ask for ``first_kept``."""
        held = self.first(now)
        return first_kept if held is None else min(first_kept, held)

    def _drop_expired(self, now: float) -> None:
        for reader in [key for key, hold in self._holds.items() if hold.there_until <= now]:
            del self._holds[reader]
