"""Cold history: segments move, stay readable, and are whole at every step of the way."""

import errno
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from millstream.clock import ManualClock
from millstream.errors import ColdUnavailable, MillstreamError, NotHere
from millstream.kernel._batch import Batch
from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold.manifest import Manifest
from millstream.store.cold.options import ColdOptions
from millstream.store.disk.files import Files
from millstream.store.disk.objects import DirectoryObjects, open_objects
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from support.fake_disk import FakeDisk
from support.store_bench import SEALED, SMALL, Answer, Bench, records

COLD = ColdOptions(place="/cold", hot_segments=1)
OPTIONS = replace(SMALL, cold=COLD)


def filled(
    disk: Files, options: StoreOptions = OPTIONS, count: int = 60, compressed: bool = False
) -> tuple[Bench, FileLog]:
    bench = Bench(disk, options)
    log = bench.store.create_log(1, Durability.FSYNC, compressed)
    log.name = "ORDERS"
    for n in range(count):
        bench.append(log, [b"%06d" % n + b"x" * 50], b"s.%d" % (n % 3))
        bench.run()
    return bench, log


def settle(bench: Bench) -> None:
    """Seal, checkpoint twice, and let the mover do what there is to do."""
    for _ in range(3):
        bench.store.tick()
        bench.run()
        bench.store.checkpoint({})
        bench.run()
    for _ in range(20):
        bench.store.tick()
        bench.run()


def cold_segments(log: FileLog) -> list[int]:
    return [s.base_seq for s in log.segments if s.cold is not None]


def names(disk: FakeDisk, under: str) -> list[str]:
    return [path for path in disk.content() if path.startswith(under)]


def manifest_of(disk: FakeDisk) -> Manifest:
    found = cold_manifest.load(open_objects("/cold", disk), 1)
    assert found is not None
    return found


FORMS = {
    "plain": (OPTIONS, False),
    "compressed": (OPTIONS, True),
    "sealed": (replace(SEALED, cold=COLD), False),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_moved_is_read_as_before_and_after_a_restart(form: str) -> None:
    disk = FakeDisk()
    options, compressed = FORMS[form]
    bench, log = filled(disk, options, compressed=compressed)
    before = records(log)
    settle(bench)
    moved = cold_segments(log)
    assert len(moved) >= 3
    assert len([s for s in log.segments if s.sealed and s.cold is None]) == 1
    assert not [p for p in names(disk, "/data/streams") if p.endswith(".data")][2:]
    assert records(log) == before
    bench.close()
    again = Bench(disk, options)
    found = again.store.log(1)
    assert found is not None
    assert cold_segments(found) == moved
    assert records(found) == before
    assert found.state() == log.state()
    again.close()


def test_without_a_bound_nothing_moves() -> None:
    disk = FakeDisk()
    bench, log = filled(disk, replace(SMALL, cold=ColdOptions(place="/cold")))
    settle(bench)
    assert not cold_segments(log)
    assert not names(disk, "/cold/0")


def test_bytes_decide_what_stays_hot() -> None:
    disk = FakeDisk()
    bench, log = filled(disk, replace(SMALL, cold=ColdOptions(place="/cold", hot_bytes=2500)))
    settle(bench)
    hot = [s for s in log.segments if s.sealed and s.cold is None]
    assert cold_segments(log)
    assert sum(s.size for s in hot) <= 2500


def test_a_log_that_must_stay_hot_does_and_so_do_young_records() -> None:
    bench, log = filled(FakeDisk())
    log.stays_hot = True
    settle(bench)
    assert not cold_segments(log)
    log.stays_hot, log.hot_ns = False, 60 * 10**9
    settle(bench)
    assert not cold_segments(log)
    bench.clock.advance(61)
    settle(bench)
    assert cold_segments(log)


def test_the_manifest_names_every_file_and_what_of_it_is_deleted() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    first = manifest_of(disk)
    assert first.stream == "ORDERS"
    assert [f.base_seq for f in first.files] == cold_segments(log)
    assert [f.records for f in first.files] == [8] * len(first.files)
    assert first.deleted == []
    log.delete([3, 4], lambda error: None)
    bench.run()
    assert [r[0] for r in records(log)][:3] == [1, 2, 5]
    settle(bench)
    assert manifest_of(disk).deleted == [(3, 4)]


def test_a_trim_removes_cold_files_and_a_drop_all_of_them() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    log.trim(17, "ttl")
    bench.run()
    settle(bench)
    assert min(f.base_seq for f in manifest_of(disk).files) == 17
    assert not [p for p in names(disk, "/cold") if "00000000000001." in p]
    assert records(log)[0][0] == 17
    bench.store.drop_log(1)
    bench.run()
    assert not names(disk, "/cold/0")


def test_an_erase_leaves_nothing_at_the_cold_place() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    assert any(b"000002" in data for path, data in disk.content().items() if "/cold" in path)
    answer: Answer = []
    log.delete([3], lambda error: None, answer.append)
    bench.run()
    assert answer == [None]
    assert not any(b"000002xx" in data for data in disk.content().values())
    settle(bench)
    assert 1 in cold_segments(log)  # it moves again, without the record
    assert not any(b"000002xx" in data for data in disk.content().values())
    assert [r[0] for r in records(log)] == [1, 2, *range(4, 61)]


def test_a_damaged_record_at_the_cold_place_is_one_gap() -> None:
    disk = FakeDisk()
    options = replace(OPTIONS, cold=replace(COLD, twins="none"))
    bench, _ = filled(disk, options)
    settle(bench)
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.data"))
    damage(disk, path, b"000002")
    bench.close()
    again = Bench(disk, options)
    found = again.store.log(1)
    assert found is not None
    assert [r[0] for r in records(found)] == [1, 2, *range(4, 61)]
    assert [(g.first, g.last, g.reason) for g in found.state().gaps] == [(3, 3, "corruption")]


def damage(disk: FakeDisk, path: str, mark: bytes) -> None:
    file = disk.open(path)
    at = disk.content()[path].index(mark)
    file.pwritev((b"?",), at)
    file.sync()
    file.close()


def test_a_damaged_index_comes_from_the_cold_place() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    before = records(log)
    settle(bench)
    bench.close()
    path = next(p for p in names(disk, "/data/streams") if p.endswith("00001.idx"))
    file = disk.open(path)
    file.pwritev((b"????",), 70)
    file.sync()
    file.close()
    again = Bench(disk, OPTIONS)
    found = again.store.log(1)
    assert found is not None
    assert records(found) == before


def test_without_the_cold_place_only_its_range_fails() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    moved = cold_segments(log)
    bench.close()
    again = Bench(disk, SMALL)
    found = again.store.log(1)
    assert found is not None
    with pytest.raises(ColdUnavailable, match="--cold"):
        found.read(1, 10, 1 << 20)
    hot = next(s.base_seq for s in found.segments if s.cold is None)
    assert found.read(hot, 1, 1 << 20).first_seq == hot
    assert len(moved) > 1
    again.append(found, [b"new"])
    again.run()
    assert found.state().last_seq == 61


class Slow(DirectoryObjects):
    """A cold place whose reads wait for an event, or fail."""

    def __init__(self, files: Files) -> None:
        super().__init__(files, "/cold")
        self.open = threading.Event()
        self.open.set()
        self.error: MillstreamError | None = None

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        assert self.open.wait(20)
        if self.error is not None:
            raise self.error
        return super().get_range(name, offset, size)


class Loop:
    """Callbacks from other threads, run here."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._calls: list[Callable[[], None]] = []

    def post(self, call: Callable[[], None]) -> None:
        with self._arrived:
            self._calls.append(call)
            self._arrived.notify()

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            with self._arrived:
                assert self._arrived.wait_for(lambda: self._calls, 20)
                calls, self._calls = self._calls, []
            for call in calls:
                call()


def test_a_cold_place_that_hangs_holds_up_only_those_who_read_from_it() -> None:
    disk = FakeDisk()
    bench, _ = filled(disk)
    settle(bench)
    bench.close()
    slow, loop, clock = Slow(disk), Loop(), ManualClock()
    options = replace(OPTIONS, threads=True, cold=replace(COLD, objects=slow))
    store = Store.open("/data", disk, clock, loop.post, options)
    found = store.log(1)
    assert found is not None
    slow.open.clear()
    missing = caught(found, 1)
    told: Answer = []
    missing.wait(told.append)
    hot = next(s.base_seq for s in found.segments if s.cold is None)
    assert found.read(hot, 1, 1 << 20).first_seq == hot
    for n in range(30):  # appends, seals and checkpoints go on
        batch = Batch()
        batch.add(b"s", b"", b"", b"%d" % n + b"y" * 300)
        answer: Answer = []
        found.append(batch, 0, 1, clock.time_ns(), answer.append)
        loop.until(lambda answer=answer: answer == [None])  # type: ignore[misc]
        assert found.read(61 + n, 1, 1 << 20).first_seq == 61 + n
        store.tick()
    store.checkpoint({})

    def all_sealed() -> bool:
        store.tick()  # a segment that was busy is sealed with a later one
        return all(s.sealed for s in found.segments[:-1])

    loop.until(all_sealed)
    assert not told
    clock.advance(11)
    store.tick()  # it says so rather than let a reader wait for ever
    assert isinstance(told[0], ColdUnavailable)
    assert "does not answer" in store.health()[0] or "cold history" in store.health()[0]
    slow.open.set()
    arrived: Answer = []
    caught(found, 1).wait(arrived.append)
    loop.until(lambda: bool(arrived))
    assert read_all(found, loop) == list(range(1, 91))
    assert not store.health()
    store.close()


def caught(log: FileLog, seq: int) -> NotHere:
    with pytest.raises(NotHere) as missing:
        log.read(seq, 1, 1 << 20)
    return missing.value


def read_all(log: FileLog, loop: Loop) -> list[int]:
    found: list[int] = []
    seq = 1
    while True:
        try:
            frames = log.read(seq, 1000, 1 << 20)
        except NotHere as missing:
            arrived: Answer = []
            missing.wait(arrived.append)
            loop.until(lambda arrived=arrived: bool(arrived))  # type: ignore[misc]
            assert arrived == [None]
            continue
        if not len(frames):
            return found
        found += [frames.seq(at) for at in range(len(frames))]
        seq = frames.last_seq + 1


def test_a_cold_place_that_fails_is_named_and_tried_again() -> None:
    disk = FakeDisk()
    bench, _ = filled(disk)
    settle(bench)
    bench.close()
    slow = Slow(disk)
    again = Bench(disk, replace(OPTIONS, cold=replace(COLD, objects=slow)))
    found = again.store.log(1)
    assert found is not None
    slow.error = MillstreamError("no such bucket")
    with pytest.raises(ColdUnavailable):
        found.read(1, 1, 1 << 20)
    assert "no such bucket" in again.store.health()[0]
    slow.error = None
    assert found.read(1, 1, 1 << 20).first_seq == 1
    assert not again.store.health()
    again.close()


class Full(DirectoryObjects):
    """A place without room for as long as a test says so; a write leaves its beginning there."""

    def __init__(self, files: Files, full_for: str) -> None:
        super().__init__(files, "/cold")
        self.full_for = full_for
        self.is_full = True
        self.refused = 0

    def put(self, name: str, data: bytes) -> None:
        if self.is_full and name.endswith(self.full_for):
            self.refused += 1
            super().put(f"{name}.tmp", data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put(name, data)


@pytest.mark.parametrize("full_for", ["", ".data", ".idx", cold_manifest.NAME])
def test_a_full_cold_place_is_named_and_tried_again_and_nothing_is_lost(full_for: str) -> None:
    disk = FakeDisk()
    place = Full(disk, full_for)
    bench, log = filled(disk, replace(OPTIONS, cold=replace(COLD, objects=place)))
    before = records(log)
    settle(bench)
    assert place.refused > 1  # again and again
    assert not cold_segments(log)
    (reason,) = bench.store.health()
    assert "is full (No space left on device)" in reason
    assert records(log) == before
    bench.close()
    again = Bench(disk, replace(OPTIONS, cold=replace(COLD, objects=place)))
    found = again.store.log(1)
    assert found is not None
    assert records(found) == before
    place.is_full = False
    settle(again)
    assert len(cold_segments(found)) >= 3
    assert not again.store.health()
    assert records(found) == before
    again.close()


def test_two_data_directories_never_share_a_cold_place() -> None:
    disk = FakeDisk()
    bench, _ = filled(disk)
    settle(bench)
    bench.close()
    other = Bench(disk, OPTIONS, directory="/other")
    log = other.store.create_log(1, Durability.FSYNC)
    for n in range(60):
        other.append(log, [b"%d" % n + b"x" * 50])
        other.run()
    settle(other)
    assert not cold_segments(log)
    assert "another data directory" in other.store.health()[0]
    other.close()


def test_a_plan_names_twins_without_a_hole_and_what_of_them_is_gone() -> None:
    pytest.importorskip("pyarrow.parquet")
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    log.delete([2], lambda error: None)
    bench.run()
    files, deleted = bench.store.cold_plan(1)
    assert [f.base_seq for f in files] == cold_segments(log)
    assert all(f.path.startswith("/cold/") and f.path.endswith(".parquet") for f in files)
    assert deleted == [(2, 2)]
    assert all(p.base_seq > files[-1].last_seq for p in bench.store.plan(1))
    assert bench.store.plan(1)
