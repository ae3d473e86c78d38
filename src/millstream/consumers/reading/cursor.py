"""Cursor: which record of a stream comes next, with or without filters, and how many are left."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from millstream.consumers.reading.loss import Loss, Range
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames


class CursorPage(msgspec.Struct, frozen=True):
    """Frames ``start`` to ``start + count`` are the next records."""

    frames: "Frames"
    start: int
    count: int


class Cursor:
    """The next sequence to consider, and exactly how many records still match from there."""

    def __init__(self, stream: Stream, filters: Sequence[str]) -> None:
        self.position = 1
        self.is_woken = False  # by new records, which may be others' alone: no look at them
        self.read_to = 0  # what was delivered, or looked at and left behind, since the beginning
        self.filters = tuple(filters)
        self._stream = stream
        stream.pin()  # what it counts is compared with what the stream has counted
        self._chosen = stream.index.select(filters)
        self._first: deque[int] = deque()  # newest of each subject, delivered before the rest
        self._clear_to = 0  # from the position to here nothing matches
        self._is_refiltered = False  # since the last record: what was passed by may match now
        self._removals = stream.removal.recent.count
        self._left = 0  # chosen records behind the position, up to and with _counted_to
        self._counted_to = 0
        self._is_counted = False
        self.loss = Loss(stream)

    # -- where to begin ----------------------------------------------------------------------

    def start(self, seq: int, first: int) -> None:
        """Begin at ``seq``, or at ``first``, the first record that there still is."""
        self.resume(max(seq, first), [])

    def start_at_last(self) -> None:
        """Begin at the newest match, at the first record when there is none."""
        state = self._stream.state()
        newest = self._stream.index.last_seq(self._chosen)
        if self._chosen.is_everything:
            newest = state.last_seq
        self.start(newest if state.messages else state.last_seq + 1, state.first_seq)

    def start_at_last_of_each(self) -> None:
        """Begin with the newest record of each matching subject, then go on behind them all."""
        first = self._stream.index.last_seqs(self._chosen)
        if first:
            self.resume(first[0], first)
        else:
            state = self._stream.state()
            self.start(state.last_seq, state.first_seq)

    def resume(
        self,
        seq: int,
        first: list[int],
        clear_to: int = 0,
        gap: Range | None = None,
    ) -> None:
        """Go on at ``seq``; ``first`` are the remaining newest-of-each sequences.

        From ``seq`` to ``clear_to`` nothing matches. ``gap`` is a loss that is still to be told.
        """
        self.position, self._first, self._clear_to = seq, deque(first), clear_to
        self._is_refiltered = False
        self.read_to = 0
        self._is_counted = False
        self.loss.restore(gap)

    def pass_to(self, seq: int) -> None:
        """Go on at ``seq`` at the earliest: nothing that matches is before it."""
        if not self._first and seq > self.position:
            self.position, self.read_to = seq, seq - 1
            self._is_counted = False

    def refilter(self, filters: Sequence[str]) -> None:
        """Let other records match from now on."""
        self.filters = tuple(filters)
        self._chosen = self._stream.index.select(filters)
        self._clear_to = 0
        self._is_refiltered = True
        self._is_counted = False

    @property
    def next_seq(self) -> int:
        """Return the first sequence that may match."""
        return self.position if self._first else max(self.position, self._clear_to + 1)

    @property
    def clear_seq(self) -> int:
        """Return up to before which nothing matches behind the last record, 0 when unknown."""
        return 0 if self._is_refiltered else self.next_seq

    @property
    def seen_to(self) -> int:
        """Return up to where everything was delivered or does not match, 0 when unknown."""
        return 0 if self._first else self.position - 1

    @property
    def remaining_first(self) -> list[int]:
        """Return the newest-of-each sequences that are still to be delivered."""
        return list(self._first)

    def between(self, after: int, last: int) -> Iterator[int]:
        """Return the matching records behind ``after``, up to and with ``last``."""
        found = self._stream.index.seqs(self._chosen, after + 1)
        return takewhile(lambda seq: seq <= last, found)

    def passed(self, start: int, pending: Callable[[int], object | None]) -> list[int]:
        """Return what lies from ``start`` to the position, and neither comes nor is pending."""
        to_come = set(self._first)
        before = self._stream.state().last_seq if to_come else self.position - 1
        found = self.between(start - 1, before)
        return [seq for seq in found if seq not in to_come and pending(seq) is None]

    # -- what is left ------------------------------------------------------------------------

    def pending(self) -> int:
        """Return exactly how many live records are still to be delivered for the first time."""
        self.follow()
        last = self._stream.log.committed_seq
        if not self._is_counted:
            self._left = self._stream.contents.count_from(self._base, self._chosen)
            self._is_counted = True
        elif last > self._counted_to:
            start = max(self._counted_to + 1, self._base)
            self._left += self._stream.index.count(self._chosen, start)
        self._counted_to = last
        return len(self._first) + self._left

    @property
    def _base(self) -> int:
        """Return where the records behind the newest-of-each begin."""
        return self._first[-1] + 1 if self._first else self.next_seq

    def follow(self) -> bool:
        """Notice removals: skip what is gone; False when nothing was removed."""
        removals, changed = self._stream.removal.recent, False
        log = self._stream.log  # a trim is decided first and done later
        first = log.first_seq()
        if first > self.position:
            changed = True
            self._skip_to(min(first, log.committed_seq + 1), log.state().evict_floor)
        if self._removals != removals.count:
            changed = True
            reached = removals.reached_since(self._removals)
            self._removals = removals.count
            if reached >= self.position:
                self._is_counted = False
                self._drop_removed_first()
        return changed

    def _drop_removed_first(self) -> None:
        if self._first:
            behind = self._first[-1] + 1
            self._first = deque(filter(self._stream.index.is_live, self._first))
            self.position = self._first[0] if self._first else behind

    def _skip_to(self, first: int, evicted: int) -> None:
        """Go past what was trimmed; what nobody asked to remove was lost to this consumer."""
        start = self.next_seq
        if self._first:
            self._drop_removed_first()
            self.position = max(self.position, min(first, self._base))
            return
        lost = evicted >= start
        is_sure = self._chosen.is_everything
        if lost and self._is_counted:
            still_there = self._stream.index.count(self._chosen, first, self._counted_to + 1)
            is_sure = is_sure or still_there < self._left
            # What came behind the last count and is gone may have matched, or not.
            lost = still_there < self._left or first > self._counted_to + 1
        self.position = first
        self._is_counted = False
        if lost:
            self.loss.note_gap(start, min(evicted, first - 1), is_sure=is_sure)
        self.loss.note_damage(start, first - 1)

    # -- reading -----------------------------------------------------------------------------

    def read(self, most: int, max_bytes: int) -> CursorPage | None:
        """Return the next matching records, None when there are none."""
        index = self._stream.index
        while True:
            if self._first:
                frames = self._read_first(most, max_bytes)
            else:
                frames = index.read(self._chosen, self.next_seq, most, max_bytes)
            if not len(frames):
                self._see_end()
                return None
            page = CursorPage(frames, 0, min(len(frames), most))
            if index.hidden.seqs:
                page = self._visible(page)
            if page.count:
                if not self._stream.log.state().gaps:
                    return page
                return self.loss.before_damage(self.position, page)
            self._pass(frames.last_seq)

    def _see_end(self) -> None:
        """Leave what does not match behind: filters that an update brings match what is to come.

        What others alone were woken by was not looked at, and such filters may match it.
        """
        if self._first:
            return
        self._clear_to = max(self._clear_to, self._stream.log.committed_seq)
        if not self.is_woken:
            self.loss.note_damage(self.position, self._clear_to)
            self.position = max(self.position, self._clear_to + 1)
            self.read_to = self.position - 1

    def _read_first(self, most: int, max_bytes: int) -> "Frames":
        wanted, run = self._first, 1  # a run of neighbours at once
        while run < min(len(wanted), most) and wanted[run] == wanted[0] + run:
            run += 1
        return self._stream.read(wanted[0], run, max_bytes)

    def _visible(self, page: CursorPage) -> CursorPage:
        """Return the first run of records that are not on their way out."""
        hidden, frames = self._stream.index.hidden.seqs, page.frames
        start = 0
        while start < page.count and frames.seq(start) in hidden:
            start += 1
        end = start
        while end < page.count and frames.seq(end) not in hidden:
            end += 1
        return CursorPage(frames, start, end - start)

    def advance(self, page: CursorPage) -> None:
        """Move past what ``read`` returned."""
        self.is_woken = self._is_refiltered = False
        if self._is_counted and not self._first:
            self._left -= page.count
        self._pass(page.frames.seq(page.start + page.count - 1))

    def _pass(self, last: int) -> None:
        if self._first:
            behind = self._first[-1] + 1
            while self._first and self._first[0] <= last:
                self._first.popleft()
            self.position = self._first[0] if self._first else max(behind, last + 1)
        else:
            self.position = last + 1
            self.read_to = last
