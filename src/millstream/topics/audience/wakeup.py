"""Wakeup: ends the wait of one reader, when there is something for it or its patience is over."""

import asyncio
from collections.abc import Callable


class Wakeup:
    """Rings once for any number of reasons; one that rang before the wait ends it at once.

    ``last_sent`` says when the waiter's client was last sent something without waking the waiter:
    that puts the end of its patience off. ``on_stir`` is called when the wait ends.
    """

    def __init__(
        self,
        last_sent: Callable[[], float] = lambda: 0.0,
        on_stir: Callable[[], None] = lambda: None,
    ) -> None:
        self._last_sent = last_sent
        self._on_stir = on_stir
        self._rang = False
        self._waiting: asyncio.Future[bool] | None = None
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self.is_waiting = False  # somebody waits who was not woken yet

    def ring(self) -> None:
        """Wake the waiter, now or when it begins to wait."""
        self._rang = True
        self._end(True)

    def _end(self, rang: bool) -> None:
        self._stir()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(rang)

    def clear(self) -> None:
        """Forget what rang so far."""
        self._rang = False

    async def wait(self, seconds: float) -> bool:
        """Return True once it has rung since it was cleared, False when the time is over first."""
        if self._rang:
            return True
        self._waiting = self._loop.create_future()
        self.is_waiting = True
        self._began = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._expire, seconds)
        try:
            return await self._waiting
        finally:
            self._timer.cancel()
            self._waiting = None
            self._stir()

    def _stir(self) -> None:
        self.is_waiting = False
        self._on_stir()

    def _expire(self, seconds: float) -> None:
        """End the wait, unless something was sent meanwhile: moving a timer costs more."""
        if self._waiting is None or self._waiting.done():
            return
        left = max(self._began, self._last_sent()) + seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._expire, seconds)
        else:
            self._end(False)
