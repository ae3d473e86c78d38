"""Full WAL files that the disk may lack: when they are synced, and what a power cut leaves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.errors import StorageUnusable
from millstream.store.disk.files import OsFile, OsFiles
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.shard import shard_number
from millstream.store.wal.local_engine import MOST_RETIRED
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import SMALL, Bench, image, records, wal_syncs

UNFLUSHED = replace(SMALL.log, flush_bytes=1 << 20, segment_bytes=1 << 20)  # the WAL alone has it
FAR = replace(SMALL, wal_file_bytes=1024, dirty_age=1e9, log=UNFLUSHED)
LARGE = bytes(700)  # one of them fills a file


def begun(disk: FakeDisk) -> tuple[Bench, FileLog]:
    """Return a log whose promise of sequences is stable, and nothing else yet to sync."""
    bench = Bench(disk, FAR)
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    return bench, log


def fill(bench: Bench, log: FileLog, files: int) -> None:
    for _ in range(files):
        _, answer = bench.append(log, [LARGE])
        bench.run()
        assert answer == [None]


def wal_node(disk: FakeDisk, index: int) -> bytearray:
    node = disk.names[f"/data/wal/shard-00/wal-{index:016d}.log"]
    assert node is not None
    return node.data


def test_a_rotation_waits_for_no_sync_until_several_full_files_lack_one() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    engine = bench.store.shards.committers[0]._engine
    created = wal_syncs(disk)
    fill(bench, log, MOST_RETIRED - 2)
    made = sum(call.startswith("create /data/wal") for call in disk.trace)
    assert wal_syncs(disk) - created == made - 1  # each file when it is made, and not again
    assert engine.synced_position < engine.position - 1
    fill(bench, log, 1)  # one more may follow: the thread is told before a rotation must wait
    assert engine.synced_position == engine.position - 1
    assert not engine.wants_sync


def test_a_sync_covers_the_full_files_too() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    fill(bench, log, 1)
    bench.store.control(16, 1, b"synced before it is answered", lambda error: None)
    bench.run()
    again = Bench(disk.after_crash(Mode.DROP, 0), FAR).store
    found = again.log(1)
    assert isinstance(found, FileLog)
    assert [record[0] for record in records(found)] == [1, 2]


def test_a_full_file_that_a_snapshot_covers_goes_without_a_sync() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    fill(bench, log, 1)
    for _ in range(2):  # the older one of two decides
        bench.store.checkpoint({})
        bench.run()
    assert bench.store.shards.committers[0]._engine._retired == []
    first = "/data/wal/shard-00/wal-0000000000000001.log"
    assert f"unlink {first}" in disk.trace
    bench.store.control(16, 1, b"", lambda error: None)
    bench.run()
    made, promised = 1, 1
    assert disk.trace.count(f"sync {first}") == made + promised


@pytest.mark.parametrize("emptied", [1, 2])
def test_what_a_full_file_lost_is_torn_and_what_follows_is_kept(emptied: int) -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    fill(bench, log, 1)
    small = [bench.append(log, [b"in the newest file"])[0]]
    bench.run()
    assert wal_node(disk, 3)[:4] != bytes(4)
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    data = wal_node(left, 2)
    start = 0 if emptied == 2 else 64  # with its header, or without
    data[start:] = bytes(len(data) - start)
    first = Bench(left, FAR).store
    found = image(first)[1]
    assert [record[0] for record in found[1]] == [1, *small]
    gap = found[0].gaps[0]
    assert (gap.first, gap.last, gap.reason) == (2, 2, "torn")
    assert image(Bench(left.after_crash(Mode.DROP, 0), FAR).store)[1][1] == found[1]


def test_a_first_file_that_is_empty_is_torn_only_where_nothing_says_that_it_was_stable() -> None:
    disk = FakeDisk()
    bench = Bench(disk, FAR)
    log = bench.store.create_log(1, Durability.MEMORY)  # promises nothing: nothing is synced
    for _ in range(3):
        bench.append(log, [LARGE])
        bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    wal_node(left, 1)[:] = bytes(len(wal_node(left, 1)))
    found = image(Bench(left, FAR).store)[1]
    assert [record[0] for record in found[1]] == [2, 3]

    stable, log = begun(disk := FakeDisk())
    fill(stable, log, 2)
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    wal_node(left, 1)[:] = bytes(len(wal_node(left, 1)))
    with pytest.raises(StorageUnusable, match="restore the missing files"):
        Bench(left, FAR)


def test_a_first_file_that_lost_its_beginning_to_a_power_cut_is_no_missing_file() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    fill(bench, log, 1)
    bench.append(log, [b"x" * 100])
    bench.run()
    for _ in range(2):  # the files before go unsynced, and the one that is left has no header yet
        bench.store.checkpoint({})
        bench.run()
    for _ in range(4):
        bench.append(log, [b"x" * 100])
        bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    assert min(path for path in left.names if "/wal-" in path).endswith("3.log")
    wal_node(left, 3)[:512] = bytes(512)  # with an entry that no snapshot covers
    found = image(Bench(left, FAR).store)[1]
    assert [record[0] for record in found[1]] == [1, 2, 3, 5, 6, 7]
    assert [gap.reason for gap in found[0].gaps] == ["torn", "unsynced"]
    assert image(Bench(left.after_crash(Mode.DROP, 0), FAR).store)[1] == found


@pytest.mark.parametrize("taken", [1024, 2048])  # of the next run's file: its beginning, or all
def test_what_a_start_gave_up_stays_given_up_where_the_next_file_lost_its_beginning(
    taken: int,
) -> None:
    options = replace(FAR, wal_file_bytes=8192, entry_bytes=700, nonce=11)
    disk = FakeDisk()
    bench = Bench(disk, options)
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    disk.crash_at = disk.calls + 2  # inside a batch of three entries
    bench.append(log, [bytes(500)] * 3)
    with pytest.raises(Crashed):
        bench.run()
    left = disk.after_crash(Mode.KILL, 0)
    bench = Bench(left, replace(options, nonce=12))
    again = bench.store.create_log(1, Durability.DISK)
    assert bench.append(again, [bytes(500)] * 3)[0] == 2
    bench.run()
    left = left.after_crash(Mode.KEEP, 0)
    left.boots += 1
    wal_node(left, 2)[:taken] = bytes(taken)
    found = image(Bench(left, replace(options, nonce=13)).store)[1]
    assert [record[0] for record in found[1]] == [1]


def test_a_wal_that_lost_all_its_files_to_a_power_cut_gives_no_sequence_again() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    for _ in range(2):
        bench.store.checkpoint({})
        bench.run()
    fill(bench, log, 1)
    bench.store.checkpoint({})
    bench.run()
    _, answer = bench.append(log, [b"acknowledged, and nowhere stable"])
    bench.run()
    assert answer == [None]
    left = disk.after_crash(Mode.DROP, 0)
    for path, node in left.names.items():
        if "/wal/" in path and node is not None:
            node.data[:] = bytes(len(node.data))
    again = Bench(left, FAR).store.log(1)
    assert isinstance(again, FileLog)
    assert again.next_seq > 3


def test_a_kill_is_no_power_cut_where_a_shard_was_never_written_to() -> None:
    disk = FakeDisk()
    bench = Bench(disk, replace(FAR, shards=2))
    log_id = next(i for i in range(1, 20) if shard_number(i, 2) == 0)
    log = bench.store.create_log(log_id, Durability.DISK)
    bench.append(log, [b"one"])
    bench.run()
    for committer in bench.store.shards.committers:
        committer._prepare()  # an empty file in each shard, as the thread makes it
    again = Bench(disk.after_crash(Mode.KEEP, 0), replace(FAR, shards=2)).store.log(log_id)
    assert isinstance(again, FileLog)
    assert (again.gaps, again.next_seq) == ([], 2)


class VisitedFile(OsFile):
    """Lets somebody in while it is being synced."""

    def __init__(self, fd: int, files: "VisitedFiles") -> None:
        super().__init__(fd)
        self._files = files

    def sync(self) -> None:
        visit, self._files.visit = self._files.visit, None
        if visit is not None:
            visit()
        super().sync()


class VisitedFiles(OsFiles):
    visit: Callable[[], None] | None = None

    def open(self, path: str, create: bool = False) -> OsFile:
        return VisitedFile(self.open_fd(path, create), self)


def test_a_file_that_a_sync_has_in_its_hands_is_not_closed_by_a_checkpoint(tmp_path: Path) -> None:
    files = VisitedFiles()
    bench = Bench(files, FAR, directory=str(tmp_path / "data"))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    (committer,) = bench.store.shards.committers

    def rotate() -> None:
        committer._prepare()
        _, answer = bench.append(log, [LARGE])
        bench.deliver()  # the loop writes it
        assert answer == [None]

    def meanwhile() -> None:
        rotate()  # which retires the file that the sync comes to next
        for _ in range(2):
            bench.store.checkpoint({})
            bench.deliver()

    rotate()
    files.visit = meanwhile
    bench.clock.advance(2e9)
    assert committer.step()
    bench.deliver()
    assert bench.store.health() == []
    _, answer = bench.append(log, [b"more"])
    bench.run()
    assert answer == [None]
    bench.close()


def seal_by_age(bench: Bench) -> None:
    bench.clock.advance(4000)
    bench.store.tick()
    bench.run()


def test_what_a_start_gave_up_no_later_start_takes_from_a_segment_file() -> None:
    disk = FakeDisk()
    bench, log = begun(disk)
    seal_by_age(bench)
    log.skip_to(log.promise.reserved_seq + 1, lambda error: None)
    _, answer = bench.append(log, [b"behind what only the wal tells"])
    bench.run()
    assert answer == [None]
    seal_by_age(bench)
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    del left.names["/data/meta/marks-00.bin"]  # as if nothing of it had been synced
    data = wal_node(left, 1)
    first_record = b"first: pays for the reservation"
    end = data.index(first_record) + len(first_record) + 9
    data[end:] = bytes(len(data) - end)
    first = image(Bench(left, FAR).store)[1]
    assert [record[0] for record in first[1]] == [1]
    later = left.after_crash(Mode.KEEP, 0)
    later.boots += 1
    assert image(Bench(later, FAR).store)[1] == first


def test_a_delete_that_only_a_sealed_file_tells_holds_for_every_start() -> None:
    disk = FakeDisk()
    few = replace(FAR, wal_file_bytes=1 << 16, log=replace(UNFLUSHED, segment_records=2))
    bench = Bench(disk, few)
    log = bench.store.create_log(1, Durability.MEMORY)
    bench.append(log, [b"1", b"2"])
    bench.run()
    log.delete([1, 2], lambda error: None)
    bench.append(log, [b"3", b"4"])
    bench.run()
    tail = bench.store.shards.committers[0]._engine.tail
    log.delete([3], lambda error: None)
    bench.run()
    bench.append(log, [b"5"])  # seals the segment, whose index knows of the delete
    bench.run()
    bench.store.tick()
    bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    data = wal_node(left, 1)
    assert any(data[tail:])
    data[tail:] = bytes(len(data) - tail)  # the power took what told of it in the WAL
    first = [record[0] for record in image(Bench(left, few).store)[1][1]]
    assert 3 not in first
    assert 4 in first
    later = left.after_crash(Mode.KEEP, 0)
    later.boots += 1
    assert [record[0] for record in image(Bench(later, few).store)[1][1]] == first
