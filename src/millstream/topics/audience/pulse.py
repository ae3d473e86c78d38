"""Pulse: a topic's changes, told to everyone who waits, and what they all send because of one.

Watchers that one commit wakes want the same bytes. The first to look renders them, the others
send what it made; the next change throws it away, so nothing stale is ever sent. When they are
woken is the scheduler's to say: a topic that changes again meanwhile wakes them once.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from millstream.topics.audience.row import Row
from millstream.topics.audience.seat import Seat, Variant

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

ONE_BY_ONE = 16  # commits, after those who watch were found to make no row

Schedule = Callable[["Stream", Callable[[], int]], None]  # runs it when it is the topic's turn
MayPush = Callable[["Stream"], bool]  # whether watchers may be sent records just now


class Pulse:
    """The changes of one stream while somebody watches it."""

    def __init__(
        self,
        stream: "Stream",
        ended: Callable[[], None],
        schedule: "Schedule | None" = None,
        may_push: MayPush = lambda stream: False,
    ) -> None:
        self._stream = stream
        self._schedule = schedule
        self._may_push = may_push
        self._variants: WeakValueDictionary[Hashable, Variant] = WeakValueDictionary()
        self._wakes: dict[object, Callable[[], None]] = {}
        self._seats: dict[object, Seat] = {}
        self._row: Row | None = None
        self._before_row = 1  # commits that everybody is sent to one by one
        self._ended = ended
        self._undo = stream.watch(self._beat)
        self.is_telling = False  # and whoever is told may send at once
        self.told_at = 0.0  # on the loop's clock

    @property
    def may_share(self) -> bool:
        """Say whether what one has rendered is true for all until the next change.

        Records that expire do so without a change, but not while everyone is being told.
        """
        return self.is_telling or self._stream.config.max_age <= 0

    def variant(self, key: Hashable) -> Variant:
        """Return what is shared by all who see the topic in one way; it goes with the last."""
        known = self._variants.get(key)
        if known is None:
            known = self._variants[key] = Variant()
        return known

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` after each change; returns the undo, which may be called twice."""
        key = object()
        self._wakes[key] = wake
        return partial(self._leave, key)

    def seat(self, seat: Seat) -> Callable[[], None]:
        """Have ``seat`` sent to, or rung, after each change; returns the undo likewise."""
        key = object()
        self._seats[key] = seat
        self._rearrange()
        return partial(self._leave, key)

    def _leave(self, key: object) -> None:
        if key in self._seats:
            self._rearrange()
        known = self._wakes.pop(key, None) or self._seats.pop(key, None)
        if known is not None and not self._wakes and not self._seats:
            self._undo()
            self._ended()

    def _send(self, seats: list[Seat]) -> None:
        """Send what a commit brought, to those who wait in one place by one decision."""
        now, row = self.told_at, self._row
        if row is not None and row.send(now):
            _send_each(row.rest, now)
            return
        self._end_row()
        _send_each(seats, now)
        if self._before_row:
            self._before_row -= 1
        else:
            self._form_row(seats)

    def _form_row(self, seats: list[Seat]) -> None:
        row = Row(seats, self._stream.log.committed_seq)
        if row.holds:
            self._row = row
        else:
            row.end()
            self._before_row = ONE_BY_ONE

    def _end_row(self) -> None:
        if self._row is not None:
            self._row.end()
            self._row = None

    def _rearrange(self) -> None:
        """Form no row before a commit has found everybody where they are now."""
        self._end_row()
        self._before_row = 1

    def later(self) -> None:
        """Wake everyone when it is the topic's turn."""
        if self._schedule is None:
            self._tell()
        else:
            self._schedule(self._stream, self._tell)

    def _beat(self) -> None:
        self._forget_chunks()
        self.later()

    def _forget_chunks(self) -> None:
        for known in self._variants.valuerefs():  # its values cost each commit four times as much
            variant = known()
            if variant is not None:
                variant.chunks.clear()

    def _tell(self) -> int:
        wakes, seats = list(self._wakes.values()), list(self._seats.values())
        self.is_telling = self._may_push(self._stream)
        self.told_at = asyncio.get_running_loop().time()
        try:
            if self.is_telling:
                self._send(seats)
            else:
                for seat in seats:
                    seat.alarm.ring()
            for wake in wakes:
                wake()
        finally:
            self.is_telling = False
            if not self.may_share:
                self._forget_chunks()
        return len(wakes) + len(seats)


def _send_each(seats: list[Seat], now: float) -> None:
    """Send what a commit brought to all who wait for just that; the others look for themselves."""
    # Each of a topic's watchers comes by here for each commit: mind what it costs.
    for seat in seats:
        alarm, push, cursors, name = seat.alarm, seat.push, seat.cursors, seat.name
        if push is not None and alarm.is_waiting and name in seat.announced:
            caller = seat.session.caller
            covers = caller.covers  # the allow-list of a key stays as it was
            if not caller.standing.revoked and (covers is None or covers(name)):
                before = cursors[name]
                news = seat.variant.chunks.get(before) or seat.find(before)
                if news is not None:
                    parcel = news.parcel
                    cursors[name] = news.cursor
                    if parcel is not None and len(cursors) > 1:
                        parcel = seat.wrap(news)
                    if parcel is None or push.push(parcel):
                        alarm.patient_since = now
                        continue
                    cursors[name] = before
        alarm.ring()


class Pulses:
    """One pulse per watched stream."""

    def __init__(
        self, schedule: "Schedule | None" = None, may_push: MayPush = lambda stream: False
    ) -> None:
        self._schedule = schedule
        self._may_push = may_push
        self._pulses: dict[int, Pulse] = {}

    def __len__(self) -> int:
        return len(self._pulses)

    def of(self, stream: "Stream") -> Pulse:
        """Return the pulse of a stream; it ends with its last listener."""
        known = self._pulses.get(stream.incarnation)
        if known is None:
            ended = partial(self._forget, stream.incarnation)
            known = Pulse(stream, ended, self._schedule, self._may_push)
            self._pulses[stream.incarnation] = known
        return known

    def _forget(self, incarnation: int) -> None:
        self._pulses.pop(incarnation, None)
