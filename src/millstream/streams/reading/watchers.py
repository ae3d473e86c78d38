"""Watchers: who looks again after each commit and removal of a stream."""

import asyncio
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

    async def wait_for(self, is_met: Callable[[], bool]) -> None:
        """Return once a condition is met; it is asked after each change."""
        if is_met():
            return
        met = asyncio.get_running_loop().create_future()

        def look() -> None:
            if not met.done() and is_met():
                met.set_result(None)

        undo = self.add(look)
        try:
            await met
        finally:
            undo()
