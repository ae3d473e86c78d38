"""Removal: what leaves a stream, and why: deletes, purges, roll-ups, limits, settled interest."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import takewhile
from typing import Protocol

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.message import Record
from millstream.store.log.log import Log
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.size import sizes
from millstream.streams.reading.subject_index import Selection, SubjectIndex
from millstream.streams.refusals import OperationDenied, StreamSealed
from millstream.streams.retention import delete_markers
from millstream.streams.retention import rules as retention
from millstream.streams.retention.claims import Claims
from millstream.streams.retention.expiry import Expiry
from millstream.streams.retention.holds import Holds
from millstream.streams.retention.recent_removals import EVERYTHING, RecentRemovals
from millstream.streams.retention.removal_batch import RemovalBatch
from millstream.streams.state import StreamState
from millstream.streams.writing.run import Demand, Run
from millstream.streams.writing.writes import Writes
from millstream.subjects.subject import has_wildcard

log = logging.getLogger(__name__)

_MOST_HIDDEN = 4096  # records that are hidden until their removal is logged; more are trimmed


class Losing(Protocol):
    """What removal asks of its stream, and whom it tells."""

    config: StreamConfig
    log: Log
    index: SubjectIndex

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        ...

    def get(self, seq: int) -> Record:
        """Return one record."""
        ...

    def count_from(self, seq: int, chosen: Selection | None = None) -> int:
        """Return how many live records from ``seq`` on are chosen."""
        ...

    def wake(self) -> None:
        """Let watchers look again."""
        ...


class _Going:
    """Records that are on their way out."""

    count = 0


class Removal:
    """Carries out every removal of one stream, and keeps its limits."""

    def __init__(self, stream: Losing, writes: Writes, clock: Clock, timers: Timers) -> None:
        self.notes = RecentRemovals()
        self.claims = Claims()
        self.holds = Holds()
        self.expiry = Expiry(self, clock, timers)
        self.crowd = RemovalBatch(timers, self._drop_crowd)
        self._stream = stream
        self._writes = writes
        self._clock = clock
        self._going: set[_Going] = set()  # decided and not yet logged, so not to be counted

    def close(self) -> None:
        """Forget every deadline."""
        self.expiry.close()
        self.crowd.close()

    # What expiry asks of us is what it asks of the stream.

    @property
    def config(self) -> StreamConfig:
        """Return the stream's configuration."""
        return self._stream.config

    @property
    def log(self) -> Log:
        """Return the stream's log."""
        return self._stream.log

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        return self._stream.state()

    @property
    def going(self) -> int:
        """Return how many records are on their way out."""
        crowd = len(self.crowd)
        return sum(going.count for going in self._going) + crowd if self._going else crowd

    # -- holds -------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether somebody keeps the oldest record from its limits."""
        first = self.holds.first(self._clock.monotonic())
        return first is not None and first <= self.log.state().first_seq

    def hold(self, holder: str, taken: int, seconds: float, reader: str = "") -> int:
        """Keep what is above ``taken`` from the stream's limits for a time.

        Returns how far the last of the readers is that go by this name.
        """
        last = self.holds.put(holder, taken, seconds, self._clock.monotonic(), reader)
        self.keep_limits(None)  # what was held until now may go
        return last

    def _trim_unheld(self, first_kept: int, reason: str) -> None:
        """Remove what limits say, but nothing that somebody holds."""
        first_kept = self._unheld(first_kept)
        if first_kept > self.log.state().first_seq:
            self._trim_to(first_kept, reason)

    def _unheld(self, first_kept: int) -> int:
        held = self.holds.first(self._clock.monotonic())
        return first_kept if held is None else min(first_kept, held)

    # -- interest ----------------------------------------------------------------------------

    def settled(self, holder: str, seqs: Sequence[int]) -> None:
        """Take note that a consumer is done with records; limits retention keeps them."""
        if self.config.retention == "workqueue":
            self._release(list(seqs))
        elif self.config.retention == "interest":
            self._release(self.claims.settle(holder, seqs, self._stream.index.subject_of))

    def drop_unclaimed(self) -> None:
        """Drop what nobody needs, where interest retention says so."""
        if self.config.retention != "interest":
            return
        doomed: list[int] = []
        for known in self.log.subjects.ids():
            subject = self.log.subjects.subject(known)
            claims = self.claims.on(subject)
            found = self._stream.index.seqs_of(subject)
            doomed += (seq for seq in found if not any(claim.needs(seq) for claim in claims))
        self._let_go(sorted(doomed))

    def _let_go(self, seqs: list[int]) -> None:
        """Remove records that nobody needs; a sealed stream keeps them."""
        if not self.config.sealed:
            self._release(seqs)

    def _release(self, seqs: list[int]) -> None:
        """Remove records that are done with; a failure leaves them for the next start."""
        if not seqs:
            return
        try:
            self._forget(seqs, _log_failure)
        except MillstreamError as error:
            _log_failure(error)

    # -- on request --------------------------------------------------------------------------

    async def delete(self, seqs: Sequence[int], erase: bool = False) -> int:
        """Remove these records for good; returns how many were there, once that is durable.

        With ``erase`` it returns once their bytes are overwritten wherever they are.
        """
        if self.config.sealed:
            raise StreamSealed()
        if self.config.deny_delete:
            raise OperationDenied(10057, "message delete not permitted")
        self.crowd.leave()
        self.notes.drop(seqs)
        return await self._remove(list(seqs), erase)

    async def purge(self, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove what matches ``subject``: all, those below a sequence, or all but the newest."""
        if self.config.sealed:
            raise StreamSealed()
        if self.config.deny_purge:
            raise OperationDenied(10110, "stream purge not permitted")
        self.crowd.leave()
        index = self._stream.index
        chosen = index.select([subject] if subject else ())
        last = self.log.state().last_seq
        stop = min(below - 1, last) if below else last
        if chosen.is_everything and not keep:
            removed = await self._trim_and_wait(stop + 1)
            if below > last + 1:  # the next record follows what was asked for
                skipped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self.log.skip_to(below, partial(settle, skipped))
                await skipped
            return removed
        doomed = [s for s in index.seqs(chosen) if s <= stop]
        if keep:
            doomed = doomed[:-keep]
        self.notes.purge(doomed)
        return await self._remove(doomed)

    def drop_subject(self, subject: bytes) -> None:
        """Remove every record of a subject; a failure leaves them there."""
        found = list(self._stream.index.seqs_of(subject))
        if found and not self.config.deny_purge:
            self._let_go(found)

    async def _remove(self, seqs: list[int], erase: bool = False) -> int:
        if not seqs:
            return 0
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if not erase:
            removed = self._forget(seqs, partial(settle, done))
            await done
            return removed
        gone: asyncio.Future[None] = loop.create_future()
        removed = self._forget(seqs, partial(settle, done), partial(settle, gone))
        await asyncio.gather(done, gone)
        return removed

    def _forget(
        self,
        seqs: list[int],
        done: Callable[[MillstreamError | None], None],
        erased: Callable[[MillstreamError | None], None] | None = None,
        *,
        can_wait: bool = False,
    ) -> int:
        going, index = _Going(), self._stream.index

        def settled(error: MillstreamError | None) -> None:
            self._going.discard(going)
            index.reveal(seqs)
            done(error)
            self._removed(max(seqs))

        self._going.add(going)
        index.hide(seqs)
        try:
            going.count = self.log.delete(seqs, settled, erased, can_wait)
        except MillstreamError:
            self._going.discard(going)
            index.reveal(seqs)
            raise
        self.claims.forget(seqs)
        self._removed(max(seqs))
        return going.count

    async def _trim_and_wait(self, first_kept: int) -> int:
        """Remove everything below ``first_kept`` and return how much once that is durable.

        Removals are logged in order, so that deleting the oldest record behind the trim
        settles after it.
        """
        state = self.log.state()
        if first_kept <= state.first_seq:
            return 0
        doomed = state.count - self._stream.count_from(first_kept, None)
        self._trim_to(first_kept, "delete")
        await self._remove([state.first_seq])
        return doomed

    def _trim_to(self, first_kept: int, reason: str) -> None:
        self.crowd.leave()  # what goes twice would be counted twice
        self.log.trim(first_kept, reason)
        if reason != "delete":
            self.notes.drop(below=first_kept)
        self.claims.forget_below(first_kept)
        self._removed(first_kept - 1)

    def _removed(self, highest: int = EVERYTHING) -> None:
        self.notes.note(highest)
        self._stream.wake()

    # -- limits ------------------------------------------------------------------------------

    def keep_limits(self, run: Run | None) -> None:
        """Drop what is above the limits; ``run`` is what was committed, None means look at all."""
        if run is not None and run.demands:
            self._meet_demands(run)
        config = self._stream.config
        if run is not None and config.retention == "interest":
            subjects = (run.batch.message(run.start + at)[0] for at in range(run.count))
            seqs = [run.seq_of(at) for at in range(run.count)]
            self._let_go(self.claims.unwanted(seqs, subjects))
        if config.max_msgs_per_subject > 0:
            touched = run.subjects() if run is not None else None
            self._crowd_out(touched, config.max_msgs_per_subject)
        if config.max_msgs > 0 or config.max_bytes > 0:
            self.crowd.leave()
            over = retention.excess(config, self.state())
            if over:
                self._trim_unheld(self._first_kept(over), "cap")
        if config.max_age > 0:
            self.expiry.watch_age()

    def _crowd_out(self, subjects: set[bytes] | None, limit: int) -> None:
        """Take out what is above the limit of these subjects, or of all."""
        index = self._stream.index
        if len(self.crowd) and (subjects is None or index.are_leaving(subjects)):
            self.crowd.leave()  # else whoever writes one subject over and over would search it
        doomed = index.crowd_out(subjects, limit)
        if doomed:
            self.notes.drop(doomed)
            self.claims.forget(doomed)
            self.notes.note(doomed[-1])
            self.crowd.add(doomed)

    def _drop_crowd(self, seqs: list[int]) -> None:
        try:
            self._forget(seqs, _log_failure, can_wait=True)
        except MillstreamError as error:
            _log_failure(error)

    def _meet_demands(self, run: Run) -> None:
        for demand in run.demands:
            seq = run.seq_of(demand.at)
            if demand.rollup:
                self._roll_up(run.batch.message(run.start + demand.at)[0], seq, demand.rollup)
            if demand.forever:
                self.expiry.never(seq)
            if demand.ttl:
                ts_ns = run.time_of(demand.at, self._clock.time_ns())
                self.expiry.later(seq, ts_ns, demand.ttl)

    def _roll_up(self, subject: bytes, seq: int, what: bytes) -> None:
        text, index = subject.decode("utf-8", "surrogateescape"), self._stream.index
        if what == b"all" and self.log.state().count > _MOST_HIDDEN:
            self._trim_to(seq, "delete")
            self.notes.roll_up("")
            return
        found = index.seqs(index.select(())) if what == b"all" else index.seqs_of(subject)
        if what == b"sub" and has_wildcard(
            text
        ):  # published to a pattern: replaces all that matches it
            found = index.seqs(index.select([text]))
        older = [one for one in found if one < seq]
        if older:
            self.notes.purge(older)
            self._forget(older, _log_failure)
        self.notes.roll_up("" if what == b"all" else text)

    def _first_kept(self, over: retention.Excess) -> int:
        """Walk from the old end until enough has been passed; the newest record always stays."""
        state = self.log.state()
        if over.bytes == 0 and state.count == state.last_seq - state.first_seq + 1:
            return state.first_seq + over.messages
        at, messages, size = state.first_seq, over.messages, over.bytes
        for seq, taken in sizes(self.config, self.log, at):
            if messages <= 0 and size <= 0:
                return at
            at = seq + 1
            messages -= 1
            size -= taken
        return at

    # -- age ---------------------------------------------------------------------------------

    def expire(self, seqs: list[int]) -> None:
        """Drop records whose own lifetime is over."""
        self._leave_markers(seqs)
        self.notes.drop(seqs)
        self._forget(seqs, _log_failure)

    def expire_below(self, first_kept: int) -> None:
        """Drop everything older, which has outlived max_age."""
        first_kept = self._unheld(first_kept)
        if first_kept > self.log.state().first_seq:
            if not self.expiry.forever:
                self._leave_markers(self._seqs_below(first_kept))
                self._trim_to(first_kept, "ttl")
                return
            doomed = [s for s in self._seqs_below(first_kept) if s not in self.expiry.forever]
            self._leave_markers(doomed)
            self._expire_to(first_kept, doomed)

    def _expire_to(self, first_kept: int, doomed: list[int]) -> None:
        """Remove what is older, but for what lives forever: behind that, record by record."""
        kept = min((s for s in self.expiry.forever if s < first_kept), default=first_kept)
        if kept > self.log.state().first_seq:
            self._trim_to(kept, "ttl")
        rest = [seq for seq in doomed if seq > kept]
        if rest:
            self.notes.drop(rest)
            self._forget(rest, _log_failure)

    def oldest_mortal(self, start: int, forever: Set[int]) -> tuple[int, int]:
        """Return (sequence, time) of the oldest record from ``start`` on that ages.

        Without one the sequence is where to look next time, and the time is 0.
        """
        index = self._stream.index
        found = (seq for seq in index.seqs(index.select(()), start) if seq not in forever)
        seq = next(found, 0)
        if not seq:
            return self.log.state().last_seq + 1, 0
        return seq, index.time_of(seq)

    def _seqs_below(self, first_kept: int) -> Iterator[int]:
        index = self._stream.index
        return takewhile(lambda seq: seq < first_kept, index.seqs(index.select(())))

    def _leave_markers(self, doomed: Iterable[int]) -> None:
        """Write a marker for each subject that is about to lose all that it still has."""
        ttl_ns = self.config.subject_delete_marker_ttl
        if ttl_ns <= 0 or self.config.sealed:
            return
        index = self._stream.index
        ends: dict[bytes, list[int]] = {}
        for seq in doomed:
            if (subject := index.subject_of(seq)) is not None:
                ends.setdefault(subject, []).append(seq)
        for subject, seqs in ends.items():
            newest = max(seqs)
            if self._writes.last_of_subject(subject) != newest:
                continue
            if index.count_of(subject) > len(seqs):  # an older one lives longer
                continue
            if delete_markers.is_marker(self._stream.get(newest).headers):
                continue
            batch = Batch()
            batch.add(subject, b"", delete_markers.headers(ttl_ns), b"")
            run = Run(batch, 0, 1)
            run.demands = [Demand(0, rollup=b"sub", ttl=ttl_ns // 10**9)]
            self._writes.append(run)


def settle(done: "asyncio.Future[None]", error: MillstreamError | None) -> None:
    """Resolve a future by the outcome of a commit."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _log_failure(error: MillstreamError | None) -> None:
    if error is not None:
        log.error("removal failed, it will be tried again error=%s", error)
