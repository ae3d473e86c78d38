"""The scrub finds rot without a reader, and mends one form of a cold segment from the other."""

from dataclasses import replace

import pytest
from test_store_cold import (
    COLD,
    OPTIONS,
    cold_segments,
    damage,
    filled,
    manifest_of,
    names,
    settle,
)

from millstream.store.cold.scrubs import SCRUB_DELAY
from millstream.store.log.file_log import FileLog
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SEALED, Bench, records

pytest.importorskip("pyarrow.parquet")


def scrub(bench: Bench, log: FileLog) -> None:
    bench.clock.advance(SCRUB_DELAY)
    for _ in range(3 * len(log.segments)):
        bench.clock.advance(1)
        bench.store.tick()
        bench.run()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_segment_is_mended_from_its_twin_and_nothing_is_lost(compressed: bool) -> None:
    disk = FakeDisk()
    bench, log = filled(disk, compressed=compressed)
    before = records(log)
    settle(bench)
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.data"))
    sound = disk.content()[path]
    file = disk.open(path)
    file.pwritev((b"?" * 9,), 200)
    file.sync()
    scrub(bench, log)
    tier = bench.store.cold
    assert (tier.scrubs.mended, tier.scrubs.lost) == (1, 0)
    assert tier.scrubs.scrubbed > len(cold_segments(log))
    assert compressed or disk.content()[path] == sound
    assert records(log) == before
    assert not log.state().gaps
    bench.close()
    again = Bench(disk, OPTIONS).store.log(1)
    assert again is not None
    assert records(again) == before


@pytest.mark.parametrize("compressed", [False, True])
def test_a_reader_that_meets_damage_gets_the_record_from_the_twin(compressed: bool) -> None:
    disk = FakeDisk()
    bench, log = filled(disk, compressed=compressed)
    before = records(log)
    settle(bench)
    bench.close()
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.data"))
    file = disk.open(path)
    file.pwritev((b"?" * 9,), 200)
    file.sync()
    again = Bench(disk, OPTIONS)
    found = again.store.log(1)
    assert found is not None
    assert records(found) == before
    assert not found.state().gaps
    settle(again)  # the scrub has a look at once
    assert again.store.cold.scrubs.mended == 1


def test_a_damaged_twin_is_made_again() -> None:
    disk = FakeDisk()
    bench, log = filled(disk)
    settle(bench)
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.parquet"))
    sound = disk.content()[path]
    file = disk.open(path)
    file.pwritev((b"?" * 9,), 100)
    file.sync()
    scrub(bench, log)
    assert (bench.store.cold.scrubs.mended, bench.store.cold.scrubs.lost) == (1, 0)
    assert disk.content()[path] == sound


def test_what_no_form_has_is_an_exact_gap() -> None:
    disk = FakeDisk()
    bench, log = filled(disk, replace(OPTIONS, cold=replace(COLD, twins="none")))
    settle(bench)
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.data"))
    damage(disk, path, b"000002xx")
    scrub(bench, log)
    assert bench.store.cold.scrubs.lost == 1
    assert [(g.first, g.last, g.reason) for g in log.state().gaps] == [(3, 3, "corruption")]
    assert [r[0] for r in records(log)] == [1, 2, *range(4, 61)]
    killed = Bench(disk.after_crash(Mode.KEEP, 0), OPTIONS).store.log(1)
    assert killed is not None
    assert [(g.first, g.last) for g in killed.state().gaps] == [(3, 3)]  # before any read
    assert killed.count == 59


def test_rot_in_a_hot_segment_is_found_without_a_read() -> None:
    disk = FakeDisk()
    bench, log = filled(disk, replace(OPTIONS, cold=replace(COLD, place="", hot_segments=None)))
    settle(bench)
    path = next(p for p in names(disk, "/data/streams") if p.endswith("00001.data"))
    for segment in log.segments:
        segment.close()
    damage(disk, path, b"000002xx")
    scrub(bench, log)
    assert [(g.first, g.last) for g in log.state().gaps] == [(3, 3)]
    assert bench.store.cold.scrubs.lost == 1


@pytest.mark.parametrize("twins", ["plain", "none"])
@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_server_makes_a_manifest_anew_and_offers_twins_once_they_are_sound(
    how: str, twins: str
) -> None:
    disk = FakeDisk()
    options = replace(OPTIONS, cold=replace(COLD, twins=twins))
    bench, log = filled(disk, options)
    settle(bench)
    before, planned = manifest_of(disk), bench.store.cold_plan(1)
    bench.close()
    path = next(p for p in names(disk, "/cold") if p.endswith("manifest.json"))
    if how == "damaged":
        file = disk.open(path)
        file.pwritev((b"?" * 9,), 100)
        file.sync()
    else:
        disk.unlink(path)
    again = Bench(disk, options)
    found = again.store.log(1)
    assert found is not None
    found.name = "ORDERS"  # as its stream tells it
    again.store.tick()
    again.run()
    assert again.store.cold_plan(1)[0] == []  # nobody vouches for the twins yet
    settle(again)
    assert manifest_of(disk) == before
    assert again.store.cold_plan(1) == planned
    assert records(found) == records(log)
    assert not found.state().gaps


def test_what_was_mended_can_be_withdrawn_after_a_restart() -> None:
    disk = FakeDisk()
    options = replace(SEALED, cold=replace(COLD, twins="all"))  # sealed anew: other bytes
    bench, log = filled(disk, options)
    settle(bench)
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.data"))
    file = disk.open(path)
    file.pwritev((b"?" * 9,), 200)
    file.sync()
    scrub(bench, log)
    assert bench.store.cold.scrubs.mended == 1
    bench.close()
    again = Bench(disk, options)
    found = again.store.log(1)
    assert found is not None
    erased: list[object] = []
    found.delete([2], lambda error: None, erased.append)
    settle(again)
    assert erased == [None]
    assert [record[0] for record in records(found)] == [1, *range(3, 61)]
