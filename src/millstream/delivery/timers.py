"""Timers: one queue of deadlines for acks, expiries, heartbeats and everything else that waits.

Deadlines are in the clock's monotonic seconds. With an event loop the queue wakes itself by one
timer for its earliest deadline; without one (tests) ``run_due`` is called after moving the clock.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable

from millstream.clock import Clock
from millstream.supervisor import Supervisor

TIDY_ABOVE = 1024
TICK = 0.001  # uvloop counts in milliseconds: what it rounds to none would ring until it is due


class Timer:
    """A deadline that can be called off."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Call it off; harmless after it has run."""
        self.callback = None


class Timers:
    """Runs callbacks once their time has come, earliest first."""

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.clock = clock
        self._loop = loop
        self._supervisor = supervisor or Supervisor()
        self._queue: list[tuple[float, int, Timer]] = []
        self._tidy_above = TIDY_ABOVE  # timers, many of which may have been called off
        self._order = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` once ``seconds`` have passed."""
        return self.at(self.clock.monotonic() + seconds, callback)

    def at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` once the monotonic clock reaches ``deadline``."""
        timer = Timer(deadline, callback)
        heapq.heappush(self._queue, (deadline, next(self._order), timer))
        if len(self._queue) > self._tidy_above:
            self._tidy()
        self._set_alarm()
        return timer

    def every(self, seconds: float, name: str, call: Callable[[], None]) -> None:
        """Call now and then again and again, so long after each call, whatever one raises."""
        guarded = self._supervisor.repeated(name, call)

        def again() -> None:
            guarded()
            self.after(seconds, again)

        again()

    def _tidy(self) -> None:
        """Drop what was called off: long waits that mostly end early would pile up."""
        self._queue = [entry for entry in self._queue if entry[2].callback is not None]
        heapq.heapify(self._queue)
        self._tidy_above = TIDY_ABOVE + 2 * len(self._queue)

    def run_due(self) -> int:
        """Run everything whose time has come; returns how many ran.

        What a callback sets for now waits for the next call, so that no owner can keep the
        loop to itself.
        """
        now, due, ran = self.clock.monotonic(), [], 0
        while self._queue and self._queue[0][0] <= now:
            due.append(heapq.heappop(self._queue)[2])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                # One owner's fault must not stop everybody else's deadlines.
                self._supervisor.run_once("the timer", callback)
                ran += 1
        self._set_alarm()
        return ran

    def close(self) -> None:
        """Forget every deadline."""
        self._queue.clear()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._loop is None:
            return
        while self._queue and self._queue[0][2].callback is None:
            heapq.heappop(self._queue)
        deadline = self._queue[0][0] if self._queue else 0.0
        if self._alarm is not None:
            if deadline == self._alarm_at:
                return
            self._alarm.cancel()
            self._alarm = None
        if self._queue:
            delay = max(0.0, deadline - self.clock.monotonic())
            if 0 < delay < TICK:
                delay = TICK
            self._alarm, self._alarm_at = self._loop.call_later(delay, self._ring), deadline

    def _ring(self) -> None:
        self._alarm = None
        self.run_due()
