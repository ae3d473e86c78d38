"""SequencePromise: how far a ``disk`` log may give out sequences before the next sync.

The WAL says so ahead of the records, so that a start after a power cut gives none out twice.
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.errors import MillstreamError, ShardReadOnly
from millstream.store.log.control_frames import RESERVE
from millstream.store.log.host import LogHost
from millstream.store.wal.reservation import Reservation

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog


class SequencePromise:
    """``reservation`` decides how much is promised; this logs it."""

    __slots__ = ("_host", "_log", "reservation", "reserved_seq")

    def __init__(
        self, host: LogHost, log: "FileLog", records: int, growth: int, quick: float
    ) -> None:
        self.reserved_seq = 0
        self.reservation = Reservation(records, growth, quick, host.quiet_age)
        self._host = host
        self._log = log

    def make_for(self, last: int, count: int) -> bool:
        """See to it that ``last`` is never given out twice, also when the power fails.

        True: by no promise, so that what is appended now must itself be stable before it counts.
        """
        if self.reservation.covers(last, self.reserved_seq):
            if self.reservation.is_low(last, self.reserved_seq):
                self._make_ahead(count)
        elif self.reservation.is_lone(self._host.clock.monotonic()):
            return True
        else:
            self._make(last, count)
        return False

    def _make(self, last: int, count: int) -> None:
        """Promise more before anything else: what is appended now waits for that sync."""
        self.reserved_seq = self.reservation.grow(last, self._host.clock.monotonic(), count)
        self._host.promised(self._log)
        body = msgspec.json.encode(self.reserved_seq)
        self._host.control(RESERVE, self._log.log_id, body, self._made, sync=True)

    def _made(self, error: MillstreamError | None) -> None:
        if error is None:
            self.reservation.granted(0, self._host.clock.monotonic())
        else:
            self.reserved_seq = self._log.committed_seq

    def _make_ahead(self, count: int) -> None:
        """Promise more while there is enough left, so that nobody waits for the sync."""
        reservation, now = self.reservation, self._host.clock.monotonic()
        wanted = self.reserved_seq = reservation.ahead(self.reserved_seq, now, count)
        self._host.promised(self._log)
        done = partial(self._made_ahead, wanted)
        body = msgspec.json.encode(wanted)
        can_wait = not reservation.is_pressed
        self._host.control(RESERVE, self._log.log_id, body, done, True, can_wait, apart=True)

    def _made_ahead(self, wanted: int, error: MillstreamError | None) -> None:
        if error is None:
            self.reservation.granted(wanted, self._host.clock.monotonic())
        else:
            self.reserved_seq = self.reservation.refused(wanted, self.reserved_seq)

    def keep(self) -> None:
        """Go on with the promise of the run before, where there is one."""
        if self.reserved_seq > self._log.committed_seq:
            self.reservation.is_open = True
            self._host.promised(self._log)

    def rest(self) -> bool:
        """End the promise once nothing was appended for a while; True when there is none."""
        is_settled = (
            self._log.next_seq == self._log.committed_seq + 1 and not self._log.marks.are_open
        )
        now = self._host.clock.monotonic()
        if is_settled and self.reservation.is_quiet(self._log.next_seq, now):
            self.end()
        return not self.reservation.is_open

    def end(self) -> None:
        """Say in the WAL that nothing was given out above what is in it before this.

        Nobody waits for that: until it is stable a start only knows less, and what is appended
        from now on waits for a sync behind it.
        """
        self.reservation.end()
        self.reserved_seq = self._log.next_seq - 1
        body = msgspec.json.encode(self.reserved_seq)
        with suppress(ShardReadOnly):
            self._host.control(RESERVE, self._log.log_id, body, lambda error: None, sync=False)
