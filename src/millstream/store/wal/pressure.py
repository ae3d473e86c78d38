"""Pressure: whether more waits for its commit than should, and who slows down then."""

from collections.abc import Callable
from functools import partial


class Pressure:
    """Told by each shard; whoever sends work to the shards watches it."""

    def __init__(self) -> None:
        self._behind: set[int] = set()  # shards above their high water
        self._watching: dict[object, Callable[[bool], None]] = {}

    @property
    def is_high(self) -> bool:
        """Say whether any shard is behind."""
        return bool(self._behind)

    def set(self, shard: int, is_behind: bool) -> None:
        """Note that a shard is behind, or no longer; the first and the last one are told."""
        before = self.is_high
        (self._behind.add if is_behind else self._behind.discard)(shard)
        if self.is_high != before:
            for changed in list(self._watching.values()):
                changed(self.is_high)

    def watch(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``changed`` when it becomes high, and when it is so no more; returns the undo."""
        key = object()
        self._watching[key] = changed
        return partial(self._unwatch, key)

    def _unwatch(self, key: object) -> None:
        self._watching.pop(key, None)
