"""Ledger: which deliveries are unanswered, and what happens to them. Pure: callers pass ``now``."""

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from millstream.delivery.key_lanes import KeyLanes
from millstream.kernel._acks import PendingAcks

if TYPE_CHECKING:
    from millstream.kernel._batch import Batch
    from millstream.kernel._frames import Frames

FOREVER = float("inf")
LAST = 2**64 - 1  # sequence
LOOKED_AT = 10_000  # of the newest deliveries, where only the latest wait counts
ROW = struct.Struct("<QQI")
_SEQ = struct.Struct("<Q")


class Redeliver(msgspec.Struct, frozen=True):
    """It may be delivered again."""

    seq: int


class GiveUp(msgspec.Struct, frozen=True):
    """It was delivered as often as allowed, and never answered.

    Where a dead letter is to be kept of it, it stays pending until there is one.
    """

    seq: int
    deliveries: int


Effect: TypeAlias = Redeliver | GiveUp


class LedgerSnapshot(msgspec.Struct, omit_defaults=True):
    """A ledger as it is persisted: whole, or what changed since the last one.

    ``pending`` are rows of stream seq u64, consumer seq u64, deliveries u32; ``answered`` are
    stream seqs u64. What is at or below the floor is answered without being named. A row without
    deliveries is a record that waits for its key.
    """

    version: int
    delivered: tuple[int, int]  # consumer seq, stream seq
    floor: tuple[int, int]
    pending: bytes = b""
    answered: bytes = b""
    redelivered: dict[int, int] | None = None  # None: as before
    delayed: dict[int, int] | None = None  # seq → time ns when it is due again; None: as before


class RedeliveryQueue:
    """Sequences to deliver again, first come first; each with the time of its last delivery."""

    def __init__(self) -> None:
        self._line: deque[tuple[int, int]] = deque()  # sequence, ticket
        self._members: dict[int, tuple[int, float]] = {}
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._members)

    def add(self, seq: int, delivered_at: float = 0.0) -> None:
        """Let it wait, once."""
        if seq not in self._members:
            self._tickets += 1
            self._members[seq] = self._tickets, delivered_at
            self._line.append((seq, self._tickets))

    def delivered_at(self, seq: int) -> float | None:
        """Return when a waiting one was last delivered, None when it does not wait."""
        known = self._members.get(seq)
        return None if known is None else known[1]

    def discard(self, seq: int) -> None:
        """Take it out, wherever it waits."""
        self._members.pop(seq, None)

    def pop(self) -> int:
        """Take the first out, 0 when nothing waits."""
        while self._line:
            seq, ticket = self._line.popleft()
            if self._members.get(seq, (0, 0.0))[0] == ticket:
                del self._members[seq]
                return seq
        return 0

    def clear(self) -> None:
        """Let nothing wait."""
        self._line.clear()
        self._members = {}


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """When an unanswered record is delivered again, and how often it is delivered at most."""

    ack_wait: float
    backoff: Sequence[float] = ()
    max_deliver: int = -1
    keeps_letters: bool = False  # of what is given up

    def wait(self, deliveries: int) -> float:
        """Return how long the answer to the latest of so many deliveries is awaited."""
        if not deliveries:
            return FOREVER  # it waits for its key
        if not self.backoff:
            return self.ack_wait or FOREVER  # no wait at all: nothing is delivered again by time
        return self.backoff[min(deliveries, len(self.backoff)) - 1]

    @property
    def shortest_wait(self) -> float:
        """Return how long an answer is awaited at least."""
        return min(self.backoff, default=self.ack_wait)

    def is_exhausted(self, deliveries: int) -> bool:
        """Say whether it is not delivered again after so many deliveries."""
        return 0 < self.max_deliver <= deliveries


class NakDelays:
    """Until when naks want no delivery; by the time of the day, which outlives a restart."""

    def __init__(self) -> None:
        self.until_ns: dict[int, int] = {}
        self.is_changed = False  # since the last snapshot

    def put(self, seq: int, until_ns: int) -> bool:
        """Note a time, 0 when it waits as others do; whether that is a change."""
        if until_ns:
            self.until_ns[seq] = until_ns
        elif self.until_ns.pop(seq, None) is None:
            return False
        self.is_changed = True
        return True

    def clear(self) -> None:
        """Let everything wait as others do."""
        self.until_ns, self.is_changed = {}, True

    def of_pending(self, pending: PendingAcks) -> dict[int, int]:
        """Return the delays that still count."""
        self.until_ns = {seq: until for seq, until in self.until_ns.items() if seq in pending}
        return dict(self.until_ns)


@dataclass
class Ledger:
    """Positions and pending deliveries of one consumer.

    ``delivered`` and ``floor`` are (consumer seq, stream seq); the floor is the end of the
    prefix in which everything was answered.
    """

    policy: RedeliveryPolicy
    delivered: tuple[int, int] = (0, 0)
    floor: tuple[int, int] = (0, 0)
    pending: PendingAcks = field(default_factory=PendingAcks)
    redelivered: dict[int, int] = field(default_factory=dict)  # seq → deliveries, see _give_up
    queue: RedeliveryQueue = field(default_factory=RedeliveryQueue)
    delays: NakDelays = field(default_factory=NakDelays)
    lanes: KeyLanes = field(default_factory=KeyLanes)
    last_delivered_ns: int = 0  # the time of the day, 0 since a restart
    last_acked_ns: int = 0
    version: int = 0
    is_dirty: bool = False  # something changed since the last ``take_changes``
    _redelivered_changed: bool = False
    _answered_unwritten: list[int] = field(default_factory=list)

    # -- deliveries --------------------------------------------------------------------------

    def deliver(self, frames: "Frames", start: int, count: int, now: float, *, track: bool) -> int:
        """Note first deliveries; returns the consumer sequence of the first."""
        self.is_dirty = True
        first = self.delivered[0] + 1
        newest = frames.seq(start + count - 1)
        self.delivered = (first + count - 1, max(self.delivered[1], newest))
        if track:
            self.pending.deliver(frames, start, count, first, now + self.policy.wait(1))
            if self.lanes.is_on:
                for at in range(start, start + count):
                    self.lanes.take(frames.seq(at))
        else:
            self.floor = self.delivered
        return first

    def deliver_again(self, seq: int, now: float) -> tuple[int, int]:
        """Note another delivery; returns (deliveries so far, consumer sequence)."""
        self.is_dirty = self._redelivered_changed = True
        consumer_seq = self.delivered[0] + 1
        self.delivered = (consumer_seq, max(self.delivered[1], seq))
        known = self.pending.get(seq)
        original, deliveries = known[:2] if known is not None else (consumer_seq, 0)
        if not deliveries:  # it waited for its key
            original = consumer_seq
            self.lanes.waiting.discard(seq)
        deliveries += 1
        self.pending.put(seq, original, deliveries, now + self.policy.wait(deliveries))
        self._delay(seq, 0)
        if deliveries > 1:
            self.redelivered[seq] = deliveries
        return deliveries, consumer_seq

    def adopt(self, policy: RedeliveryPolicy, now: float) -> None:
        """Let answers be awaited for other times, also of what was delivered before.

        What had no wait was delivered nobody knows when: its wait begins now.
        """
        before, self.policy = self.policy, policy
        if (policy.ack_wait, policy.backoff) == (before.ack_wait, before.backoff):
            return
        for seq in self.pending.up_to(self.delivered[1]):
            known = self.pending.get(seq)
            assert known is not None
            if known[1] and self.queue.delivered_at(seq) is None:
                waited = before.wait(known[1])
                delivered_at = known[2] - waited if waited < FOREVER else now
                self.pending.wait_until(seq, delivered_at + policy.wait(known[1]))

    def last_wait(self) -> float:
        """Return until when an answer may come: what nobody fetches again is awaited once more."""
        last = 0.0
        for seq in self.pending.up_to(self.delivered[1])[-LOOKED_AT:]:
            known = self.pending.get(seq)
            wait = self.policy.wait(known[1]) if known is not None else FOREVER
            if wait < FOREVER:
                waits = 1 if self.queue.delivered_at(seq) is None else 2
                last = max(last, self.delivered_at(seq) + waits * wait)
        return last

    def delivered_at(self, seq: int) -> float:
        """Return when a pending record was last delivered, or its wait last began anew.

        0 where that is not known: nothing is kept of what has no wait.
        """
        known = self.pending.get(seq)
        queued = self.queue.delivered_at(seq)
        if known is None or queued is not None:
            return queued or 0.0
        waited = self.policy.wait(known[1])
        return known[2] - waited if waited < FOREVER else 0.0

    # -- answers -----------------------------------------------------------------------------

    def take_acks(self, batch: "Batch", prefix: int, acked: list[int] | None) -> list[int]:
        """Take the plain acks of a batch; returns the positions that need a look."""
        if self.lanes.is_on and acked is None:
            acked = []
        done, others = self.pending.take_acks(batch, prefix, acked)
        if done:
            self.is_dirty = True
            if self.lanes.is_on:
                self.lanes.pass_on(acked or (), self.queue.add)
            self._raise_floor()
        return others

    def ack(self, seq: int) -> bool:
        """Forget ``seq``; False when it was not pending, as late and double acks are normal."""
        if not self._answer(seq):
            return False
        self._raise_floor()
        return True

    def ack_all(self, seq: int, consumer_seq: int = 0) -> list[int]:
        """Forget everything up to ``seq``, which is the floor then; returns what that was."""
        lost = self.gone(self.pending.up_to(seq))
        if consumer_seq:
            self.floor, self.is_dirty = (consumer_seq, seq), True
        return lost

    def nak(self, seq: int, now: float, delay: float, now_ns: int = 0) -> bool:
        """Deliver again after ``delay``, or give it up then; False when it was not pending.

        With ``now_ns``, the time of the day, the delay also counts after a restart.
        """
        known = self.pending.get(seq)
        if known is None:
            return False
        self._delay(seq, now_ns + int(delay * 1e9) if delay > 0 and now_ns else 0)
        if delay > 0:
            self.queue.discard(seq)
            self.pending.wait_until(seq, now + delay)
        else:
            self._enqueue(seq)
        return True

    def progress(self, seq: int, now: float) -> bool:
        """Start the wait anew, unless it is over; False when it was not pending."""
        known = self.pending.get(seq)
        if known is None:
            return False
        if self.queue.delivered_at(seq) is not None:
            return True
        self._delay(seq, 0)
        return self.pending.wait_until(seq, now + self.policy.wait(known[1]))

    def _delay(self, seq: int, until_ns: int) -> None:
        """Note until when a nak wants no delivery, 0 when it waits as others do."""
        if self.delays.put(seq, until_ns):
            self.is_dirty = True

    def gone(self, seqs: Iterable[int]) -> list[int]:
        """Forget records that nobody has to answer for; returns those that were pending."""
        lost = [seq for seq in seqs if self._answer(seq)]
        if lost:
            self._raise_floor()
        return lost

    def purged(
        self, seqs: Iterable[int], start: int, position: int, now: float, *, acks_all: bool
    ) -> bool:
        """Forget purged records, and stand before ``position``; whether any was pending.

        Nothing of the consumer's is left below ``start``, which is above the floor then, unless
        ``acks_all`` is not said and later deliveries are answered too. What waited in line to be
        delivered again waits for its time instead, as it does at the reference.
        """
        parked = []
        while seq := self.queue.pop():
            if seq in self.lanes.waiting:
                parked.append(seq)
            self.progress(seq, now)
        rows = [known for seq in seqs if (known := self.pending.get(seq)) is not None]
        before = self.floor
        lost = self.gone(seqs)
        for seq in parked:
            if seq in self.pending:
                self.queue.add(seq)
        self.is_dirty = True
        if self.delivered[1] < position - 1:
            self.delivered = (self.delivered[0], position - 1)
        if not len(self.pending):
            self.floor, self.redelivered = self.delivered, {}
            self._redelivered_changed = True
        elif before[1] < start and (acks_all or self.floor[1] < start):
            self.floor = (max([before[0], *(known[0] for known in rows)]), start - 1)
        return bool(lost)

    def forget(self, below: int, seqs: Iterable[int]) -> bool:
        """Forget how often removed records came that nobody answers for; whether any did."""
        again, pending = self.redelivered, self.pending
        gone = [seq for seq in seqs if seq in again and seq not in pending]
        if again and below:
            gone += [seq for seq in again if seq < below and seq not in pending]
        for seq in gone:
            again.pop(seq, None)
        if gone:
            self.is_dirty = self._redelivered_changed = True
        return bool(gone)

    def _answer(self, seq: int) -> bool:
        if self.redelivered.pop(seq, None) is not None:
            self.is_dirty = self._redelivered_changed = True
        if not self.pending.remove(seq):
            return False
        self.is_dirty = True
        self.queue.discard(seq)
        if self.lanes.is_on:
            self.lanes.pass_on((seq,), self.queue.add)
        return True

    def _raise_floor(self) -> None:
        """Move the floor up to just below the oldest pending delivery."""
        seq, consumer_seq = self.pending.oldest()
        if not seq:
            self.floor = self.delivered
        elif self.lanes.is_on:  # deliveries are not in the order of the stream
            self.floor = (max(self.floor[0], consumer_seq - 1), max(self.floor[1], seq - 1))
        elif consumer_seq - 1 > self.floor[0]:
            self.floor = (consumer_seq - 1, seq - 1)

    def reset(self, seq: int) -> None:
        """Forget all deliveries and stand before ``seq``."""
        for known in self.pending.up_to(LAST):
            self.pending.remove(known)  # one by one: what was written down is to be unsaid
        self.queue.clear()
        self.lanes.switch(on=self.lanes.is_on)
        self.redelivered = {}
        self.delays.clear()
        self.delivered = self.floor = (0, seq - 1)
        self.last_delivered_ns = self.last_acked_ns = 0
        self.is_dirty = self._redelivered_changed = True

    # -- time --------------------------------------------------------------------------------

    def expire(self, now: float) -> list[GiveUp]:
        """Let everything wait in line whose wait is over; returns what is given up instead."""
        ended: list[GiveUp] = []
        for seq in self.pending.expired(now):
            known = self.pending.get(seq)
            assert known is not None
            if self.policy.is_exhausted(known[1]):
                ended.append(self._give_up(seq, known[1]))
            else:
                self._enqueue(seq)
        return ended

    def next_again(self) -> Effect | None:
        """Take the first out of the line: deliver it again, or give it up; None: nobody waits."""
        seq = self.queue.pop()
        known = self.pending.get(seq)
        if known is not None and self.policy.is_exhausted(known[1]):
            return self._give_up(seq, known[1])
        return Redeliver(seq) if seq else None

    def _give_up(self, seq: int, deliveries: int) -> GiveUp:
        if self.policy.keeps_letters:
            self.pending.wait_until(seq, FOREVER)
            return GiveUp(seq, deliveries)
        self._answer(seq)
        self.redelivered[seq] = deliveries + 1  # with the one that was due, as at the reference
        self._redelivered_changed = True
        self._raise_floor()
        return GiveUp(seq, deliveries)

    def _enqueue(self, seq: int) -> None:
        delivered_at = self.delivered_at(seq)
        self.pending.wait_until(seq, FOREVER)
        self.queue.add(seq, delivered_at)

    # -- persistence -------------------------------------------------------------------------

    def take_changes(self) -> LedgerSnapshot:
        """Return what changed since the last call."""
        self.version += 1
        rows, answered = self.pending.take_changes(self.floor[1])
        unwritten, self._answered_unwritten = self._answered_unwritten, []
        answered += b"".join(_SEQ.pack(seq) for seq in unwritten if seq > self.floor[1])
        again = dict(self.redelivered) if self._redelivered_changed else None
        delayed = self.delays.of_pending(self.pending) if self.delays.is_changed else None
        self.is_dirty = self._redelivered_changed = self.delays.is_changed = False
        return LedgerSnapshot(
            self.version, self.delivered, self.floor, rows, answered, again, delayed
        )

    def not_written(self, lost: LedgerSnapshot) -> None:
        """Take changes back that could not be written: the next ones say them again."""
        seqs = {seq for (seq,) in _SEQ.iter_unpack(lost.answered)}
        seqs |= {seq for seq, _, _ in ROW.iter_unpack(lost.pending)}
        for seq in sorted(seqs):
            known = self.pending.get(seq)
            if known is not None:
                self.pending.put(seq, *known)
            else:
                self._answered_unwritten.append(seq)
        self.is_dirty = self._redelivered_changed = self.delays.is_changed = True

    def whole(self) -> LedgerSnapshot:
        """Return everything."""
        rows, again = self.pending.rows(), dict(self.redelivered)
        delayed = self.delays.of_pending(self.pending) or None
        return LedgerSnapshot(self.version, self.delivered, self.floor, rows, b"", again, delayed)

    def apply(self, saved: LedgerSnapshot, now: float, now_ns: int = 0) -> None:
        """Take on a persisted snapshot; an older or repeated one changes nothing.

        Waits begin anew, but for delays that naks asked for: ``now_ns`` is the time of the day.
        """
        if saved.version and saved.version <= self.version:
            return
        if saved.delivered[0] < self.delivered[0]:
            self.pending.clear()  # a reset: nothing from before it counts
        self.version = saved.version
        self.delivered, self.floor = saved.delivered, saved.floor
        for (seq,) in _SEQ.iter_unpack(saved.answered):
            self.pending.remove(seq)
        for seq in self.pending.up_to(self.floor[1]):
            self.pending.remove(seq)
        for seq, consumer_seq, deliveries in ROW.iter_unpack(saved.pending):
            deadline = now + self.policy.wait(deliveries)
            self.pending.put(seq, consumer_seq, deliveries, deadline, changed=False)
        if saved.redelivered is not None:
            self.redelivered = dict(saved.redelivered)
        if saved.delayed is not None:
            self.delays.until_ns = dict(saved.delayed)
            for seq, until_ns in saved.delayed.items():
                self.pending.wait_until(seq, now + (until_ns - now_ns) / 1e9)
        self.pending.take_changes(self.floor[1])  # what was applied is written down already
