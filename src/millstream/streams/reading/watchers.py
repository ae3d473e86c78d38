"""Watchers: who looks again after each commit and removal of a stream."""

from collections.abc import Callable


class Watchers:
    """Calls everybody who watches, in the order in which they came."""

    def __init__(self) -> None:
        self._watchers: dict[object, Callable[[], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` from now on; returns the undo."""
        key = object()
        self._watchers[key] = on_change
        return lambda: self._watchers.pop(key, None) and None

    def wake(self) -> None:
        """Let watchers look again; one that fails does so behind all the others."""
        failed: Exception | None = None
        for on_change in list(self._watchers.values()):
            try:
                on_change()
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed
