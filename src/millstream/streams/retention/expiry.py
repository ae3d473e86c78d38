"""Expiry: when records outlive the stream's max_age or a lifetime of their own."""

import heapq
from collections.abc import Set
from typing import Protocol

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.streams.reading.contents import Contents
from millstream.streams.retention import rules as retention


class Expiring(Protocol):
    """Who drops what is due."""

    @property
    def is_held(self) -> bool:
        """Whether somebody keeps the oldest record for a time."""
        ...

    def expire(self, seqs: list[int]) -> None:
        """Drop records whose own lifetime is over."""
        ...

    def oldest_mortal(self, start: int, forever: Set[int]) -> tuple[int, int]:
        """Return (sequence, time) of the oldest record from ``start`` on that ages."""
        ...

    def expire_below(self, first_kept: int) -> None:
        """Drop everything older."""
        ...


class Expiry:
    """The deadlines of one stream's records: two timers at most, however many records."""

    def __init__(
        self, contents: Contents, dropping: Expiring, clock: Clock, timers: Timers
    ) -> None:
        self._contents = contents
        self._dropping = dropping
        self._clock = clock
        self._timers = timers
        self._age_timer: Timer | None = None
        self._lifetimes: list[tuple[int, int]] = []  # heap of (expires at ns, seq)
        self._lifetime_timer: Timer | None = None
        self.forever: set[int] = set()  # records that outlive max_age
        self._mortal_from = 0  # what is older lives forever
        self._is_closed = False

    def close(self) -> None:
        """Forget every deadline."""
        self._is_closed = True
        for timer in (self._age_timer, self._lifetime_timer):
            if timer is not None:
                timer.cancel()

    def watch_age(self) -> None:
        """See to it that the oldest record goes when it outlives max_age."""
        if self._contents.config.max_age <= 0 or self._is_closed:
            return
        if self._age_timer is not None and self._age_timer.callback is not None:
            return
        due = self._next_expiry()
        if due == 0:
            return
        # A trim takes effect once it is logged: until then the oldest record is still there, and a
        # timer without delay would fire for it over and over before the loop can log anything.
        shortest = 1.0 if self._dropping.is_held else 0.01
        wait = max(shortest, (due - self._clock.time_ns()) / 1e9)
        self._age_timer = self._timers.after(wait, self._expire_by_age)

    def _next_expiry(self) -> int:
        """Return when the oldest record that ages outlives max_age, 0 when there is none."""
        if not self.forever:
            return retention.next_expiry(self._contents.config, self._contents.state())
        self._mortal_from, ts_ns = self._dropping.oldest_mortal(self._mortal_from, self.forever)
        return ts_ns + self._contents.config.max_age if ts_ns else 0

    def never(self, seq: int) -> None:
        """Let a record outlive max_age."""
        self.forever.add(seq)

    def _expire_by_age(self) -> None:
        self._age_timer = None
        if self.forever:
            oldest = self._contents.log.state().first_seq
            self.forever = {seq for seq in self.forever if seq >= oldest}
        until = retention.expired_until(self._contents.config, self._clock.time_ns())
        if until > 0:
            first_kept = self._contents.log.seek_time(until + 1)
            if first_kept > self._contents.log.state().first_seq:
                self._dropping.expire_below(first_kept)
        self.watch_age()

    def later(self, seq: int, ts_ns: int, seconds: float) -> None:
        """Let a record go so many seconds after its time."""
        heapq.heappush(self._lifetimes, (ts_ns + int(seconds * 1e9), seq))
        self._watch_lifetimes()

    def _watch_lifetimes(self) -> None:
        if self._lifetime_timer is not None:
            self._lifetime_timer.cancel()
        if self._lifetimes and not self._is_closed:
            wait = (self._lifetimes[0][0] - self._clock.time_ns()) / 1e9
            self._lifetime_timer = self._timers.after(max(0.0, wait), self._expire_lifetimes)

    def _expire_lifetimes(self) -> None:
        now, doomed = self._clock.time_ns(), []
        while self._lifetimes and self._lifetimes[0][0] <= now:
            doomed.append(heapq.heappop(self._lifetimes)[1])
        if doomed:
            self._dropping.expire(doomed)
        self._watch_lifetimes()
