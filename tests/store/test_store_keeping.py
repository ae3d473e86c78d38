"""How sealed segments are kept: rewritten when half is dead, under a new key, and read back."""

from dataclasses import replace

import pytest

from millstream.errors import StorageUnusable
from millstream.kernel._batch import Batch
from millstream.store.dump import dump_directory
from millstream.store.file_log import FileLog
from millstream.store.inspect import CLEAN, UNUSABLE, check_directory
from millstream.store.keys import KeyRing
from millstream.store.log import Durability
from support.fake_disk import FakeDisk, Mode
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
    log._killed_at = 1 << 40  # as if the delete were not synced
    bench.store.tick()
    assert [s.head.generation for s in two] == [0, 0]
    log._doomed = (log._doomed[0], log._doomed[1], 1)  # type: ignore[index]
    log._killed_at = 1
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
