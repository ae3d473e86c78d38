"""Several write-ahead logs side by side: each for itself, and as many as you like next time."""

import errno
from dataclasses import replace

import pytest

from millstream.errors import ShardReadOnly
from millstream.kernel._batch import Batch
from millstream.store.log.derived import Derivation, DerivedPart, decode
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.shard import shard_number
from millstream.store.upkeep.inspect import CLEAN, check_directory
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import SMALL, Answer, Bench, image, records

TWO = replace(SMALL, shards=2)
LOGS = range(1, 9)


def filled(shards: int) -> tuple[FakeDisk, Bench]:
    disk = FakeDisk()
    bench = Bench(disk, replace(SMALL, shards=shards))
    for log_id in LOGS:
        bench.store.create_log(log_id, Durability.FSYNC)
    write(bench)
    return disk, bench


def write(bench: Bench) -> None:
    for log_id in LOGS:
        log = bench.store.create_log(log_id, Durability.FSYNC)
        for step in range(3):
            bench.append(log, [b"%d %d" % (log_id, step)] * 2)
        log.delete([log.committed_seq], lambda error: None)
        bench.run()


def test_the_shard_of_a_log_is_the_hash_of_its_id() -> None:
    assert [shard_number(i, 8) for i in range(1, 9)] == [6, 3, 5, 0, 4, 3, 7, 6]
    assert [shard_number(i, 1) for i in range(9)] == [0] * 9
    assert shard_number(0, 8) == 0


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize("mode", [Mode.KEEP, Mode.DROP])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_directory_opens_with_any_number_of_shards(
    before: int, after: int, mode: Mode, checkpoint: bool
) -> None:
    disk, bench = filled(before)
    if checkpoint:
        bench.store.checkpoint({})
        bench.run()
    write(bench)
    expected = image(bench.store)
    left = disk.after_crash(mode, 0)
    again = Bench(left, replace(SMALL, shards=after))
    assert image(again.store) == expected
    write(again)
    expected = image(again.store)
    left = left.after_crash(mode, 0)
    third = Bench(left, replace(SMALL, shards=before))
    assert image(third.store) == expected
    assert check_directory("/data", left).status == CLEAN


def test_a_shard_that_is_no_longer_used_goes_once_two_snapshots_cover_it() -> None:
    disk, bench = filled(3)
    bench.close()
    again = Bench(disk.after_crash(Mode.KEEP, 0), SMALL)
    for _ in range(3):
        write(again)
        again.store.checkpoint({})
        again.run()
    files = again.store.files
    assert files.listdir("/data/wal/shard-01") == files.listdir("/data/wal/shard-02") == []
    expected = image(again.store)
    again.close()
    third = Bench(files, replace(SMALL, shards=3))  # type: ignore[arg-type]
    assert image(third.store) == expected
    write(third)
    expected = image(third.store)
    assert image(Bench(files.after_crash(Mode.DROP, 0), TWO).store) == expected  # type: ignore[attr-defined]


def two_logs(bench: Bench) -> tuple[FileLog, FileLog]:
    first = next(i for i in LOGS if shard_number(i, 2) == 0)
    second = next(i for i in LOGS if shard_number(i, 2) == 1)
    store = bench.store
    return store.create_log(first, Durability.FSYNC), store.create_log(second, Durability.FSYNC)


def test_a_failed_sync_stops_one_shard_and_health_names_it() -> None:
    disk = FakeDisk()
    bench = Bench(disk, TWO)
    one, two = two_logs(bench)
    for log in (one, two):
        bench.append(log, [b"before"])
    bench.run()

    def fail(call: str, path: str) -> None:
        if call == "sync" and "/shard-01/" in path:
            raise OSError(errno.EIO, "input/output error")

    disk.hook = fail
    good, bad = bench.append(one, [b"good"])[1], bench.append(two, [b"bad"])[1]
    bench.run()
    assert good == [None]
    assert isinstance(bad[0], ShardReadOnly)
    with pytest.raises(ShardReadOnly, match="shard 1"):
        bench.append(two, [b"refused"])
    assert len(bench.store.health()) == 1
    assert "shard 1" in bench.store.health()[0]
    assert [r[3] for r in records(one)] == [b"before", b"good"]
    assert [r[3] for r in records(two)] == [b"before"]


def test_a_stream_made_again_on_another_shard_does_not_meet_the_old_one() -> None:
    disk = FakeDisk()
    bench = Bench(disk, TWO)
    old, new = two_logs(bench)
    store = bench.store
    answers: Answer = []
    store.control(16, old.log_id, b"create orders as the old one", answers.append)
    bench.append(old, [b"old"])
    bench.run()
    store.control(17, old.log_id, b"delete orders", answers.append)
    bench.run()
    store.drop_log(old.log_id)
    store.control(16, new.log_id, b"create orders as the new one", answers.append)
    bench.append(new, [b"new"])
    bench.run()
    for shards in (1, 2, 3):
        again = Bench(disk.after_crash(Mode.KEEP, 0), replace(SMALL, shards=shards)).store
        assert [c.body.split()[0] for c in again.recovery.controls] == [
            b"create",
            b"delete",
            b"create",
        ]
        found = again.log(new.log_id)
        assert again.log(old.log_id) is None
        assert found is not None
        assert [r[3] for r in records(found)] == [b"new"]


def test_copies_of_a_log_on_another_shard_are_logged_with_how_far_it_was_copied() -> None:
    disk = FakeDisk()
    bench = Bench(disk, TWO)
    source, target = two_logs(bench)
    bench.append(source, [b"one", b"two"])
    bench.run()
    batch = Batch()
    for payload in (b"one", b"two"):
        batch.add(b"s", b"", b"", payload)
    answer: Answer = []
    staged = [target.skip(3, "source_trim", lambda error: None)]
    staged.append(target.stage(batch, 5, lambda error: None))
    parts = [
        DerivedPart(7, 1, 0, target.log_id, 4, 3, [], "", 0, ""),
        DerivedPart(7, 2, 0, target.log_id, 4, 0, [(1, 2)], "", 0, ""),
    ]
    bench.store.derive(Derivation(source.log_id, 5, "a", parts), staged, answer.append)
    bench.run()
    assert answer == [None]
    expected = image(bench.store)
    again = Bench(disk.after_crash(Mode.DROP, 0), SMALL)
    assert image(again.store) == expected
    assert [gap.reason for gap in expected[target.log_id][0].gaps] == ["source_trim"]
    progress = [decode(control.body).parts[0] for control in again.store.recovery.controls]
    assert [(part.passed, part.base, part.last) for part in progress] == [(1, 4, 3), (2, 4, 5)]


def test_a_start_that_is_cut_off_between_two_shards_still_was_a_start_after_a_power_cut() -> None:
    disk = FakeDisk()
    bench = Bench(disk, replace(TWO, dirty_age=1e9))
    logs = [bench.store.create_log(log_id, Durability.DISK) for log_id in LOGS]
    for log in logs:
        bench.append(log, [b"pays for the reservation"])
        bench.run()
        _, answer = bench.append(log, [b"acknowledged, and nowhere stable"])
        bench.run()
        assert answer == [None]
    dark = disk.after_crash(Mode.DROP, 0)
    dry = dark.copy()
    Bench(dry, TWO)
    assert dry.calls > 20
    for call in range(1, dry.calls + 1):
        left = dark.copy()
        left.crash_at = call
        with pytest.raises(Crashed):
            Bench(left, TWO)
        again = Bench(left.after_crash(Mode.KEEP, 0), TWO).store
        given = {log_id: log.next_seq for log_id in LOGS if (log := again.log(log_id))}
        assert all(next_seq > 2 for next_seq in given.values()), (call, given)


def test_what_was_torn_in_one_shard_is_torn_for_another_that_waits_for_it() -> None:
    disk = FakeDisk()
    unflushed = replace(SMALL.log, flush_bytes=1 << 20)
    before = replace(SMALL, shards=3, dirty_age=1e9, entry_bytes=700, log=unflushed)
    after = replace(before, shards=2)
    bench = Bench(disk, before)
    for log_id in LOGS:
        log = bench.store.create_log(log_id, Durability.DISK)
        bench.append(log, [b"pays for the reservation"])
        bench.run()
    for log_id in LOGS:
        bench.append(bench.store.create_log(log_id, Durability.DISK), [b"torn" * 125] * 3)
        bench.run()
    dark = disk.after_crash(Mode.KEEP, 0)
    dark.boots += 1
    for path, node in dark.names.items():
        if "/wal/" in path and node is not None:
            node.data[:] = node.data.replace(b"torn" * 125, bytes(500))
    dry = dark.copy()
    Bench(dry, after)
    for call in range(
        1, dry.calls + 1
    ):  # what is in doubt may be in one shard, what is torn in another
        left = dark.copy()
        left.crash_at = call
        with pytest.raises(Crashed):
            Bench(left, after)
        again = Bench(left.after_crash(Mode.KEEP, 0), after).store
        logs = [log for log_id in LOGS if (log := again.log(log_id))]
        assert {gap.reason for log in logs for gap in log.gaps} == {"torn", "unsynced"}, call
