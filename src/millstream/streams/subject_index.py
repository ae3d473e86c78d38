"""SubjectIndex: which sequences each subject of a stream has, built when first asked for.

Only filters, per-subject limits and subject counts need it; a plain stream never pays for it.
"""

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from millstream.store.log import Log

_CHUNK = 4096
_CHUNK_BYTES = 8 * 1024 * 1024

Match = Callable[[bytes], bool]


class SubjectIndex:
    """Live sequences by subject, ascending; ``refresh`` takes in what was committed since."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seqs: dict[bytes, array[int]] = {}
        self._subject_of: dict[int, bytes] = {}
        self._next = 1

    def refresh(self) -> None:
        """Take in new records and drop what was trimmed from the old end."""
        state = self._log.state()
        self._next = max(self._next, state.first_seq)
        while self._next <= state.last_seq:
            frames = self._log.read(self._next, _CHUNK, _CHUNK_BYTES)
            if not len(frames):
                break
            for seq, _, subject, *_ in frames:
                self._add(subject, seq)
            self._next = frames.last_seq + 1
        self._trim(state.first_seq)

    def _add(self, subject: bytes, seq: int) -> None:
        seqs = self._seqs.get(subject)
        if seqs is None:
            seqs = self._seqs[subject] = array("Q")
        seqs.append(seq)
        self._subject_of[seq] = subject

    def _trim(self, first_seq: int) -> None:
        # _subject_of is in sequence order, so what was trimmed is at its front.
        gone: list[int] = []
        for seq in self._subject_of:
            if seq >= first_seq:
                break
            gone.append(seq)
        for seq in gone:
            self.remove(seq)

    def remove(self, seq: int) -> None:
        """Forget one record."""
        subject = self._subject_of.pop(seq, None)
        if subject is None:
            return
        seqs = self._seqs[subject]
        del seqs[bisect_left(seqs, seq)]
        if not seqs:
            del self._seqs[subject]

    def counts(self, match: Match | None = None) -> dict[bytes, int]:
        """Return how many live records each matching subject has."""
        self.refresh()
        return {s: len(seqs) for s, seqs in self._seqs.items() if match is None or match(s)}

    def count_from(self, seq: int, match: Match | None = None) -> int:
        """Return how many matching live records have this sequence or a later one."""
        return sum(len(seqs) - bisect_left(seqs, seq) for seqs in self._matching(match))

    def next_seqs(self, seq: int, limit: int, match: Match | None = None) -> list[int]:
        """Return the first ``limit`` matching sequences from ``seq`` on, ascending."""
        slices = []
        for seqs in self._matching(match):
            at = bisect_left(seqs, seq)
            if at < len(seqs):
                slices.append(seqs[at : at + limit])
        merged = heapq.merge(*slices)
        return [found for _, found in zip(range(limit), merged, strict=False)]

    def last_seq(self, match: Match | None = None, up_to: int = 2**64 - 1) -> int:
        """Return the newest matching sequence at or below ``up_to``, 0 when there is none."""
        newest = 0
        for seqs in self._matching(match):
            at = bisect_right(seqs, up_to)
            newest = max(newest, seqs[at - 1] if at else 0)
        return newest

    def last_seqs(self, match: Match | None = None) -> list[int]:
        """Return the newest sequence of every matching subject, ascending."""
        return sorted(seqs[-1] for seqs in self._matching(match))

    def seqs(self, subject: bytes) -> list[int]:
        """Return all live sequences of one subject, ascending."""
        self.refresh()
        return list(self._seqs.get(subject, ()))

    def crowded(self, subjects: set[bytes] | None, limit: int) -> list[int]:
        """Return what is above ``limit`` records a subject, oldest first."""
        self.refresh()
        names = self._seqs if subjects is None else subjects & self._seqs.keys()
        return sorted(seq for name in names for seq in self._seqs[name][: -limit or None])

    def _matching(self, match: Match | None) -> Iterator["array[int]"]:
        self.refresh()
        for subject, seqs in self._seqs.items():
            if match is None or match(subject):
                yield seqs
