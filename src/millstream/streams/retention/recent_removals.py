"""RecentRemovals: what went lately, so that whoever counts records knows whether to count anew."""

from collections import deque
from collections.abc import Callable, Iterable

_REMEMBERED = 64
EVERYTHING = 2**64


class RecentRemovals:
    """A count of removals, and how high each of the latest reached.

    What went record by record, by a request or a limit, is kept until ``take_dropped``:
    ``on_drop`` hears that there is something, ``tell`` says that it is wanted now.
    """

    def __init__(self) -> None:
        self.count = 0
        self.purges = 0  # under way, whose end consumers are told of
        self.on_drop: Callable[[], None] | None = None
        self.tell: Callable[[], None] = _nobody
        self.rolled_up: Callable[[str], None] = _nothing  # a subject, or all: "", as by a purge
        self._reached: deque[int] = deque(maxlen=_REMEMBERED)
        self._dropped: list[int] = []
        self._dropped_below = 0
        self._purged_alone: list[int] = []

    def note(self, highest: int = EVERYTHING) -> None:
        """Note a removal that touched nothing above ``highest``."""
        self.count += 1
        self._reached.append(highest)

    def reached_since(self, count: int) -> int:
        """Return the highest sequence touched since there were ``count`` removals, 0 if none."""
        missed = self.count - count
        if missed > len(self._reached):
            return EVERYTHING
        return max((self._reached[-at] for at in range(1, missed + 1)), default=0)

    def drop(self, seqs: Iterable[int] = (), below: int = 0) -> None:
        """Note records that go, or everything ``below`` a sequence; nobody listens: forgotten."""
        if self.on_drop is not None:
            self._dropped += seqs
            self._dropped_below = max(self._dropped_below, below)
            self.on_drop()

    def purge(self, seqs: list[int]) -> None:
        """Note a purge: one of a single record is told of, as if that had been deleted."""
        if len(seqs) == 1 and self.on_drop is not None:
            self._purged_alone += seqs

    def take_purged_alone(self) -> list[int]:
        """Return what purges removed that removed nothing else, since the last call."""
        taken, self._purged_alone = self._purged_alone, []
        return taken

    def take_dropped(self) -> tuple[int, list[int]]:
        """Return below which everything went, and what went besides, since the last call."""
        taken = self._dropped_below, self._dropped
        self._dropped_below, self._dropped = 0, []
        return taken


def _nobody() -> None:
    """Tell nobody."""


def _nothing(_subject: str) -> None:
    """Tell nobody of a roll-up."""
