"""After a power cut a log names what may have been acknowledged and is gone, and no more."""

import errno
from dataclasses import replace

import pytest

from millstream.errors import MillstreamError
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability, Gap
from millstream.store.options import StoreOptions
from millstream.store.upkeep.inspect import CLEAN, DAMAGED, check_directory
from millstream.store.wal.reservation import LEAST, OUTRUN, Reservation
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import SMALL, Bench, records, wal_syncs

AGE = 0.05  # seconds from a write to its sync
LAZY = replace(SMALL.log, flush_bytes=1 << 20, reserve_records=LEAST)  # only the WAL has records
PACED = replace(SMALL, wal_file_bytes=1 << 20, log=LAZY)


def begun(disk: FakeDisk, options: StoreOptions = PACED) -> tuple[Bench, FileLog]:
    """Return a `disk` log with one record, and a promise of more."""
    bench = Bench(disk, options)
    bench.loop_first = True
    log = bench.store.create_log(1, Durability.DISK)
    bench.store.control(16, 1, b"create", lambda error: None)
    bench.run()
    write(bench, log)
    return bench, log


def write(bench: Bench, log: FileLog, count: int = 1) -> int:
    """Have a batch acknowledged; returns its last sequence."""
    first, answer = bench.append(log, [b"x"] * count)
    bench.run()
    assert answer == [None]
    return first + count - 1


def idle(bench: Bench, seconds: float) -> None:
    """Let time pass, and the committer look as often as its thread does."""
    for _ in range(round(seconds / AGE)):
        bench.clock.advance(1.001 * AGE)  # whatever a sum of floats comes to
        bench.store.mark()
        bench.run()


def opened(disk: FakeDisk, options: StoreOptions = PACED) -> tuple[Bench, FileLog]:
    bench = Bench(disk, options)
    log = bench.store.create_log(1, Durability.DISK)
    return bench, log


def test_an_acknowledged_tail_that_a_power_cut_took_is_lost_by_name() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    for _ in range(3):
        acknowledged = write(bench, log)
    dark = disk.after_crash(Mode.DROP, 0)
    assert check_directory("/data", dark).status == DAMAGED
    again, found = opened(dark)
    assert [record[0] for record in records(found)] == [1]
    assert found.gaps == [Gap(2, log.promise.reserved_seq, "unsynced")]
    told = again.store.recovery.logs[1]
    assert (told.lost, told.torn, told.unsynced) == (0, 0, log.promise.reserved_seq - 1)
    assert found.next_seq == log.promise.reserved_seq + 1 > acknowledged


def test_what_left_a_trace_is_lost_for_sure_and_the_rest_at_most() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    bench.append(log, [b"gone" * 200])
    bench.run()
    dark = disk.after_crash(Mode.KEEP, 0)
    dark.boots += 1
    for path, node in dark.names.items():
        if "/wal/" in path and node is not None:
            node.data[:] = node.data.replace(b"gone" * 200, bytes(800))
    again, found = opened(dark)
    assert found.gaps == [Gap(2, 2, "torn"), Gap(3, log.promise.reserved_seq, "unsynced")]
    told = again.store.recovery.logs[1]
    assert (told.torn, told.unsynced) == (1, log.promise.reserved_seq - 2)


def test_a_killed_process_loses_nothing_and_says_so() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    last = write(bench, log, 3)
    again, found = opened(disk.after_crash(Mode.KEEP, 0))
    assert (found.gaps, found.next_seq) == ([], last + 1)
    assert again.store.recovery.logs[1].unsynced == 0


def test_a_clean_stop_leaves_nothing_in_doubt() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    last = write(bench, log, 3)
    bench.close()
    dark = disk.after_crash(Mode.DROP, 0)
    assert check_directory("/data", dark).status == CLEAN
    _, found = opened(dark)
    assert (found.gaps, found.next_seq) == ([], last + 1)


@pytest.mark.parametrize("mode", [Mode.DROP, Mode.GARBLE])
def test_a_log_that_was_quiet_for_three_sync_ages_reports_nothing(mode: Mode) -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    for _ in range(5):
        last = write(bench, log, 10)
    idle(bench, 3 * AGE)
    dark = disk.after_crash(mode, 0)
    assert check_directory("/data", dark).status == CLEAN
    _, found = opened(dark)
    assert (found.gaps, found.next_seq) == ([], last + 1)


def test_a_quiet_log_beside_a_busy_one_reports_nothing() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    busy = bench.store.create_log(2, Durability.DISK)
    last = write(bench, log)
    for _ in range(100):
        write(bench, busy)
        bench.clock.advance(0.01)
        bench.run()
    _, found = opened(disk.after_crash(Mode.DROP, 0))
    assert (found.gaps, found.next_seq) == ([], last + 1)


def test_a_log_that_a_kill_left_with_a_promise_ends_it_when_it_stays_quiet() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    last = write(bench, log)
    killed = disk.after_crash(Mode.KEEP, 0)
    again, _ = opened(killed)
    for _ in range(3):  # as the server does once a second
        again.clock.advance(1)
        again.store.tick()
        again.run()
    _, found = opened(killed.after_crash(Mode.DROP, 0))
    assert (found.gaps, found.next_seq) == ([], last + 1)


def test_a_record_after_a_pause_is_on_the_disk_before_it_is_acknowledged() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    for _ in range(5):
        idle(bench, 4 * AGE)
        before = wal_syncs(disk)
        last = write(bench, log)
        assert wal_syncs(disk) == before + 1
        _, found = opened(disk.after_crash(Mode.DROP, 0))
        assert (found.gaps, found.next_seq) == ([], last + 1)
    idle(bench, 4 * AGE)
    assert wal_syncs(disk) == before + 1  # nor does anything else ask for another


def test_records_that_follow_each_other_do_not_wait_after_the_second() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    idle(bench, 4 * AGE)
    write(bench, log)
    write(bench, log)
    before = wal_syncs(disk)
    for _ in range(3):
        write(bench, log)
    assert wal_syncs(disk) == before


@pytest.mark.parametrize("each_second", [25, 200, 2000])
def test_no_more_is_in_doubt_than_two_seconds_bring(each_second: int) -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    pause, syncs = 1 / each_second, wal_syncs(disk)
    for _ in range(3 * each_second):
        bench.clock.advance(pause)
        write(bench, log)
    assert log.promise.reserved_seq - log.synced_seq <= max(2 * LEAST, 2 * each_second)
    assert wal_syncs(disk) - syncs <= 3 / AGE + 10  # promises ride with the syncs that are due


def test_a_log_that_outruns_its_promise_gets_a_larger_one_however_slow_the_disk() -> None:
    reservation = Reservation(8)
    reached = reservation.grow(0, now=1.0)
    assert reservation.grow(reached, now=2.0) == reached + OUTRUN * 8
    reservation.end()
    assert reservation.grow(reached, now=9.0) == reached + OUTRUN * 8 // 4


def test_a_slow_disk_needs_larger_promises_and_keeps_them() -> None:
    reservation = Reservation(8, quick=0.05)
    reserved = reservation.grow(0, now=1.0)
    wanted = reservation.ahead(reserved, now=2.0)
    assert wanted - reserved == 8
    reservation.granted(wanted, now=2.2)  # so long took the disk
    more = reservation.ahead(wanted, now=2.1)
    assert more - wanted == 32
    reservation.granted(more, now=2.3)
    assert reservation.ahead(more, now=3.0) - more == 32


def test_what_nobody_was_told_of_is_nobodys_loss() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)

    def refuse(call: str, path: str) -> None:
        if "/wal/" in path and call == "write":
            raise OSError(errno.ENOSPC, "no space left on device")

    disk.hook = refuse
    answers: list[MillstreamError | None] = bench.append(log, [b"refused"])[1]
    bench.run()
    disk.hook = lambda call, path: None
    assert isinstance(answers[0], MillstreamError)
    idle(bench, 4 * AGE)
    _, found = opened(disk.after_crash(Mode.DROP, 0))
    assert (found.gaps, found.next_seq) == ([], 2)


def test_the_loss_stays_on_record_through_starts_stops_and_snapshots() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    write(bench, log, 3)
    disk = disk.after_crash(Mode.DROP, 0)
    lost = [Gap(2, log.promise.reserved_seq, "unsynced")]
    for mode in (Mode.DROP, Mode.KEEP, Mode.DROP, Mode.DROP):
        again, found = opened(disk)
        assert found.gaps == lost
        if mode is Mode.KEEP:
            again.store.checkpoint({})
        again.run()
        disk = disk.after_crash(mode, 0)
    again, found = opened(disk)
    write(again, found)
    again.close()
    assert opened(disk.after_crash(Mode.DROP, 0))[1].gaps == lost


@pytest.mark.parametrize("mode", [Mode.KEEP, Mode.DROP])
def test_a_start_that_is_cut_off_anywhere_finds_the_same_again(mode: Mode) -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    write(bench, log, 3)
    dark = disk.after_crash(Mode.DROP, 0)
    dry = dark.copy()
    opened(dry)
    for call in range(1, dry.calls + 1):
        left = dark.copy()
        left.crash_at = call
        with pytest.raises(Crashed):
            opened(left)
        _, found = opened(left.after_crash(mode, 0))
        assert found.gaps == [Gap(2, log.promise.reserved_seq, "unsynced")], call


def test_the_newest_word_counts_also_when_it_is_in_another_shard() -> None:
    disk = FakeDisk()
    three, two = replace(PACED, shards=3), replace(PACED, shards=2)
    log_ids = range(1, 9)
    bench = Bench(disk, three)
    for log_id in log_ids:
        write(bench, bench.store.create_log(log_id, Durability.DISK))
    moved = disk.after_crash(Mode.KEEP, 0)
    again = Bench(moved, two)
    for log_id in log_ids:
        log = again.store.create_log(log_id, Durability.DISK)
        write(again, log)
    for _ in range(3):
        again.clock.advance(1)
        again.store.tick()
        again.run()
    found = Bench(moved.after_crash(Mode.DROP, 0), two).store
    for log_id in log_ids:
        left = found.log(log_id)
        assert left is not None
        assert (left.gaps, left.next_seq) == ([], 3), log_id
