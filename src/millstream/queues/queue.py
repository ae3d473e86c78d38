"""Queue: leases over a stream. An acked job is a deleted record; everything else is memory.

Work that must not stop halfway (a deletion, a move to the dead letters) runs as a task of the
queue's own, so that a client who leaves cannot tear it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError, StreamNotFound
from millstream.message import Record
from millstream.queues.dead_letters import DeadLetters
from millstream.queues.lease_events import Claim, Claimed, DeadLettered, Extended, Released
from millstream.queues.lease_journal import Journal, LeaseJournal, log_failure
from millstream.queues.leases import MOST_POISON, Claimer, Granted, Leases
from millstream.queues.queue_work import QueueWork
from millstream.queues.settings import Settings, clamp_lease, settings_of
from millstream.queues.stored_jobs import StoredJobs
from millstream.queues.waiting_claims import WaitingClaims
from millstream.streams.state import StreamState
from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

READ_AHEAD = 256


class Job(msgspec.Struct, frozen=True):
    """A record and the lease under which somebody has it."""

    granted: Granted
    record: Record


class Counters(msgspec.Struct, frozen=True):
    """How many jobs are claimable, leased, and were ever moved to the dead letters."""

    ready: int
    in_flight: int
    dead_lettered: int


class Answered(msgspec.Struct, frozen=True):
    """What became of the jobs that a worker named: how many counted, which did not."""

    count: int
    skipped: list[int]


class _Cohort(msgspec.Struct, eq=False):
    """Claimers who are served together once the first one's window is over."""

    lease_ms: int
    members: "list[tuple[Claimer, asyncio.Future[list[Job]]]]" = msgspec.field(default_factory=list)
    timer: Timer | None = None


class Queue:
    """The jobs of one stream. ``settled`` looks at the stream as its readers do."""

    def __init__(
        self,
        stream: Stream,
        *,
        clock: Clock,
        timers: Timers,
        settled: Callable[[Stream, int], StreamState],
        dead_letters: DeadLetters,
        journal: Journal | None = None,
        first_lease_id: int = 1,
    ) -> None:
        self.stream = stream
        self.leases = Leases(first_lease_id)
        self.closed = False
        self._clock = clock
        self._timers = timers
        self._settled = settled
        self._dead_letters = dead_letters
        self.journal = LeaseJournal(stream, journal, lambda: self.settings)
        self.work = QueueWork(stream.name)
        self._config: object = None
        self._settings = Settings()
        self._cohort: _Cohort | None = None
        self._deleting = 0  # of those on their way out: their deletion was handed to the log
        self._deleted = 0  # by us, so that removals by others can be told apart
        self._lost = -1
        self.waiting = WaitingClaims(
            self.leases, timers, self._now_ms, lambda: self.counters().ready
        )
        self._unwatch = stream.watch(self.waiting.wake_hungry)

    @property
    def settings(self) -> Settings:
        """Return what the topic's configuration says now."""
        if self._config is not self.stream.config:
            self._config, self._settings = self.stream.config, settings_of(self.stream.config)
        return self._settings

    # -- looking -----------------------------------------------------------------------------

    def counters(self) -> Counters:
        """Return the counters as of now."""
        return self._counters(self._look())

    def _counters(self, state: StreamState) -> Counters:
        leases = self.leases
        away = leases.in_flight + leases.delayed + len(leases.leaving) - self._deleting
        return Counters(max(0, state.messages - away), leases.in_flight, leases.dead_lettered)

    def _look(self) -> StreamState:
        """Bring the leases up to date with the clock and with removals by others."""
        state = self._settled(self.stream, self._clock.time_ns())
        lost = state.last_seq - state.messages - self._deleted
        if lost != self._lost:
            self._forget_dead(state.first_seq)
            # What others are still removing can be read until that is logged: look again then.
            leaving = self.stream.log.state().count - state.messages - self._deleting
            self._lost = lost if leaving <= 0 else -1
        self.leases.sweep(self._now_ms())
        return state

    def _forget_dead(self, first_seq: int) -> None:
        jobs = StoredJobs(self.stream, first_seq, 1)
        dead = [seq for seq in self.leases.known() if jobs.next_live(seq) != seq]
        owners = self._connections_of(dead)
        for seq in dead:
            self.leases.forget(seq)
        self.waiting.wake(owners)

    def _now_ms(self) -> int:
        return self._clock.time_ns() // 1_000_000

    # -- claims ------------------------------------------------------------------------------

    async def claim(
        self, node: str, wanted: int, lease_ms: int | None = None, connection: int = 0
    ) -> list[Job]:
        """Lease up to ``wanted`` jobs; with a jitter, together with whoever else comes in time."""
        return (await self.claim_and_count(node, wanted, lease_ms, connection))[0]

    async def claim_and_count(
        self, node: str, wanted: int, lease_ms: int | None = None, connection: int = 0
    ) -> tuple[list[Job], int]:
        """Claim, and say how many jobs are claimable after that."""
        claimer, settings = Claimer(node, wanted, connection), self.settings
        length = settings.lease_ms if lease_ms is None else clamp_lease(lease_ms)
        if self._cohort is not None or settings.claim_jitter_ms:
            return await self._claim_together(claimer, length), self.counters().ready
        found, state = await self._serve([claimer], length)
        return found[0], self._counters(state or self._look()).ready

    async def _claim_together(self, claimer: Claimer, lease_ms: int) -> list[Job]:
        cohort = self._cohort or self._open_cohort(lease_ms)
        answer: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()
        member = (claimer, answer)
        cohort.members.append(member)
        try:
            return await answer
        except asyncio.CancelledError:  # the client left
            if self._cohort is cohort:
                cohort.members.remove(member)
            self._take_back(claimer)
            raise

    def _open_cohort(self, lease_ms: int) -> _Cohort:
        self._cohort = cohort = _Cohort(lease_ms)
        window = self.settings.claim_jitter_ms / 1000
        cohort.timer = self._timers.after(window, partial(self._close_cohort, cohort))
        return cohort

    def _close_cohort(self, cohort: _Cohort) -> None:
        self._cohort = None
        if cohort.members:
            self.work.start(self._serve_cohort(cohort))

    async def _serve_cohort(self, cohort: _Cohort) -> None:
        """Serve everybody in one pass; when it fails the first one hears why."""
        members = [member for member in cohort.members if not member[1].cancelled()]
        claimers = [claimer for claimer, _ in members]
        try:
            found, _ = await self._serve(claimers, cohort.lease_ms)
        except MillstreamError as error:
            found = [[] for _ in claimers]
            leader = members[0][1]
            if not leader.done():
                leader.set_exception(error)
        for (claimer, answer), jobs in zip(members, found, strict=True):
            if answer.cancelled():
                self._take_back(claimer)
            elif not answer.done():
                answer.set_result(jobs)

    async def _serve(
        self, claimers: list[Claimer], lease_ms: int
    ) -> tuple[list[list[Job]], StreamState | None]:
        """Return each one's jobs, and the state that they are from unless time has passed since."""
        state = self._look()
        wanted = sum(claimer.wanted for claimer in claimers)
        jobs = StoredJobs(self.stream, state.first_seq, min(wanted, READ_AHEAD))
        try:
            waited = await self._hand_out(claimers, jobs, lease_ms)
            waited = await self._log_claims(claimers) or waited
        except asyncio.CancelledError:
            for claimer in claimers:
                self._take_back(claimer)
            raise
        except MillstreamError:
            self.leases.undo(claimers)
            self.waiting.wake_hungry()
            raise
        self.waiting.set_alarm()
        found = [[Job(g, jobs.record(g.seq)) for g in each.granted] for each in claimers]
        return found, None if waited else state

    async def _hand_out(self, claimers: list[Claimer], jobs: StoredJobs, lease_ms: int) -> bool:
        """Grant jobs; returns whether some were moved away first, being delivered too often."""
        waited = False
        while True:
            limit = self.settings.most_deliveries
            poison = self.leases.hand_out(claimers, jobs, self._now_ms(), lease_ms, limit)
            if not poison:
                return waited
            waited = True
            moved = await self.work.run(self._bury([jobs.record(seq) for seq in poison]))
            if moved < MOST_POISON:  # all that there were, or one failed and would come again
                return waited

    async def _log_claims(self, claimers: list[Claimer]) -> bool:
        """Log claims where they are to survive the process; returns whether they are."""
        if not self.journal.keeps_leases:
            return False
        events = [
            Claimed(
                claimer.node,
                [Claim(g.seq, g.lease_id, g.deadline_ms, g.deliveries) for g in claimer.granted],
                pushed=claimer.connection != 0,
            )
            for claimer in claimers
            if claimer.granted
        ]
        await asyncio.gather(*[self.journal.write(event) for event in events])
        return True

    def _take_back(self, claimer: Claimer) -> None:
        """Release what was granted to somebody who is no longer there."""
        leases = [(g.seq, g.lease_id) for g in claimer.granted]
        claimer.granted.clear()
        if leases:
            self.leases.apply(Released(leases))
            self.journal.note(Released(leases))
            self.waiting.wake_hungry()

    # -- answers of workers ------------------------------------------------------------------

    async def ack(self, node: str, seqs: Sequence[int], tokens: Sequence[int | None]) -> Answered:
        """Delete finished jobs for good; returns once the log's durability class holds for it."""
        self._look()
        owners = self._connections_of(seqs)
        done: list[int] = []
        skipped: list[int] = []
        for seq, token in zip(seqs, tokens, strict=True):
            (done if self.leases.ack(seq, node, token) else skipped).append(seq)
        if done:
            self.waiting.wake(owners)
            await self.work.run(self._delete(done))
        return Answered(len(done), skipped)

    async def nack(
        self, node: str, seqs: Sequence[int], tokens: Sequence[int | None], delay_ms: int
    ) -> Answered:
        """Give jobs back, claimable at once or after a delay."""
        self._look()
        owners = self._connections_of(seqs)
        ready_at = self._now_ms() + delay_ms if delay_ms else 0
        given, skipped = self._each(
            seqs, tokens, lambda seq, token: self.leases.nack(seq, node, token, ready_at)
        )
        if given:
            self.waiting.wake(owners)
            self.waiting.wake_hungry()
            self.waiting.set_alarm()
            await self.journal.write_leases(Released(given, ready_at))
        return Answered(len(given), skipped)

    async def extend(
        self, node: str, seqs: Sequence[int], tokens: Sequence[int | None], lease_ms: int
    ) -> tuple[Answered, int]:
        """Set the deadline of held jobs to ``lease_ms`` from now; returns it too."""
        self._look()
        deadline = self._now_ms() + clamp_lease(lease_ms)
        extended, skipped = self._each(
            seqs, tokens, lambda seq, token: self.leases.extend(seq, node, token, deadline)
        )
        if extended:
            self.waiting.set_alarm()
            await self.journal.write_leases(Extended(extended, deadline))
        return Answered(len(extended), skipped), deadline

    def _each(
        self,
        seqs: Sequence[int],
        tokens: Sequence[int | None],
        change: Callable[[int, int | None], bool],
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Return (seq, lease id) of the jobs that changed, and the sequences that did not."""
        changed, skipped = [], []
        for seq, token in zip(seqs, tokens, strict=True):
            lease = self.leases.held.get(seq)
            if lease is not None and change(seq, token):
                changed.append((seq, lease.lease_id))
            else:
                skipped.append(seq)
        return changed, skipped

    def _connections_of(self, seqs: Sequence[int]) -> set[int]:
        held = self.leases.held
        return {held[seq].connection for seq in seqs if seq in held} - {0}

    # -- pushing -----------------------------------------------------------------------------

    def release(self, connection: int) -> None:
        """Give back at once what a connection had, because it is gone."""
        if self.leases.release(connection):  # not logged: a restart ends every connection anyway
            self.waiting.wake_hungry()

    def hurry(self) -> None:
        """Answer whoever waits now, since the server is about to stop."""
        cohort = self._cohort
        if cohort is not None:
            if cohort.timer is not None:
                cohort.timer.cancel()
            self._close_cohort(cohort)
        self.waiting.wake_all()

    # -- effects -----------------------------------------------------------------------------

    async def _delete(self, seqs: list[int]) -> None:
        """Delete jobs that are on their way out; those that cannot be are claimable again."""
        self._deleting += len(seqs)
        self._deleted += len(seqs)
        try:
            await self.stream.delete(seqs)
        except BaseException:
            self._deleted -= len(seqs)
            self.leases.put_back(seqs)
            raise
        else:
            self.leases.gone(seqs)
        finally:
            self._deleting -= len(seqs)

    async def _bury(self, records: list[Record]) -> int:
        """Move jobs to the dead letters; returns how many went there."""
        moves = [self._bury_one(record) for record in records]
        moved = sum(await asyncio.gather(*moves))
        if moved and self.journal.is_persisted:
            try:
                await self.journal.write(DeadLettered(self.leases.dead_lettered))
            except MillstreamError as error:  # the jobs are where they belong; only the count lags
                log_failure(error)
        return moved

    async def _bury_one(self, record: Record) -> bool:
        topic, limit = self.settings.dead_letter, self.settings.max_deliveries
        try:
            if topic is None:  # the configuration changed just now
                self.leases.put_back([record.seq])
                return False
            await self._dead_letters.bury(self.stream, topic, record, limit)
        except BaseException as error:
            self.leases.put_back([record.seq])
            if not isinstance(error, MillstreamError):
                raise
            log.warning(
                "job not moved to its dead letters queue=%s seq=%d to=%s error=%s",
                self.stream.name, record.seq, topic, error,
            )  # fmt: skip
            return False
        try:
            await self._delete([record.seq])
        except MillstreamError as error:
            log.warning(
                "dead letter copied but not removed queue=%s seq=%d error=%s",
                self.stream.name, record.seq, error,
            )  # fmt: skip
            return False
        self.leases.dead_lettered += 1
        return True

    # -- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Send everybody away: the topic is gone."""
        self.closed = True
        self._unwatch()
        cohort, self._cohort = self._cohort, None
        if cohort is not None:
            if cohort.timer is not None:
                cohort.timer.cancel()
            for _, answer in cohort.members:
                if not answer.done():
                    answer.set_exception(StreamNotFound(self.stream.name))
        self.waiting.close()
