"""NameList: names in order, so that a page of them costs what it shows, however many there are."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

MANY = 512  # from here on a close name is looked for near by, and not among all
NEAR = 64  # names on either side that are compared with one that is not there
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


class NameList:
    """New names are put in their places when somebody looks; a start brings many at once."""

    def __init__(self) -> None:
        self._names: list[str] = []  # by code point, which is how their UTF-8 sorts too
        self._fresh: list[str] = []

    def __len__(self) -> int:
        return len(self._names) + len(self._fresh)

    def add(self, name: str) -> None:
        """Take in a name that is not there."""
        self._fresh.append(name)

    def remove(self, name: str) -> None:
        """Let go of a name that is there."""
        names = self._in_order()
        at = bisect_left(names, name)
        assert names[at] == name
        del names[at]

    def page(self, start: int, count: int) -> list[str]:
        """Return some names, from the one at a place on."""
        return self._in_order()[start : start + count]

    def after(self, name: str | None, prefix: str = "") -> Iterator[str]:
        """Go through the names behind one, of those that begin so; they may change meanwhile."""
        names = self._in_order()
        at = bisect_left(names, prefix)
        if name is not None:
            at = max(at, bisect_right(names, name))
        while at < len(names) and names[at].startswith(prefix):
            yield (found := names[at])
            if names is not self._names or self._fresh or at >= len(names) or names[at] != found:
                names = self._in_order()
                at = bisect_right(names, found) - 1
            at += 1

    def near(self, name: str) -> list[str]:
        """Return names that one which is not there may have meant: all where they are few.

        Of many that is those that differ by one character, and those that begin as it does.
        """
        names = self._in_order()
        if len(names) <= MANY:
            return list(names)
        at = bisect_left(names, name)
        return [*filter(self._has, _slips(name)), *names[max(at - NEAR, 0) : at + NEAR]]

    def _has(self, name: str) -> bool:
        at = bisect_left(self._names, name)
        return at < len(self._names) and self._names[at] == name

    def _in_order(self) -> list[str]:
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            if len(fresh) > len(self._names) >> 6:
                self._names = sorted([*self._names, *fresh])
            else:
                for name in fresh:
                    self._names.insert(bisect_left(self._names, name), name)
        return self._names


def closest(name: str, names: list[str], cutoff: float) -> str | None:
    """Return the name that is most like one that is not there, None when none is like it."""
    from difflib import get_close_matches  # for a name that nobody has

    return next(iter(get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def _slips(name: str) -> Iterator[str]:
    """Go through what a name may have been before one slip of the hand."""
    if len(name) > 256:
        return
    for at in range(len(name) + 1):
        before, after = name[:at], name[at:]
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in _LETTERS)
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        yield from (before + letter + after for letter in _LETTERS)
