"""A set of sequences kept as ranges: what was deleted or never there, what was lost."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_NONE = array("Q")  # of every set that is empty yet


class SeqRanges:
    """Disjoint ranges in ascending order, 16 bytes each; neighbours are merged."""

    __slots__ = ("_first", "_last")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._first = self._last = _NONE
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._first, self._last, strict=True)))

    def __len__(self) -> int:
        return sum(self._last) - sum(self._first) + len(self._first)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._first, seq) - 1
        return at >= 0 and seq <= self._last[at]

    def add(self, first: int, last: int) -> None:
        """Add ``first..last``."""
        if last < first:
            return
        if self._first is _NONE:
            self._first, self._last = array("Q"), array("Q")
        low = bisect_left(self._last, first - 1)  # the first range that touches first - 1
        high = bisect_right(self._first, last + 1)
        if low < high:
            first = min(first, self._first[low])
            last = max(last, self._last[high - 1])
        self._first[low:high] = array("Q", (first,))
        self._last[low:high] = array("Q", (last,))

    def cut_below(self, seq: int) -> None:
        """Forget everything below ``seq``."""
        keep = bisect_left(self._last, seq)
        del self._first[:keep], self._last[:keep]
        if self._first and self._first[0] < seq:
            self._first[0] = seq

    def cut_above(self, seq: int) -> None:
        """Forget everything above ``seq``."""
        keep = bisect_right(self._first, seq)
        del self._first[keep:], self._last[keep:]
        if self._last and self._last[-1] > seq:
            self._last[-1] = seq

    def after(self, seq: int) -> int:
        """Return the first sequence at or above ``seq`` that is not in the set."""
        at = bisect_right(self._first, seq) - 1
        return self._last[at] + 1 if at >= 0 and seq <= self._last[at] else seq

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of ``first..last`` that are not in the set."""
        found: list[tuple[int, int]] = []
        at = bisect_left(self._last, first)
        while first <= last and at < len(self._first) and self._first[at] <= last:
            if self._first[at] > first:
                found.append((first, self._first[at] - 1))
            first = self._last[at] + 1
            at += 1
        if first <= last:
            found.append((first, last))
        return found


def runs_of(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending sequences as ranges without a hole."""
    found: list[tuple[int, int]] = []
    first = last = -1
    for seq in seqs:
        if seq != last + 1:
            if first >= 0:
                found.append((first, last))
            first = seq
        last = seq
    if first >= 0:
        found.append((first, last))
    return found
