"""ReadySet: what waits for its turn, each thing once, in bands that take weighted turns.

Within a band the one that waited longest is first. Across bands each round gives as many turns as
the weights say, so that the lowest moves too; and what waits rises, until after ten seconds at most
it is in the top band. Pure: callers pass the time.
"""

from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from millstream.delivery.priority import BOTTOM, TOP, WEIGHTS, aged, band_of

AGING_MS = 50


class Waiting(msgspec.Struct):
    """One thing in the set."""

    priority: int
    since_ms: float
    is_lowered: bool
    band: int = 0


class ReadySet:
    """Keys with work, until it is their turn."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, Waiting] = {}
        # Bands hold keys in the order in which they began to wait.
        self._bands: list[OrderedDict[Hashable, None]] = [OrderedDict() for _ in WEIGHTS]
        self._credit = list(WEIGHTS)
        self._aged_ms = 0.0
        self.defers = False  # nothing of the bottom band is served, and copying is one band lower

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waiting

    @property
    def depth(self) -> int:
        """Return how many keys may have a turn: what is paused presses nobody."""
        return len(self._waiting) - (len(self._bands[BOTTOM]) if self.defers else 0)

    def band(self, key: Hashable) -> int:
        """Return the band that a key waits in."""
        return self._waiting[key].band

    def add(self, key: Hashable, priority: int, now_ms: float, is_lowered: bool = False) -> bool:
        """Let a key wait for its turn; False when it does already, since its earlier start."""
        if key in self._waiting:
            return False
        one = self._waiting[key] = Waiting(priority, now_ms, is_lowered)
        one.band = self._band_of(one, now_ms)
        self._bands[one.band][key] = None
        return True

    def discard(self, key: Hashable) -> None:
        """Forget a key."""
        one = self._waiting.pop(key, None)
        if one is not None:
            del self._bands[one.band][key]

    def next(self, now_ms: float) -> tuple[Hashable, float] | None:
        """Return whose turn it is and for how long it waited, None when it is nobody's."""
        self._age(now_ms)
        band = self._choose()
        if band is None:
            return None
        self._credit[band] -= 1
        key, _ = self._bands[band].popitem(last=False)
        return key, now_ms - self._waiting.pop(key).since_ms

    def _choose(self) -> int | None:
        """Return the highest band with credit; a new round begins when no band in need has any."""
        ready = [band for band in range(TOP, -1, -1) if self._bands[band] and self._serves(band)]
        if not ready:
            return None
        for band in ready:
            if self._credit[band] > 0:
                return band
        self._credit = list(WEIGHTS)
        return ready[0]

    def _serves(self, band: int) -> bool:
        return band != BOTTOM or not self.defers

    def _age(self, now_ms: float) -> None:
        """Move what has waited long enough into its higher band, now and then."""
        if now_ms - self._aged_ms < AGING_MS:
            return
        self._aged_ms = now_ms
        for key, one in self._waiting.items():
            band = self._band_of(one, now_ms)
            if band != one.band:
                del self._bands[one.band][key]
                one.band = band
                self._insert(key, one)

    def _insert(self, key: Hashable, one: Waiting) -> None:
        """Put a key into a band at the place that its time gives it."""
        band = self._bands[one.band]
        later = [other for other in band if self._waiting[other].since_ms > one.since_ms]
        band[key] = None
        for other in later:
            band.move_to_end(other)

    def _band_of(self, one: Waiting, now_ms: float) -> int:
        if one.priority < 0 and self.defers:
            return BOTTOM  # paused: it waits for better times, not for its turn
        band = band_of(aged(one.priority, now_ms - one.since_ms))
        return max(BOTTOM, band - 1) if one.is_lowered and self.defers else band
