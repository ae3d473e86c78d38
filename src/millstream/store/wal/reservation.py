"""Reservation: up to where a ``disk`` log may give out sequences, and when it asks for more.

A ``disk`` ack may be lost with the power, but its sequence must not come back under another
record. So the log promises on stable storage, by a RESERVE frame, that no sequence up to a limit is
given out twice. The next promise is asked for while the one before it still reaches far enough:
records wait for its sync only where the log outruns it.

The promise is also what a start knows after a power cut: a sequence above it was acknowledged to
nobody, one below it may have been. So it reaches no further than the log's pace asks for, and ends
when the log falls quiet. From then on a record waits for the sync of the record itself, and a
promise is made only when another follows at once.
"""

LEAST = 16  # sequences
MOST = 1 << 20
GROWTH = 4
OUTRUN = 16  # times as many where the last did not do: somebody waits for each step
BATCHES = 16  # for so many like one that is larger than the least: whoever sends it has more
QUICK = 0.05  # seconds; a promise whose quarter was used up sooner is followed by a larger one
SLOW = 5  # times as long, and the next is smaller: what is left of it is in doubt after a power cut


class Reservation:
    """Decides for one log; times are passed in, and the log carries it out."""

    __slots__ = (
        "_asked_at",
        "_coming",
        "_growth",
        "_held",
        "_least",
        "_lone_at",
        "_quick",
        "_quiet",
        "_seen",
        "_step",
        "_took",
        "is_open",
        "is_pressed",
    )

    def __init__(
        self, least: int = LEAST, growth: int = GROWTH, quick: float = QUICK, quiet: float = 0.0
    ) -> None:
        self._least = least
        self._growth = growth
        self._quick = quick
        self._quiet = quiet  # seconds without a record after which a promise ends
        self._step = 0
        self._asked_at = 0.0
        self._took = 0.0  # seconds until a promise was stable: a slow disk needs larger ones
        self._coming = 0  # asked for ahead, and not stable yet
        self._held = 0  # until it is: as far as the promise before it reaches
        self._lone_at: float | None = None  # when a record came that waits for its own sync
        self._seen = (0, 0.0)  # the log's next sequence, and since when it is that
        self.is_pressed = False  # the rest of the promise may not last until the next sync by age
        self.is_open = False  # there is a promise, or there will be with the next sync

    def is_lone(self, now: float) -> bool:
        """Say whether a record is to wait for its own sync: the log is quiet but for this one."""
        before, self._lone_at = self._lone_at, None if self._lone_at is None else now
        return not self.is_open and before is not None and now - before >= self._quiet

    def is_quiet(self, next_seq: int, now: float) -> bool:
        """Say whether nothing was appended for long enough since this was asked first."""
        if self._coming or self._seen[0] != next_seq:
            self._seen = (next_seq, now)
            return False
        return now - self._seen[1] >= self._quiet

    def end(self) -> None:
        """Promise nothing any more."""
        self.is_open = False
        self._coming = 0
        self._lone_at = float("-inf")
        self._seen = (0, 0.0)

    def suffices_to(self, reserved: int) -> int:
        """Return the last sequence that leaves nothing to decide."""
        return self._held if self._coming else reserved - 3 * self._step // 4

    def covers(self, last: int, reserved: int) -> bool:
        """Say whether ``last`` may be given out without waiting for a sync."""
        return last <= (self._held if self._coming else reserved)

    def is_low(self, last: int, reserved: int) -> bool:
        """Say whether to ask ahead: a quarter of the last promise is used up."""
        return not self._coming and 4 * (reserved - last) < 3 * self._step

    def grow(self, above: int, now: float, count: int = 1, outrun: bool = True) -> int:
        """Return how far the next promise reaches, asked for by a batch of ``count``.

        Further, the faster the last one was used, and where it did not last until the next.
        """
        lasted, self._asked_at = now - self._asked_at, now
        quick = max(self._quick, self._took)
        self.is_pressed = lasted < quick / 2
        if not self._step:
            self._step = self._least
        elif outrun and self.is_open:
            self._step *= OUTRUN
        elif lasted < quick:
            self._step *= self._growth
        elif lasted > SLOW * quick:
            self._step = max(self._step // self._growth, self._least)
        if count > self._least:
            self._step = max(self._step, BATCHES * count)
        self._step = min(self._step, MOST)
        self._coming = 0
        self.is_open = True
        return above + self._step

    def ahead(self, reserved: int, now: float, count: int = 1) -> int:
        """Return likewise how far it reaches, and hold at ``reserved`` until ``granted``."""
        wanted = self.grow(reserved, now, count, outrun=False)
        self._coming, self._held = wanted, reserved
        return wanted

    def granted(self, seq: int, now: float) -> None:
        """Let sequences up to ``seq`` be given out, also where they were asked for ahead."""
        self._took = max(now - self._asked_at, self._took / 2)
        if self._coming == seq:
            self._coming = 0

    def refused(self, seq: int, reserved: int) -> int:
        """Forget a promise that was asked for ahead; returns as far as the log's reaches now."""
        if self._coming != seq:
            return reserved
        self._coming = 0
        return self._held
