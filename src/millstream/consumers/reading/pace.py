"""Pace: when the next record may go, by the rate limit and as the records once came."""

from millstream.consumers.config import ConsumerConfig


class Pace:
    """Times are monotonic seconds; callers pass ``now``."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.take_on(config)

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a configuration, and forget what went before it."""
        self._bytes_per_second = config.rate_limit_bps / 8
        self._replays = config.replay_policy == "original"
        self._free_at = 0.0
        self._last_ts_ns = 0
        self._last_sent = 0.0

    @property
    def is_free(self) -> bool:
        """Whether records go as fast as they can."""
        return not self._bytes_per_second and not self._replays

    def due(self, ts_ns: int) -> float:
        """Return when a record of this time may go."""
        due = self._free_at
        if self._replays and self._last_ts_ns:
            due = max(due, self._last_sent + (ts_ns - self._last_ts_ns) / 1e9)
        return due

    def sent(self, size: int, ts_ns: int, now: float) -> None:
        """Note a delivery."""
        if self._bytes_per_second:
            self._free_at = max(self._free_at, now) + size / self._bytes_per_second
        self._last_ts_ns, self._last_sent = ts_ns, now

    def caught_up(self) -> None:
        """Go on without delays: from here on records come at their own time."""
        self._replays = False
