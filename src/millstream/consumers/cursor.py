"""Cursor: which record of a stream comes next, with or without filters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.streams import patterns
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames


class Cursor:
    """The next sequence to consider, and exactly how many records still match from there."""

    def __init__(self, stream: Stream, filters: Sequence[str]) -> None:
        self.position = 1
        self._stream = stream
        self._match = patterns.matcher(filters)
        self._first: list[int] = []  # newest of each subject, delivered before the rest
        self._removals = stream.removals

    def start(self, seq: int) -> None:
        """Begin at ``seq``, or at the first record there still is."""
        self.position = max(seq, self._stream.state().first_seq)

    def start_at_last(self) -> None:
        """Begin at the newest match, behind everything when there is none."""
        state = self._stream.state()
        newest = self._stream.index.last_seq(self._match) if self._match else state.last_seq
        self.position = newest if newest and state.messages else state.last_seq + 1

    def start_at_last_of_each(self) -> None:
        """Begin with the newest record of each matching subject, then go on behind them all."""
        self._first = self._stream.index.last_seqs(self._match)
        self.position = self._first[0] if self._first else self._stream.state().last_seq + 1

    def resume(self, seq: int, first: list[int]) -> None:
        """Go on at ``seq``; ``first`` are the remaining newest-of-each sequences."""
        self.position, self._first = seq, first

    def refilter(self, filters: Sequence[str]) -> None:
        """Let other records match from now on."""
        self._match = patterns.matcher(filters)

    @property
    def remaining_first(self) -> list[int]:
        """Return the newest-of-each sequences that are still to be delivered."""
        return self._first

    def pending(self) -> int:
        """Return exactly how many live records are still to be delivered for the first time."""
        if self._first:
            return len(self._first) + self._stream.count_from(self._behind, self._match)
        return self._stream.count_from(self.position, self._match)

    @property
    def _behind(self) -> int:
        return self._first[-1] + 1

    def read(self, most: int, max_bytes: int) -> "Frames":
        """Return the next matching records, at least one if there is any."""
        if self._match is None and not self._first:
            return self._stream.read(self.position, most, max_bytes)
        wanted = self._wanted(most)
        if not wanted:
            return self._stream.read(self._stream.state().last_seq + 1, 1, 1)
        run = 1
        while run < len(wanted) and wanted[run] == wanted[0] + run:
            run += 1
        return self._stream.read(wanted[0], run, max_bytes)

    def _wanted(self, most: int) -> list[int]:
        if self._first:
            return self._first[:most]
        return self._stream.index.next_seqs(self.position, most, self._match)

    def advance(self, frames: "Frames", count: int) -> None:
        """Move past the first ``count`` of what ``read`` returned."""
        last = frames.seq(count - 1)
        if self._first:
            behind = self._behind
            self._first = [seq for seq in self._first if seq > last]
            self.position = self._first[0] if self._first else behind
        else:
            self.position = last + 1

    def follow(self) -> bool:
        """Notice removals: skip what is gone; False when nothing was removed."""
        if self._removals == self._stream.removals:
            return False
        self._removals = self._stream.removals
        state = self._stream.state()
        if self._first:
            behind = self._behind
            live = {seq for seq in self._first if self._is_live(seq)}
            self._first = [seq for seq in self._first if seq in live]
            if not self._first:
                self.position = behind
        self.position = max(self.position, min(state.first_seq, state.last_seq + 1))
        return True

    def _is_live(self, seq: int) -> bool:
        frames = self._stream.read(seq, 1, 1)
        return len(frames) > 0 and frames.first_seq == seq
