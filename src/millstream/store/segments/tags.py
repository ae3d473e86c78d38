"""Tags of one segment's records, to be found without reading the records.

Each tag is read once, when somebody first asks after it came. What was read is kept as sorted
runs, 10 bytes a record and the tag itself, and the runs are joined as they become many. Dead
records stay in a run and are left out of answers.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge

from millstream.errors import NotHere
from millstream.kernel._frames import HEADER
from millstream.store.segments.segment import Segment

_PLACE = struct.Struct("<IIII")
MOST_RUNS = 8


class _Run:
    """Tags in order, each with the position of its record."""

    def __init__(self, pairs: list[tuple[bytes, int]]) -> None:
        self._text = b"".join([tag for tag, _ in pairs])
        self._ends = array("I", [0])
        for tag, _ in pairs:
            self._ends.append(self._ends[-1] + len(tag))
        self._positions = array("I", [position for _, position in pairs])

    def __len__(self) -> int:
        return len(self._positions)

    def tag(self, i: int) -> bytes:
        """Return the tag at place ``i``."""
        return self._text[self._ends[i] : self._ends[i + 1]]

    def pairs(self) -> Iterator[tuple[bytes, int]]:
        """Return every tag with its record."""
        return ((self.tag(i), self._positions[i]) for i in range(len(self)))

    def positions(self, tag: bytes, is_prefix: bool) -> Iterator[int]:
        """Return the records of a tag, or of every tag that starts so."""
        i = bisect_left(range(len(self)), tag, key=self.tag)
        while i < len(self):
            found = self.tag(i)
            if found != tag and not (is_prefix and found.startswith(tag)):
                return
            yield self._positions[i]
            i += 1


class TagIndex:
    """The tags of one segment, as far as its records were read."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._read = 0  # positions below were looked at
        self._generation = 0

    def find(self, segment: Segment, stop: int, tag: bytes, is_prefix: bool) -> list[int]:
        """Return the live sequences below position ``stop`` that carry the tag, ascending."""
        self._catch_up(segment, stop)
        index = segment.index
        places = sorted(i for run in self._runs for i in run.positions(tag, is_prefix))
        return [index.seq(i) for i in places if i < stop and not index.deleted(i)]

    def _catch_up(self, segment: Segment, stop: int) -> None:
        if self._generation != segment.head.generation or self._read > len(segment.index):
            self._runs, self._read = [], 0  # a rewrite has moved everything
            self._generation = segment.head.generation
        if self._read >= stop:
            return
        packed = segment.index.tag_places(self._read, stop)
        pairs: list[tuple[bytes, int]] = []
        try:
            pairs.extend(_tags(segment, packed))  # keeps what came before an error
            self._read = stop
        except NotHere:  # what was read stays known: the next try goes on from there
            self._read = pairs[-1][1] + 1 if pairs else self._read
            raise
        finally:
            self._keep(sorted(pairs))

    def _keep(self, pairs: list[tuple[bytes, int]]) -> None:
        if not pairs:
            return
        self._runs.append(_Run(pairs))
        if len(self._runs) > MOST_RUNS:
            self._runs = [_Run(list(merge(*(run.pairs() for run in self._runs))))]


def _tags(segment: Segment, packed: bytes) -> Iterator[tuple[bytes, int]]:
    for position, _, subject_len, tag_len in _PLACE.iter_unpack(packed):
        frame = segment.frame(position)
        if frame is not None:
            start = HEADER + subject_len
            yield frame[start : start + tag_len], position
