"""PressureWatch: looks every 100 ms how loaded the loop is, while there is work, and never else."""

import asyncio
from collections.abc import Callable

from millstream.clock import Clock
from millstream.delivery.governor import SAMPLE_MS, Governor, Measures, PressureSample
from millstream.delivery.ready_set import ReadySet
from millstream.supervisor import Supervisor

QUIET_SAMPLES = 5  # without work, after which nobody looks any more


class PressureWatch:
    """Tells the governor what it sees, and everybody else what the governor makes of it.

    ``measured`` hears of changed measures, ``relieved`` that what was deferred may go on.
    """

    def __init__(
        self,
        clock: Clock,
        supervisor: Supervisor,
        governor: Governor,
        ready: ReadySet,
        *,
        ingest_full: Callable[[], bool],
        measured: Callable[[Measures], None],
        busy_seconds: Callable[[], float],
        relieved: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._governor = governor
        self._ready = ready
        self._ingest_full = ingest_full
        self._measured = measured
        self._busy_seconds = busy_seconds
        self._relieved = relieved
        self._sample = supervisor.repeated("the governor's look", self._measure)
        self._watching = False
        self._quiet = 0
        self._busy = 0.0
        self._looked = 0.0
        self._late = 0.0  # milliseconds, at the last look

    def watch(self) -> None:
        """Look from now on: there is work."""
        self._quiet = 0
        if self._watching:
            return
        self._watching = True
        self._late = 0.0
        self._busy, self._looked = self._busy_seconds(), self._clock.monotonic()
        self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(SAMPLE_MS / 1000, self._look)

    def _look(self) -> None:
        """Measure; whatever that raises, the next look comes while there is work."""
        self._sample()
        self._quiet += 1
        at_rest = not len(self._ready) and self._governor.measures.pressure < 0.2
        if self._quiet >= QUIET_SAMPLES and at_rest:
            self._watching = False
        else:
            self._look_later()

    def _measure(self) -> None:
        now, busy = self._clock.monotonic(), self._busy_seconds()
        passed = now - self._looked
        # A loop that comes late to this look was late for everything else too. Once may be the
        # machine's doing, and over already: to gather deliveries then would only add to it.
        late = 1000 * passed - SAMPLE_MS
        self._governor.waited(min(late, self._late))
        self._late = late
        share = (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._looked = busy, now
        seen = PressureSample(self._ready.depth, min(1.0, share), self._ingest_full())
        before, measures = self._governor.measures, self._governor.sample(seen)
        self._ready.defers = measures.defers
        if measures != before:
            self._measured(measures)
        if before.defers and not measures.defers and len(self._ready):
            self._relieved()
