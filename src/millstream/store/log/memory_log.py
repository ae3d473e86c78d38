"""A log in memory alone: the ``ephemeral`` class, with the same promises minus survival."""

import math
from collections import deque
from collections.abc import Callable
from functools import partial

from millstream.clock import Clock
from millstream.store.disk.files import Files
from millstream.store.disk.worker import FileWorker, InlineWorker
from millstream.store.log.control_frames import DELETE, ERASE, TRIM, VOID
from millstream.store.log.file_log import FileLog, LogOptions
from millstream.store.log.log import RESTART, Committed, Durability
from millstream.store.segments.segment import Keeping, Segment
from millstream.store.wal.submission import Submission


class _NoDisk:
    """Hosts a log whose frames go nowhere: every commit is granted on the spot."""

    def __init__(self, files: Files, clock: Clock, post: Callable[[Callable[[], None]], object]):
        self.files = files
        self.clock = clock
        self.worker: FileWorker = InlineWorker()
        self.syncer: FileWorker = self.worker
        self.directory = ""
        self.keeping = Keeping()
        self.syncs_soon = True
        self.quiet_age = 0.0
        self._post = post
        self._granted: deque[Committed] = deque()  # told when the loop comes round, in order
        self._held: deque[Submission] = deque()  # above what may be told yet
        self._limit: float = math.inf
        self._watching: list[Callable[[int], None]] = []  # who hears how far is asked

    def check(self, log_id: int) -> None:
        """Memory takes every write."""

    def submit(self, submission: Submission, at_once: bool = False) -> None:
        """Grant the commit without writing anything; nothing overtakes what was granted before."""
        if self._held or submission.last_seq > self._limit:
            self._held.append(submission)
            self._tell_outrun(submission.last_seq)
        elif at_once and not self._granted:
            submission.committed(None)
        else:
            self._granted.append(submission.committed)
            self._post(self._tell)

    def hold_above(self, seq: int, outrun: Callable[[int], None]) -> None:
        """Grant nothing above ``seq`` before ``raise_limit``; ``outrun`` hears how far is asked."""
        self._limit = seq
        self._watching.append(outrun)

    def _tell_outrun(self, last_seq: int) -> None:
        for outrun in self._watching:
            outrun(last_seq)

    def raise_limit(self, seq: float) -> None:
        """Grant what was held, up to ``seq``."""
        self._limit = max(self._limit, seq)
        while self._held and self._held[0].last_seq <= self._limit:
            self._granted.append(self._held.popleft().committed)
            self._post(self._tell)
        if self._held:
            self._tell_outrun(self._held[-1].last_seq)

    def _tell(self) -> None:
        self._granted.popleft()(None)

    def control(
        self,
        kind: int,
        log_id: int,
        body: bytes,
        done: Committed,
        sync: bool = True,
        can_wait: bool = False,
        apart: bool = False,
    ) -> None:
        """Grant the change: trims at once, deletes when the loop comes round."""
        assert kind in (TRIM, DELETE, ERASE, VOID)
        if kind not in (DELETE, ERASE):
            done(None)
        else:
            self._post(partial(done, None))

    def joined(
        self, kind: int, log_id: int, body: bytes, done: Committed
    ) -> tuple[bytes, Committed]:
        """Nothing is written, so nothing has to be joined."""
        return b"", done

    def post(self, callback: Callable[[], None]) -> object:
        """Run on the loop, soon."""
        return self._post(callback)

    def unsynced(self, log: FileLog) -> None:
        """There is nothing to sync."""

    def promised(self, log: FileLog) -> None:
        """No power cut is survived, so nothing is promised for one."""

    def written_position(self, log_id: int) -> int:
        """Nothing is written."""
        return 0

    def remove(self, segment: Segment) -> None:
        """There are no files."""

    def may_erase(self, log_id: int) -> bool:
        """Nothing is replayed here."""
        return True

    def may_rewrite(self, log_id: int, position: int) -> bool:
        """There are no files."""
        return False

    def rewriting(self, is_rewriting: bool) -> None:
        """There are no files."""

    def withdraw(
        self, log_id: int, segments: list[Segment], done: Callable[[Exception | None], None]
    ) -> bool:
        """There are no files."""
        return False

    def removed(self, log_id: int) -> None:
        """There are no files."""


class MemoryLog(FileLog):
    """A log that ends with the process; blocks stay in memory until they are trimmed."""

    __slots__ = ("_nowhere",)

    def __init__(
        self,
        files: Files,
        clock: Clock,
        post: Callable[[Callable[[], None]], object],
        log_id: int,
        options: LogOptions,
    ) -> None:
        self._nowhere = _NoDisk(files, clock, post)
        super().__init__(self._nowhere, log_id, Durability.EPHEMERAL, options)

    def begin_after(self, first: int, head: int) -> None:
        """Go on behind what an earlier process had; ``first..head`` of it is lost."""
        self.next_seq, self.first_kept = head + 1, head + 1
        self.committed_seq = self.synced_seq = head
        if first <= head:
            self.add_gap(first, head, RESTART)

    def hold_above(self, seq: int, outrun: Callable[[int], None]) -> None:
        """Acknowledge nothing above ``seq`` until ``allow``; ``outrun`` hears how far is asked."""
        self._nowhere.hold_above(seq, outrun)

    def allow(self, seq: float) -> None:
        """Acknowledge sequences up to ``seq``, also those that wait for it."""
        self._nowhere.raise_limit(seq)

    def flush(self) -> None:
        """Keep everything in memory."""
