"""Governor: how hard the server is pressed, and what it gives up for that, in this order:

    pressure       measure                                     what a client notices
    above 0.2      deliveries wait up to 20 ms for more,       several records in one event
                   but for those of a priority from 750 on
    above 0.4      commits wait up to 10 ms for more           slower acknowledgements
    above 0.8      what has a negative priority is not pushed, copying comes later
                   (for 300 ms; until it is below 0.6)         paused events, still there to be read
    about 1        writes are refused once the log is full     429 with Retry-After

It takes latency, never a record. Pure: samples in, measures out.
"""

import msgspec

SAMPLE_MS = 100
LATENCY_MS = 5.0  # what a delivery may wait
DEPTH = 8  # things waiting for each worker that count as a full queue
SMOOTH = 0.3  # weight of the newest latency

COALESCE_ABOVE, LONGEST_COALESCE_MS = 0.2, 20.0
WIDEN_ABOVE, SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS = 0.4, 0.5, 10.0
DEFER_ABOVE, DEFER_UNTIL, DEFER_AFTER = 0.8, 0.6, 3  # samples in a row
REFUSE_FROM = 0.98


class PressureSample(msgspec.Struct, frozen=True):
    """What was seen since the last look."""

    depth: int  # things that wait for their turn
    busy: float  # part of the time that the loop worked, 0 to 1
    ingest_full: bool = False  # the log has all that it takes


class Measures(msgspec.Struct, frozen=True):
    """What to do until the next look."""

    pressure: float = 0.0
    coalesce_ms: float = 0.0
    commit_window_ms: float = 0.0
    defers: bool = False
    refuses: bool = False

    @property
    def rung(self) -> str:
        """Return how far up the ladder this is, in a word."""
        if self.refuses:
            return "refuse"
        if self.defers:
            return "defer"
        if self.commit_window_ms:
            return "widen"
        return "coalesce" if self.coalesce_ms else "none"


class Governor:
    """Turns samples into measures; remembers latency and how long it has been bad."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self._pressed = 0  # samples in a row above the mark for deferring
        self.latency_ms = 0.0
        self.measures = Measures()

    def waited(self, latency_ms: float) -> None:
        """Note how long something waited for its turn beyond what it was meant to."""
        self.latency_ms += SMOOTH * (max(0.0, latency_ms) - self.latency_ms)

    def sample(self, seen: PressureSample) -> Measures:
        """Decide anew."""
        pressure = self._pressure(seen)
        self._pressed = self._pressed + 1 if pressure > DEFER_ABOVE else 0
        defers = self._pressed >= DEFER_AFTER or (self.measures.defers and pressure >= DEFER_UNTIL)
        self.measures = Measures(
            round(pressure, 3),
            coalesce_window_ms(pressure),
            commit_window_ms(pressure),
            defers,
            pressure >= REFUSE_FROM and seen.ingest_full,
        )
        return self.measures

    def _pressure(self, seen: PressureSample) -> float:
        """Return 0 to 1: a busy loop alone is no harm, but what waits, and for how long."""
        latency = min(1.0, self.latency_ms / LATENCY_MS)
        depth = min(1.0, seen.depth / (DEPTH * self._workers))
        busy = min(1.0, max(0.0, 2 * seen.busy - 1))
        return 0.4 * latency + 0.3 * depth + 0.3 * busy


def coalesce_window_ms(pressure: float) -> float:
    """Return how long a delivery waits for more to send at once."""
    above = pressure - COALESCE_ABOVE
    return round(LONGEST_COALESCE_MS * above / (1 - COALESCE_ABOVE), 3) if above > 0 else 0.0


def commit_window_ms(pressure: float) -> float:
    """Return how long a commit waits for more to sync at once."""
    if pressure <= WIDEN_ABOVE:
        return 0.0
    return round(SHORTEST_WINDOW_MS + (LONGEST_WINDOW_MS - SHORTEST_WINDOW_MS) * pressure, 3)
