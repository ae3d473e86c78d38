"""The one source of time, so that a test can drive every deadline by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the broker may ask about time."""

    def time_ns(self) -> int:
        """Return wall-clock nanoseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for deadlines and durations."""
        ...

    def busy_seconds(self) -> float:
        """Return for how long the calling thread has worked so far."""
        ...


class BootClock(Protocol):
    """What a member of a fleet may ask beside it."""

    def boot_time(self) -> float:
        """Return seconds that go on while the machine sleeps, for leases."""
        ...


class SystemClock:
    """The machine's own clocks."""

    # The functions themselves: every commit asks several times, and a method around them would
    # cost more than they do.
    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)

    def boot_time(self) -> float:
        """Return seconds since the machine's boot, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def busy_seconds(self) -> float:
        """Return the processor time of the calling thread."""
        return time.thread_time()


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self._wall_ns = now_ns
        self._monotonic_ns = 0

    def time_ns(self) -> int:
        """Return the wall clock as last set."""
        return self._wall_ns

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic_ns / 1e9

    def busy_seconds(self) -> float:
        """Return 0: while nobody moves this clock, no time passes."""
        return 0.0

    def boot_time(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic_ns / 1e9

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on both clocks."""
        step = round(seconds * 1e9)
        self._wall_ns += step
        self._monotonic_ns += step

    def set_wall(self, now_ns: int) -> None:
        """Jump the wall clock alone, as an administrator or NTP would."""
        self._wall_ns = now_ns
