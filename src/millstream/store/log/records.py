"""LogRecords: the records of a log as its readers find them, by sequence, subject, tag and time.

Knows segments and what of them counts: committed, not trimmed, not deleted, not lost. How records
come in, and what becomes of files, is the business of the log that this is part of.
"""

import logging
from bisect import bisect_right

from millstream.kernel._frames import Frames
from millstream.kernel._index import SubjectTable
from millstream.store.disk.seq_ranges import SeqRanges, runs_of
from millstream.store.log.log import Gap, LogState, by_segment
from millstream.store.segments.segment import Segment
from millstream.store.segments.tags import TagIndex

NO_FRAMES = Frames(b"", b"")

log = logging.getLogger(__name__)


class LogRecords:
    """What is there; all methods run on the loop."""

    __slots__ = (
        "__weakref__",
        "_staged_headed",
        "_tags",
        "bytes",
        "committed_seq",
        "count",
        "deleted",
        "evict_floor",
        "first_kept",
        "floors",
        "gaps",
        "last_ts_ns",
        "lost",
        "segments",
        "subjects",
        "synced_seq",
    )

    def __init__(self) -> None:
        self._tags: dict[int, TagIndex] = {}  # by base sequence of the segment
        self.subjects = SubjectTable()
        self.segments: list[Segment] = []
        self.committed_seq = 0
        self.synced_seq = 0
        self.first_kept = 1  # everything below was trimmed
        self.evict_floor = 0
        self.floors: dict[str, int] = {}  # reason of a trim → highest sequence it took
        self.count = 0
        self.bytes = 0
        self.last_ts_ns = 0
        self.gaps: list[Gap] = []
        self.deleted = SeqRanges()
        self.lost = SeqRanges()  # the gaps' sequences
        self._staged_headed = 0  # records with headers that are staged and not committed

    # --- reading

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> Frames:
        """Return committed live records from ``start_seq`` on, from one buffer."""
        seq = self.deleted.after(max(start_seq, self.first_kept))
        at = max(bisect_right(self.segments, seq, key=base_of) - 1, 0)
        while at < len(self.segments) and seq <= self.committed_seq:
            segment = self.segments[at]
            index = segment.index
            stop = index.position(self.committed_seq + 1)
            position = index.next_live(index.position(seq), None, stop)
            if position < 0:
                at += 1
                continue
            frames, _, damaged = segment.read(position, stop, max_records, max_bytes)
            if damaged >= 0:
                self._quarantine(segment, damaged)
            if len(frames) or damaged < 0:
                return frames
        return NO_FRAMES

    def _quarantine(self, segment: Segment, position: int) -> None:
        """Take a damaged record out of service and say so; its neighbours stay.

        In a damaged block everything goes that was live in it.
        """
        index = segment.index
        offset, at, end = segment.damaged_part(position)
        first, last = index.seq(at), index.seq(end)
        log.error("damaged records file=%s offset=%d seq=%d-%d", segment.path, offset, first, last)
        for i in range(at, end + 1):
            size, seq = index.frame_len(i), index.seq(i)
            if self.first_kept <= seq <= self.committed_seq and index.delete(i):
                self.count -= 1
                self.bytes -= size
                self.add_gap(seq, seq, "corruption")

    def add_gap(self, first: int, last: int, reason: str) -> list[Gap]:
        """Name sequences as lost; those already named stay as they are. Returns what is new."""
        new = [Gap(a, b, reason) for a, b in self.lost.missing(first, last)]
        self.lost.add(first, last)
        if new:
            self.gaps = merged([*self.gaps, *new])
        return new

    def state(self) -> LogState:
        """Return a consistent look at the log."""
        first = self.first_seq()
        return LogState(
            first_seq=first,
            last_seq=self.committed_seq,
            synced_seq=self.synced_seq,
            count=self.count,
            bytes=self.bytes,
            first_ts_ns=self._ts_of(first) if self.count else 0,
            last_ts_ns=self.last_ts_ns,
            evict_floor=self.evict_floor,
            gaps=tuple(self.gaps),
            floors=dict(self.floors),
            headed=max(0, self.subjects.headed - self._staged_headed),
        )

    def first_seq(self) -> int:
        """Return the earliest live sequence, last + 1 when there is none."""
        first = self.deleted.after(self.first_kept)  # a queue deletes its front, record by record
        for segment in self.segments:
            index = segment.index
            stop = index.position(self.committed_seq + 1)
            at = index.next_live(index.position(first), None, stop)
            if at >= 0:
                return index.seq(at)
        return self.committed_seq + 1

    def _ts_of(self, seq: int) -> int:
        at = bisect_right(self.segments, seq, key=base_of) - 1
        if at < 0:
            return 0
        index = self.segments[at].index
        position = index.find(seq)
        return index.ts_ns(position) if position >= 0 else 0

    def last_by_subject(self, subject: bytes) -> int:
        """Return the newest live committed sequence of a subject, 0 when there is none."""
        subject_id = self.subjects.find(subject)
        if subject_id < 0 or not self.subjects.count(subject_id):
            return 0
        last = self.subjects.last_seq(subject_id)
        stale = self.subjects.stale(subject_id)[1]
        if not stale and last <= self.committed_seq:
            return last
        found = self._last_live(min(last, self.committed_seq), subject_id)
        if stale and last <= self.committed_seq and found:
            self.subjects.settle(subject_id, last_seq=found)
        return found

    def _last_live(self, seq: int, subject_id: int) -> int:
        for segment in reversed(self.segments):
            if segment.base_seq > seq:
                continue
            at = segment.index.last_live(segment.index.position(seq + 1) - 1, subject_id)
            if at >= 0:
                return segment.index.seq(at)
        return 0

    def by_tag(self, tag: bytes, is_prefix: bool = False, below: int = 1 << 63) -> list[int]:
        """Return the live committed sequences under ``below`` that carry a tag, ascending.

        With ``is_prefix`` those of every tag that starts so; records without a tag never match.
        """
        found: list[int] = []
        at: int | None = 0
        while at is not None:
            more, at = self.some_by_tag(tag, is_prefix, at, below)
            found += more
        return found

    def some_by_tag(
        self, tag: bytes, is_prefix: bool, at: int, below: int
    ) -> tuple[list[int], int | None]:
        """Return the next of those from sequence ``at`` on, and where to go on; None at the end.

        One call takes a millisecond or two, also where all tags have to be read first: it may find
        nothing and go on from where it was.
        """
        end = min(below, self.committed_seq + 1)
        segment = next((s for s in self.segments if s.last_seq >= at), None)
        if segment is None or max(at, segment.base_seq) >= end:
            self._forget_tags()
            return [], None
        tags, index = self._tags.setdefault(segment.base_seq, TagIndex()), segment.index
        stop = index.position(end)
        if not tags.learn(segment, stop):
            return [], at
        found, after = tags.find(segment, index.position(at), stop, tag, is_prefix)
        return found, index.seq(after) if after < stop else max(segment.last_seq, at) + 1

    def _forget_tags(self) -> None:
        for gone in self._tags.keys() - {segment.base_seq for segment in self.segments}:
            del self._tags[gone]

    def seek_time(self, ts_ns: int) -> int:
        """Return the first sequence whose time is at or after ``ts_ns``, last + 1 if none."""
        for segment in self.segments:
            index = segment.index
            if not len(index) or index.ts_ns(len(index) - 1) < ts_ns:
                continue
            seq = index.seq(index.seek_time(ts_ns))
            return min(max(seq, self.first_kept), self.committed_seq + 1)
        return self.committed_seq + 1

    # --- what no longer counts

    def take_out(self, seqs: list[int]) -> bool:
        """Take records out of the index now, to be flagged in their files soon.

        Says whether that has left a segment without any.
        """
        emptied = False
        kept = [seq for seq in seqs if seq >= self.first_kept]
        for segment, part in by_segment(self.segments, kept):
            ends, size, others = segment.index.delete_all(part)
            self.count -= len(ends)
            self.bytes -= size
            if not segment.head.in_blocks and segment.cold is None:
                segment.flags += [end - 1 for end in ends]
            for first, last in runs_of(sorted(set(part).difference(others)) if others else part):
                self.deleted.add(first, last)
            for seq in others:  # a rewrite has left it out, or it was flagged by an earlier run
                if segment.index.find(seq) >= 0 or seq not in self.lost:
                    self.deleted.add(seq, seq)
            emptied = emptied or not segment.index.live
        return emptied

    def delete_range(self, first: int, last: int) -> None:
        """Take everything in ``first..last`` out of the index: so a snapshot says."""
        self.deleted.add(first, last)
        at = max(bisect_right(self.segments, first, key=base_of) - 1, 0)
        for segment in self.segments[at:]:
            if segment.base_seq > last:
                break
            for position in segment.positions(first, last):
                if segment.index.delete(position):
                    self._flag(segment, position, segment.index.frame_len(position))

    def _flag(self, segment: Segment, position: int, size: int) -> None:
        if not segment.head.in_blocks and segment.cold is None:
            segment.flags.append(segment.index.offset(position) + size - 1)

    def forget(self, seqs: list[int]) -> None:
        """Note deletes of records whose file is already gone."""
        for seq in seqs:
            if seq >= self.first_kept:
                self.deleted.add(seq, seq)

    def recount(self) -> None:
        """Count what is live, after the segments were loaded or rebuilt."""
        self.count = sum(segment.index.live for segment in self.segments)
        self.bytes = sum(segment.index.live_bytes() for segment in self.segments)


def base_of(segment: Segment) -> int:
    """Return a segment's base sequence, for searches."""
    return segment.base_seq


def merged(gaps: list[Gap]) -> list[Gap]:
    """Return the gaps in order, neighbours of one reason as one."""
    result: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if result and result[-1].last + 1 == gap.first and result[-1].reason == gap.reason:
            result[-1] = Gap(result[-1].first, gap.last, gap.reason)
        else:
            result.append(gap)
    return result
