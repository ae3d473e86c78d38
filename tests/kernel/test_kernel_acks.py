import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.kernel._acks import PendingAcks, ack_replies, ack_sizes
from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames, encode_batch
from millstream.kernel.reference import acks as reference

PREFIX = b"$JS.ACK.S.C."
deadlines = st.sampled_from([1.0, 2.0, 3.0, float("inf")])
seqs = st.integers(1, 40)


def frames_of(first_seq: int, count: int, step: int = 1) -> Frames:
    buffer, offsets = b"", []
    for i in range(count):
        batch = Batch()
        batch.add(b"s", b"", b"", b"payload")
        offsets.append(len(buffer))
        buffer += encode_batch(batch, 0, 1, 1, first_seq + step * i, 1000 + i, None, 0, True)
    return Frames(buffer, offsets)


class Agreement(RuleBasedStateMachine):
    """Any sequence of deliveries and answers leaves the compiled table and the plain one alike."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PendingAcks()
        self.plain = reference.PendingAcks()
        self.consumer_seq = 1

    @rule(first=seqs, count=st.integers(0, 5), step=st.integers(1, 3), deadline=deadlines)
    def deliver(self, first: int, count: int, step: int, deadline: float) -> None:
        frames = frames_of(first, count, step)
        for table in (self.table, self.plain):
            table.deliver(frames, 0, count, self.consumer_seq, deadline)
        self.consumer_seq += count

    @rule(seq=seqs, deliveries=st.integers(1, 3), deadline=deadlines, changed=st.booleans())
    def put(self, seq: int, deliveries: int, deadline: float, changed: bool) -> None:
        for table in (self.table, self.plain):
            table.put(seq, self.consumer_seq, deliveries, deadline, changed)

    @rule(seq=seqs, deadline=deadlines)
    def answer(self, seq: int, deadline: float) -> None:
        assert self.table.get(seq) == self.plain.get(seq)
        assert self.table.wait_until(seq, deadline) == self.plain.wait_until(seq, deadline)
        assert self.table.remove(seq) == self.plain.remove(seq)

    @rule(
        answers=st.lists(
            st.tuples(
                seqs,
                st.sampled_from([b"", b"", b"+ACK", b"+OK", b"-NAK", b"+ACKS"]),
                st.sampled_from([b"", b"", b"r"]),
                st.sampled_from([b"1.%d.1.1.1", b"1.%d.1.1.1", b"1.%d.1.1", b".%d.1.1.1", b"%d"]),
            )
        )
    )
    def take_acks(self, answers: list[tuple[int, bytes, bytes, bytes]]) -> None:
        batch = Batch()
        for seq, body, reply, numbers in answers:
            batch.add(PREFIX + numbers % seq, reply, b"", body)
        mine: list[int] = []
        wanted: list[int] = []
        found = self.table.take_acks(batch, len(PREFIX), mine)
        assert found == self.plain.take_acks(batch, len(PREFIX), wanted)
        assert mine == wanted

    @rule(floor=st.integers(0, 40))
    def take_changes(self, floor: int) -> None:
        assert self.table.take_changes(floor) == self.plain.take_changes(floor)

    @invariant()
    def same(self) -> None:
        assert len(self.table) == len(self.plain)
        assert self.table.rows() == self.plain.rows()
        assert self.table.oldest() == self.plain.oldest()
        assert self.table.next_deadline() == self.plain.next_deadline()
        assert self.table.expired(2.0) == self.plain.expired(2.0)
        assert self.table.up_to(20) == self.plain.up_to(20)


TestAgreement = Agreement.TestCase


@given(
    prefix=st.binary(max_size=400),
    deliveries=st.integers(0, 2**32),
    first=st.integers(1, 2**63),
    consumer_seq=st.integers(0, 2**63),
    left=st.integers(0, 2**63),
)
def test_ack_subjects_are_the_same_in_both_forms(prefix, deliveries, first, consumer_seq, left):
    frames = frames_of(first, 3)
    asked = (prefix, frames, 1, 2, deliveries, consumer_seq, left)
    replies, size = ack_replies(*asked)
    assert (replies, size) == reference.ack_replies(*asked)
    sizes = ack_sizes(frames, 1, replies)
    assert sizes == reference.ack_sizes(frames, 1, replies)
    assert sum(sizes) == size


def test_frames_that_are_not_there_are_refused():
    with pytest.raises(IndexError):
        ack_replies(PREFIX, frames_of(1, 2), 1, 2, 1, 1, 1)
    with pytest.raises(IndexError):
        ack_sizes(frames_of(1, 2), 1, [b"one", b"two"])
    with pytest.raises(IndexError):
        PendingAcks().take_acks(Batch(), -1)
    with pytest.raises(IndexError):
        PendingAcks().deliver(frames_of(1, 2), 0, 3, 1, 1.0)


def test_one_old_delivery_does_not_keep_the_memory_of_all_that_were_answered_behind_it():
    table = PendingAcks()
    table.put(1, 1, 1, 1.0)
    for first in range(2, 100_000, 500):
        table.deliver(frames_of(first, 1), 0, 1, first, 1.0)
        table.remove(first)
    assert (len(table), table.oldest()) == (1, (1, 1))
    table.clear()
    assert (len(table), table.rows()) == (0, b"")
