"""Departures: records on their way out of a log, from the decision until the removal is logged."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError
from millstream.store.log.log import Log
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.streams.retention.claims import Claims
from millstream.streams.retention.recent_removals import EVERYTHING, RecentRemovals
from millstream.streams.retention.removal_batch import RemovalBatch

log = logging.getLogger(__name__)

Done = Callable[[MillstreamError | None], None]


class _Departure:
    """Records that leave together."""

    count = 0


class Departures:
    """Has records removed from the log, and hides them from readers until then.

    ``on_removed`` is called when readers see fewer records, and again when that is logged.
    """

    def __init__(
        self,
        log: Log,
        index: SubjectIndex,
        claims: Claims,
        timers: Timers,
        on_removed: Callable[[], None],
    ) -> None:
        self.recent = RecentRemovals()
        self._log = log
        self._index = index
        self._claims = claims
        self._on_removed = on_removed
        self._gathered = RemovalBatch(timers, self._drop_gathered)
        self._under_way: set[_Departure] = set()

    def count(self) -> int:
        """Return how many records are decided to go and still in the log."""
        gathered = len(self._gathered)
        if not self._under_way:
            return gathered
        return sum(each.count for each in self._under_way) + gathered

    def close(self) -> None:
        """Wait for nothing any more."""
        self._gathered.close()

    # -- together, soon ----------------------------------------------------------------------

    def crowd_out(self, subjects: set[bytes] | None, limit: int) -> None:
        """Let what is above the limit of these subjects, or of all, leave with others soon."""
        if len(self._gathered) and (subjects is None or self._index.hidden.has_any_of(subjects)):
            self.log_gathered()  # else whoever writes one subject over and over would search it
        doomed = self._index.crowd_out(subjects, limit)
        if doomed:
            self.recent.drop(doomed)
            self._claims.forget(doomed)
            self.recent.note(doomed[-1])
            self._gathered.add(doomed)

    def log_gathered(self) -> None:
        """Have the log remove what has gathered until now."""
        self._gathered.leave()

    def _drop_gathered(self, seqs: list[int]) -> None:
        try:
            self.remove(seqs, log_failure, can_wait=True)
        except MillstreamError as error:
            log_failure(error)

    # -- at once -----------------------------------------------------------------------------

    def release(self, seqs: list[int]) -> None:
        """Remove records that are done with; a failure leaves them for the next start."""
        if not seqs:
            return
        try:
            self.remove(seqs, log_failure)
        except MillstreamError as error:
            log_failure(error)

    async def remove_and_wait(self, seqs: list[int], erase: bool = False) -> int:
        """Remove records; returns how many were there, once that is durable."""
        if not seqs:
            return 0
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if not erase:
            removed = self.remove(seqs, partial(settle, done))
            await done
            return removed
        gone: asyncio.Future[None] = loop.create_future()
        removed = self.remove(seqs, partial(settle, done), partial(settle, gone))
        await asyncio.gather(done, gone)
        return removed

    def remove(
        self, seqs: list[int], done: Done, erased: Done | None = None, *, can_wait: bool = False
    ) -> int:
        """Remove records; returns how many were there. ``done`` hears once that is logged."""
        departure = _Departure()

        def on_logged(error: MillstreamError | None) -> None:
            self._under_way.discard(departure)
            self._index.hidden.reveal(seqs)
            done(error)
            self._removed(max(seqs))

        self._under_way.add(departure)
        self._index.hidden.hide(seqs)
        try:
            departure.count = self._log.delete(seqs, on_logged, erased, can_wait)
        except MillstreamError:
            self._under_way.discard(departure)
            self._index.hidden.reveal(seqs)
            raise
        self._claims.forget(seqs)
        self._removed(max(seqs))
        return departure.count

    def trim_to(self, first_kept: int, reason: str) -> None:
        """Remove everything below ``first_kept``."""
        self.log_gathered()  # what goes twice would be counted twice
        self._log.trim(first_kept, reason)
        if reason != "delete":
            self.recent.drop(below=first_kept)
        self._claims.forget_below(first_kept)
        self._removed(first_kept - 1)

    def _removed(self, highest: int = EVERYTHING) -> None:
        self.recent.note(highest)
        self._on_removed()


def settle(done: "asyncio.Future[None]", error: MillstreamError | None) -> None:
    """Resolve a future by the outcome of a commit."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def log_failure(error: MillstreamError | None) -> None:
    """Say that a removal was not logged."""
    if error is not None:
        log.error("removal failed, it will be tried again error=%s", error)
