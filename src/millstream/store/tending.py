"""Tending: looks after all logs again and again, a share of them with each tick.

What a log has to do soon it does when it is written. What can wait (a segment that is old enough to
end, small writes that are not in their file yet, space of dead records) waits for its turn.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from millstream.store.log.file_log import FileLog

SHARE = 256  # logs that each tick looks after, or a part of all where that is more
TICKS = 30  # in which every log has its turn, however many there are
STEP = 64  # of them before the loop goes round


class TendedStore(Protocol):
    """Where the logs are."""

    logs: dict[int, FileLog]

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        ...


class Tending:
    """Goes round the logs; one that came or went meanwhile has its turn in the next round."""

    def __init__(self, store: TendedStore) -> None:
        self._store = store
        self._left: list[int] = []
        self._share = SHARE

    def next(self) -> list[FileLog]:
        """Look after the next share; returns whose turn it is."""
        if not self._left:
            self._left = list(self._store.logs)
            self._share = max(SHARE, len(self._left) // TICKS)
        ids, self._left = self._left[-self._share :], self._left[: -self._share]
        some = [each for each in map(self._store.logs.get, ids) if each is not None]
        self._tend(some, 0)
        return some

    def _tend(self, some: list[FileLog], start: int) -> None:
        for each in some[start : start + STEP]:
            each.tick()
        if start + STEP < len(some):
            self._store.post(partial(self._tend, some, start + STEP))
