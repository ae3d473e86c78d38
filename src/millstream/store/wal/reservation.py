"""Reservation: up to where a ``disk`` log may give out sequences, and when it asks for more.

A ``disk`` ack may be lost with the power, but its sequence must not come back under another
record. So the log promises on stable storage, by a RESERVE frame, that no sequence up to a limit is
given out twice. The next promise is asked for while the one before it still reaches far enough:
records wait for its sync only where the log outruns it.
"""

LEAST = 256  # sequences
MOST = 1 << 20
GROWTH = 4
BATCHES = 16  # for so many like one that is larger than the least: whoever sends it has more
QUICK = 1.0  # seconds; a promise that was used up sooner is followed by a larger one
SLOW = 10.0  # and one that lasted longer by a smaller one: a power cut costs what is left of it


class Reservation:
    """Decides for one log; times are passed in, and the log carries it out."""

    def __init__(self, least: int = LEAST, growth: int = GROWTH) -> None:
        self._least = least
        self._growth = growth
        self._step = 0
        self._asked_at = 0.0
        self._coming = 0  # asked for ahead, and not stable yet
        self._held = 0  # until it is: as far as the promise before it reaches

    def suffices_to(self, reserved: int) -> int:
        """Return the last sequence that leaves nothing to decide."""
        return self._held if self._coming else reserved - 3 * self._step // 4

    def covers(self, last: int, reserved: int) -> bool:
        """Say whether ``last`` may be given out without waiting for a sync."""
        return last <= (self._held if self._coming else reserved)

    def is_low(self, last: int, reserved: int) -> bool:
        """Say whether to ask ahead: a quarter of the last promise is used up."""
        return not self._coming and 4 * (reserved - last) < 3 * self._step

    def grow(self, above: int, now: float, count: int = 1) -> int:
        """Return how far the next promise reaches, asked for by a batch of ``count``.

        Further, the faster the last one was used.
        """
        lasted, self._asked_at = now - self._asked_at, now
        if not self._step:
            self._step = self._least
        elif lasted < QUICK:
            self._step *= self._growth
        elif lasted > SLOW:
            self._step = max(self._step // self._growth, self._least)
        if count > self._least:
            self._step = max(self._step, BATCHES * count)
        self._step = min(self._step, MOST)
        self._coming = 0
        return above + self._step

    def ahead(self, reserved: int, now: float, count: int = 1) -> int:
        """Return likewise how far it reaches, and hold at ``reserved`` until ``granted``."""
        wanted = self.grow(reserved, now, count)
        self._coming, self._held = wanted, reserved
        return wanted

    def granted(self, seq: int) -> None:
        """Let sequences up to ``seq``, asked for ahead, be given out."""
        if self._coming == seq:
            self._coming = 0

    def refused(self, seq: int, reserved: int) -> int:
        """Forget a promise that was asked for ahead; returns as far as the log's reaches now."""
        if self._coming != seq:
            return reserved
        self._coming = 0
        return self._held
