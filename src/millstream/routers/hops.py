"""Hops: how often a stream's records were copied on their way here."""

from bisect import bisect_right

MOST_HOPS = 8


class Hops:
    """The copies of one stream that further routers have yet to pass; all else has no hops."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._hops: list[int] = []

    def __len__(self) -> int:
        return len(self._first)

    def add(self, first: int, last: int, hops: int) -> None:
        """Note that ``first..last`` are copies; they lie above everything noted before."""
        if last < first:
            return
        if self._last and self._last[-1] + 1 == first and self._hops[-1] == hops:
            self._last[-1] = last
            return
        if self._last and first <= self._last[-1]:
            return  # known already
        self._first.append(first)
        self._last.append(last)
        self._hops.append(hops)

    def of(self, seq: int) -> int:
        """Return the hops of one record."""
        at = bisect_right(self._first, seq) - 1
        return self._hops[at] if at >= 0 and seq <= self._last[at] else 0

    def forget_through(self, seq: int) -> None:
        """Forget what every router has passed."""
        keep = bisect_right(self._last, seq)
        del self._first[:keep], self._last[:keep], self._hops[:keep]

    def items(self) -> list[tuple[int, int, int]]:
        """Return everything as (first, last, hops)."""
        return list(zip(self._first, self._last, self._hops, strict=True))
