"""StopSignal: lets everything that waits look around when the server stops or a key is revoked."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.streams.stream import Stream


class StopSignal:
    """Set once, when the server stops; those who wait are woken then, and when asked."""

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: set[Callable[[], None]] = set()

    def wake(self) -> None:
        """Let everybody look around."""
        for wake in list(self._waiting):
            wake()

    def on_wake(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when the server stops or a key was revoked; returns the undo."""
        self._waiting.add(wake)
        return lambda: self._waiting.discard(wake)

    async def wait_for(
        self, streams: "list[Stream]", seconds: float, ready: Callable[[], bool] | None = None
    ) -> bool:
        """Return True after a change of a stream (that makes ``ready`` hold) or on shutdown.

        False means that the time is over. The caller looks once more before it waits.
        """
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bool] = loop.create_future()

        def look() -> None:
            if not arrived.done() and (self.is_set or ready is None or ready()):
                arrived.set_result(True)

        undo = [stream.watch(look) for stream in streams]
        self._waiting.add(look)
        timer = loop.call_later(seconds, _expire, arrived)
        try:
            return await arrived
        finally:
            timer.cancel()
            self._waiting.discard(look)
            for forget in undo:
                forget()


def _expire(arrived: asyncio.Future[bool]) -> None:
    if not arrived.done():
        arrived.set_result(False)
