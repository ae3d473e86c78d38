"""Opening a directory: locks, versions, snapshots, what is refused and what is reported."""

import errno
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable  # noqa: TC003
from pathlib import Path

import pytest

from millstream.clock import SystemClock
from millstream.errors import StorageFull, StorageUnusable
from millstream.store.disk.files import OsFiles
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from support.fake_disk import FakeDisk, Mode
from support.store_bench import Bench, image, records


def content(directory: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def open_real(directory: Path) -> tuple[Store, "queue.SimpleQueue[Callable[[], None]]"]:
    posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    return Store.open(str(directory), OsFiles(), SystemClock(), posted.put), posted


def test_a_second_process_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    still = StoreOptions(threads=False)  # no file is made ahead meanwhile
    store = Store.open(str(tmp_path / "data"), OsFiles(), SystemClock(), print, still)
    try:
        before = content(tmp_path)
        with pytest.raises(StorageUnusable, match="in use by another millstream process"):
            open_real(tmp_path / "data")
        assert content(tmp_path) == before
    finally:
        store.close()
    again, _ = open_real(tmp_path / "data")
    again.close()


@pytest.mark.parametrize("kind", ["/wal-", "/seg-", "/snapshot-", "/marks-"])
def test_a_file_of_a_future_version_is_refused_untouched(kind: str) -> None:
    from xxhash import xxh3_64_intdigest

    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"x"])
    bench.run()
    bench.store.checkpoint({})
    bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    path = next(p for p in left.names if kind in p)
    node = left.names[path]
    assert node is not None
    node.data[8:12] = (9).to_bytes(4, "little")
    at, checked = {
        "/snapshot-": (24, node.data[:24] + node.data[32:]),
        "/marks-": (24, node.data[:24]),
    }.get(kind, (56, node.data[:56]))
    node.data[at : at + 8] = xxh3_64_intdigest(bytes(checked)).to_bytes(8, "little")
    node.sync()
    before = left.content()
    with pytest.raises(StorageUnusable, match="format version 9"):
        Bench(left)
    assert left.content() == before


def three_checkpoints() -> tuple[FakeDisk, Bench]:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    for step in range(3):
        for i in range(8):
            bench.append(log, [b"%d.%d" % (step, i) + b"x" * 400])
            bench.run()
        bench.store.checkpoint({"step": b"%d" % step})
        bench.run()
    bench.append(log, [b"last"])
    bench.run()
    return disk, bench


def test_two_snapshots_are_kept_and_wal_files_below_the_older_one_go() -> None:
    disk, _ = three_checkpoints()
    names = sorted(p.rsplit("/", 1)[1] for p in disk.names if "/meta/" in p or "/wal-" in p)
    assert [n for n in names if n.startswith("snapshot")] == [
        "snapshot-0000000000000002.bin",
        "snapshot-0000000000000003.bin",
    ]
    assert "wal-0000000000000001.log" not in names


def test_a_damaged_snapshot_costs_nothing() -> None:
    disk, bench = three_checkpoints()
    left = disk.after_crash(Mode.DROP, 0)
    node = left.names["/data/meta/snapshot-0000000000000003.bin"]
    assert node is not None
    node.data[40] ^= 1
    node.sync()
    again = Bench(left)
    assert image(again.store) == image(bench.store)
    assert again.store.recovery.sections == {"step": b"1"}


def test_a_start_is_refused_when_the_wal_does_not_reach_back() -> None:
    disk, _ = three_checkpoints()
    left = disk.after_crash(Mode.KEEP, 0)
    for number in (2, 3):
        node = left.names[f"/data/meta/snapshot-{number:016d}.bin"]
        assert node is not None
        node.data[40] ^= 1
        node.sync()
    with pytest.raises(StorageUnusable, match="restore the missing files"):
        Bench(left)


def no_space(call: str, path: str) -> None:
    if call == "preallocate":
        raise OSError(errno.ENOSPC, "no space left")


def test_a_start_without_room_says_how_much_it_needs_and_loses_nothing() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"x" * 500])
    bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    left.hook = no_space
    with pytest.raises(StorageFull, match=r"writes anew .* \d{3} bytes; free some space"):
        Bench(left)
    left.hook = lambda call, path: None
    found = Bench(left).store.log(1)
    assert found is not None
    assert [record[3] for record in records(found)] == [b"x" * 500]


def test_a_damaged_index_is_rebuilt_from_the_data() -> None:
    disk, bench = three_checkpoints()
    left = disk.after_crash(Mode.DROP, 0)
    path = next(p for p in left.names if p.endswith(".idx"))
    node = left.names[path]
    assert node is not None
    node.data[70] ^= 1
    node.sync()
    assert image(Bench(left).store) == image(bench.store)


def test_a_clean_stop_leaves_no_unused_space_behind(tmp_path: Path) -> None:
    for _ in range(3):
        store, posted = open_real(tmp_path / "data")
        answers: list[object] = []
        store.control(16, 1, b"{}", answers.append)
        while not answers:
            posted.get()()
        store.close()
    store, _ = open_real(tmp_path / "data")
    store.close()
    assert sum(p.stat().st_size for p in tmp_path.rglob("wal-*")) < 100 << 20
    assert len(store.recovery.controls) == 3


def test_a_missing_segment_file_is_a_gap_by_name() -> None:
    disk, bench = three_checkpoints()
    left = disk.after_crash(Mode.DROP, 0)
    for path in [p for p in left.names if "seg-00000000000000000001" in p]:
        left.names.pop(path)
    again = Bench(left).store
    log = again.log(1)
    whole = bench.store.log(1)
    assert log is not None
    assert whole is not None
    first = whole.segments[1].base_seq
    assert [(g.first, g.last, g.reason) for g in log.state().gaps] == [(1, first - 1, "corruption")]
    assert records(log) == [r for r in records(whole) if r[0] >= first]
    assert again.recovery.logs[1].lost == first - 1


def test_a_power_cut_never_gives_a_disk_sequence_out_again() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.DISK)
    for _ in range(5):
        bench.append(log, [b"x"])
        bench.run()
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)
    assert again is not None
    assert again.next_seq > 5
    (gap,) = again.state().gaps
    assert gap.reason == "unsynced"
    assert gap.first == len(records(again)) + 1


def test_kill_9_skips_no_sequence() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.DISK)
    for _ in range(5):
        bench.append(log, [b"x"])
        bench.run()
    again = Bench(disk.after_crash(Mode.KEEP, 0)).store.log(1)
    assert again is not None
    assert again.next_seq == 6
    assert again.state().gaps == ()


WRITER = """
import queue, sys, time
from millstream.clock import SystemClock
from millstream.kernel._batch import Batch
from millstream.store.disk.files import OsFiles
from millstream.store.log.log import Durability
from millstream.store.store import Store
posted = queue.SimpleQueue()
store = Store.open(sys.argv[1], OsFiles(), SystemClock(), posted.put)
log = store.create_log(1, Durability(sys.argv[2]))
batch = Batch()
for i in range(20):
    batch.add(b"s", b"", b"", b"payload %d" % i)
acked = lambda last: lambda error: print(last, flush=True)
while True:
    log.append(batch, 0, 20, time.time_ns(), acked(log.next_seq + 19))
    posted.get()()
    while not posted.empty():
        posted.get()()
"""


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path, durability: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "data"), durability], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    last = 0
    deadline = time.monotonic() + 20
    while last < 400 and time.monotonic() < deadline:
        last = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.stdout.close()
    writer.wait()
    last = max([last, *(int(n) for n in rest[:-1])])
    store, _ = open_real(tmp_path / "data")
    try:
        log = store.log(1)
        assert log is not None
        found = records(log)
        assert [r[0] for r in found] == list(range(1, len(found) + 1))
        assert len(found) >= last >= 400
        assert len(found) % 20 == 0
        assert all(r[3] == b"payload %d" % ((r[0] - 1) % 20) for r in found)
    finally:
        store.close()
