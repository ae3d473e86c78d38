from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.ledger import (
    GiveUp,
    Ledger,
    Redeliver,
    RedeliveryPolicy,
    RedeliveryQueue,
)
from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames, encode_batch


def deliver(ledger: Ledger, seq: int, now: float, *, track: bool = True) -> tuple[int, int]:
    """Deliver one record, again when it is pending; returns (deliveries, consumer sequence)."""
    if seq in ledger.pending:
        return ledger.deliver_again(seq, now)
    batch = Batch()
    batch.add(b"s", b"", b"", b"x")
    frames = Frames(encode_batch(batch, 0, 1, 1, seq, 1, None, 0, True), [0])
    return 1, ledger.deliver(frames, 0, 1, now, track=track)


def pending(ledger: Ledger) -> list[int]:
    return ledger.pending.up_to(2**60)


def test_an_unanswered_delivery_is_redelivered_once_and_then_given_up():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30, max_deliver=2))
    assert deliver(ledger, 7, now=0) == (1, 1)
    assert ledger.expire(now=29) == []
    assert ledger.expire(now=30) == []
    assert ledger.next_again() == Redeliver(7)
    assert ledger.next_again() is None
    assert deliver(ledger, 7, now=30) == (2, 2)
    assert ledger.expire(now=60) == [GiveUp(7, 2)]
    assert (pending(ledger), ledger.redelivered) == ([], {7: 3})


def test_how_often_a_record_came_is_forgotten_once_it_is_gone():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30, max_deliver=1))
    for seq in (1, 2, 3, 4):
        deliver(ledger, seq, now=0)
    ledger.expire(now=30)
    deliver(ledger, 5, now=30)
    assert list(ledger.redelivered) == [1, 2, 3, 4]
    ledger.take_changes()
    assert not ledger.forget(1, [5, 9])
    assert not ledger.is_dirty
    assert ledger.forget(2, [3])
    assert (ledger.is_dirty, list(ledger.redelivered)) == (True, [2, 4])
    assert ledger.take_changes().redelivered == {2: 2, 4: 2}
    ledger.purged([5], 6, 6, now=31, acks_all=False)
    assert ledger.take_changes().redelivered == {}


def test_redeliveries_come_in_the_order_of_refusals_and_those_whose_wait_is_over_in_sequence():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3, 4, 5):
        deliver(ledger, seq, now=0)
    for seq in (3, 1, 4):
        ledger.nak(seq, now=1, delay=0)
    ledger.ack(1)
    ledger.expire(now=30)
    assert [ledger.queue.pop() for _ in range(5)] == [3, 4, 2, 5, 0]


def test_what_left_the_line_and_came_back_stands_at_its_end():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2):
        deliver(ledger, seq, now=0)
        ledger.nak(seq, now=1, delay=0)
    ledger.nak(1, now=2, delay=5)
    ledger.expire(now=7)
    assert [ledger.queue.pop(), ledger.queue.pop()] == [2, 1]


def test_a_nak_of_the_last_delivery_is_given_up_when_its_turn_comes():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30, max_deliver=1))
    for seq in (1, 2):
        deliver(ledger, seq, now=0)
    ledger.nak(1, now=0, delay=0)
    ledger.nak(2, now=0, delay=5)
    assert ledger.next_again() == GiveUp(1, 1)
    assert ledger.next_again() is None
    assert ledger.expire(now=4) == []
    assert ledger.expire(now=5) == [GiveUp(2, 1)]


def test_a_delayed_nak_waits_and_progress_starts_the_wait_anew():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    deliver(ledger, 1, now=0)
    ledger.nak(1, now=0, delay=5)
    assert ledger.pending.next_deadline() == 5
    ledger.progress(1, now=4)
    assert ledger.pending.next_deadline() == 34


def test_it_is_known_when_a_record_was_delivered_that_waits_to_be_delivered_again():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2):
        deliver(ledger, seq, now=5)
    ledger.nak(1, now=7, delay=0)
    ledger.nak(1, now=8, delay=0)
    assert (ledger.delivered_at(1), ledger.delivered_at(2), ledger.delivered_at(3)) == (5, 5, 0)


def test_waits_that_change_count_from_the_delivery():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2):
        deliver(ledger, seq, now=5)
    ledger.nak(1, now=6, delay=0)
    ledger.adopt(RedeliveryPolicy(10), now=9)
    assert ledger.pending.next_deadline() == 15
    ledger.adopt(RedeliveryPolicy(10, [3, 7]), now=9)
    assert (ledger.pending.next_deadline(), ledger.queue.pop()) == (8, 1)


def test_a_wait_that_an_update_sets_first_begins_with_the_update():
    ledger = Ledger(RedeliveryPolicy(ack_wait=0))
    deliver(ledger, 1, now=5)
    assert ledger.delivered_at(1) == 0
    ledger.adopt(RedeliveryPolicy(10), now=7)
    assert (ledger.pending.next_deadline(), ledger.delivered_at(1)) == (17, 7)
    ledger.adopt(RedeliveryPolicy(0), now=8)
    ledger.adopt(RedeliveryPolicy(2), now=9)
    assert ledger.pending.next_deadline() == 11


def test_backoff_sets_each_wait_and_its_last_value_repeats():
    ledger = Ledger(RedeliveryPolicy(ack_wait=1, backoff=[1, 5]))
    waits = []
    for _ in range(3):
        deliver(ledger, 1, now=0)
        waits.append(ledger.pending.next_deadline())
        ledger.expire(now=100)
        ledger.queue.pop()
    assert waits == [1, 5, 5]


def test_the_floor_is_the_end_of_the_answered_prefix():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30), delivered=(0, 9), floor=(0, 9))
    for seq in (10, 12, 14):
        deliver(ledger, seq, now=0)
    ledger.ack(12)
    assert ledger.floor == (0, 9)
    ledger.ack(10)
    assert ledger.floor == (2, 13)
    ledger.ack(14)
    assert ledger.floor == (3, 14)
    assert not ledger.ack(14)


def test_ack_all_answers_everything_up_to_the_sequence():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    assert ledger.ack_all(2) == [1, 2]
    assert (pending(ledger), ledger.floor) == ([3], (2, 2))


def test_untracked_deliveries_move_the_floor_themselves():
    ledger = Ledger(RedeliveryPolicy(ack_wait=0))
    deliver(ledger, 5, now=0, track=False)
    assert (pending(ledger), ledger.floor, ledger.delivered) == ([], (1, 5), (1, 5))


def test_changes_rebuild_the_ledger_and_applying_them_twice_changes_nothing():
    ledger, copy = Ledger(RedeliveryPolicy(ack_wait=30)), Ledger(RedeliveryPolicy(ack_wait=30))
    written = []
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    written.append(ledger.take_changes())
    ledger.ack(1)
    ledger.expire(now=40)
    deliver(ledger, ledger.queue.pop(), now=40)
    written.append(ledger.take_changes())
    for changes in written:
        copy.apply(changes, now=0)
        copy.apply(written[0], now=0)
    assert copy.whole() == ledger.whole()
    assert not ledger.is_dirty


def test_what_was_answered_before_it_was_written_down_is_never_written():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    ledger.ack(2)
    changes = ledger.take_changes()
    assert (len(changes.pending), changes.answered) == (40, b"")


def test_an_answer_to_a_second_delivery_unsays_the_first_that_was_written_down():
    ledger, copy = Ledger(RedeliveryPolicy(ack_wait=30)), Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2):
        deliver(ledger, seq, now=0)
    copy.apply(ledger.take_changes(), now=0)
    deliver(ledger, 2, now=30)
    ledger.ack(2)
    copy.apply(ledger.take_changes(), now=0)
    assert pending(copy) == [1]


operations = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "again", "ack", "ack", "give up", "reset", "write", "fail"]),
        st.integers(1, 5),
    ),
    max_size=12,
)


@given(operations)
def test_replaying_what_was_written_gives_the_ledger_whatever_failed_in_between(steps):
    ledger, copy = Ledger(RedeliveryPolicy(ack_wait=30)), Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    copy.apply(ledger.take_changes(), now=0)
    for step, seq in steps:
        match step:
            case "deliver" if seq > ledger.delivered[1]:
                deliver(ledger, seq, now=0)
            case "again" if seq in ledger.pending:
                deliver(ledger, seq, now=0)
            case "ack":
                ledger.ack(seq)
            case "give up" if seq in ledger.pending:
                ledger._give_up(seq, 2)
            case "reset":
                ledger.reset(seq)
            case "write":
                copy.apply(ledger.take_changes(), now=0)
            case "fail":
                ledger.not_written(ledger.take_changes())
    copy.apply(ledger.take_changes(), now=0)
    assert copy.whole() == ledger.whole()


def test_a_reset_forgets_every_delivery_also_after_a_restart():
    ledger, copy = Ledger(RedeliveryPolicy(ack_wait=30)), Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    copy.apply(ledger.take_changes(), now=0)
    ledger.reset(2)
    copy.apply(ledger.take_changes(), now=0)
    for one in (ledger, copy):
        assert (pending(one), one.delivered, one.floor) == ([], (0, 1), (0, 1))


def test_what_is_answered_after_a_reset_is_answered_after_a_restart():
    ledger, copy = Ledger(RedeliveryPolicy(ack_wait=30)), Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    copy.apply(ledger.take_changes(), now=0)
    ledger.reset(1)
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    ledger.ack(2)
    copy.apply(ledger.take_changes(), now=0)
    assert pending(copy) == [1, 3]


def test_delays_are_written_down_while_they_count():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
        ledger.nak(seq, now=0, delay=60, now_ns=10**9)
    assert ledger.take_changes().delayed == dict.fromkeys((1, 2, 3), 61 * 10**9)
    ledger.ack(1)
    assert ledger.take_changes().delayed is None
    assert ledger.whole().delayed == dict.fromkeys((2, 3), 61 * 10**9)
    ledger.deliver_again(2, now=60)
    assert ledger.take_changes().delayed == {3: 61 * 10**9}
    ledger.nak(3, now=60, delay=0, now_ns=61 * 10**9)
    assert ledger.take_changes().delayed == {}


def test_a_ledger_that_is_read_again_waits_as_long_as_a_nak_asked_for():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30))
    for seq in (1, 2, 3):
        deliver(ledger, seq, now=0)
    ledger.nak(1, now=0, delay=3600, now_ns=10**18)
    ledger.nak(2, now=0, delay=5, now_ns=10**18)
    again = Ledger(RedeliveryPolicy(ack_wait=30))
    again.apply(ledger.take_changes(), now=100, now_ns=10**18 + 10 * 10**9)  # ten seconds later
    due = []
    for now in (100, 130, 100 + 3589, 100 + 3590):
        assert again.expire(now) == []
        due.append(again.next_again())
    assert due == [Redeliver(2), Redeliver(3), None, Redeliver(1)]


def test_answers_are_awaited_until_the_last_wait_is_over():
    ledger = Ledger(RedeliveryPolicy(ack_wait=30, backoff=[]))
    assert ledger.last_wait() == 0.0
    deliver(ledger, 1, now=100)
    deliver(ledger, 2, now=110)
    assert ledger.last_wait() == 140
    ledger.ack(2)
    assert ledger.last_wait() == 130
    ledger.expire(now=130)  # and nobody asks for it
    assert ledger.last_wait() == 160
    ledger.ack(1)
    assert ledger.last_wait() == 0.0
    endless = Ledger(RedeliveryPolicy(ack_wait=0))
    deliver(endless, 1, now=100)
    assert endless.last_wait() == 0.0


def test_what_waits_to_be_delivered_again_keeps_its_place_when_it_is_named_twice() -> None:
    waiting = RedeliveryQueue()
    for seq in (1, 2, 1):
        waiting.add(seq)
    assert [waiting.pop() for _ in range(3)] == [1, 2, 0]
