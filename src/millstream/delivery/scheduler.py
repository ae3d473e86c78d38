"""Scheduler: who is told next that a topic has grown, and when.

A topic that grew is served at once while nothing else waits. What comes while others are served
waits in the ready set for its turn; a turn serves until enough was set in motion, then the loop
goes round so that it happens.
"""

import asyncio
from collections.abc import Callable, Hashable

from millstream.clock import Clock
from millstream.delivery.governor import Governor, Measures
from millstream.delivery.pressure_watch import PressureWatch
from millstream.delivery.priority import TOP, band_of
from millstream.delivery.ready_set import ReadySet
from millstream.supervisor import Supervisor, described

ENOUGH = 64  # deliveries that one turn sets in motion
LONGEST_MS = 0.2  # that a turn lasts, so that what comes meanwhile is seen soon

Work = Callable[[], int]  # returns how many deliveries it set in motion


class Scheduler:
    """Serves keys in the order of the ready set; everything runs on the loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        ingest_full: Callable[[], bool] = lambda: False,
        measured: Callable[[Measures], None] = lambda measures: None,
        busy_seconds: Callable[[], float] | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._clock = clock
        self._supervisor = supervisor or Supervisor()
        self._governor = Governor()
        self._ready = ReadySet()
        self._pressure = PressureWatch(
            clock, self._supervisor, self._governor, self._ready,
            ingest_full=ingest_full, measured=measured,
            busy_seconds=busy_seconds or clock.busy_seconds,
            relieved=self._turn_later,
        )  # fmt: skip
        self._work: dict[Hashable, Work] = {}
        self._turning = False
        self._holding = False  # the next turn waits for more to come
        self._due_ms = 0.0
        self.served = 0

    @property
    def measures(self) -> Measures:
        """Return what is given up now, and for which pressure."""
        return self._governor.measures

    @property
    def latency_ms(self) -> float:
        """Return for how long things waited for their turn lately."""
        return self._governor.latency_ms

    @property
    def depth(self) -> int:
        """Return how many things wait for their turn."""
        return len(self._ready)

    def is_deferred(self, priority: int) -> bool:
        """Say whether something of this priority is not pushed now."""
        return self.measures.defers and priority < 0

    def ready(
        self, key: Hashable, work: Work, priority: Callable[[], int], *, is_copying: bool = False
    ) -> None:
        """Have ``work`` done once, soon: it covers whatever came until then."""
        self._pressure.watch()
        if key in self._ready:
            return
        held = self._holding or self.measures.coalesce_ms > 0
        if not self._turning and not is_copying and not held:
            self.served += 1
            if work():
                self._turn_later()  # what comes meanwhile waits for what this set in motion
            return
        rank = priority()
        if held and not is_copying and band_of(rank) == TOP:  # load is for the others to notice
            self.served += 1
            work()
            return
        self._ready.add(key, rank, self._now_ms(), is_copying)
        self._work[key] = work
        self._turn_later(after_answers=is_copying)

    def forget(self, key: Hashable) -> None:
        """Call off what waits under a key."""
        self._ready.discard(key)
        self._work.pop(key, None)

    def _turn_later(self, *, after_answers: bool = False) -> None:
        """Have a turn soon; ``after_answers`` lets those go first who wait for the same commit."""
        if self._turning:
            return
        self._turning = True
        loop, wait_ms = asyncio.get_running_loop(), self.measures.coalesce_ms
        self._due_ms = self._now_ms() + wait_ms
        self._holding = wait_ms > 0
        if wait_ms:
            loop.call_later(wait_ms / 1000, self._turn)
        elif after_answers:
            loop.call_soon(loop.call_soon, self._turn)
        else:
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Serve until enough is set in motion, or for long enough, then let the loop go round."""
        self._turning = self._holding = False
        moved, now = 0, self._now_ms()
        end = now + LONGEST_MS
        while moved < ENOUGH and now < end and (found := self._ready.next(now)) is not None:
            key, waited_ms = found
            self._governor.waited(min(waited_ms, now - self._due_ms))
            self.served += 1
            moved += self._serve(self._work.pop(key))
            now = self._now_ms()
        if now >= end and self._ready.depth:
            self._go_on()
        elif moved:
            self._turn_later()

    def _serve(self, work: Work) -> int:
        """Do one thing's work; those that wait behind one that fails still have their turn."""
        try:
            return work()
        except Exception as error:
            self._supervisor.report(f"the turn {described(work)}", "failed", error)
            return 1

    def _go_on(self) -> None:
        """Have the rest of a turn that took too long as soon as the loop has seen who else came."""
        self._turning = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _now_ms(self) -> float:
        return 1000 * self._clock.monotonic()
