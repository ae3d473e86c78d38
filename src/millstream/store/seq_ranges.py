"""A set of sequences kept as ranges: what was deleted, what was lost."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class SeqRanges:
    """Disjoint ranges in ascending order; neighbours are merged."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._first, self._last, strict=True)))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._first, seq) - 1
        return at >= 0 and seq <= self._last[at]

    def add(self, first: int, last: int) -> None:
        """Add ``first..last``."""
        if last < first:
            return
        low = bisect_right(self._last, first - 2)  # the first range that touches first - 1
        high = bisect_right(self._first, last + 1)
        if low < high:
            first = min(first, self._first[low])
            last = max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]

    def cut_below(self, seq: int) -> None:
        """Forget everything below ``seq``."""
        keep = bisect_right(self._last, seq - 1)
        del self._first[:keep], self._last[:keep]
        if self._first and self._first[0] < seq:
            self._first[0] = seq

    def after(self, seq: int) -> int:
        """Return the first sequence at or above ``seq`` that is not in the set."""
        at = bisect_right(self._first, seq) - 1
        return self._last[at] + 1 if at >= 0 and seq <= self._last[at] else seq

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of ``first..last`` that are not in the set."""
        found: list[tuple[int, int]] = []
        at = first
        for begin, end in self:
            if end < at:
                continue
            if begin > last:
                break
            if begin > at:
                found.append((at, begin - 1))
            at = max(at, end + 1)
        if at <= last:
            found.append((at, last))
        return found
