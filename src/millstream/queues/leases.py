"""Leases: who holds which job and until when. A pure state machine over sequences.

Callers pass the time and the jobs that exist, and carry out what is decided here. A job is
claimable while it is live, not leased, not waiting out a delay and not on its way out. Jobs that
came back lie in a heap below the cursor and go first; the cursor then hands out the rest. Where
jobs have keys, one of each key is out at a time, and keeps its key until it is done with.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol, assert_never

import msgspec

from millstream.delivery.key_lanes import KeyLanes
from millstream.queues.lease_events import (
    Claim,
    Claimed,
    DeadLettered,
    Event,
    Extended,
    Projection,
    Released,
)

MOST_BYTES = 8 * 1024 * 1024  # of data that one claim answers, above the first job
MOST_PARKED = 1024  # jobs that one pass lets wait for their keys
MOST_POISON = 64  # jobs that one pass sets aside as undeliverable
ENDED = -1  # the connection of leases that were pushed by a process that is no more


class Jobs(Protocol):
    """The records of the queue as a claim sees them."""

    def next_live(self, seq: int) -> int:
        """Return the first live sequence at or above ``seq``, 0 when there is none."""
        ...

    def size(self, seq: int) -> int:
        """Return how many bytes a live job adds to an answer."""
        ...

    def ready_at_ms(self, seq: int) -> int:
        """Return from when on a live job may be claimed, 0 for always."""
        ...

    def key(self, seq: int) -> bytes:
        """Return the key of a live job, empty where it has none."""
        ...

    def pass_over(self, seq: int) -> None:
        """Note that a job is not handed out now."""
        ...


class Lease(msgspec.Struct):
    """One job in somebody's hands; ``connection`` is 0 for leases that no connection bounds."""

    node: str
    lease_id: int
    deadline_ms: int
    connection: int = 0


class Granted(msgspec.Struct, frozen=True):
    """A job as it is handed to its claimer."""

    seq: int
    lease_id: int
    deadline_ms: int
    deliveries: int


class Claimer(msgspec.Struct, eq=False):
    """Somebody who asks for jobs, and what it got."""

    node: str
    wanted: int
    connection: int = 0
    room_bytes: int = MOST_BYTES
    granted: list[Granted] = msgspec.field(default_factory=list)

    @property
    def is_served(self) -> bool:
        """Return whether it should get no more."""
        return len(self.granted) >= self.wanted or self.room_bytes <= 0


class Leases:
    """The leases of one queue. ``deadline_ms`` is the last moment at which a lease holds."""

    def __init__(self, next_lease_id: int = 1) -> None:
        self.held: dict[int, Lease] = {}
        self.deliveries: dict[int, int] = {}
        self.leaving: set[int] = set()  # acked or given up, their deletion under way
        self.dead_lettered = 0
        self._next_lease_id = next_lease_id
        self._cursor = 1
        self._reclaim: list[int] = []  # a heap; those that count are in the set
        self.reclaimable: set[int] = set()  # came back, and may be claimed
        self._delayed: dict[int, int] = {}
        self._ready_times: list[tuple[int, int]] = []  # a heap of (ready at, seq)
        self._deadlines: list[tuple[int, int]] = []  # a heap of (deadline, seq), stale ones too
        self._connections: dict[int, set[int]] = {}
        self.lanes = KeyLanes()
        self.is_interrupted = False  # there may be more to hand out: ask again
        self._parked = 0  # by the claim that is served

    # -- looking -----------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Return how many jobs are leased, as of the last sweep."""
        return len(self.held)

    @property
    def delayed(self) -> int:
        """Return how many jobs wait out a delay, as of the last sweep."""
        return len(self._delayed)

    def held_by(self, connection: int) -> int:
        """Return how many leases a connection bounds."""
        return len(self._connections.get(connection, ()))

    def known(self) -> set[int]:
        """Return every job about which something is remembered, but for those on their way out."""
        known = self.held.keys() | self.deliveries.keys() | self._delayed.keys()
        return (known | self.reclaimable | self.lanes.waiting) - self.leaving

    # -- time --------------------------------------------------------------------------------

    def sweep(self, now_ms: int) -> None:
        """End leases whose deadline is past and delays that are over."""
        while self._deadlines and self._deadlines[0][0] < now_ms:
            deadline, seq = heapq.heappop(self._deadlines)
            if self._is_current(deadline, seq):
                self._drop(seq)
                self._free(seq)
        while self._ready_times and self._ready_times[0][0] <= now_ms:
            ready_at, seq = heapq.heappop(self._ready_times)
            if self._is_waiting(ready_at, seq):
                del self._delayed[seq]
                self._free(seq)

    def next_change_ms(self) -> int | None:
        """Return the first moment at which ``sweep`` has something to do, None for never."""
        while self._deadlines and not self._is_current(*self._deadlines[0]):
            heapq.heappop(self._deadlines)
        while self._ready_times and not self._is_waiting(*self._ready_times[0]):
            heapq.heappop(self._ready_times)
        times = [deadline + 1 for deadline, _ in self._deadlines[:1]]
        times += [ready_at for ready_at, _ in self._ready_times[:1]]
        return min(times, default=None)

    def _is_current(self, deadline_ms: int, seq: int) -> bool:
        lease = self.held.get(seq)
        return lease is not None and lease.deadline_ms == deadline_ms

    def _is_waiting(self, ready_at_ms: int, seq: int) -> bool:
        return self._delayed.get(seq) == ready_at_ms

    # -- claims ------------------------------------------------------------------------------

    def hand_out(
        self,
        claimers: Sequence[Claimer],
        jobs: Jobs,
        now_ms: int,
        lease_ms: int,
        max_deliveries: int = 0,
    ) -> list[int]:
        """Lease jobs to the claimers in turn, one at a time, lowest sequence first.

        Returns jobs that were delivered ``max_deliveries`` times already (0: no limit). They are
        on their way out until the caller says ``gone`` or ``put_back``.
        """
        poison: list[int] = []
        self._parked, self.is_interrupted = 0, False
        turns = deque(claimer for claimer in claimers if not claimer.is_served)
        while turns and len(poison) < MOST_POISON:
            seq = self._next(jobs, now_ms)
            if not seq:
                break
            if 0 < max_deliveries <= self.deliveries.get(seq, 0):
                self.leaving.add(seq)
                poison.append(seq)
                continue
            claimer = turns.popleft()
            claimer.granted.append(self._lease(seq, claimer, now_ms + lease_ms))
            claimer.room_bytes -= jobs.size(seq)
            if not claimer.is_served:
                turns.append(claimer)
        return poison

    def _next(self, jobs: Jobs, now_ms: int) -> int:
        while self._reclaim:
            seq = heapq.heappop(self._reclaim)
            if seq not in self.reclaimable:
                continue
            self.reclaimable.remove(seq)
            if jobs.next_live(seq) != seq:
                self.forget(seq)
            elif not self.lanes.is_on or self._gets_key(seq, jobs):
                return seq
        while seq := jobs.next_live(self._cursor):
            if self.lanes.is_on and self._looked_enough(seq, jobs):
                return 0
            self._cursor = seq + 1
            if seq in self.held or seq in self._delayed or seq in self.leaving:
                if self.lanes.is_on:
                    self.lanes.hold(seq, jobs.key(seq))
                continue
            ready_at_ms = jobs.ready_at_ms(seq)
            if ready_at_ms > now_ms:
                self._give_back(seq, ready_at_ms)
            elif not self.lanes.is_on or self._gets_key(seq, jobs):
                return seq
        return 0

    def _looked_enough(self, seq: int, jobs: Jobs) -> bool:
        """Whether to stop before a job: others have a turn, or no more may wait for their keys."""
        self.is_interrupted = self._parked >= MOST_PARKED
        is_blocked = self.lanes.is_full and not self.lanes.is_free(jobs.key(seq))
        return self.is_interrupted or is_blocked

    def _gets_key(self, seq: int, jobs: Jobs) -> bool:
        """Give a job its key, or let it wait for the one that has it."""
        if self.lanes.knows(seq):
            return True
        key = jobs.key(seq)
        if self.lanes.is_free(key):
            self.lanes.hold(seq, key)
            return True
        self.lanes.park(seq, key)
        self._parked += 1
        jobs.pass_over(seq)
        return False

    def keep_order(self, *, on: bool) -> None:
        """Begin or end to hand out one job of each key at a time."""
        if on != self.lanes.is_on:
            waiting = sorted(self.lanes.waiting)
            self.lanes.switch(on=on)
            if on:
                self._cursor = 1  # which keys are out is seen on the way
                self._reclaim, self.reclaimable = [], set()
            for seq in waiting:
                self._free(seq)

    def _lease(self, seq: int, claimer: Claimer, deadline_ms: int) -> Granted:
        deliveries = self.deliveries.get(seq, 0) + 1
        self.deliveries[seq] = deliveries
        lease_id, self._next_lease_id = self._next_lease_id, self._next_lease_id + 1
        self._hold(seq, Lease(claimer.node, lease_id, deadline_ms, claimer.connection))
        return Granted(seq, lease_id, deadline_ms, deliveries)

    def undo(self, claimers: Iterable[Claimer]) -> None:
        """Take back grants that never reached anybody, as if they had not been made."""
        for claimer in claimers:
            for granted in claimer.granted:
                if self._holds(granted.seq, granted.lease_id):
                    self._drop(granted.seq)
                    self._count(granted.seq, granted.deliveries - 1)
                    self._free(granted.seq)
            claimer.granted.clear()

    # -- answers of workers ------------------------------------------------------------------

    def ack(self, seq: int, node: str, token: int | None) -> bool:
        """End the lease of a finished job, which is on its way out then; False if not held."""
        if not self._is_held(seq, node, token):
            return False
        self._drop(seq)
        self.leaving.add(seq)
        return True

    def nack(self, seq: int, node: str, token: int | None, ready_at_ms: int) -> bool:
        """Give a job back, claimable from ``ready_at_ms`` on (0: now); False if not held."""
        if not self._is_held(seq, node, token):
            return False
        self._drop(seq)
        self._give_back(seq, ready_at_ms)
        return True

    def extend(self, seq: int, node: str, token: int | None, deadline_ms: int) -> bool:
        """Set the deadline of a held job; False if not held."""
        if not self._is_held(seq, node, token):
            return False
        self._set_deadline(seq, deadline_ms)
        return True

    def release(self, connection: int) -> list[int]:
        """Give back everything that a connection bounds; returns which jobs these are."""
        released = sorted(self._connections.get(connection, ()))
        for seq in released:
            self._drop(seq)
            self._free(seq)
        return released

    def gone(self, seqs: Iterable[int]) -> None:
        """Note that jobs on their way out are deleted."""
        for seq in seqs:
            self.leaving.discard(seq)
            self.forget(seq)

    def put_back(self, seqs: Iterable[int]) -> None:
        """Make jobs claimable again whose deletion failed; their deliveries still count."""
        for seq in seqs:
            self.leaving.discard(seq)
            self._free(seq)

    def forget(self, seq: int) -> None:
        """Drop everything about a job that is no longer there."""
        self._drop(seq)
        self.deliveries.pop(seq, None)
        self._delayed.pop(seq, None)
        self.reclaimable.discard(seq)
        if self.lanes.is_on and (following := self.lanes.release(seq)):
            self.lanes.waiting.discard(following)
            self._free(following)

    # -- persistence -------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Replay an event; ``end_replay`` then frees what ended connections had."""
        match event:
            case Claimed():
                for claim in event.jobs:
                    self._replay_claim(event, claim)
            case Released():
                for seq, lease_id in event.leases:
                    if self._holds(seq, lease_id):
                        self._drop(seq)
                        self._give_back(seq, event.ready_at_ms)
            case Extended():
                for seq, lease_id in event.leases:
                    if self._holds(seq, lease_id):
                        self._set_deadline(seq, event.deadline_ms)
            case DeadLettered():
                self.dead_lettered = event.total
            case _:
                assert_never(event)

    def _replay_claim(self, event: Claimed, claim: Claim) -> None:
        self.deliveries[claim.seq] = claim.deliveries
        self._next_lease_id = max(self._next_lease_id, claim.lease_id + 1)
        self._delayed.pop(claim.seq, None)
        self._drop(claim.seq)
        connection = ENDED if event.pushed else 0
        lease = Lease(event.node, claim.lease_id, claim.deadline_ms, connection)
        self._hold(claim.seq, lease)

    def end_replay(self) -> None:
        """Make claimable what was pushed to connections, which do not outlive their process."""
        self.release(ENDED)

    def projection(self) -> Projection:
        """Return everything that a restart should bring back."""
        claimed = [
            Claimed(
                lease.node,
                [Claim(seq, lease.lease_id, lease.deadline_ms, self.deliveries.get(seq, 1))],
                pushed=lease.connection != 0,
            )
            for seq, lease in sorted(self.held.items())
        ]
        others = sorted(self.deliveries.keys() - self.held.keys())
        return Projection(
            self._next_lease_id,
            self.dead_lettered,
            claimed,
            [(seq, self.deliveries[seq]) for seq in others],
            sorted(self._delayed.items()),
        )

    def restore(self, saved: Projection) -> None:
        """Take over a projection; called on fresh leases only."""
        self._next_lease_id = max(self._next_lease_id, saved.next_lease_id)
        self.dead_lettered = saved.dead_lettered
        self.deliveries.update(saved.deliveries)
        for event in saved.claimed:
            self.apply(event)
        for seq, ready_at_ms in saved.delayed:
            self._give_back(seq, ready_at_ms)

    # -- parts -------------------------------------------------------------------------------

    def _is_held(self, seq: int, node: str, token: int | None) -> bool:
        lease = self.held.get(seq)
        if lease is None or lease.node != node:
            return False
        return token is None or lease.lease_id == token

    def _holds(self, seq: int, lease_id: int) -> bool:
        lease = self.held.get(seq)
        return lease is not None and lease.lease_id == lease_id

    def _hold(self, seq: int, lease: Lease) -> None:
        self.held[seq] = lease
        self._await_deadline(lease.deadline_ms, seq)
        if lease.connection:
            self._connections.setdefault(lease.connection, set()).add(seq)

    def _set_deadline(self, seq: int, deadline_ms: int) -> None:
        self.held[seq].deadline_ms = deadline_ms
        self._await_deadline(deadline_ms, seq)

    def _await_deadline(self, deadline_ms: int, seq: int) -> None:
        heapq.heappush(self._deadlines, (deadline_ms, seq))
        if len(self._deadlines) > 2 * len(self.held) + 64:  # mostly stale by now
            self._deadlines = [(lease.deadline_ms, s) for s, lease in self.held.items()]
            heapq.heapify(self._deadlines)

    def _drop(self, seq: int) -> None:
        lease = self.held.pop(seq, None)
        if lease is None or not lease.connection:
            return
        bound = self._connections[lease.connection]
        bound.discard(seq)
        if not bound:
            del self._connections[lease.connection]

    def _count(self, seq: int, deliveries: int) -> None:
        if deliveries > 0:
            self.deliveries[seq] = deliveries
        else:
            self.deliveries.pop(seq, None)

    def _give_back(self, seq: int, ready_at_ms: int) -> None:
        if ready_at_ms:
            self._delayed[seq] = ready_at_ms
            heapq.heappush(self._ready_times, (ready_at_ms, seq))
            if len(self._ready_times) > 2 * len(self._delayed) + 64:
                self._ready_times = [(at, s) for s, at in self._delayed.items()]
                heapq.heapify(self._ready_times)
        else:
            self._free(seq)

    def _free(self, seq: int) -> None:
        """Make a job claimable; what the cursor has yet to pass needs no place in the heap."""
        if seq < self._cursor and seq not in self.reclaimable:
            self.reclaimable.add(seq)
            heapq.heappush(self._reclaim, seq)
