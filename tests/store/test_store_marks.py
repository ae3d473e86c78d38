"""What was synced is known outside of the WAL: its end cannot vanish unnoticed."""

import errno
from dataclasses import replace

import pytest

from millstream.store.log.log import Durability, Gap
from millstream.store.options import StoreOptions
from millstream.store.upkeep.dump import dump_directory
from millstream.store.upkeep.inspect import CLEAN, DAMAGED, check_directory
from millstream.store.wal import marks
from millstream.store.wal.entry import WalEntry, scan_entries
from millstream.store.wal.local_engine import HEADER
from millstream.store.wal.marks import RESERVED, SYNCED, Marks, load_marks
from support.fake_disk import FakeDisk, Mode, Node
from support.store_bench import SMALL, Bench, records

LAZY = replace(SMALL, log=replace(SMALL.log, flush_bytes=1 << 20))  # only the WAL has the records
MARKS = "/data/meta/marks-00.bin"


def newest_wal(disk: FakeDisk) -> Node:
    content = disk.content()
    node = disk.names[max(p for p in content if "/wal-" in p and any(content[p]))]
    assert node is not None
    return node


def entries(node: Node) -> list[WalEntry]:
    found = scan_entries(memoryview(bytes(node.data)), HEADER.size, 0)
    return [item for item in found if isinstance(item, WalEntry)]


def filled(
    durability: Durability = Durability.FSYNC, options: StoreOptions = LAZY, batches: int = 4
) -> FakeDisk:
    """Return a disk with a named log of a few batches of two, as kill -9 left it."""
    disk = FakeDisk()
    bench = Bench(disk, options)
    log = bench.store.create_log(1, durability)
    bench.store.control(16, 1, b"create", lambda error: None)
    bench.run()
    for n in range(batches):
        bench.append(log, [b"%d a" % n, b"%d b" % n])
        bench.run()
    bench.clock.advance(1)
    bench.run()
    return disk.after_crash(Mode.KEEP, 0)


def zero(node: Node, start: int) -> None:
    node.data[start:] = bytes(len(node.data) - start)
    node.sync()


def shorten(node: Node, start: int) -> None:
    del node.data[start:]
    node.sync()


@pytest.mark.parametrize("damage", [zero, shorten])
@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK])
def test_a_wal_that_ends_between_two_entries_names_what_it_lost(damage, durability) -> None:  # type: ignore[no-untyped-def]
    disk = filled(durability)
    wal = newest_wal(disk)
    damage(wal, entries(wal)[-2].start)
    assert check_directory("/data", disk).status == DAMAGED
    log = Bench(disk).store.log(1)
    assert log is not None
    assert [r[0] for r in records(log)] == [1, 2, 3, 4]
    assert log.gaps[0] == Gap(5, 8, "corruption")
    assert log.next_seq >= 9


def test_what_a_segment_file_has_of_the_lost_end_comes_from_there() -> None:
    disk = filled(options=SMALL)
    wal = newest_wal(disk)
    zero(wal, entries(wal)[-2].start)
    assert check_directory("/data", disk).status == DAMAGED
    bench = Bench(disk)
    log = bench.store.log(1)
    assert log is not None
    assert [r[0] for r in records(log)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not log.gaps
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)  # and is in the new WAL file now
    assert again is not None
    assert records(again) == records(log)


def test_a_log_whose_records_are_all_gone_does_not_begin_again_at_1() -> None:
    disk = filled()
    wal = newest_wal(disk)
    zero(wal, entries(wal)[1].start)  # behind its creation
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    assert bench.append(log, [b"new"])[0] == 9
    assert log.gaps == [Gap(1, 8, "corruption")]


def test_the_loss_is_told_again_by_each_start_and_by_snapshots_without_the_marks() -> None:
    disk = filled()
    wal = newest_wal(disk)
    zero(wal, entries(wal)[-1].start)
    bench = Bench(disk)
    assert bench.store.log(1).gaps == [Gap(7, 8, "corruption")]  # type: ignore[union-attr]
    again = disk.after_crash(Mode.DROP, 0)
    again.names.pop(MARKS)
    second = Bench(again)
    log = second.store.log(1)
    assert log is not None
    assert log.gaps == [Gap(7, 8, "corruption")]
    assert log.next_seq == 9


def test_the_last_records_of_a_log_in_an_older_file_are_missed_too() -> None:
    disk = FakeDisk()
    bench = Bench(disk, LAZY)
    one = bench.store.create_log(1, Durability.FSYNC)
    two = bench.store.create_log(2, Durability.FSYNC)
    bench.store.control(16, 1, b"create", lambda error: None)
    bench.run()
    bench.append(one, [b"first"])
    bench.run()
    while bench.store.shards.in_use[0].engine.index < 2:  # the file of 4096 bytes is full
        before = entries(newest_wal(disk))
        bench.append(two, [b"x" * 900])
        bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    path = "/data/wal/shard-00/wal-0000000000000001.log"
    node = left.names[path]
    assert node is not None
    at = next(e for e in before if any(run.stream_id == 1 and run.first_seq for run in e.runs))
    node.data[at.start : at.end] = bytes(at.end - at.start)
    node.sync()
    log = Bench(left).store.log(1)
    assert log is not None
    assert log.gaps == [Gap(1, 1, "corruption")]
    assert log.next_seq == 2


def test_a_reservation_that_is_lost_with_the_wal_still_holds() -> None:
    disk = FakeDisk()
    bench = Bench(disk, LAZY)
    log = bench.store.create_log(1, Durability.DISK)
    bench.store.control(16, 1, b"create", lambda error: None)
    bench.run()
    bench.append(log, [b"a", b"b"])
    bench.run()
    assert log.synced_seq == 2  # with the reservation
    bench.append(log, [b"not synced"])
    bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    wal = newest_wal(left)
    zero(wal, entries(wal)[1].start)
    again = Bench(left).store.log(1)
    assert again is not None
    assert again.next_seq == log.promise.reserved_seq + 1
    assert {(g.reason) for g in again.gaps} == {"corruption", "unsynced"}


def test_marks_of_a_dropped_log_bring_nothing_back() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    for log_id in (1, 2):
        bench.append(bench.store.create_log(log_id, Durability.FSYNC), [b"x"])
    bench.run()
    bench.store.control(17, 1, b"", lambda error: bench.store.drop_log(1))
    bench.run()
    for _ in range(4):  # until nothing but the marks speaks of it
        bench.store.checkpoint({})
        bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    assert load_marks(left, "/data/meta") == {0: {(SYNCED, 1): 1, (SYNCED, 2): 1}}
    assert Bench(left).store.log_ids() == [2]


def test_a_mark_that_cannot_be_written_fails_no_commit_and_is_written_later() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"a"])
    bench.run()

    def refuse(call: str, path: str) -> None:
        if path == MARKS:
            raise OSError(errno.EIO, "input/output error")

    disk.hook = refuse
    _, answer = bench.append(log, [b"b"])
    bench.run()
    assert answer == [None]
    assert load_marks(disk, "/data/meta") == {0: {(SYNCED, 1): 1}}
    disk.hook = lambda call, path: None
    other = bench.store.create_log(2, Durability.FSYNC)
    bench.append(other, [b"c"])
    bench.run()
    assert load_marks(disk, "/data/meta") == {0: {(SYNCED, 1): 2, (SYNCED, 2): 1}}
    assert not bench.store.health()


def test_a_file_of_marks_stays_small_and_forgets_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "LIMIT", 512)
    disk = FakeDisk()
    disk.make_dir("/meta")
    marked = Marks(disk, "/meta", 0, {}, {})
    marked.write({(SYNCED, 9): 5, (RESERVED, 9): 100})
    for seq in range(1, 500):
        marked.write({(SYNCED, seq % 3): seq})
    known = load_marks(disk, "/meta")[0]
    assert known[SYNCED, 9] == 5
    assert known[RESERVED, 9] == 100
    assert [known[SYNCED, i] for i in range(3)] == [498, 499, 497]
    assert len(disk.content()["/meta/marks-00.bin"]) <= 512


def test_a_damaged_mark_is_skipped_and_costs_nothing() -> None:
    disk = filled()
    node = disk.names[MARKS]
    assert node is not None
    node.data[32 + 16] ^= 4
    node.data[4] ^= 1
    assert load_marks(disk, "/data/meta") == {0: {(SYNCED, 1): 8}}
    assert check_directory("/data", disk).status == CLEAN


def test_a_start_marks_what_it_kept() -> None:
    disk = filled()
    disk.names.pop(MARKS)
    bench = Bench(disk)
    bench.append(bench.store.create_log(2, Durability.FSYNC), [b"x"])
    bench.run()
    assert load_marks(disk, "/data/meta") == {0: {(SYNCED, 1): 8, (SYNCED, 2): 1}}


def test_a_dump_shows_the_marks() -> None:
    found = [item for item in dump_directory("/data", filled()) if item["kind"] == "marks"]
    logs = {"0000000000000001": {"synced": 8}}
    assert found == [{"kind": "marks", "file": MARKS, "logs": logs}]
