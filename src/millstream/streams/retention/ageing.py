"""Ageing: drops records that are too old, and leaves markers of subjects that end so."""

from collections.abc import Iterable, Iterator, Set
from itertools import takewhile

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.kernel._batch import Batch
from millstream.streams.reading.contents import Contents
from millstream.streams.retention import delete_markers
from millstream.streams.retention.departures import Departures, log_failure
from millstream.streams.retention.expiry import Expiry
from millstream.streams.retention.holds import Holds
from millstream.streams.writing.run import Demand, Run
from millstream.streams.writing.writes import Writes


class Ageing:
    """Carries out what ``expiry`` finds to be due."""

    def __init__(
        self,
        contents: Contents,
        departures: Departures,
        holds: Holds,
        writes: Writes,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.expiry = Expiry(contents, self, clock, timers)
        self._contents = contents
        self._departures = departures
        self._holds = holds
        self._writes = writes
        self._clock = clock

    @property
    def is_held(self) -> bool:
        """Whether somebody keeps the oldest record for a time."""
        first = self._holds.first(self._clock.monotonic())
        return first is not None and first <= self._contents.log.state().first_seq

    def expire(self, seqs: list[int]) -> None:
        """Drop records whose own lifetime is over."""
        self._leave_markers(seqs)
        self._departures.recent.drop(seqs)
        self._departures.remove(seqs, log_failure)

    def expire_below(self, first_kept: int) -> None:
        """Drop everything older, which has outlived max_age."""
        first_kept = self._holds.unheld(first_kept, self._clock.monotonic())
        if first_kept > self._contents.log.state().first_seq:
            if not self.expiry.forever:
                self._leave_markers(self._seqs_below(first_kept))
                self._departures.trim_to(first_kept, "ttl")
                return
            doomed = [s for s in self._seqs_below(first_kept) if s not in self.expiry.forever]
            self._leave_markers(doomed)
            self._expire_to(first_kept, doomed)

    def _expire_to(self, first_kept: int, doomed: list[int]) -> None:
        """Remove what is older, but for what lives forever: behind that, record by record."""
        kept = min((s for s in self.expiry.forever if s < first_kept), default=first_kept)
        if kept > self._contents.log.state().first_seq:
            self._departures.trim_to(kept, "ttl")
        rest = [seq for seq in doomed if seq > kept]
        if rest:
            self._departures.recent.drop(rest)
            self._departures.remove(rest, log_failure)

    def oldest_mortal(self, start: int, forever: Set[int]) -> tuple[int, int]:
        """Return (sequence, time) of the oldest record from ``start`` on that ages.

        Without one the sequence is where to look next time, and the time is 0.
        """
        index = self._contents.index
        found = (seq for seq in index.seqs(index.select(()), start) if seq not in forever)
        seq = next(found, 0)
        if not seq:
            return self._contents.log.state().last_seq + 1, 0
        return seq, index.time_of(seq)

    def _seqs_below(self, first_kept: int) -> Iterator[int]:
        index = self._contents.index
        return takewhile(lambda seq: seq < first_kept, index.seqs(index.select(())))

    def _leave_markers(self, doomed: Iterable[int]) -> None:
        """Write a marker for each subject that is about to lose all that it still has."""
        config, index = self._contents.config, self._contents.index
        ttl_ns = config.subject_delete_marker_ttl
        if ttl_ns <= 0 or config.sealed:
            return
        ends: dict[bytes, list[int]] = {}
        for seq in doomed:
            if (subject := index.subject_of(seq)) is not None:
                ends.setdefault(subject, []).append(seq)
        for subject, seqs in ends.items():
            if self._ends(subject, seqs):
                self._leave_marker(subject, ttl_ns)

    def _ends(self, subject: bytes, seqs: list[int]) -> bool:
        """Whether a subject has nothing but these records, and its newest is no marker."""
        newest = max(seqs)
        if self._writes.last_of_subject(subject) != newest:
            return False
        if self._contents.index.count_of(subject) > len(seqs):  # an older one lives longer
            return False
        return not delete_markers.is_marker(self._contents.get(newest).headers)

    def _leave_marker(self, subject: bytes, ttl_ns: int) -> None:
        batch = Batch()
        batch.add(subject, b"", delete_markers.headers(ttl_ns), b"")
        run = Run(batch, 0, 1)
        run.demands = [Demand(0, rollup=b"sub", ttl=ttl_ns // 10**9)]
        self._writes.append(run)
