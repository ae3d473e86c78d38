"""HiddenRecords: records whose removal is decided and not yet logged; readers leave them out."""

from bisect import bisect_right
from collections.abc import Iterable

from millstream.store.log.log import IndexedSegment, Log, by_segment


class HiddenRecords:
    """What of one log is on its way out. Readers ask ``seqs`` itself, once a record."""

    def __init__(self, log: Log) -> None:
        self.seqs: dict[int, int] = {}  # sequence → subject id
        self.of_subject: dict[int, int] = {}  # subject id → how many of them
        self.changes = 0
        self._log = log
        self._sized_at = (-1, -1)
        self._sizes = (0, 0, 0)

    def hide(self, seqs: Iterable[int]) -> None:
        """Leave out records whose removal is decided and not yet logged."""
        self.changes += 1
        for segment, part in by_segment(self._log.segments, seqs):
            for seq, known in zip(part, segment.index.live_ids(part), strict=True):
                if known >= 0 and seq not in self.seqs:
                    self.seqs[seq] = known
                    self.of_subject[known] = self.of_subject.get(known, 0) + 1

    def reveal(self, seqs: Iterable[int]) -> None:
        """Look at records as they are: gone, or still there after all."""
        self.changes += 1
        for seq in seqs:
            known = self.seqs.pop(seq, -1)
            if known >= 0:
                left = self.of_subject[known] - 1
                if left:
                    self.of_subject[known] = left
                else:
                    del self.of_subject[known]

    def whole_subjects(self) -> int:
        """Return how many subjects have no record but those on their way out."""
        table = self._log.subjects
        return sum(1 for known, going in self.of_subject.items() if going >= table.count(known) > 0)

    def has_any_of(self, subjects: set[bytes]) -> bool:
        """Whether a record of one of these is on its way out."""
        return not self.of_subject.keys().isdisjoint(map(self._log.subjects.find, subjects))

    def sizes(self) -> tuple[int, int, int]:
        """Return how many they are, their frame bytes, and how many of them have headers."""
        key = (self.changes, self._log.state().count)  # a trim may take some of them
        if key != self._sized_at:
            self._sized_at, self._sizes = key, self._add_up()
        return self._sizes

    def _add_up(self) -> tuple[int, int, int]:
        count = size = headed = 0
        for seq in self.seqs:
            at = bisect_right(self._log.segments, seq, key=_base) - 1
            index = self._log.segments[at].index if at >= 0 else None
            place = index.find(seq) if index is not None else -1
            if index is not None and place >= 0 and not index.deleted(place):
                count += 1
                size += index.frame_len(place)
                headed += index.entry(place)[5] > 0
        return count, size, headed


def _base(segment: IndexedSegment) -> int:
    return segment.base_seq
