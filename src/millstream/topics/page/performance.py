"""Performance: the figures that every data answer carries."""

from millstream.clock import Clock


class Stopwatch:
    """Milliseconds since a request began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()

    def elapsed_ms(self) -> float:
        """Return the milliseconds so far."""
        return round((self._clock.monotonic() - self._since) * 1000, 3)

    def performance(self, **more: float) -> dict[str, float]:
        """Return the object that answers carry."""
        return {"server_total_ms": self.elapsed_ms(), **more}
