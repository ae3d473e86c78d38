"""Row: watchers who wait in one place of a topic, so that a single decision serves them all."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.http.way import Way, send_all
from millstream.topics.audience.seat import Seat

if TYPE_CHECKING:
    from millstream.http.request import Standing

FEW = 4  # watchers; so many are as soon decided about one by one


class Row:
    """Sends each of its members what a commit brought, until something happens to one of them.

    Then it ends: whoever waits no longer, falls behind with reading or leaves ends it. Meanwhile
    the members' cursors, and how long they have waited, are the row's. ``rest`` are those
    who found no place in it.
    """

    def __init__(self, seats: Iterable[Seat], cursor: int) -> None:
        self.told_at = 0.0  # on the loop's clock
        self.rest: list[Seat] = []
        self._cursor = cursor
        self._holds = True
        self._members: list[Seat] = []
        self._ways: list[Way] = []
        self._standings: dict[int, Standing] = {}  # by identity: a key's watchers have the same
        for seat in seats:
            if not self._seated(seat):
                self.rest.append(seat)

    @property
    def holds(self) -> bool:
        """Return whether it goes on, and saves anything."""
        return self._holds and len(self._members) > max(FEW, len(self.rest))

    def _seated(self, seat: Seat) -> bool:
        """Give somebody a place who stands and sees as the others do."""
        caller, is_here = seat.session.caller, seat.cursors.get(seat.name) == self._cursor
        waits = seat.alarm.is_waiting and seat.name in seat.announced
        if not (is_here and waits and seat.is_alone and caller.covers is None):
            return False
        if seat.push is None or (self._members and seat.variant is not self._members[0].variant):
            return False
        way = seat.push.join(self.end)
        if way is None:
            return False
        seat.alarm.bond = self
        self._members.append(seat)
        self._ways.append(way)
        self._standings[id(caller.standing)] = caller.standing
        return True

    def send(self, now: float) -> bool:
        """Send what a commit brought; False when each member must be looked at."""
        if not self._holds or any(each.revoked for each in self._standings.values()):
            return False
        one = self._members[0]
        news = one.variant.chunks.get(self._cursor) or one.find(self._cursor)
        if news is None:
            return False
        # Somebody may fall behind by this, which ends the row: the others get it all the same.
        self._cursor, self.told_at = news.cursor, now
        if news.parcel is not None:
            send_all(self._ways, news.parcel.chunked)
        return True

    def end(self) -> None:
        """Leave the members where they stand; harmless when done twice."""
        members, self._members, self._ways, self._holds = self._members, [], [], False
        for seat in members:
            seat.cursors[seat.name] = self._cursor
            seat.alarm.patient_since = max(seat.alarm.patient_since, self.told_at)
            seat.alarm.bond = None
