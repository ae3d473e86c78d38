from millstream.consumers.ledger import GiveUp, Ledger, Redeliver


def test_an_unanswered_delivery_is_redelivered_once_and_then_given_up():
    ledger = Ledger(ack_wait=30, max_deliver=2)
    assert ledger.deliver(7, now=0, track=True) == (1, 1)
    assert ledger.expire(now=29) == []
    assert ledger.expire(now=30) == [Redeliver(7)]
    assert ledger.take_redelivery() == 7
    assert ledger.deliver(7, now=30, track=True) == (2, 2)
    assert ledger.expire(now=60) == [GiveUp(7, 2)]
    assert (ledger.pending, ledger.redelivered) == ({}, {7: 2})


def test_redeliveries_come_in_sequence_order():
    ledger = Ledger(ack_wait=30)
    for seq in (1, 2, 3):
        ledger.deliver(seq, now=0, track=True)
    ledger.nak(3, now=1, delay=0)
    ledger.nak(1, now=1, delay=0)
    assert [ledger.take_redelivery(), ledger.take_redelivery()] == [1, 3]


def test_a_delayed_nak_waits_and_progress_starts_the_wait_anew():
    ledger = Ledger(ack_wait=30)
    ledger.deliver(1, now=0, track=True)
    ledger.nak(1, now=0, delay=5)
    assert ledger.next_deadline() == 5
    ledger.progress(1, now=4)
    assert ledger.next_deadline() == 34


def test_backoff_sets_each_wait_and_its_last_value_repeats():
    ledger = Ledger(ack_wait=1, backoff=[1, 5])
    waits = []
    for _ in range(3):
        ledger.deliver(1, now=0, track=True)
        waits.append(ledger.next_deadline())
        ledger.expire(now=100)
        ledger.take_redelivery()
    assert waits == [1, 5, 5]


def test_the_floor_is_the_end_of_the_answered_prefix():
    ledger = Ledger(ack_wait=30, delivered=(0, 9), floor=(0, 9))
    for seq in (10, 12, 14):
        ledger.deliver(seq, now=0, track=True)
    ledger.ack(12)
    assert ledger.floor == (0, 9)
    ledger.ack(10)
    assert ledger.floor == (2, 13)
    ledger.ack(14)
    assert ledger.floor == (3, 14)
    assert not ledger.ack(14)


def test_ack_all_answers_everything_up_to_the_sequence():
    ledger = Ledger(ack_wait=30)
    for seq in (1, 2, 3):
        ledger.deliver(seq, now=0, track=True)
    assert ledger.ack_all(2) == [1, 2]
    assert (list(ledger.pending), ledger.floor) == ([3], (2, 2))


def test_untracked_deliveries_move_the_floor_themselves():
    ledger = Ledger(ack_wait=0)
    ledger.deliver(5, now=0, track=False)
    assert (ledger.pending, ledger.floor, ledger.delivered) == ({}, (1, 5), (1, 5))


def test_changes_rebuild_the_ledger_and_applying_them_twice_changes_nothing():
    ledger, copy = Ledger(ack_wait=30), Ledger(ack_wait=30)
    written = []
    for seq in (1, 2, 3):
        ledger.deliver(seq, now=0, track=True)
    written.append(ledger.take_changes())
    ledger.ack(1)
    ledger.expire(now=40)
    ledger.deliver(ledger.take_redelivery(), now=40, track=True)
    written.append(ledger.take_changes())
    for changes in written:
        copy.apply(changes, now=0)
        copy.apply(written[0], now=0)
    assert copy.whole() == ledger.whole()
    assert not ledger.is_dirty
