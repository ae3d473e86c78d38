"""WaitingClaims: connections that wait for jobs, and who is woken when there are some."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

import msgspec

from millstream.delivery.timers import Timer, Timers
from millstream.queues.leases import Leases


class _WaitingClaim(msgspec.Struct):
    arrived: "asyncio.Future[None]"
    hungry: bool


class WaitingClaims:
    """Wakes as many as there are jobs for, those first that waited longest.

    ``ready`` counts the jobs that are claimable now; it also ends leases that ran out.
    """

    def __init__(
        self, leases: Leases, timers: Timers, now_ms: Callable[[], int], ready: Callable[[], int]
    ) -> None:
        self._leases = leases
        self._timers = timers
        self._now_ms = now_ms
        self._ready = ready
        self._waiting: dict[int, _WaitingClaim] = {}  # by connection, the longest first
        self._alarm: Timer | None = None  # for the next lease or delay that runs out
        self._alarm_ms = 0
        self._is_closed = False

    async def wait(self, connection: int, hungry: bool, seconds: float) -> None:
        """Return when there may be something to do for a connection, at the latest in time."""
        waiting = _WaitingClaim(asyncio.get_running_loop().create_future(), hungry)
        self._waiting[connection] = waiting
        timer = self._timers.after(seconds, partial(self.wake, (connection,)))
        self.set_alarm()
        try:
            await waiting.arrived
        except asyncio.CancelledError:
            if waiting.arrived.done() and hungry:  # the call was meant for whoever is left
                self._waiting.pop(connection, None)
                self.wake_hungry()
            raise
        finally:
            timer.cancel()
            self._waiting.pop(connection, None)

    def wake(self, connections: Iterable[int]) -> None:
        """Let these connections look again."""
        for connection in connections:
            waiting = self._waiting.pop(connection, None)
            if waiting is not None and not waiting.arrived.done():
                waiting.arrived.set_result(None)

    def wake_all(self) -> None:
        """Let everybody look again."""
        self.wake(list(self._waiting))

    def wake_hungry(self) -> None:
        """Let as many connections look again as there are jobs for."""
        if not self._waiting:
            return
        ready = self._ready()
        hungry = (connection for connection, each in self._waiting.items() if each.hungry)
        self.wake(list(islice(hungry, ready)))

    def set_alarm(self) -> None:
        """Come back when a lease or delay runs out: nothing else would tell those who wait."""
        due = self._leases.next_change_ms() if self._waiting else None
        if due is None or (self._alarm is not None and self._alarm_ms <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = due
        self._alarm = self._timers.after(max(0, due - self._now_ms()) / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self._is_closed:
            self._ready()
            self.wake_all()

    def close(self) -> None:
        """Send everybody away."""
        self._is_closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        self.wake_all()
