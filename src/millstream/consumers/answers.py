"""Answers: what happens when clients answer deliveries; the sink behind ``$JS.ACK.<s>.<c>.>``."""

import random
from functools import partial
from typing import Protocol

from millstream.clock import Clock
from millstream.consumers import acks
from millstream.consumers.advisories import Advisories
from millstream.consumers.config import ConsumerConfig
from millstream.consumers.ledger import FOREVER, GiveUp, Ledger
from millstream.consumers.letters.letter_box import TERMINATED, LetterBox
from millstream.consumers.reading.claim import ConsumerClaim
from millstream.kernel._batch import Batch


class AnsweredPump(Protocol):
    """What a consumer's pump does once answers were taken."""

    @property
    def reached(self) -> int:
        """Return up to where records were delivered, or looked at and left behind."""
        ...

    def request(self, reply: bytes, body: bytes) -> None:
        """Take a pull request that came with an ack."""
        ...

    def confirm(self, reply: bytes) -> None:
        """Confirm to this one once the ledger is safe."""
        ...

    def on_answers(self, replies: list[bytes], *, waits_changed: bool, makes_way: bool) -> None:
        """Confirm to these once the ledger is safe; wake up whatever waited for acks.

        ``makes_way``: deliveries were refused, or are fewer now where no more were allowed.
        """
        ...


DROPPED = "Unacknowledged message was deleted"


class Answers:
    """Takes acks in bulk where they are plain, one by one where they say more."""

    def __init__(
        self,
        config: ConsumerConfig,
        ledger: Ledger,
        clock: Clock,
        pump: AnsweredPump,
        claim: ConsumerClaim,
        prefix: int,
        advisories: Advisories,
        letters: LetterBox,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._pump = pump
        self._claim = claim
        self._prefix = prefix
        self._advisories = advisories
        self._letters = letters
        self.take_on(config)

    def take_on(self, config: ConsumerConfig) -> None:
        """Adopt a configuration."""
        self._letters.take_on(config)
        self._all = config.ack_policy == "all"
        self._most_pending = config.max_ack_pending
        self._sampled = 0 if self._all else config.sample_percent
        self._ledger.adopt(config.redelivery, self._clock.monotonic())

    def close(self) -> None:
        """Keep no letters any more."""
        self._letters.close()

    def deliver(self, batch: Batch) -> None:
        """Take every answer of the batch."""
        done: list[int] = []
        pending = len(self._ledger.pending)
        is_full, queued = 0 < self._most_pending <= pending, len(self._ledger.queue)
        looks: list[int] | range = range(len(batch))
        if not self._all and not self._sampled:
            acked = done if self._claim.is_needed else None
            looks = self._ledger.take_acks(batch, self._prefix, acked)
            if len(looks) < len(batch):
                self._ledger.last_acked_ns = self._clock.time_ns()
        replies = []
        for at in looks:
            subject, reply, _, payload, _ = batch.message(at)
            if self._take(subject, reply, payload, done) and reply:
                replies.append(reply)
        if done:
            self._claim.let_go(done)
        makes_way = len(self._ledger.queue) > queued or (
            is_full and len(self._ledger.pending) < pending
        )
        self._pump.on_answers(replies, waits_changed=len(looks) > 0, makes_way=makes_way)

    def _take(self, subject: bytes, reply: bytes, body: bytes, done: list[int]) -> bool:
        """Take one answer; returns whether its reply is to be confirmed."""
        seq, answer = acks.stream_seq(subject), acks.parse(body)
        if not seq or (self._ledger.lanes.is_on and seq in self._ledger.lanes.waiting):
            return False  # of something that waits for its key: nobody can know it
        if self._letters.has(seq) and not isinstance(answer, acks.Ack | acks.Next):
            return False  # it is given up, and is answered for by a letter
        now = self._clock.monotonic()
        match answer:
            case acks.Ack() if seq > self._pump.reached:
                return False  # of something that was not delivered, or is to come again
            case acks.Ack():
                self._ack(subject, seq, done)
            case acks.Next():
                if seq <= self._pump.reached:
                    self._ack(subject, seq, done)
            case acks.Nak(delay):
                if self._ledger.nak(seq, now, delay, self._clock.time_ns()):
                    self._advisories.publish("MSG_NAKED", "nak", **_fields(subject, seq))
                    self._bury_exhausted(seq)
            case acks.InProgress():
                self._ledger.progress(seq, now)
            case acks.Term(reason):
                if self._letters.is_open and seq in self._ledger.pending:
                    self._bury(subject, seq, reason, reply)
                    return False
                self._terminate(subject, seq, reason, done)
                return seq <= self._pump.reached
        if isinstance(answer, acks.Next):
            self._pump.request(reply, answer.request)
            return False
        return True

    def _terminate(self, subject: bytes, seq: int, reason: str, done: list[int]) -> None:
        """Take it for answered, and tell of it even where it was."""
        if seq <= self._pump.reached:
            self._settle(subject, seq, done)
        fields = _fields(subject, seq)
        if reason:
            fields["reason"] = reason
        self._advisories.terminated(**fields)

    def _bury(self, subject: bytes, seq: int, reason: str, reply: bytes) -> None:
        """Keep a letter of what is refused for good; only then is it answered, and confirmed."""
        fields = _fields(subject, seq)
        self._advisories.terminated(**fields, **({"reason": reason} if reason else {}))
        self._ledger.nak(seq, self._clock.monotonic(), FOREVER)  # nothing else happens to it
        confirm = partial(self._pump.confirm, reply) if reply else None
        told = f"{TERMINATED}: {reason}" if reason else TERMINATED
        self._letters.post(seq, int(fields["deliveries"]), told, confirm)

    def _bury_exhausted(self, seq: int) -> None:
        """Keep a letter of what is refused for the last time; nobody has to ask for it again."""
        known = self._ledger.pending.get(seq)
        if known is None or not self._letters.is_open:
            return
        if self._ledger.policy.is_exhausted(known[1]):
            self._ledger.nak(seq, self._clock.monotonic(), FOREVER)
            self._letters.give_up(GiveUp(seq, known[1]))

    def _ack(self, subject: bytes, seq: int, done: list[int]) -> None:
        if self._sampled and random.randrange(100) < self._sampled and seq in self._ledger.pending:
            delivered_at = self._ledger.delivered_at(seq)
            took = self._clock.monotonic() - delivered_at if delivered_at else 0.0
            self._advisories.ack_metric(**_fields(subject, seq), ack_time=int(took * 1e9))
        self._settle(subject, seq, done)

    def _settle(self, subject: bytes, seq: int, done: list[int]) -> None:
        floor, consumer_seq = self._ledger.floor, acks.delivery(subject)[0]
        if self._all and (seq <= floor[1] or consumer_seq <= floor[0]):
            return  # answered by a later one
        self._ledger.last_acked_ns = self._clock.time_ns()
        if self._all:
            done += self._ledger.ack_all(seq, consumer_seq)
        elif self._ledger.ack(seq):
            done.append(seq)

    def drop(self, seq: int) -> list[int]:
        """Take the removal of a pending record for an answer; returns what that settles."""
        self.tell_dropped([seq])
        self._ledger.last_acked_ns = self._clock.time_ns()
        if not self._all:
            self._ledger.ack(seq)
            return [seq]
        known = self._ledger.pending.get(seq)
        return self._ledger.ack_all(seq, known[0] if known is not None else 0)

    def tell_dropped(self, seqs: list[int]) -> None:
        """Say which pending records were removed."""
        for seq in seqs:
            known = self._ledger.pending.get(seq)
            if known is not None and known[1]:
                # Like the reference, which counts here how often it was delivered again.
                fields = {"consumer_seq": known[0], "deliveries": max(known[1] - 1, 1)}
                self._advisories.terminated(**fields, stream_seq=seq, reason=DROPPED)


def _fields(subject: bytes, seq: int) -> dict[str, int | str]:
    consumer_seq, deliveries = acks.delivery(subject)
    return {"consumer_seq": consumer_seq, "stream_seq": seq, "deliveries": deliveries}
