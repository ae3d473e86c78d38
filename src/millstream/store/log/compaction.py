"""Compaction: sealed segments of a log copied without their dead, or for another key."""

import logging
from functools import partial
from typing import TYPE_CHECKING

from millstream.store.log.host import LogHost
from millstream.store.segments.files import HEADER_BYTES
from millstream.store.segments.rewrite import Rewrite
from millstream.store.segments.segment import Segment

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog

log = logging.getLogger(__name__)


class Compaction:
    """One log's rewrites, one at a time; all methods run on the loop."""

    __slots__ = ("_dead", "_doomed", "_host", "_log", "_ratio", "killed_at")

    def __init__(self, host: LogHost, log: "FileLog", ratio: float) -> None:
        self._host = host
        self._log = log
        self._ratio = ratio  # of a sealed file's bytes that are dead when it is written anew
        self._dead: dict[int, tuple[int, int]] = {}  # base → (live records, dead bytes), as summed
        self.killed_at = 1  # where the WAL was when records died last
        self._doomed: tuple[Segment, Rewrite, int] | None = None  # waits until its dead are stable

    def step(self) -> None:
        """Begin to copy one sealed segment: for the space of its dead, or for another key.

        What the copy leaves out must be stable as dead first, or a power cut would bring back the
        claim that it lives.
        """
        if self._doomed is None:
            if not self._host.may_rewrite(self._log.log_id, 0):
                return
            segment = next((s for s in self._log.segments if self._wants_rewrite(s)), None)
            if segment is None:
                return
            rewrite = Rewrite(self._host.files, segment, self._log.compressed, drop=True)
            self._doomed = (segment, rewrite, self.killed_at)
            self._host.rewriting(True)
            segment.busy = True
        segment, rewrite, position = self._doomed
        if self._host.may_rewrite(self._log.log_id, position):
            self._host.worker.run(rewrite.write, partial(self._rewritten, rewrite))
            self._doomed = None

    def _wants_rewrite(self, segment: Segment) -> bool:
        if not segment.sealed or segment.busy or segment.failed or not segment.index.live:
            return False
        if segment.cold is not None:
            return False
        if any(a <= segment.last_seq and b >= segment.base_seq for a, b in self._log.lost):
            return False  # what is damaged stays, to be found again
        ring = self._host.keeping.ring
        if segment.head.key_id != ring.key_id:
            return True
        live = segment.index.live
        if live == len(segment.index):
            return False
        known = self._dead.get(segment.base_seq)
        if known is None or known[0] != live:
            dead = segment.size - HEADER_BYTES - segment.index.live_bytes()
            known = self._dead[segment.base_seq] = (live, dead)
        return known[1] > self._ratio * (segment.size - HEADER_BYTES)

    def _rewritten(self, rewrite: Rewrite, error: Exception | None) -> None:
        segment = rewrite.segment
        self._dead.pop(segment.base_seq, None)
        if error is None and segment in self._log.segments and not self._log.is_closed:
            rewrite.take_up()
            self._host.worker.run(rewrite.place, partial(self._placed, segment))
            return
        self._host.rewriting(False)
        segment.busy = False
        if error is not None:
            log.warning("segment not rewritten file=%s error=%s", segment.path, error)
        self._host.worker.run(rewrite.discard, partial(report, rewrite.path))

    def _placed(self, segment: Segment, error: Exception | None) -> None:
        self._host.rewriting(False)
        segment.busy = False
        if error is not None:
            segment.failed = True  # served from the copy; a restart goes on with what has the name
            log.error("rewritten segment not in place file=%s error=%s", segment.path, error)
            return
        segment.release()
        self._log.erasure.step()
        self._log.removal.drop_dead_segments()


def report(path: str, error: Exception | None) -> None:
    """Say that a file stayed; the next start removes it."""
    if error is not None:
        log.warning("file not removed file=%s error=%s", path, error)
