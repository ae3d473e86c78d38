"""RemovalBatch: what limits per subject have taken, until it is removed from the log together.

A removal is a frame of its own; one for each put into a key-value store would double its cost. Who
reads does not see the crowd any more, and the next start would find it again, so that it may wait.
"""

from collections.abc import Callable

from millstream.delivery.timers import Timer, Timers

MOST = 256  # records that wait
LONGEST = 0.01  # seconds that they do


class RemovalBatch:
    """Calls ``drop`` with what has gathered, soon."""

    def __init__(self, timers: Timers, drop: Callable[[list[int]], None]) -> None:
        self._timers = timers
        self._drop = drop
        self._seqs: list[int] = []
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._seqs)

    def add(self, seqs: list[int]) -> None:
        """Let these leave with the others."""
        self._seqs += seqs
        if len(self._seqs) > MOST:
            self.leave()
        elif self._timer is None or self._timer.callback is None:
            self._timer = self._timers.after(LONGEST, self.leave)

    def leave(self) -> None:
        """Have everything removed that is still here."""
        if self._seqs:
            seqs, self._seqs = self._seqs, []
            self._drop(seqs)

    def close(self) -> None:
        """Wait for nothing any more: the next start removes what is left."""
        if self._timer is not None:
            self._timer.cancel()
