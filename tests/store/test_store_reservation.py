"""Sequences of a `disk` log are promised ahead: nobody waits for it, and no power cut breaks it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.wal.reservation import BATCHES, LEAST, MOST, QUICK, SLOW, Reservation
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SMALL, Answer, Bench, wal_syncs

FEW = replace(SMALL, dirty_age=60.0, log=replace(SMALL.log, reserve_records=8))


def filled(bench: Bench, count: int) -> FileLog:
    """Return a log of so many records that are committed, one by one."""
    log = bench.store.create_log(1, Durability.DISK)
    for _ in range(count):
        bench.append(log, [b"x"])
        bench.run()
    return log


def test_the_first_promise_is_the_smallest_and_quick_use_makes_the_next_larger() -> None:
    reservation = Reservation()
    assert reservation.grow(10, now=5.0) == 10 + LEAST
    reservation.end()
    assert reservation.grow(300, now=5.0 + QUICK / 2) == 300 + 4 * LEAST
    reservation.end()
    assert reservation.grow(2000, now=5.0 + QUICK * SLOW / 2) == 2000 + 4 * LEAST
    reservation.end()
    assert reservation.grow(4000, now=5.0 + QUICK * SLOW * 2) == 4000 + LEAST


def test_a_large_batch_is_promised_room_for_several_of_its_kind() -> None:
    reservation = Reservation()
    assert reservation.grow(400, now=5.0, count=400) == 400 + BATCHES * 400
    assert reservation.ahead(6800, now=5.0 + QUICK / 2, count=400) == 6800 + 4 * BATCHES * 400
    assert Reservation().grow(MOST, now=5.0, count=MOST) == 2 * MOST


def test_no_promise_is_larger_than_the_most() -> None:
    reservation = Reservation()
    reached = 0
    for _ in range(20):
        before, reached = reached, reservation.grow(reached, now=1.0)
    assert reached - before == MOST


def test_more_is_asked_for_once_a_quarter_of_the_last_promise_is_used() -> None:
    reservation = Reservation(8)
    assert reservation.grow(0, now=1.0) == 8
    assert not reservation.is_low(2, 8)
    assert reservation.is_low(3, 8)


def test_there_is_nothing_to_decide_until_then() -> None:
    reservation = Reservation(8)
    reserved = reservation.grow(0, now=1.0)
    assert reservation.suffices_to(reserved) == 2
    wanted = reservation.ahead(reserved, now=1.0)
    assert reservation.suffices_to(wanted) == 8
    reservation.granted(wanted, now=1.0)
    assert reservation.suffices_to(wanted) == 40 - 24


def test_what_was_asked_for_ahead_counts_only_once_it_is_stable() -> None:
    reservation = Reservation(8)
    reserved = reservation.grow(0, now=1.0)
    wanted = reservation.ahead(reserved, now=1.0)
    assert wanted == 8 + 32
    assert reservation.covers(8, wanted)
    assert not reservation.covers(9, wanted)
    assert not reservation.is_low(8, wanted)  # one at a time
    reservation.granted(wanted, now=1.0)
    assert reservation.covers(40, wanted)


def test_a_promise_in_order_overtakes_one_that_was_asked_for_ahead() -> None:
    reservation = Reservation(8)
    ahead = reservation.ahead(reservation.grow(0, now=1.0), now=1.0)
    reached = reservation.grow(60, now=1.0)
    reservation.granted(ahead, now=1.0)
    assert reservation.covers(reached, reached)
    assert reservation.refused(ahead, reached) == reached


def test_a_promise_that_failed_takes_the_log_back_to_the_one_before() -> None:
    reservation = Reservation(8)
    wanted = reservation.ahead(reservation.grow(0, now=1.0), now=1.0)
    assert reservation.refused(wanted, wanted) == 8
    assert reservation.covers(8, 8)
    assert not reservation.covers(9, 8)


def test_records_do_not_wait_for_a_promise_that_is_made_ahead() -> None:
    disk = FakeDisk()
    bench = Bench(disk, FEW)
    log = filled(bench, 3)
    assert log.promise.reserved_seq == 9  # behind the first record
    before = wal_syncs(disk)
    _, asked = bench.append(log, [b"asks for more"])
    assert log.promise.reserved_seq == 9 + 32
    bench.run()
    assert (asked, wal_syncs(disk)) == ([None], before + 1)
    for _ in range(8):
        _, answer = bench.append(log, [b"x"])
        bench.run()
        assert answer == [None]
    assert wal_syncs(disk) == before + 1


def during_the_sync(bench: Bench, call: Callable[[], None]) -> None:
    """Let the thread commit what is queued, and ``call`` while it syncs: the loop goes on then."""
    (committer,) = bench.store.shards.committers
    engine = committer._engine
    sync = engine.sync

    def slow_sync() -> None:
        engine.sync = sync  # type: ignore[method-assign]
        bench.deliver()
        call()
        sync()

    engine.sync = slow_sync  # type: ignore[method-assign]
    committer.step()


def test_records_are_acknowledged_while_the_promise_ahead_is_being_synced() -> None:
    bench = Bench(FakeDisk(), FEW)
    log = filled(bench, 3)
    bench.append(log, [b"asks for more"])
    answers: list[Answer] = []

    def write() -> None:
        answers.append(bench.append(log, [b"in the meantime"])[1])
        bench.deliver()

    during_the_sync(bench, write)
    assert answers == [[None]]


def test_a_power_cut_during_the_sync_of_a_promise_ahead_takes_no_sequence_back() -> None:
    disk = FakeDisk()
    bench = Bench(disk, FEW)
    bench.store.control(16, 1, b"create", lambda error: None)
    log = filled(bench, 3)
    bench.append(log, [b"asks for more"])
    given: list[int] = []

    def write() -> None:
        for _ in range(10):  # more than the promise before reaches
            first, answer = bench.append(log, [b"x"])
            bench.deliver()
            given.extend([first] if answer == [None] else [])
        left = Bench(disk.after_crash(Mode.DROP, 0), FEW).store.log(1)
        assert left is not None
        assert left.next_seq > max(given)

    during_the_sync(bench, write)
    assert given == [5, 6, 7, 8, 9]
    bench.run()
    assert log.committed_seq == 14


def test_records_beyond_a_promise_that_is_not_stable_wait_for_a_sync() -> None:
    disk = FakeDisk()
    bench = Bench(disk, FEW)
    log = filled(bench, 3)
    bench.append(log, [b"asks for more"])
    _, beyond = bench.append(log, [b"x"] * 8)
    assert beyond == []
    before = wal_syncs(disk)
    bench.run()
    assert beyond == [None]
    assert wal_syncs(disk) > before
    assert log.synced_seq >= 12


@pytest.mark.parametrize("mode", list(Mode))
def test_no_sequence_that_was_given_out_comes_back_after_a_power_cut(mode: Mode) -> None:
    disk = FakeDisk()
    bench = Bench(disk, FEW)
    log = bench.store.create_log(1, Durability.DISK)
    bench.store.control(16, 1, b"create", lambda error: None)
    bench.run()
    acknowledged = 0
    for count in (1, 1, 1, 5, 9, 1, 1, 30, 1, 2, 64):
        first, answer = bench.append(log, [b"x"] * count)
        bench.run()
        acknowledged = first + count - 1 if answer == [None] else acknowledged
        again = Bench(disk.after_crash(mode, 0), FEW).store.log(1)
        assert again is not None
        assert again.next_seq > acknowledged
