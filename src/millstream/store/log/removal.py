"""LogRemoval: how records leave a log, by trims and deletes, and segments with them."""

import logging
from bisect import bisect_right
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.errors import MillstreamError, ShardReadOnly
from millstream.store.log.control_frames import DELETE, ERASE, TRIM, VOID, Trimmed, Voided
from millstream.store.log.host import LogHost
from millstream.store.log.log import Committed, Durability, Gap, by_segment
from millstream.store.log.records import base_of, merged
from millstream.store.segments.segment import Segment

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog

log = logging.getLogger(__name__)


class LogRemoval:
    """Removes records once that is logged; a segment without a live one goes with its file."""

    __slots__ = ("_deleting", "_host", "_log", "_waste_bytes", "holds_dead")

    def __init__(self, host: LogHost, log: "FileLog", waste_bytes: int) -> None:
        self._host = host
        self._log = log
        self._waste_bytes = waste_bytes
        self._deleting: dict[int, None] = {}  # sequences; smaller than a set, as most have none
        self.holds_dead = False  # dead segments stay: a replay may have to copy from them yet

    def forget_open(self) -> None:
        """Forget removals that were not logged: the log takes them back."""
        self._deleting.clear()

    def give_up_waste(self) -> None:
        """Give back the segment that grows, where it holds nothing but much that is dead."""
        if self._log.segments and self._is_waste(self._log.segments[-1]):
            self._give_up(self._log.segments)

    def trim(self, first_kept: int, reason: str) -> None:
        """Remove everything below ``first_kept``, once that is logged.

        A cap is derived again after a crash, so its frame rides along unsynced; what only the
        clock or a caller could decide is on stable storage before it takes effect.
        """
        first_kept = min(first_kept, self._log.next_seq)
        if first_kept <= self._log.first_kept:
            return
        body = msgspec.json.encode(Trimmed(first_kept, reason))
        done = partial(self._trimmed, first_kept, reason)
        try:
            self._host.control(TRIM, self._log.log_id, body, done, sync=reason != "cap")
        except ShardReadOnly as error:  # nothing is removed that the next start would bring back
            log.warning("trim refused log=%x error=%s", self._log.log_id, error)

    def _trimmed(self, first_kept: int, reason: str, error: MillstreamError | None) -> None:
        if error is not None:
            log.warning("trim not logged log=%x error=%s", self._log.log_id, error)
            return
        self.apply_trim(first_kept, reason)
        self._log.compaction.killed_at = self._host.written_position(self._log.log_id)

    def apply_trim(self, first_kept: int, reason: str) -> None:
        """Move the floor; whole dead segments go with their files."""
        first_kept = min(first_kept, self._log.committed_seq + 1)
        if first_kept <= self._log.first_kept:
            return
        before, self._log.first_kept = self._log.first_kept, first_kept
        self._log.floors[reason] = first_kept - 1
        if reason != "delete":
            self._log.evict_floor = max(self._log.evict_floor, first_kept - 1)
        for segment in self._log.segments:
            if segment.base_seq >= first_kept:
                break
            dead, size = segment.index.delete_below(first_kept, before)
            self._log.count -= dead
            self._log.bytes -= size
        self._log.deleted.cut_below(first_kept)
        self._log.gaps = [gap for gap in self._log.gaps if gap.last >= first_kept]
        self.drop_dead_segments()

    def delete(
        self,
        seqs: list[int],
        done: Committed,
        erased: Committed | None = None,
        can_wait: bool = False,
    ) -> int:
        """Remove these records once that is logged; returns how many were live.

        Where somebody waits for ``erased``, their bytes are overwritten wherever they are.
        """
        live = self._live_of(seqs)
        going = [seq for seq in seqs if seq in self._deleting]  # not logged yet: wait for it too
        if not live and not going:
            self._host.post(partial(done, None))
            if erased is not None:
                self._host.post(partial(erased, None))
            return 0
        body = msgspec.json.encode(live + going)
        kind = DELETE if erased is None else ERASE
        sync = self._log.durability is Durability.FSYNC or kind == ERASE
        done = partial(self._delete_logged, live + going, done, erased)
        self._host.control(kind, self._log.log_id, body, done, sync, can_wait)
        self._deleting.update(dict.fromkeys(live))
        return len(live)

    def _live_of(self, seqs: list[int]) -> list[int]:
        """Return the sequences that are there, committed, and not on their way out."""
        live: list[int] = []
        for segment, part in by_segment(self._log.segments, seqs):
            found = zip(part, segment.index.live_ids(part), strict=True)
            live += (seq for seq, known in found if known >= 0 and seq not in self._deleting)
        return [seq for seq in live if self._log.first_kept <= seq <= self._log.committed_seq]

    def _delete_logged(
        self,
        seqs: list[int],
        done: Committed,
        erased: Committed | None,
        error: MillstreamError | None,
    ) -> None:
        for seq in seqs:
            self._deleting.pop(seq, None)
        if error is not None and erased is not None:
            erased(error)
        elif error is None and erased is not None:
            self._log.erasure.begin(seqs, erased)
        elif error is None:
            self.apply_delete(seqs)
            self._log.compaction.killed_at = self._host.written_position(self._log.log_id)
        done(error)

    def apply_delete(self, seqs: list[int]) -> None:
        """Take records out of the index now and flag them in their files soon."""
        if self._log.take_out(seqs):
            self.drop_dead_segments()

    def drop_dead_segments(self) -> None:
        """Give back segments without a live record; the one that grows stays."""
        self._give_up(self._log.segments[:-1])

    def _is_waste(self, newest: Segment) -> bool:
        """Say whether the segment that grows holds nothing but much that is dead.

        Its file goes without being completed: a full disk may have no room for that.
        """
        settled = self._log.next_seq == self._log.committed_seq + 1
        return settled and newest.size >= self._waste_bytes and not newest.index.live

    def _give_up(self, segments: list[Segment]) -> None:
        if self.holds_dead:
            return
        dead = [s for s in segments if not s.index.live and not s.busy]
        dead = [s for s in dead if not s.erasing]
        dead = [s for s in dead if self._accounted(s)]
        if not dead:
            return
        self._log.segments = [s for s in self._log.segments if s not in dead]
        for segment in dead:
            if segment.made:
                self._host.remove(segment)

    def _accounted(self, segment: Segment) -> bool:
        """Say whether more than flags in the file tells where the segment's records went."""
        first = max(segment.base_seq, self._log.first_kept)
        parts = self._log.deleted.missing(first, segment.last_seq)
        return not any(self._log.lost.missing(a, b) for a, b in parts)

    def lose(self, seqs: list[int]) -> None:
        """Take records out of service that no copy holds any more, and say so.

        The WAL says so too: the copies were mended around them, so that no later look finds it.
        """
        new: list[Gap] = []
        for seq in seqs:
            at = bisect_right(self._log.segments, seq, key=base_of) - 1
            position = self._log.segments[at].index.find(seq) if at >= 0 else -1
            if position >= 0 and self._log.segments[at].index.delete(position):
                self._log.count -= 1
                self._log.bytes -= self._log.segments[at].index.frame_len(position)
                new += self._log.add_gap(seq, seq, "corruption")
                log.error("damaged record file=%s seq=%d", self._log.segments[at].path, seq)
        for gap in merged(new):
            body = msgspec.json.encode(Voided(gap.first, gap.last, gap.reason))
            with suppress(ShardReadOnly):
                self._host.control(VOID, self._log.log_id, body, lambda error: None)
