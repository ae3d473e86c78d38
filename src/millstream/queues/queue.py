"""Queue: leases over a stream. An acked job is a deleted record; everything else is memory.

Work that must not stop halfway (a deletion, a move to the dead letters) runs as a task of the
queue's own, so that a client who leaves cannot tear it.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import MillstreamError, StreamNotFound
from millstream.queues.claim_cohorts import ClaimCohorts
from millstream.queues.dead_letters import DeadLetters
from millstream.queues.job_removal import JobRemoval
from millstream.queues.lease_events import Claim, Claimed, Extended, Released
from millstream.queues.lease_journal import Journal, LeaseJournal
from millstream.queues.leases import MOST_POISON, Claimer, Leases
from millstream.queues.queue_work import QueueWork
from millstream.queues.settings import Settings, clamp_lease, settings_of
from millstream.queues.stored_jobs import Job, StoredJobs
from millstream.queues.waiting_claims import WaitingClaims
from millstream.streams.state import StreamState
from millstream.streams.stream import Stream

READ_AHEAD = 256


class Counters(msgspec.Struct, frozen=True):
    """How many jobs are claimable, leased, and were ever moved to the dead letters."""

    ready: int
    in_flight: int
    dead_lettered: int


class Answered(msgspec.Struct, frozen=True):
    """What became of the jobs that a worker named: how many counted, which did not."""

    count: int
    skipped: list[int]


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
        self._settled = settled
        self.journal = LeaseJournal(stream, journal, lambda: self.settings)
        self.work = QueueWork(stream.name)
        self._config: object = None
        self._settings = Settings()
        self._removal = JobRemoval(
            stream, self.leases, dead_letters, self.journal, lambda: self.settings
        )
        self._cohorts = ClaimCohorts(timers, self.work, self._serve, self._take_back)
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
            self.leases.keep_order(on=self._settings.record_key is not None)
        return self._settings

    # -- looking -----------------------------------------------------------------------------

    def counters(self) -> Counters:
        """Return the counters as of now."""
        return self._counters(self._look())

    def _counters(self, state: StreamState) -> Counters:
        leases = self.leases
        away = leases.in_flight + leases.delayed + len(leases.leaving) - self._removal.under_way
        away += len(leases.lanes.waiting)
        return Counters(max(0, state.messages - away), leases.in_flight, leases.dead_lettered)

    def _look(self) -> StreamState:
        """Bring the leases up to date with the clock and with removals by others."""
        state = self._settled(self.stream, self._clock.time_ns())
        lost = state.last_seq - state.messages - self._removal.removed
        if lost != self._lost:
            self._forget_dead(state.first_seq)
            # What others are still removing can be read until that is logged: look again then.
            leaving = self.stream.log.state().count - state.messages - self._removal.under_way
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
        if self._cohorts.is_open or settings.claim_jitter_ms:
            window = settings.claim_jitter_ms / 1000
            return await self._cohorts.join(claimer, length, window), self.counters().ready
        found, state = await self._serve([claimer], length)
        return found[0], self._counters(state or self._look()).ready

    async def _serve(
        self, claimers: list[Claimer], lease_ms: int
    ) -> tuple[list[list[Job]], StreamState | None]:
        """Return each one's jobs, and the state that they are from unless time has passed since."""
        state = self._look()
        wanted = sum(claimer.wanted for claimer in claimers)
        rule = self.settings.record_key
        ahead = READ_AHEAD if rule is not None else min(wanted, READ_AHEAD)
        jobs = StoredJobs(self.stream, state.first_seq, ahead, rule)
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
            if not poison and not self.leases.is_interrupted:
                return waited
            waited = True
            if not poison:
                await asyncio.sleep(0)
                continue
            moved = await self.work.run(self._removal.bury([jobs.record(seq) for seq in poison]))
            is_all = len(poison) < MOST_POISON and not self.leases.lanes.is_on
            if is_all or moved < len(poison):  # one that failed would come again
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
            await self.work.run(self._removal.delete(done))
            if self.leases.lanes.is_on:  # the next of their keys may go
                self.waiting.wake_hungry()
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
        self._cohorts.hurry()
        self.waiting.wake_all()

    # -- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Send everybody away: the topic is gone."""
        self.closed = True
        self._unwatch()
        self._cohorts.close(StreamNotFound(self.stream.name))
        self.waiting.close()
