"""Ledger: which deliveries are unanswered, and what happens to them. Pure: callers pass ``now``."""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec


class Pending(msgspec.Struct):
    """A delivery that nobody has answered."""

    consumer_seq: int
    deliveries: int
    deadline: float  # monotonic seconds; infinite while it waits in the redelivery queue


@dataclass(frozen=True, slots=True)
class Redeliver:
    """It may be delivered again."""

    seq: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It was delivered as often as allowed, and never answered."""

    seq: int
    deliveries: int


Effect: TypeAlias = Redeliver | GiveUp

FOREVER = float("inf")


class Snapshot(msgspec.Struct):
    """A ledger as it is persisted: whole, or what changed since the last one."""

    version: int
    delivered: tuple[int, int]  # consumer seq, stream seq
    floor: tuple[int, int]
    pending: list[tuple[int, int, int]]  # stream seq, consumer seq, deliveries
    answered: list[int] = []
    redelivered: dict[int, int] = {}


@dataclass
class Ledger:
    """Positions and pending deliveries of one consumer.

    ``delivered`` and ``floor`` are (consumer seq, stream seq); the floor is the end of the
    prefix in which everything was answered.
    """

    ack_wait: float
    backoff: Sequence[float] = ()
    max_deliver: int = -1
    delivered: tuple[int, int] = (0, 0)
    floor: tuple[int, int] = (0, 0)
    pending: dict[int, Pending] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)  # seq → deliveries, when above 1
    queue: list[int] = field(default_factory=list)  # to deliver again, ascending
    version: int = 0
    _changed: set[int] = field(default_factory=set)
    _answered: list[int] = field(default_factory=list)
    _dirty: bool = False

    # -- deliveries --------------------------------------------------------------------------

    def deliver(self, seq: int, now: float, *, track: bool) -> tuple[int, int]:
        """Note a delivery; returns (deliveries so far, consumer sequence)."""
        self._dirty = True
        consumer_seq = self.delivered[0] + 1
        self.delivered = (consumer_seq, max(self.delivered[1], seq))
        if not track:
            self.floor = self.delivered
            return 1, consumer_seq
        known = self.pending.get(seq)
        if known is None:
            known = self.pending[seq] = Pending(consumer_seq, 0, 0.0)
        known.deliveries += 1
        known.deadline = now + self._wait(known.deliveries)
        if known.deliveries > 1:
            self.redelivered[seq] = known.deliveries
        self._changed.add(seq)
        return known.deliveries, consumer_seq

    def next_redelivery(self) -> int:
        """Return the lowest sequence that waits to be delivered again, 0 when none does."""
        return self.queue[0] if self.queue else 0

    def take_redelivery(self) -> int:
        """Take the lowest sequence out of the redelivery queue."""
        return self.queue.pop(0)

    def _wait(self, deliveries: int) -> float:
        if not self.backoff:
            return self.ack_wait
        return self.backoff[min(deliveries, len(self.backoff)) - 1]

    # -- answers -----------------------------------------------------------------------------

    def ack(self, seq: int) -> bool:
        """Forget ``seq``; False when it was not pending, as late and double acks are normal."""
        if seq not in self.pending:
            self.redelivered.pop(seq, None)
            return False
        self._answer(seq)
        self._raise_floor()
        return True

    def ack_all(self, seq: int) -> list[int]:
        """Forget everything up to ``seq``; returns what that was."""
        answered = [pending for pending in self.pending if pending <= seq]
        for pending in answered:
            self._answer(pending)
        self._raise_floor()
        return answered

    def nak(self, seq: int, now: float, delay: float) -> bool:
        """Deliver again after ``delay``; False when it was not pending."""
        known = self.pending.get(seq)
        if known is None:
            return False
        if self._is_exhausted(known):
            known.deadline = now  # expire() gives it up
        elif delay > 0:
            self._unqueue(seq)
            known.deadline = now + delay
        else:
            self._enqueue(seq, known)
        return True

    def progress(self, seq: int, now: float) -> bool:
        """Start the wait anew; False when it was not pending."""
        known = self.pending.get(seq)
        if known is None:
            return False
        self._unqueue(seq)
        known.deadline = now + self._wait(known.deliveries)
        return True

    def gone(self, seqs: Iterable[int]) -> list[int]:
        """Forget records that the stream no longer has; returns those that were pending."""
        lost = [seq for seq in seqs if seq in self.pending]
        for seq in lost:
            self._answer(seq)
        self._raise_floor()
        return lost

    def _answer(self, seq: int) -> None:
        self._dirty = True
        del self.pending[seq]
        self.redelivered.pop(seq, None)
        self._unqueue(seq)
        self._changed.discard(seq)
        self._answered.append(seq)

    def _raise_floor(self) -> None:
        """Move the floor up to just below the oldest pending delivery."""
        if not self.pending:
            self.floor = self.delivered
            return
        oldest = min(self.pending)
        reached = (self.pending[oldest].consumer_seq - 1, oldest - 1)
        if reached[0] > self.floor[0]:
            self.floor = reached

    # -- time --------------------------------------------------------------------------------

    def expire(self, now: float) -> list[Effect]:
        """Return what to do about everything whose wait is over, oldest sequence first."""
        effects: list[Effect] = []
        for seq in sorted(s for s, p in self.pending.items() if p.deadline <= now):
            known = self.pending[seq]
            if self._is_exhausted(known):
                self._give_up(seq)
                effects.append(GiveUp(seq, known.deliveries))
            else:
                self._enqueue(seq, known)
                effects.append(Redeliver(seq))
        return effects

    def next_deadline(self) -> float:
        """Return when ``expire`` has something to do, infinity when never."""
        return min((p.deadline for p in self.pending.values()), default=FOREVER)

    def _is_exhausted(self, known: Pending) -> bool:
        return self.max_deliver > 0 and known.deliveries >= self.max_deliver

    def _give_up(self, seq: int) -> None:
        deliveries = self.pending[seq].deliveries
        self._answer(seq)
        if deliveries > 1:
            self.redelivered[seq] = deliveries
        self._raise_floor()

    def _enqueue(self, seq: int, known: Pending) -> None:
        known.deadline = FOREVER
        if seq not in self.queue:
            insort(self.queue, seq)

    def _unqueue(self, seq: int) -> None:
        if seq in self.queue:
            self.queue.remove(seq)

    # -- persistence -------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether something changed since the last ``take_changes``."""
        return self._dirty

    def take_changes(self) -> Snapshot:
        """Return what changed since the last call."""
        self.version += 1
        changes = Snapshot(
            self.version,
            self.delivered,
            self.floor,
            [self._row(seq) for seq in sorted(self._changed)],
            self._answered,
            dict(self.redelivered) if self._answered or self._changed else {},
        )
        self._changed, self._answered, self._dirty = set(), [], False
        return changes

    def whole(self) -> Snapshot:
        """Return everything."""
        rows = [self._row(seq) for seq in self.pending]
        return Snapshot(self.version, self.delivered, self.floor, rows, [], dict(self.redelivered))

    def apply(self, saved: Snapshot, now: float) -> None:
        """Take on a persisted snapshot; an older or repeated one changes nothing."""
        if saved.version and saved.version <= self.version:
            return
        self.version = saved.version
        self.delivered, self.floor = saved.delivered, saved.floor
        for seq in saved.answered:
            self.pending.pop(seq, None)
        for seq, consumer_seq, deliveries in saved.pending:
            self.pending[seq] = Pending(consumer_seq, deliveries, now + self._wait(deliveries))
        self.redelivered = dict(saved.redelivered)

    def _row(self, seq: int) -> tuple[int, int, int]:
        known = self.pending[seq]
        return seq, known.consumer_seq, known.deliveries
