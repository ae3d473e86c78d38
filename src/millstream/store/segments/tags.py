"""Tags of one segment's records, to be found without reading the records.

Each tag is read once, when somebody first asks after it came, a stretch of records at a time. What
was read is kept as sorted runs, one behind the other, 10 bytes a record and the tag itself. Dead
records stay in a run and are left out of answers.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from millstream.kernel._frames import HEADER
from millstream.store.segments.segment import Segment

_PLACE = struct.Struct("<IIII")
STRETCH = 1024  # records that are looked at in one step, in about a millisecond
STRETCH_BYTES = 1 << 20
RUNS = 32  # that are searched in one step


class _Run:
    """Tags in order, each with the position of its record."""

    def __init__(self, pairs: list[tuple[bytes, int]]) -> None:
        tags = [tag for tag, _ in pairs]
        self._text = b"".join(tags)
        self._ends = array("I", accumulate(map(len, tags), initial=0))
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
        self._starts: list[int] = []  # the position that each run begins with
        self._read = 0  # positions below were looked at
        self._generation = 0

    def learn(self, segment: Segment, stop: int) -> bool:
        """Look at some records more; says whether all below position ``stop`` were looked at."""
        if self._generation != segment.head.generation or self._read > len(segment.index):
            self._runs, self._starts, self._read = [], [], 0  # a rewrite has moved everything
            self._generation = segment.head.generation
        if self._read < stop:
            start = self._read
            pairs, self._read = _stretch(segment, start, stop)
            self._keep(start, pairs)
        return self._read >= stop

    def find(
        self, segment: Segment, at: int, stop: int, tag: bytes, is_prefix: bool
    ) -> tuple[list[int], int]:
        """Return live sequences that carry the tag, ascending, and the position to go on from.

        They are those of some runs, the first of which has the position ``at``; all below ``stop``
        was learnt.
        """
        i = max(bisect_right(self._starts, at) - 1, 0)
        after = self._starts[i + RUNS] if i + RUNS < len(self._starts) else stop
        index = segment.index
        places = sorted(
            p for run in self._runs[i : i + RUNS] for p in run.positions(tag, is_prefix)
        )
        return [index.seq(p) for p in places if at <= p < stop and not index.deleted(p)], after

    def _keep(self, start: int, pairs: list[tuple[bytes, int]]) -> None:
        if not self._runs or len(self._runs[-1]) + len(pairs) > STRETCH:
            self._runs.append(_Run(sorted(pairs)))
            self._starts.append(start)
        elif pairs:
            self._runs[-1] = _Run(sorted([*self._runs[-1].pairs(), *pairs]))


def _stretch(segment: Segment, at: int, stop: int) -> tuple[list[tuple[bytes, int]], int]:
    """Return the tags of some live records from ``at`` on, and the position behind these."""
    index = segment.index
    first = index.next_live(at, None, stop)
    if first < 0:
        return [], stop
    frames, after, damaged = segment.read(first, stop, STRETCH, STRETCH_BYTES)
    if not len(frames):
        return [], max(after, damaged + 1)
    shift = index.offset(first) - frames.offsets[0]
    return list(_tags(memoryview(frames.buffer), shift, index.tag_places(first, after))), after


def _tags(data: Sequence[int], shift: int, packed: bytes) -> Iterator[tuple[bytes, int]]:
    for position, offset, subject_len, tag_len in _PLACE.iter_unpack(packed):
        start = offset - shift + HEADER + subject_len
        yield bytes(data[start : start + tag_len]), position
