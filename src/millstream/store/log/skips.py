"""Skips: sequences that a log leaves out on purpose; nothing of them is lost."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.errors import MillstreamError
from millstream.store.log.control_frames import VOID, Skipped, Voided, skip_frames
from millstream.store.log.host import LogHost
from millstream.store.log.log import Committed, Durability, Staged
from millstream.store.wal.submission import Submission

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog

log = logging.getLogger(__name__)


class Skips:
    """Logs what is left out, ahead of the records behind it."""

    __slots__ = ("_host", "_log")

    def __init__(self, host: LogHost, log: "FileLog") -> None:
        self._host = host
        self._log = log

    def skip_to(self, seq: int, done: Committed) -> None:
        """Give the next record at least ``seq``; what is left out was never there."""
        self._host.check(self._log.log_id)
        if seq <= self._log.next_seq:
            self._host.post(partial(done, None))
            return
        holes = [(self._log.next_seq, seq - 1)]
        frames = skip_frames(self._log.log_id, Skipped(holes, seq))
        committed = partial(self._skipped_to, seq, holes, done)
        self._host.submit(Submission(self._log.log_id, 0, 2, frames, True, committed))
        self._log.next_seq = seq
        if self._log.durability is Durability.MEMORY:  # what follows is committed at once
            self._skip_visibly(seq, holes)

    def _skipped_to(
        self,
        seq: int,
        holes: Sequence[tuple[int, int]],
        done: Committed,
        error: MillstreamError | None,
    ) -> None:
        if error is None:
            self._skip_visibly(seq, holes)
            # Its sync has covered whatever was written before it.
            self._log.synced_seq = max(self._log.synced_seq, seq - 1)
        done(error)

    def _skip_visibly(self, seq: int, holes: Sequence[tuple[int, int]]) -> None:
        self.leave_out(holes)
        self._log.committed_seq = max(self._log.committed_seq, seq - 1)

    def committed(
        self,
        holes: Sequence[tuple[int, int]],
        committed: Committed,
        error: MillstreamError | None,
    ) -> None:
        """Leave ``holes`` out with records that are committed."""
        if error is None:
            self.leave_out(holes)
        committed(error)

    def leave_out(self, holes: Sequence[tuple[int, int]]) -> None:
        """Note ranges that were never there."""
        for first, last in holes:
            self._log.deleted.add(max(first, self._log.first_kept), last)

    def skip(self, count: int, reason: str, done: Committed) -> Staged:
        """Stage ``count`` sequences that hold nothing; the caller logs that, and reports it."""
        self._host.check(self._log.log_id)
        first = self._log.next_seq
        sync = self._log.durability is Durability.FSYNC
        if self._log.durability is Durability.DISK:
            sync = self._log.promise.make_for(first + count, count)
        self._log.next_seq = first + count
        committed = partial(self._skipped, first, self._log.next_seq - 1, reason, done)
        return Staged(first, committed, sync, self._log.log_id, count, reason=reason)

    def _skipped(
        self, first: int, last: int, reason: str, done: Committed, error: MillstreamError | None
    ) -> None:
        if error is None:
            self._log.add_gap(first, last, reason)
            self._log.committed_seq = max(self._log.committed_seq, last)
            if self._log.durability is Durability.FSYNC:
                self._log.synced_seq = max(self._log.synced_seq, last)
            else:
                self._log.marks.add(last, self._log.durability)
        done(error)

    def start_at(self, first_seq: int) -> None:
        """Give a log that never held a record another first sequence than 1.

        The frames that say so go ahead of every record, so that no replay takes the missing
        sequences for lost ones.
        """
        if self._log.next_seq != 1 or first_seq <= 1:
            return
        void = msgspec.json.encode(Voided(1, first_seq - 1, "void"))
        self._host.control(VOID, self._log.log_id, void, self._start_logged)
        self._log.next_seq = first_seq
        self._log.committed_seq = self._log.synced_seq = first_seq - 1
        self._log.trim(first_seq, "delete")

    def _start_logged(self, error: MillstreamError | None) -> None:
        if error is not None:
            log.error("first sequence not written log=%x error=%s", self._log.log_id, error)
