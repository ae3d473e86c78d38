"""Positions: which entries are under way to the engine, and what to do about each.

Entries get positions one after another. The engine may answer late, twice, in any order or never;
what counts is how far every position holds its entry. One of which nothing is known is sent again
at the same position with the same bytes (ADR 4), after a pause that grows.
"""

from collections.abc import Sequence

import msgspec

from millstream.errors import ShardReadOnly
from millstream.store.wal.commit import Ok, Taken

PATIENCE = 5.0  # seconds without an answer after which an entry is sent again
SHORTEST_PAUSE = 0.01  # seconds before a position of which nothing is known is asked for again
LONGEST_PAUSE = 1.0

Entry = Sequence[bytes]


class UnderWay(msgspec.Struct):
    """An entry that is not confirmed, with all before it."""

    entry: Entry
    due: float  # when it is sent, or sent again
    tries: int = 0
    is_there: bool = False


class Positions:
    """Decides for one writer; times are passed in, and the writer carries it out."""

    def __init__(self, position: int, ahead: int) -> None:
        self.restart(position)
        self.taken: Taken | None = None  # once another writer has the log
        self._ahead = ahead
        self.under_way: dict[int, UnderWay] = {}  # ascending

    def restart(self, position: int) -> None:
        """Go on at ``position``, with nothing under way."""
        self.next = position  # the next one to give away
        self.confirmed = position - 1  # every position up to here holds its entry

    @property
    def is_full(self) -> bool:
        """Say whether another entry would have to wait until more is confirmed."""
        return self.next > self.confirmed + self._ahead > self.confirmed

    def give(self, entry: Entry, now: float) -> bool:
        """Give the entry the next position; says whether to send it now."""
        may_go = self.next <= self.confirmed + self._ahead
        due = now + PATIENCE if may_go else now
        self.under_way[self.next] = UnderWay(entry, due, 1 if may_go else 0)
        self.next += 1
        return may_go

    def pass_by(self) -> None:
        """Give away the next position to an entry that is there already."""
        self.next += 1
        self.confirmed += 1

    def take_back(self) -> None:
        """Free the newest position: its entry is not stored, and nothing comes of it."""
        self.next -= 1
        del self.under_way[self.next]

    def answered(self, position: int, outcome: Ok | Taken) -> bool:
        """Note an answer; True when it changes how far everything is confirmed, or ends it."""
        one = self.under_way.get(position)
        if one is None or one.is_there or self.taken is not None:
            return False  # answered before
        if isinstance(outcome, Taken):
            self.taken = outcome
            return True
        one.is_there = True
        if position > self.confirmed + 1:
            return False
        self._confirm()
        return True

    def _confirm(self) -> None:
        under_way = self.under_way
        while (one := under_way.get(self.confirmed + 1)) is not None and one.is_there:
            self.confirmed += 1
            del under_way[self.confirmed]

    def doubted(self, position: int, now: float) -> None:
        """Note that nothing is known of a position: it is asked for again after a while."""
        one = self.under_way.get(position)
        if one is not None:
            one.due = now + min(SHORTEST_PAUSE * 2 ** min(one.tries - 1, 8), LONGEST_PAUSE)

    def next_due(self) -> float | None:
        """Return when there is something to send, None while there is not."""
        if not self.under_way or self.taken is not None:
            return None
        return min((one.due for one in self._sendable().values()), default=None)

    def due(self, now: float) -> list[tuple[int, Entry]]:
        """Return what to send now, ascending."""
        if not self.under_way or self.taken is not None:
            return []
        found = [(at, one) for at, one in self._sendable().items() if one.due <= now]
        for _, one in found:
            one.tries += 1
            one.due = now + PATIENCE
        return [(at, one.entry) for at, one in found]

    def _sendable(self) -> dict[int, UnderWay]:
        last = self.confirmed + self._ahead
        return {at: one for at, one in self.under_way.items() if at <= last and not one.is_there}


def taken_error(taken: Taken) -> ShardReadOnly:
    """Return why a writer writes no more, whose log another one has taken."""
    return ShardReadOnly(f"another writer has taken the log: {taken}")
