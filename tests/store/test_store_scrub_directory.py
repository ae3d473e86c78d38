"""Scrubbing a directory at rest: hot records are read, cold objects are mended from each other."""

from dataclasses import replace

import pytest
from test_store_cold import COLD, OPTIONS, damage, filled, manifest_of, names, settle

from millstream.store.cold.options import ColdOptions
from millstream.store.upkeep.inspect import CLEAN, DAMAGED, UNUSABLE
from millstream.store.upkeep.scrub import Scrubbed, scrub_directory
from support.fake_disk import FakeDisk
from support.store_bench import SEALED, SMALL, Bench, records

pytest.importorskip("pyarrow.parquet")

PLACE = ColdOptions(place="/cold")


def at_rest(compressed: bool = False, twins: str = "plain") -> FakeDisk:
    """Return a disk with cold and hot segments of one log, closed."""
    disk = FakeDisk()
    options = replace(OPTIONS, cold=replace(COLD, twins=twins))
    bench, _ = filled(disk, options, compressed=compressed)
    settle(bench)
    bench.close()
    return disk


def scrubbed(disk: FakeDisk, cold: ColdOptions = PLACE) -> Scrubbed:
    return scrub_directory("/data", disk, cold=cold)


def spoil(disk: FakeDisk, suffix: str) -> str:
    path = next(p for p in names(disk, "/cold") if p.endswith(suffix))
    file = disk.open(path)
    file.pwritev((b"?" * 9,), 200)
    file.sync()
    return path


def test_a_sound_directory_is_sound_and_its_records_are_counted() -> None:
    disk = at_rest()
    report = scrubbed(disk)
    assert (report.status, report.logs, report.records) == (CLEAN, 1, 60)
    assert report.cold_segments > 3
    assert not report.mended


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("suffix", ["00001.data", "00001.parquet", "00001.idx"])
def test_each_form_is_mended_from_the_others(suffix: str, compressed: bool) -> None:
    disk = at_rest(compressed)
    before = disk.content()
    path = spoil(disk, suffix)
    report = scrubbed(disk)
    assert (report.status, report.mended) == (CLEAN, [path.rsplit("/", 1)[1]])
    assert (report.records, report.lost) == (60, [])
    assert disk.content()[path] == before[path] or (compressed and suffix.endswith(".data"))
    assert not scrubbed(disk).mended
    log = Bench(disk, OPTIONS).store.log(1)
    assert log is not None
    assert len(records(log)) == 60


def test_a_twin_made_again_names_its_stream() -> None:
    import io

    import pyarrow.parquet as parquet

    disk = at_rest()
    path = spoil(disk, "00001.parquet")
    scrubbed(disk)
    table = parquet.read_table(io.BytesIO(disk.content()[path]))
    assert set(table["stream"].to_pylist()) == {"ORDERS"}


def test_what_no_form_has_is_named() -> None:
    disk = at_rest(twins="none")
    path = next(p for p in names(disk, "/cold") if p.endswith("00001.data"))
    damage(disk, path, b"000002xx")
    report = scrubbed(disk)
    assert report.status == DAMAGED
    assert [(g.first, g.last, g.reason) for g in report.lost] == [(3, 3, "corruption")]
    assert report.records == 59


def test_rot_here_is_reported_and_left_to_a_repair() -> None:
    disk = FakeDisk()
    bench, _ = filled(disk, SMALL)
    bench.close()
    path = next(p for p in names(disk, "/data/streams") if p.endswith("00001.data"))
    damage(disk, path, b"000002xx")
    report = scrubbed(disk, ColdOptions())
    assert report.status == DAMAGED
    assert any(f"file={path}" in line for line in report.findings)
    assert report.records == 59


def test_cold_history_needs_its_place_and_an_encrypted_directory_its_key() -> None:
    disk = at_rest()
    report = scrubbed(disk, ColdOptions())
    assert (report.status, report.error) == (
        UNUSABLE,
        "some records are in cold history: give --cold PLACE",
    )
    sealed = FakeDisk()
    bench, _ = filled(sealed, SEALED)
    bench.close()
    assert scrubbed(sealed, ColdOptions()).status == UNUSABLE


def test_a_cold_segment_that_no_manifest_names_is_reported() -> None:
    disk = at_rest(twins="none")  # so that only a server knows the stream's name
    spoil(disk, "manifest.json")
    report = scrubbed(disk)
    assert report.status == DAMAGED
    assert any(line.startswith("cold segment in no manifest") for line in report.findings)


def test_a_damaged_manifest_is_made_anew_from_markers_indexes_and_twins() -> None:
    disk = at_rest()
    path = spoil(disk, "manifest.json")
    before = manifest_of(at_rest())
    report = scrubbed(disk)
    assert (report.status, report.records, report.lost) == (CLEAN, 60, [])
    assert report.mended[0] == path.removeprefix("/cold/")
    assert manifest_of(disk) == before
    again = scrubbed(disk)
    assert (again.status, again.mended) == (CLEAN, [])


def test_a_marker_and_a_manifest_that_are_both_damaged_cost_nothing() -> None:
    disk = at_rest()
    spoil(disk, "manifest.json")
    marker = next(p for p in names(disk, "/data/streams") if p.endswith(".cold"))
    file = disk.open(marker)
    file.pwritev((b"?" * 9,), 20)
    file.sync()
    report = scrubbed(disk)
    assert (report.records, report.lost) == (60, [])
    assert manifest_of(disk) == manifest_of(at_rest())
    assert scrubbed(disk).status == CLEAN
