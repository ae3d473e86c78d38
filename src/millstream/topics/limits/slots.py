"""Slots: how many of something may be open at once, in all and for each credential."""

from collections.abc import Callable

from millstream.errors import Throttled


class Slots:
    """Counts what is open; a cap of 0 is none, and only callers with a key have one of their own.

    ``name`` is what a refusal calls the cap, with ``_per_key`` behind it for the second one.
    """

    def __init__(self, name: str, most: int = 0, per_key: int = 0) -> None:
        self.name = name
        self.most = most
        self.per_key = per_key
        self.open = 0
        self._by_key: dict[str, int] = {}

    def take(self, key: str) -> Callable[[], None]:
        """Count one in, or raise Throttled; returns the undo, which may be called twice."""
        if self.most and self.open >= self.most:
            raise Throttled(self.name, self.most)
        held = self._by_key.get(key, 0)
        if key and self.per_key and held >= self.per_key:
            raise Throttled(f"{self.name}_per_key", self.per_key)
        self.open += 1
        if key:
            self._by_key[key] = held + 1
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                self._give_back(key)

        return give_back

    def _give_back(self, key: str) -> None:
        self.open -= 1
        if not key:
            return
        left = self._by_key[key] - 1
        if left:
            self._by_key[key] = left
        else:
            del self._by_key[key]
