"""Scheduling: keeps a stream's schedules, and publishes what they bring forth when it is time.

Everything it knows comes from the records themselves, so that a restart goes on where it was.
"""

import heapq
import logging
from functools import partial

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError, RecordNotFound
from millstream.kernel._batch import Batch
from millstream.message import Record
from millstream.streams.config import durations, extras
from millstream.streams.config.config import InvalidJson
from millstream.streams.config.times import time_ns
from millstream.streams.publishing.admission import Admission
from millstream.streams.reading.contents import Contents
from millstream.streams.retention.removal import Removal
from millstream.streams.schedules import schedules
from millstream.streams.schedules.schedules import ScheduleRefused
from millstream.streams.writing.run import Demand, Run
from millstream.streams.writing.writes import Writes

log = logging.getLogger(__name__)

RETRY_NS = 10**9


class Scheduling:
    """One timer, however many schedules; one schedule per subject, the newest."""

    def __init__(
        self,
        contents: Contents,
        removal: Removal,
        admission: Admission,
        writes: Writes,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._contents = contents
        self._removal = removal
        self._admission = admission
        self._writes = writes
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._known: dict[bytes, tuple[int, int]] = {}  # subject → (due at ns, seq)
        self._waiting: list[tuple[int, int, bytes]] = []  # heap of (due at ns, seq, subject)
        self._ended: list[bytes] = []
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        """Bring nothing forth any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- what records say --------------------------------------------------------------------

    def on_commit(self, run: Run) -> None:
        """Follow records that were just stored."""
        if not self._contents.config.allow_msg_schedules:
            return
        now = self._clock.time_ns()
        for at in range(run.count):
            subject, _, headers, _, _ = run.batch.message(run.start + at)
            self._follow(run.seq_of(at), run.time_of(at, now), subject, headers)
            ended = _ended_by(headers)
            if ended:
                self._known.pop(ended, None)
                self._removal.drop_subject(ended)
        self._watch()

    def recall(self, seq: int, ts_ns: int, subject: bytes, headers: bytes) -> None:
        """Follow a record that was there before the start; ``start`` comes behind the last."""
        if not self._contents.config.allow_msg_schedules:
            return
        self._follow(seq, ts_ns, subject, headers)
        ended = _ended_by(headers)
        if ended and self._known.pop(ended, None) is not None:
            self._ended.append(ended)  # it came true, and the process ended before it was removed

    def start(self) -> None:
        """Wait for what was recalled."""
        ended, self._ended = self._ended, []
        for subject in ended:
            if subject not in self._known:
                self._removal.drop_subject(subject)
        self._watch()

    def _follow(self, seq: int, ts_ns: int, subject: bytes, headers: bytes) -> None:
        if schedules.PATTERN not in headers:
            self._known.pop(subject, None)
            return
        values = extras.first_values(headers)
        found = _due(values, ts_ns, ts_ns)  # one that was missed since comes true at once
        if found is not None:
            self._await(subject, found.at_ns, seq)
        elif not values.get(schedules.SCHEDULER):
            self._known.pop(subject, None)
        self._put_off(values)

    def _put_off(self, values: dict[bytes, bytes]) -> None:
        """Let a schedule wait for the time that what it brought forth names."""
        following = values.get(schedules.NEXT, b"")
        scheduler = values.get(schedules.SCHEDULER, b"")
        if scheduler not in self._known or following in (b"", schedules.PURGE):
            return
        try:
            at_ns = time_ns(following.decode())
        except (InvalidJson, UnicodeDecodeError):
            return
        self._await(scheduler, at_ns, self._known[scheduler][1])

    def _await(self, subject: bytes, at_ns: int, seq: int) -> None:
        self._known[subject] = (at_ns, seq)
        heapq.heappush(self._waiting, (at_ns, seq, subject))

    # -- when it is time ---------------------------------------------------------------------

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._drop_outdated()
        if self._waiting and not self._is_closed:
            wait = (self._waiting[0][0] - self._clock.time_ns()) / 1e9
            self._timer = self._timers.after(max(0.0, wait), self._fire)

    def _drop_outdated(self) -> None:
        while self._waiting and self._known.get(self._waiting[0][2]) != self._waiting[0][:2]:
            heapq.heappop(self._waiting)

    def _fire(self) -> None:
        now, ready = self._clock.time_ns(), []
        self._drop_outdated()
        while self._waiting and self._waiting[0][0] <= now:
            at_ns, seq, subject = heapq.heappop(self._waiting)
            ready.append((seq, subject, at_ns))
            self._drop_outdated()
        for seq, subject, at_ns in sorted(ready):
            self._bring_forth(seq, subject, at_ns)
        self._watch()

    def _bring_forth(self, seq: int, subject: bytes, at_ns: int) -> None:
        try:
            record = self._contents.get(seq)
        except RecordNotFound:
            self._known.pop(subject, None)
            return
        values = extras.first_values(record.headers)
        following = _due(values, at_ns, self._clock.time_ns())
        target = values.get(schedules.TARGET, b"")
        if following is None or not target or self._contents.config.sealed:
            self._known.pop(subject, None)
            return
        copied = self._copied(values.get(schedules.SOURCE, b""), record)
        headers = schedules.brought_forth(values, subject, copied.headers, following)
        batch = Batch()
        batch.add(target, b"", headers, copied.payload, copied.tag, copied.node, copied.meta)
        run = Run(self._admission.renamed(batch), 0, 1, partial(self._on_end, subject, seq))
        ttl = durations.lifetime(values.get(schedules.TTL, b"")) or 0
        run.demands = [Demand(0, rollup=values.get(schedules.ROLLUP, b""), ttl=ttl)]
        self._writes.append(run)

    def _copied(self, source: bytes, own: Record) -> Record:
        """Return the record whose content goes out: the source's newest, else the schedule's."""
        newest = self._contents.log.last_by_subject(source) if source else 0
        try:
            return self._contents.get(newest) if newest else own
        except RecordNotFound:
            return own

    def _on_end(self, subject: bytes, seq: int, _run: Run, error: MillstreamError | None) -> None:
        if error is None or self._known.get(subject, (0, 0))[1] != seq:
            return
        log.warning("schedule could not publish, tried again subject=%r error=%s", subject, error)
        self._await(subject, self._clock.time_ns() + RETRY_NS, seq)
        self._watch()


def _ended_by(headers: bytes) -> bytes:
    """Return the subject whose schedule a record ends, empty when it ends none."""
    if schedules.NEXT not in headers:
        return b""
    values = extras.first_values(headers)
    is_end = values.get(schedules.NEXT) == schedules.PURGE
    return values.get(schedules.SCHEDULER, b"") if is_end else b""


def _due(values: dict[bytes, bytes], after_ns: int, now_ns: int) -> schedules.Due | None:
    try:
        return schedules.due(values, after_ns, now_ns)
    except ScheduleRefused:
        return None  # was stored where it meant nothing
