"""Alarm: one waiter that is told of something, or that its patience is over."""

import asyncio
from typing import Protocol


class Bond(Protocol):
    """What a waiter shares with others while none of them stirs."""

    told_at: float  # when all of them were told something without being woken

    def end(self) -> None:
        """Go back to each for itself."""
        ...


class Alarm:
    """Rings once for any number of reasons; one that rang before the wait ends it at once."""

    def __init__(self) -> None:
        self._rang = False
        self._waiting: asyncio.Future[bool] | None = None
        self._loop = asyncio.get_running_loop()
        self.patient_since = 0.0  # the loop's time from which the waiter's patience counts
        self.is_waiting = False  # somebody waits whom nothing has told yet
        self.bond: Bond | None = None  # of the waiter, while it waits

    def ring(self) -> None:
        """Tell the waiter, now or when it begins to wait."""
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
        self.patient_since = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._expire, seconds)
        try:
            return await self._waiting
        finally:
            self._timer.cancel()
            self._waiting = None
            self._stir()

    def _stir(self) -> None:
        self.is_waiting = False
        if self.bond is not None:
            self.bond.end()

    def _expire(self, seconds: float) -> None:
        """End the wait, or wait for what it was put off by: moving a timer costs more."""
        if self._waiting is None or self._waiting.done():
            return
        since = self.patient_since if self.bond is None else self.bond.told_at
        left = max(since, self.patient_since) + seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._expire, seconds)
        else:
            self._end(False)
