"""SubjectIndex: records by subject, answered from the log's integer index without reading any."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millstream.kernel._index import SubjectTable
from millstream.store.log.log import IndexedSegment, Log
from millstream.streams.reading.hidden_records import HiddenRecords
from millstream.subjects.matcher import matcher
from millstream.subjects.subject import has_wildcard

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames

NEWEST = 2**63
_FEW = 64  # literal filters that are looked up whenever a subject is born
_FUTURE = 2**63  # nothing was born since


class Selection:
    """The subjects that patterns let pass, as the bit set that searches of the index take."""

    def __init__(self, table: SubjectTable, filters: Sequence[str]) -> None:
        self._table = table
        self._match = matcher(filters)
        self._literals = [one.encode() for one in filters if not has_wildcard(one)]
        self.is_literal = bool(filters) and len(self._literals) == len(filters)  # no wildcards
        self._finds = self.is_literal and len(filters) <= _FEW  # each rather than what is born
        self._bits = bytearray()
        self._ids: bytes | None = None if self._match is None else b""
        self._mark = 0

    @property
    def is_everything(self) -> bool:
        """Whether every subject passes."""
        return self._match is None

    def ids(self) -> bytes | None:
        """Return the bit set of all subjects there are by now, None when everything passes."""
        if self._match is None:
            return None
        mark, born = self._table.born_since(_FUTURE if self._finds else self._mark)
        if mark != self._mark:
            self._mark = mark
            self._take_in(born)
        return self._ids

    def each(self) -> Iterator[int]:
        """Return the ids that pass; those whose subject is gone stay marked until used again."""
        bits = self.ids()
        if bits is None:
            yield from self._table.ids()
            return
        for at, byte in enumerate(bits):
            for known in (8 * at + bit for bit in range(8) if byte >> bit & 1):
                if self._is_used(known):
                    yield known

    def _is_used(self, known: int) -> bool:
        try:
            return self._table.count(known) > 0
        except IndexError:
            return False

    def passes(self, subject: bytes) -> bool:
        """Whether one subject passes."""
        return self._match is None or self._match(subject)

    def _take_in(self, born: list[int]) -> None:
        """Mark new subjects; ids are used again, so what was marked may have to go."""
        if self._finds:
            self._bits = bytearray()
            for known in (self._table.find(subject) for subject in self._literals):
                if known >= 0:
                    self._set(known, True)
        else:
            assert self._match is not None
            for known in born:
                self._set(known, self._match(self._table.subject(known)))
        self._ids = bytes(self._bits)

    def _set(self, known: int, passes: bool) -> None:
        at, bit = known >> 3, 1 << (known & 7)
        if at >= len(self._bits):
            if not passes:
                return
            self._bits.extend(bytes(at + 1 - len(self._bits)))
        self._bits[at] = self._bits[at] | bit if passes else self._bits[at] & ~bit


class SubjectIndex:
    """Questions about the committed, live records of one log, without those on their way out."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.hidden = HiddenRecords(log)
        self._going = self.hidden.seqs
        self.records_read = 0  # since the start, by whoever

    def is_live(self, seq: int) -> bool:
        """Whether there is such a record, and it is not on its way out."""
        return self._subject_of(seq) >= 0 and seq not in self._going

    def subject_of(self, seq: int) -> bytes | None:
        """Return a live record's subject, None when there is no such record."""
        known = self._subject_of(seq)
        return self._log.subjects.subject(known) if known >= 0 else None

    def time_of(self, seq: int) -> int:
        """Return when a record was stored, 0 when there is no such record."""
        for segment in self._segments_from(seq)[:1]:
            at = segment.index.find(seq)
            if at >= 0:
                return segment.index.ts_ns(at)
        return 0

    def select(self, filters: Sequence[str]) -> Selection:
        """Return the subjects that the patterns let pass; no pattern lets everything pass."""
        return Selection(self._log.subjects, filters)

    # -- many subjects -----------------------------------------------------------------------

    def counts(self, chosen: Selection) -> dict[bytes, int]:
        """Return how many live records each chosen subject has."""
        table = self._log.subjects
        return {table.subject(known): n for known in chosen.each() if (n := self._count_of(known))}

    def count(self, chosen: Selection, start: int = 1, stop: int = NEWEST) -> int:
        """Return how many chosen records there are from ``start`` up to and without ``stop``."""
        ids, found = chosen.ids(), 0
        stop = min(stop, self._last() + 1)
        if start >= stop:
            return 0
        if chosen.is_literal and stop > self._last() and start <= self._log.state().first_seq:
            return sum(self._count_of(known) for known in chosen.each())  # all of a few subjects
        for segment in self._segments_from(start):
            if segment.base_seq >= stop:
                break
            index = segment.index
            found += index.count_live(index.position(start), index.position(stop), ids)
        going = self._going.items()
        return found - sum(start <= seq < stop and _has(ids, known) for seq, known in going)

    def seqs(self, chosen: Selection, start: int = 1, most: int = NEWEST) -> Iterator[int]:
        """Return chosen sequences from ``start`` on, ascending."""
        ids, last = chosen.ids(), self._last()
        for segment in self._segments_from(start):
            index = segment.index
            stop = index.position(last + 1)
            at = index.next_live(index.position(start), ids, stop)
            while at >= 0 and most > 0:
                if index.seq(at) not in self._going:
                    yield index.seq(at)
                    most -= 1
                at = index.next_live(at + 1, ids, stop)

    def read(self, chosen: Selection, start: int, most: int, max_bytes: int) -> "Frames":
        """Return chosen records from ``start`` on, at least one if there is any."""
        frames = self._read(chosen, start, most, max_bytes)
        self.records_read += len(frames)
        return frames

    def _read(self, chosen: Selection, start: int, most: int, max_bytes: int) -> "Frames":
        ids = chosen.ids()
        if ids is None:
            return self._log.read(start, most, max_bytes)
        while True:
            found = self._find(ids, start)
            if found is None:
                return self._log.read(self._last() + 1, 1, 1)  # nothing
            segment, at, stop = found
            frames, _, damaged = segment.read(at, stop, most, max_bytes, ids)
            if len(frames) or damaged < 0:
                return frames
            start = segment.index.seq(damaged)
            self._log.read(start, 1, 1)  # takes it out of service and says so
            start += 1

    def _find(self, ids: bytes, start: int) -> tuple[IndexedSegment, int, int] | None:
        last = self._last()
        for segment in self._segments_from(start):
            index = segment.index
            stop = index.position(last + 1)
            at = index.next_live(index.position(start), ids, stop)
            if at >= 0:
                return segment, at, stop
        return None

    def last_seq(self, chosen: Selection, up_to: int = NEWEST) -> int:
        """Return the newest chosen sequence at or below ``up_to``, 0 when there is none."""
        return max(self._lasts(chosen, up_to), default=0)

    def last_seqs(self, chosen: Selection, up_to: int = NEWEST) -> list[int]:
        """Return the newest sequence of every chosen subject, ascending."""
        return sorted(self._lasts(chosen, up_to))

    def _lasts(self, chosen: Selection, up_to: int) -> Iterator[int]:
        up_to = min(up_to, self._last())
        found, unsure = self._log.subjects.last_seqs(chosen.ids(), up_to)
        hidden = [seq for seq in found if seq in self._going] if self._going else []
        yield from found if not hidden else (seq for seq in found if seq not in self._going)
        for known in [*unsure, *(self._going[seq] for seq in hidden)]:
            newest = self.last_of(known, up_to)
            if newest:
                yield newest

    # -- one subject -------------------------------------------------------------------------

    def last_of(self, known: int, up_to: int = NEWEST) -> int:
        """Return a subject's newest sequence at or below ``up_to``, 0 when there is none."""
        table = self._log.subjects
        if known < 0 or not table.count(known):
            return 0
        newest = table.last_seq(known)
        if table.stale(known)[1] or newest > self._last():
            newest = self._log.last_by_subject(table.subject(known))
        while newest and (newest > up_to or newest in self._going):
            newest = self._before(known, min(newest - 1, up_to))
        return newest

    def newest(self, subject: bytes) -> "Frames | None":
        """Return the newest record of a subject in the fewest steps.

        None where there is none, and where it takes more than a look: the record is damaged.
        """
        log = self._log
        known = log.subjects.find(subject)
        seq = log.subjects.newest(known, log.committed_seq) if known >= 0 else 0
        if not seq or seq in self._going:
            seq = self.last_of(known)
        if not seq:
            return None
        segments = log.segments
        segment = segments[-1]
        if segment.base_seq > seq:
            segment = segments[bisect_right(segments, seq, key=_base) - 1]
        return segment.one(seq)

    def seqs_of(self, subject: bytes, most: int = NEWEST) -> Iterator[int]:
        """Return a subject's sequences, oldest first."""
        known, last = self._log.subjects.find(subject), self._last()
        if known < 0:
            return
        oldest = max(self._log.subjects.first_seq(known), 1)
        for segment in self._segments_from(oldest):
            index = segment.index
            at = index.first_live(index.position(oldest), known)
            while at >= 0 and most > 0 and index.seq(at) <= last:
                if index.seq(at) not in self._going:
                    yield index.seq(at)
                    most -= 1
                at = index.first_live(at + 1, known)

    def count_of(self, subject: bytes, *, staged: bool = False) -> int:
        """Return how many records a subject has, on request with what is not committed yet."""
        known = self._log.subjects.find(subject)
        if known < 0:
            return 0
        return self._log.subjects.count(known) if staged else self._count_of(known)

    def crowd_out(self, subjects: set[bytes] | None, limit: int) -> list[int]:
        """Hide what is above ``limit`` records a subject; returns it, ascending."""
        table = self._log.subjects
        names = subjects if subjects is not None else [table.subject(n) for n in table.ids()]
        oldest, unsure = table.crowded(names, limit, self._last())
        going, going_of = self._going, self.hidden.of_subject
        doomed: list[int] = []
        for known, seq in oldest.items():
            if known in going_of:
                unsure.append(table.subject(known))  # those on their way out were counted too
            else:
                doomed.append(seq)
                going[seq] = known
                going_of[known] = 1
        self.hidden.changes += 1
        for name in unsure:
            over = self.count_of(name) - limit
            found = list(self.seqs_of(name, over)) if over > 0 else []
            self.hidden.hide(found)
            doomed += found
        return sorted(doomed)

    def _count_of(self, known: int) -> int:
        """Return a subject's records without those that are staged or going."""
        table, last = self._log.subjects, self._last()
        count, newest = table.count(known), table.last_seq(known)
        if count and newest > last:
            for segment in self._segments_from(last + 1):
                at = segment.index.first_live(segment.index.position(last + 1), known)
                while at >= 0:
                    count -= 1
                    at = segment.index.first_live(at + 1, known)
        return count - self.hidden.of_subject.get(known, 0)

    def _before(self, known: int, seq: int) -> int:
        for segment in reversed(self._log.segments):
            if segment.base_seq <= seq:
                index = segment.index
                at = index.last_live(index.position(seq + 1) - 1, known)
                if at >= 0:
                    return index.seq(at)
        return 0

    # -- places ------------------------------------------------------------------------------

    def _last(self) -> int:
        return self._log.committed_seq

    def _segments_from(self, seq: int) -> Sequence[IndexedSegment]:
        segments = self._log.segments
        return segments[max(bisect_right(segments, seq, key=_base) - 1, 0) :]

    def _subject_of(self, seq: int) -> int:
        """Return the subject id of a record, -1 when it is gone."""
        for segment in self._segments_from(seq)[:1]:
            at = segment.index.find(seq)
            if at >= 0 and not segment.index.deleted(at):
                return segment.index.subject_id(at)
        return -1


def _has(ids: bytes | None, known: int) -> bool:
    if ids is None:
        return True
    return known >> 3 < len(ids) and bool(ids[known >> 3] >> (known & 7) & 1)


def _base(segment: IndexedSegment) -> int:
    return segment.base_seq
