"""Liveness: since when a client is here, and whether it still is. It decides; the session acts."""

import math
from enum import Enum, auto

_PAUSE = 1.0  # seconds that a client may stop in the middle of its first operation


class Due(Enum):
    """What the time has come for."""

    NOTHING = auto()
    HANDSHAKE = auto()  # the client should have said who it is
    PING = auto()  # see whether it is alive
    MEASURE = auto()  # ask how far away it is


class Liveness:
    """Deadlines and pings of one connection."""

    def __init__(
        self,
        now: float,
        started_ns: int,
        *,
        handshake: float,
        longest: float,
        ping: float,
        measure: float,
    ) -> None:
        """Say what is due when, in seconds from now.

        CONNECT must come within ``handshake``, or within ``longest`` where it is on its way.
        """
        self.started_ns = started_ns
        self.rtt = 0.0  # seconds that the client's last PONG took, 0 = not known
        self._begun = now
        self.next_at = now + min(handshake, ping, measure)  # nothing is due before
        self._handshake_until = now + handshake
        self._handshake_end = now + longest
        self._ping_at = now + ping
        self._measure_at = now + measure
        self._pings_out = 0
        self._unfinished = 0  # bytes of the first operation, when they were last looked at
        self._grew_at = now
        self._pinged_at: float | None = None

    def greeted(self, now: float) -> None:
        """Take how long the client took to answer the greeting as a first guess at the distance."""
        self.rtt = now - self._begun

    def proven(self) -> None:
        """Note that this is a client."""
        self._handshake_until = math.inf

    def goes_on(self, now: float, unfinished: int) -> bool:
        """Say whether more of an operation that is not over came within a second."""
        if unfinished > self._unfinished:
            self._grew_at = now
        self._unfinished = unfinished
        return unfinished > 0 and now - self._grew_at < _PAUSE

    def is_late(self, now: float) -> bool:
        """Say whether even a CONNECT that is on its way took too long."""
        return now >= self._handshake_end

    def due(self, now: float, ping_interval: float, *, connected: bool) -> Due:
        """Return what to do now, and count it as done; the handshake is due until it is over."""
        due = Due.NOTHING
        if now >= self._handshake_until:
            due = Due.HANDSHAKE
        elif now >= self._ping_at:
            self._ping_at, due = now + ping_interval, Due.PING
        elif connected and now >= self._measure_at:
            self._measure_at, due = math.inf, Due.MEASURE
        self.next_at = min(self._handshake_until, self._ping_at, self._measure_at)
        return due

    def heard(self) -> None:
        """Note that the client sent something."""
        self._pings_out = 0

    def is_stale(self, most: int) -> bool:
        """Say whether as many pings as allowed had no answer; one more goes out if not."""
        if self._pings_out >= most:
            return True
        self._pings_out += 1
        return False

    def pinged(self, now: float) -> None:
        """Measure from here to the PONG."""
        self._pinged_at = now

    def ponged(self, now: float) -> None:
        """Note that the client is alive, and how long its answer took."""
        self._pings_out = 0
        if self._pinged_at is not None:
            self.rtt, self._pinged_at = max(now - self._pinged_at, 0.0), None
