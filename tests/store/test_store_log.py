"""What a log promises: order, visibility, removal, time, subjects, segments."""

from dataclasses import replace

import pytest

from millstream.store.log.file_log import FileLog, LogOptions
from millstream.store.log.log import Durability, Gap
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SMALL, Answer, Bench, records

CLASSES = list(Durability)


def started(durability: Durability, count: int = 0) -> tuple[Bench, FileLog]:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, durability)
    for i in range(count):
        bench.append(log, [b"%d" % (i + 1)], b"s.%d" % (i % 3))
        bench.run()
    return bench, log


def seqs(log: FileLog) -> list[int]:
    return [record[0] for record in records(log)]


@pytest.mark.parametrize("durability", CLASSES)
def test_sequences_start_at_one_and_follow_each_other(durability: Durability) -> None:
    bench, log = started(durability)
    assert bench.append(log, [b"a", b"b"])[0] == 1
    assert bench.append(log, [b"c"])[0] == 3
    bench.run()
    assert [(r[0], r[3]) for r in records(log)] == [(1, b"a"), (2, b"b"), (3, b"c")]
    state = log.state()
    assert (state.first_seq, state.last_seq, state.count) == (1, 3, 3)


@pytest.mark.parametrize("neighbour", [False, True])
def test_a_damaged_record_is_not_served_because_its_delete_flag_was_hit_too(
    neighbour: bool,
) -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    for i in range(9):
        bench.append(log, [b"record %d" % i])
        bench.run()
    bench.store.checkpoint({})
    bench.run()
    bench.close()
    node = disk.names["/data/streams/0000000000000001/seg-00000000000000000001.data"]
    assert node is not None
    size = 61 + len(b"s") + len(b"record 0")
    node.data[64 + size - 10] ^= 1
    node.data[64 + size - 1] = 0xD5
    if neighbour:
        node.data[64 + size + 4] ^= 1  # a length in the next header
    again = Bench(disk.after_crash(Mode.KEEP, 0)).store.log(1)
    assert again is not None
    assert seqs(again) == list(range(2 + neighbour, 10))


@pytest.mark.parametrize("durability", CLASSES)
def test_time_never_runs_backwards_in_a_log(durability: Durability) -> None:
    bench, log = started(durability)
    bench.append(log, [b"a"])
    bench.clock.set_wall(5)
    bench.append(log, [b"b"])
    bench.run()
    first, second = records(log)
    assert first[1] == second[1] == 1_700_000_000_000_000_000


@pytest.mark.parametrize("durability", CLASSES)
def test_deleted_records_are_gone_and_counted_once(durability: Durability) -> None:
    bench, log = started(durability, 30)
    answer: Answer = []
    assert log.delete([2, 3, 2000], answer.append) == 2
    assert log.delete([3], answer.append) == 0
    bench.run()
    assert answer == [None, None]
    assert seqs(log) == [1, *range(4, 31)]
    assert log.state().count == 28


def test_removals_take_effect_only_once_they_are_logged() -> None:
    bench, log = started(Durability.FSYNC, 5)
    log.delete([2], lambda error: None)
    log.trim(2, "ttl")
    assert seqs(log) == [1, 2, 3, 4, 5]
    assert log.state().count == 5
    bench.run()
    assert seqs(log) == [3, 4, 5]


@pytest.mark.parametrize("durability", CLASSES)
def test_a_trim_moves_the_floor_and_drops_dead_segments(durability: Durability) -> None:
    bench, log = started(durability, 30)
    segments = len(log.segments)
    log.trim(21, "cap")
    bench.run()
    state = log.state()
    assert (state.first_seq, state.count, state.evict_floor) == (21, 10, 20)
    assert seqs(log) == list(range(21, 31))
    assert len(log.segments) < segments
    log.trim(23, "delete")
    bench.run()
    assert log.state().evict_floor == 20
    assert log.state().first_seq == 23


def test_an_emptied_log_keeps_its_head() -> None:
    bench, log = started(Durability.FSYNC, 3)
    log.trim(4, "delete")
    bench.run()
    assert (log.state().first_seq, log.state().last_seq, log.state().count) == (4, 3, 0)
    again = Bench(_crash(bench)).store.log(1)
    assert again is not None
    assert again.state() == log.state()
    assert again.next_seq == 4


def _crash(bench: Bench, mode: Mode = Mode.DROP) -> FakeDisk:
    assert isinstance(bench.store.files, FakeDisk)
    return bench.store.files.after_crash(mode, 0)


@pytest.mark.parametrize("durability", CLASSES)
def test_the_last_record_of_a_subject_is_known(durability: Durability) -> None:
    bench, log = started(durability, 30)
    assert log.last_by_subject(b"s.0") == 28
    assert log.last_by_subject(b"s.9") == 0
    log.delete([28, 25], lambda error: None)
    bench.run()
    assert log.last_by_subject(b"s.0") == 22
    bench.append(log, [b"staged"], b"s.0")
    if durability in (Durability.DISK, Durability.FSYNC):
        assert log.last_by_subject(b"s.0") == 22
    bench.run()
    assert log.last_by_subject(b"s.0") == 31


def test_time_is_found_across_segments() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.FSYNC)
    start = bench.clock.time_ns()
    for _ in range(20):
        bench.append(log, [b"x"])
        bench.run()
        bench.clock.advance(1)
    second = 1_000_000_000
    assert log.seek_time(0) == 1
    assert log.seek_time(start + 7 * second) == 8
    assert log.seek_time(start + 7 * second + 1) == 9
    assert log.seek_time(start + 100 * second) == 21


def test_a_read_keeps_to_its_limits_but_gives_at_least_one() -> None:
    bench, log = started(Durability.FSYNC)
    bench.append(log, [b"x" * 100] * 5)
    bench.run()
    assert len(log.read(1, 2, 1 << 20)) == 2
    assert len(log.read(1, 10, 1)) == 1
    assert log.read(6, 10, 1 << 20).offsets == []


def test_small_batches_are_read_together() -> None:
    bench = Bench(FakeDisk(), replace(SMALL, log=LogOptions()))
    log = bench.store.create_log(1, Durability.FSYNC)
    for _ in range(50):
        bench.append(log, [b"x"])
    bench.run()
    assert len(log.read(1, 100, 1 << 20)) == 50


def test_an_idle_segment_is_sealed_by_age() -> None:
    bench = Bench(FakeDisk(), replace(SMALL, log=LogOptions(segment_age=60)))
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"x"])
    bench.run()
    bench.store.tick()
    assert bench.store.plan(1) == []
    bench.clock.advance(60)
    bench.store.tick()
    bench.run()
    (plan,) = bench.store.plan(1)
    assert (plan.base_seq, plan.last_seq) == (1, 1)
    assert plan.path.endswith("/streams/0000000000000001/seg-00000000000000000001.data")
    assert bench.store.files.exists(plan.idx_path)


def test_a_file_that_still_shows_a_deleted_record_is_in_no_plan() -> None:
    bench, log = started(Durability.FSYNC, 30)
    before = bench.store.plan(1)
    assert len(before) > 1
    log.delete([before[0].base_seq], lambda error: None)
    bench.store.pump()
    bench.deliver()
    assert log.segments[0].flags
    assert bench.store.plan(1) == before[1:]  # what lies before is for the server to read out
    log.flush()
    bench.run()
    assert bench.store.plan(1) == before


def test_damage_in_a_sealed_file_is_a_gap_and_neighbours_are_served() -> None:
    bench, log = started(Durability.FSYNC, 30)
    disk = bench.store.files
    assert isinstance(disk, FakeDisk)
    sealed = bench.store.plan(1)[0]
    log.segments[0].close()
    node = disk.names[sealed.path]
    assert node is not None
    node.data[log.segments[0].index.offset(2) + 55] ^= 1
    assert seqs(log) == [1, 2, *range(4, 31)]
    assert log.state().gaps == (Gap(3, 3, "corruption"),)
    assert log.state().count == 29


def test_a_dropped_log_leaves_no_files_and_does_not_come_back() -> None:
    bench, log = started(Durability.FSYNC, 30)
    disk = bench.store.files
    answer: Answer = []
    bench.store.control(17, 1, b"{}", answer.append)
    bench.run()
    bench.store.drop_log(1)
    bench.run()
    assert not disk.exists(log.directory)
    other = bench.store.create_log(2, Durability.FSYNC)
    bench.append(other, [b"new instance"])
    bench.run()
    again = Bench(_crash(bench)).store
    assert again.log_ids() == [2]
    assert not again.files.exists(log.directory)


def test_a_log_keeps_its_floors_over_a_checkpoint_and_a_crash() -> None:
    bench, log = started(Durability.FSYNC, 30)
    log.trim(5, "ttl")
    log.delete([10, 11, 12], lambda error: None)
    bench.run()
    bench.store.checkpoint({"top": b"state"})
    bench.run()
    again = Bench(_crash(bench))
    found = again.store.log(1)
    assert found is not None
    assert found.state() == log.state()
    assert records(found) == records(log)
    assert again.store.recovery.sections == {"top": b"state"}
    assert again.store.recovery.logs[1].records == 23


def test_each_reason_of_a_trim_keeps_its_own_floor_over_a_restart() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"x"] * 9)
    bench.run()
    for first_kept, reason in ((3, "ttl"), (5, "cap"), (8, "delete")):
        log.trim(first_kept, reason)
        bench.run()
    expected = {"ttl": 2, "cap": 4, "delete": 7}
    assert log.state().floors == expected
    bench.store.checkpoint({})
    bench.run()
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)
    assert again is not None
    assert again.state().floors == expected
