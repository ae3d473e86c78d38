"""Backlog: how much of a stream waits for its commit, and whether its publishers are stalled."""

from collections.abc import Callable

from millstream.store.log.log import Durability, Log

# Staged and not yet committed, before publishers are stalled. The streams of a shard share its
# commits in the order of staging, so this is also what a greedy one puts before its neighbours.
BACKLOG_BYTES = 4 * 1024 * 1024


class Backlog:
    """``paused`` is called when publishers are to be stalled or let go on.

    Who stages and commits counts ``size`` in place, because every run does so.
    """

    def __init__(self, log: Log, paused: Callable[[bool], None]) -> None:
        self.size = 0
        self.is_full = False  # too much of this stream waits for its commit
        self._is_held = False  # too much of all streams does
        self._log = log
        self._pause = paused
        self._paused = False

    def stall(self) -> None:
        """Stall publishers for what this stream has staged."""
        self.is_full = True
        self._apply()

    def let_go(self) -> None:
        """Stall them for it no longer."""
        self.is_full = False
        self._apply()

    def hold_publishers(self, held: bool) -> None:
        """Stall publishers for what other streams have staged; a log in memory goes on."""
        self._is_held = held and self._log.durability is not Durability.EPHEMERAL
        self._apply()

    def _apply(self) -> None:
        paused = self.is_full or self._is_held
        if paused != self._paused:
            self._paused = paused
            self._pause(paused)
