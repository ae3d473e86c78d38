"""Cold history in an object store: what works in a directory works there."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from test_store_cold import COLD, OPTIONS, cold_segments, filled, settle

from millstream.errors import NotHere, ObjectsFailed
from millstream.store.cold.manifest import folder
from millstream.store.cold.scrubs import SCRUB_DELAY
from millstream.store.disk.files import OsFiles
from millstream.store.disk.objects import Objects, RemoteObjects, open_objects
from millstream.store.options import StoreOptions
from support.fake_disk import FakeDisk
from support.store_bench import Answer, Bench, records

obstore_store = pytest.importorskip("obstore.store")
RemoteObjects(obstore_store.MemoryStore(), "").names("f")  # its threads stay: not those of a test


def in_bucket(objects: Objects) -> StoreOptions:
    return replace(OPTIONS, cold=replace(COLD, place=objects.place, objects=objects))


@pytest.fixture(params=["memory", "file"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "memory":
        return RemoteObjects(obstore_store.MemoryStore(), "memory:///")
    return open_objects(f"file://{tmp_path}", OsFiles())


def object_names(bucket: Objects) -> list[str]:
    return bucket.names(folder(1))


def test_segments_move_there_and_are_read_back_after_a_restart(bucket: Objects) -> None:
    disk = FakeDisk()
    bench, log = filled(disk, in_bucket(bucket))
    before = records(log)
    settle(bench)
    assert len(cold_segments(log)) > 3
    assert not [p for p in disk.content() if p.endswith(f"{log.segments[0].base_seq:020d}.data")]
    assert records(log) == before
    bench.close()
    again = Bench(disk, in_bucket(bucket)).store.log(1)
    assert again is not None
    assert cold_segments(again) == cold_segments(log)
    assert records(again) == before


def test_a_damaged_object_is_mended_from_its_twin(bucket: Objects) -> None:
    pytest.importorskip("pyarrow.parquet")
    bench, log = filled(FakeDisk(), in_bucket(bucket))
    before = records(log)
    settle(bench)
    name = next(n for n in object_names(bucket) if n.endswith("00001.data"))
    sound = bucket.get(f"{folder(1)}/{name}")
    bucket.put(f"{folder(1)}/{name}", sound[:200] + b"?" * 9 + sound[209:])
    bench.clock.advance(SCRUB_DELAY)
    for _ in range(3 * len(log.segments)):
        bench.clock.advance(1)
        bench.store.tick()
        bench.run()
    assert (bench.store.cold.scrubs.mended, bench.store.cold.scrubs.lost) == (1, 0)
    assert bucket.get(f"{folder(1)}/{name}") == sound
    assert records(log) == before


def test_an_erased_record_leaves_the_bucket_before_the_answer(bucket: Objects) -> None:
    bench, log = filled(FakeDisk(), in_bucket(bucket))
    settle(bench)
    answer: Answer = []
    log.delete([3], lambda error: None, answer.append)
    for _ in range(6):
        bench.run()
        bench.store.tick()
    assert answer == [None]
    held = [bucket.get(f"{folder(1)}/{name}") for name in object_names(bucket)]
    assert not any(b"000002xx" in data for data in held)
    assert [r[0] for r in records(log)] == [1, 2, *range(4, 61)]


def test_what_is_trimmed_and_what_is_dropped_goes_from_the_bucket(bucket: Objects) -> None:
    bench, log = filled(FakeDisk(), in_bucket(bucket))
    settle(bench)
    assert "seg-00000000000000000001.data" in object_names(bucket)
    log.trim(log.segments[1].base_seq, "ttl")
    settle(bench)
    assert "seg-00000000000000000001.data" not in object_names(bucket)
    bench.store.control(17, 1, b"", lambda error: bench.store.drop_log(1))
    settle(bench)
    assert object_names(bucket) == []


class GatedBucket(RemoteObjects):
    """A bucket whose reads wait."""

    gate: threading.Event | None = None

    def get_range(self, name: str, offset: int, size: int) -> bytes:
        if self.gate is not None:
            self.gate.wait(20)
        return super().get_range(name, offset, size)


def test_a_bucket_that_does_not_answer_holds_nobody_up_but_its_readers() -> None:
    bucket = GatedBucket(obstore_store.MemoryStore(), "memory:///")
    disk = FakeDisk()
    bench, _ = filled(disk, in_bucket(bucket))
    settle(bench)
    bench.close()
    bucket.gate = threading.Event()
    threaded = replace(in_bucket(bucket), threads=True)
    waiting = Bench(disk, threaded)
    found = waiting.store.log(1)
    assert found is not None
    try:
        with pytest.raises(NotHere):
            found.read(1, 10, 1 << 20)
        committed = threading.Event()
        waiting.append(found, [b"goes on"])
        for _ in range(2000):
            waiting.deliver()
            if found.committed_seq == 61:
                committed.set()
                break
            committed.wait(0.005)
        assert committed.is_set()
        assert found.read(61, 1, 1 << 20).last_seq == 61
    finally:
        bucket.gate.set()
        waiting.close()


def test_a_bucket_that_fails_is_said_by_health_and_costs_nothing() -> None:
    class Failing(RemoteObjects):
        def put(self, name: str, data: bytes) -> None:
            raise ObjectsFailed(f"{self.place} does not take objects: no such bucket")

    bench, log = filled(FakeDisk(), in_bucket(Failing(obstore_store.MemoryStore(), "memory:///")))
    before = records(log)
    settle(bench)
    assert any("no such bucket" in line for line in bench.store.health())
    assert not cold_segments(log)
    assert records(log) == before
