"""What the process takes of the machine."""

import os
import resource
import time


def resident_bytes() -> int:
    """Return the memory that the process occupies now."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak is the nearest figure there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cores() -> int:
    """Return how many processors the machine has."""
    return os.cpu_count() or 1


class CpuMeter:
    """Processor use in percent of one core, over the time since it was last asked.

    Asked twice within a second, it repeats itself: shorter spans say nothing.
    """

    def __init__(self, wall: float | None = None, used: float | None = None) -> None:
        self._wall = time.monotonic() if wall is None else wall
        self._used = time.process_time() if used is None else used
        self._percent = 0.0

    def percent(self) -> float:
        """Return the use up to now."""
        return self.measure(time.monotonic(), time.process_time())

    def measure(self, wall: float, used: float) -> float:
        """Return the use up to a moment, given as two readings."""
        elapsed = wall - self._wall
        if elapsed >= 1.0:
            self._percent = round(100.0 * (used - self._used) / elapsed, 1)
            self._wall, self._used = wall, used
        return self._percent
