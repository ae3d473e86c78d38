"""RecentRemovals: what went lately, so that whoever counts records knows whether to count anew."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

_REMEMBERED = 64
EVERYTHING = 2**64


class RemovalListener(Protocol):
    """Who follows what a stream removes."""

    def on_drop(self) -> None:
        """There is something for ``take_dropped``."""
        ...

    def on_drops_wanted(self) -> None:
        """Somebody needs what was dropped to be known now, not soon."""
        ...

    def on_roll_up(self, subject: str) -> None:
        """A record replaced all others of a subject, or of the stream: "", as by a purge."""
        ...


class RecentRemovals:
    """A count of removals, and how high each of the latest reached.

    What went record by record, by a request or a limit, is kept until ``take_dropped`` for the
    one who listens; while nobody does it is forgotten.
    """

    def __init__(self) -> None:
        self.count = 0
        self.purges = 0  # under way, whose end consumers are told of
        self._listener: RemovalListener | None = None
        self._reached: deque[int] = deque(maxlen=_REMEMBERED)
        self._dropped: list[int] = []
        self._dropped_below = 0
        self._purged_alone: list[int] = []

    @property
    def has_listener(self) -> bool:
        """Whether somebody listens."""
        return self._listener is not None

    def listen(self, listener: RemovalListener) -> Callable[[], None]:
        """Let one listener follow what is removed; returns the undo."""
        self._listener = listener
        return self._forget_listener

    def _forget_listener(self) -> None:
        self._listener = None

    def tell_drops(self) -> None:
        """Have the listener take what was dropped now."""
        if self._listener is not None:
            self._listener.on_drops_wanted()

    def roll_up(self, subject: str) -> None:
        """Tell that one record replaced all others of a subject, or of the stream: ""."""
        if self._listener is not None:
            self._listener.on_roll_up(subject)

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
        if self._listener is not None:
            self._dropped += seqs
            self._dropped_below = max(self._dropped_below, below)
            self._listener.on_drop()

    def purge(self, seqs: list[int]) -> None:
        """Note a purge: one of a single record is told of, as if that had been deleted."""
        if len(seqs) == 1 and self._listener is not None:
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
