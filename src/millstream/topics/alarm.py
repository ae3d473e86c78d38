"""Alarm: one waiter that is told of something, or that its patience is over."""

import asyncio


class Alarm:
    """Rings once for any number of reasons; one that rang before the wait ends it at once."""

    def __init__(self) -> None:
        self._rang = False
        self._waiting: asyncio.Future[bool] | None = None

    def ring(self) -> None:
        """Tell the waiter, now or when it begins to wait."""
        self._rang = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)

    def clear(self) -> None:
        """Forget what rang so far."""
        self._rang = False

    async def wait(self, seconds: float) -> bool:
        """Return True once it has rung since it was cleared, False when the time is over first."""
        if self._rang:
            return True
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        self._waiting = waiting
        timer = loop.call_later(seconds, self._expire, waiting)
        try:
            return await waiting
        finally:
            timer.cancel()
            self._waiting = None

    @staticmethod
    def _expire(waiting: "asyncio.Future[bool]") -> None:
        if not waiting.done():
            waiting.set_result(False)
