"""How sealed segments are kept: rewritten when half is dead, under a new key, and read back."""

import errno
from dataclasses import replace

import pytest

from millstream.errors import StorageFull, StorageUnusable
from millstream.kernel._batch import Batch
from millstream.store.disk.keys import KeyRing
from millstream.store.log.file_log import FileLog, LogOptions
from millstream.store.log.log import Durability
from millstream.store.segments.tags import RUNS, STRETCH
from millstream.store.upkeep.dump import dump_directory
from millstream.store.upkeep.inspect import CLEAN, UNUSABLE, check_directory
from support.fake_disk import FakeDisk, FakeFile, Mode
from support.store_bench import FORMS, SEALED, SMALL, Answer, Bench, image, records

COMPRESSED = ("compressed", "both")


def filled(form: str, count: int = 30) -> tuple[FakeDisk, Bench, FileLog]:
    disk = FakeDisk()
    bench = Bench(disk, FORMS[form])
    log = bench.store.create_log(1, Durability.FSYNC, form in COMPRESSED)
    for i in range(count):
        bench.append(log, [b"record %03d " % i + b"x" * 60], b"s.%d" % (i % 3))
        bench.run()
    bench.store.tick()
    bench.run()
    return disk, bench, log


@pytest.mark.parametrize("form", FORMS)
def test_a_segment_above_the_dead_ratio_gives_its_space_back(form: str) -> None:
    disk, bench, log = filled(form)
    segment = log.segments[0]
    before = len(disk.content()[segment.path])
    doomed = [seq for seq in range(segment.base_seq, segment.last_seq) if seq % 4]
    expected = [r for r in records(log) if r[0] not in doomed]
    answer: Answer = []
    log.delete(doomed, answer.append)
    bench.run()
    state = log.state()
    for _ in range(3):
        bench.store.tick()
        bench.run()
    assert len(disk.content()[segment.path]) < before
    assert len(segment.index) == segment.index.live
    assert records(log) == expected
    assert log.state() == state
    again = Bench(disk.after_crash(Mode.DROP, 1), FORMS[form])
    found = again.store.log(1)
    assert found is not None
    assert records(found) == expected
    assert image(again.store)[1][0] == state


def test_one_segment_at_a_time_is_rewritten_and_only_once_its_deletes_are_stable() -> None:
    _disk, bench, log = filled("plain")
    two = [log.segments[0], log.segments[1]]
    doomed = [seq for s in two for seq in range(s.base_seq, s.last_seq)]
    log.delete(doomed, lambda error: None)
    bench.run()
    log.compaction.killed_at = 1 << 40  # as if the delete were not synced
    bench.store.tick()
    assert [s.head.generation for s in two] == [0, 0]
    rewrites = log.compaction
    rewrites._doomed = (rewrites._doomed[0], rewrites._doomed[1], 1)  # type: ignore[index]
    rewrites.killed_at = 1
    bench.store.tick()
    assert sorted(s.head.generation for s in two) == [0, 1]
    bench.store.tick()
    bench.store.tick()
    assert [s.head.generation for s in two] == [1, 1]


def test_a_new_key_takes_over_by_rewriting() -> None:
    disk, bench, log = filled("sealed")
    expected = records(log)
    bench.store.checkpoint({})
    bench.run()
    bench.close()
    old, new = b"a secret of the tests", b"the next secret"
    turned = Bench(disk, replace(SMALL, ring=KeyRing(new, [old])))
    for _ in range(9):
        turned.store.tick()
        turned.run()
        turned.store.checkpoint({})
        turned.run()
    found = turned.store.log(1)
    assert found is not None
    assert records(found) == expected
    assert {s.head.key_id for s in found.segments if s.sealed} == {KeyRing(new).key_id}
    turned.close()
    assert [s.sealed for s in found.segments].count(True) >= 3


def test_plain_files_are_sealed_once_there_is_a_key() -> None:
    disk, bench, log = filled("plain")
    expected = records(log)
    bench.close()
    turned = Bench(disk, SEALED)
    for _ in range(9):
        turned.store.tick()
        turned.run()
        turned.store.checkpoint({})
        turned.run()
    found = turned.store.log(1)
    assert found is not None
    assert records(found) == expected
    content = {p: d for p, d in disk.content().items() if p.endswith((".data", ".idx"))}
    assert not any(b"record 0" in data for data in content.values())


@pytest.mark.parametrize(
    ("ring", "why"),
    [(KeyRing(), "no key was given"), (KeyRing(b"wrong"), "another key was given")],
)
@pytest.mark.parametrize("checkpoints", [0, 1])
def test_without_its_key_a_directory_is_refused_untouched(
    ring: KeyRing, why: str, checkpoints: int
) -> None:
    disk, bench, _ = filled("sealed")
    for _ in range(checkpoints):
        bench.store.checkpoint({})
        bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    before = left.content()
    with pytest.raises(StorageUnusable, match=why + ".*set jetstream { key }"):
        Bench(left, replace(SMALL, ring=ring))
    assert left.content() == before
    report = check_directory("/data", left, ring)
    assert report.status == UNUSABLE
    assert why in report.error


@pytest.mark.parametrize("form", FORMS)
def test_fsck_and_dump_read_every_form(form: str) -> None:
    disk, bench, _log = filled(form)
    bench.store.checkpoint({})
    bench.run()
    ring = FORMS[form].ring
    report = check_directory("/data", disk.after_crash(Mode.KEEP, 0), ring)
    assert (report.status, report.records, report.findings) == (CLEAN, 30, [])
    items = list(dump_directory("/data", disk, ring))
    assert {i["seq"] for i in items if i["kind"] == "record"} == set(range(1, 31))
    assert any(i["kind"] == "block" for i in items) == (form != "plain")


def test_spark_is_not_shown_files_that_it_cannot_read() -> None:
    _, bench, _ = filled("plain")
    assert len(bench.store.plan(1)) >= 3
    for form in ("compressed", "sealed", "both"):
        _, bench, _ = filled(form)
        assert bench.store.plan(1) == []


@pytest.mark.parametrize("form", FORMS)
def test_tags_are_found_exactly_and_by_prefix(form: str) -> None:
    disk = FakeDisk()
    bench = Bench(disk, FORMS[form])
    log = bench.store.create_log(1, Durability.FSYNC, form in COMPRESSED)
    for i in range(40):
        batch = Batch()
        tag = b"" if i % 5 == 4 else b"job:%d" % (i % 12)
        batch.add(b"s", b"", b"", b"x" * 50, tag)
        log.append(batch, 0, 1, bench.clock.time_ns(), lambda error: None)
        bench.run()
        if i in (7, 22):
            assert log.by_tag(b"job:1") == [n + 1 for n in range(i + 1) if n in (1, 13)]
    tagged = {i + 1: b"job:%d" % (i % 12) for i in range(40) if i % 5 != 4}
    for tag in (b"job:1", b"job:11", b"job:", b"nothing", b"job:12"):
        assert log.by_tag(tag) == [s for s, t in tagged.items() if t == tag]
        assert log.by_tag(tag, is_prefix=True) == [
            s for s, t in tagged.items() if t.startswith(tag)
        ]
    assert log.by_tag(b"job:", True, below=10) == [s for s in tagged if s < 10]
    log.delete([2, 14], lambda error: None)
    bench.run()
    for _ in range(2):
        bench.store.tick()
        bench.run()
    assert log.by_tag(b"job:1") == [26, 38]
    again = Bench(disk.after_crash(Mode.KEEP, 0), FORMS[form]).store.log(1)
    assert again is not None
    assert again.by_tag(b"job:1") == [26, 38]


def test_a_growing_segment_of_nothing_but_dead_records_gives_its_file_back() -> None:
    disk = FakeDisk()
    roomy = replace(SMALL, log=LogOptions(), wal_file_bytes=4 << 20)
    bench = Bench(disk, roomy)
    log = bench.store.create_log(1, Durability.FSYNC)
    for _ in range(3):
        bench.append(log, [b"x" * (400 << 10)])
        bench.run()
    log.trim(log.next_seq, "delete")
    bench.run()
    bench.store.tick()
    bench.run()
    bench.append(log, [b"lives"])
    bench.run()
    bench.store.tick()
    bench.run()
    files = [p for p in disk.content() if "/streams/" in p]
    assert [p[-25:-5] for p in files] in ([], ["00000000000000000004"])
    again = Bench(disk.after_crash(Mode.DROP, 0), roomy).store.log(1)
    assert again is not None
    assert [r[0] for r in records(again)] == [4]


def test_a_wal_on_a_small_disk_is_set_free_sooner() -> None:
    disk = FakeDisk()
    bench = Bench(disk, replace(SMALL, wal_file_bytes=1 << 20))
    log = bench.store.create_log(1, Durability.FSYNC)
    disk.free = 16 << 20

    def grow() -> bool:
        bench.append(log, [b"x" * (600 << 10)])
        bench.run()
        return bench.store.checkpoint_due

    assert [grow() for _ in range(4)] == [False, False, False, True]
    disk.free = 1 << 40
    assert not bench.store.checkpoint_due


def test_a_snapshot_waits_for_whoever_waited_for_a_control_frame() -> None:
    disk = FakeDisk()
    bench = Bench(disk, SMALL)
    known: list[bytes] = []

    def sections() -> dict[str, bytes]:
        return {"names": b",".join(known)}

    def done(error: object) -> None:
        bench.store.post(lambda: known.append(b"S"))  # as a task that is woken: in its own turn
        bench.store.checkpoint_soon(sections)  # as a timer that is due just now

    bench.store.control(16, 1, b"S", done)
    bench.run()
    again = Bench(disk.after_crash(Mode.DROP, 0), SMALL).store.recovery
    assert again.sections == {"names": b"S"}
    assert not again.controls  # the snapshot covers it


def test_a_full_disk_asks_for_snapshots_until_the_wal_is_short() -> None:
    disk = FakeDisk()
    bench = Bench(disk, SMALL)
    log = bench.store.create_log(1, Durability.FSYNC)
    for _ in range(8):
        bench.append(log, [b"x" * 900])
        bench.run()
    assert not bench.store.checkpoint_due
    refused: list[str] = []

    def refuse(call: str, path: str) -> None:
        if call == "create" and "/wal-" in path:
            refused.append(path)
            raise OSError(errno.ENOSPC, "no space left on device")

    disk.hook = refuse
    while not refused:
        bench.append(log, [b"x" * 900])
        bench.run()
    disk.hook = lambda call, path: None
    before = len([p for p in disk.content() if "/wal-" in p])
    for _ in range(3):
        bench.clock.advance(2)
        if bench.store.checkpoint_due:
            bench.store.checkpoint({})
            bench.run()
    assert len([p for p in disk.content() if "/wal-" in p]) < before
    _, answer = bench.append(log, [b"room"])
    bench.run()
    assert answer == [None]
    bench.clock.advance(2)
    assert not bench.store.checkpoint_due


def test_a_segment_file_that_cannot_be_made_is_closed_again() -> None:
    class Counting(FakeDisk):
        """Counts the files that are open."""

        opened = closed = 0

        def open(self, path: str, create: bool = False) -> FakeFile:
            file = super().open(path, create)
            if not path.endswith(".data"):
                return file
            self.opened += 1
            close = file.close

            def closing() -> None:
                self.closed += 1
                close()

            file.close = closing  # type: ignore[method-assign]
            return file

    def refuse(call: str, path: str) -> None:
        if call == "write" and path.endswith(".data"):
            raise OSError(errno.ENOSPC, "no space left on device")

    disk = Counting()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    disk.hook = refuse
    for _ in range(8):
        bench.append(log, [b"x" * 300])
        bench.run()
        bench.store.tick()
    assert disk.opened == disk.closed > 3
    disk.hook = lambda call, path: None
    bench.store.tick()
    assert disk.opened == disk.closed + 1
    assert len(records(log)) == 8


def test_the_wal_leaves_room_for_the_snapshot_that_sets_it_free() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)

    def written() -> Answer:
        _, answer = bench.append(log, [b"x" * 900])
        bench.run()
        return answer

    while bench.store.shards.in_use[0].engine.index < 2:
        written()
    disk.free = 1 << 20
    refused = next(answer for answer in iter(written, None) if answer != [None])
    assert isinstance(refused[0], StorageFull)
    for _ in range(2):
        bench.clock.advance(2)
        assert bench.store.checkpoint_due
        bench.store.checkpoint({})
        bench.run()
    assert not bench.store.checkpoint_due
    assert len([p for p in disk.content() if "/wal-" in p]) == 1
    assert written() == [None]


def grown(disk: FakeDisk) -> tuple[Bench, FileLog]:
    """Return a log whose first segment has grown by several blocks, and no snapshot of it."""
    bench = Bench(disk, SEALED)
    log = bench.store.create_log(1, Durability.FSYNC)
    for i in range(3):
        bench.append(log, [b"record %03d " % i + b"x" * 500])
        bench.run()
    assert len(log.segments) == 1
    assert len(log.segments[0].table) > 1
    return bench, log


def test_a_sealed_file_goes_on_only_behind_blocks_that_follow_each_other() -> None:
    disk = FakeDisk()
    bench, log = grown(disk)
    expected = records(log)
    ref = next(iter(log.segments[0].table))
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    node = left.names[log.segments[0].path]
    assert node is not None
    node.data[ref.at : ref.at + 64] = bytes(64)  # never synced: a power cut took its header
    bench = Bench(left, SEALED)
    found = bench.store.create_log(1, Durability.FSYNC)
    bench.append(found, [b"y" * 520])  # enough to be flushed
    bench.run()
    assert records(found)[:-1] == expected
    assert not found.gaps


def test_a_sealed_file_whose_sync_failed_is_not_trusted_by_the_next_start() -> None:
    disk = FakeDisk()
    bench, log = grown(disk)
    expected = records(log)
    disk.failures[disk.calls + 1] = OSError(errno.EIO, "input/output error")
    bench.store.checkpoint({})
    bench.run()
    assert log.segments[0].failed
    left = disk.after_crash(Mode.KEEP, 0)  # the page cache still shows what the disk never got
    bench = Bench(left, replace(SEALED, wal_file_bytes=512))
    for _ in range(3):  # as often as it takes for the WAL to go
        bench.append(bench.store.create_log(1, Durability.FSYNC), [b"more"])
        bench.run()
        bench.store.checkpoint({})
        bench.run()
    after = Bench(left.after_crash(Mode.DROP, 0), SEALED).store.log(1)
    assert isinstance(after, FileLog)
    assert records(after)[: len(expected)] == expected
    assert not after.gaps


def test_a_search_by_tag_reads_a_stretch_at_a_time() -> None:
    bench = Bench(FakeDisk(), replace(SMALL, log=LogOptions(), wal_file_bytes=4 << 20))
    log = bench.store.create_log(1, Durability.FSYNC)
    for _ in range(6):
        batch = Batch()
        for i in range(2000):
            batch.add(b"s", b"", b"", b"x", b"tag:%d" % (i % 3))
        log.append(batch, 0, len(batch), bench.clock.time_ns(), lambda error: None)
        bench.run()
    largest, steps, at, found = 0, 0, 0, []
    while at is not None:
        before = log._tags[1]._read if 1 in log._tags else 0
        some, at = log.some_by_tag(b"tag:1", False, at, 1 << 63)
        largest = max(largest, log._tags[1]._read - before)
        assert len(some) <= RUNS * STRETCH
        steps += 1
        found += some
    assert found == [i + 1 for i in range(12_000) if i % 2000 % 3 == 1]
    assert steps >= 12
    assert largest <= STRETCH
    assert log.by_tag(b"tag:1") == found
