"""What fsck and dump say of a damaged directory is what the next start says."""

import random
from typing import Any

import pytest
from test_bit_flips import filled, lost

from millstream.store.upkeep.dump import dump_directory
from millstream.store.upkeep.inspect import CLEAN, DAMAGED, UNUSABLE, check_directory
from support.fake_disk import FakeDisk
from support.scale import count
from support.store_bench import Bench, records


@pytest.mark.parametrize("checkpoints", [0, 2])
def test_fsck_reports_exactly_what_a_recovery_reports_and_changes_nothing(
    checkpoints: int,
) -> None:
    disk = filled(checkpoints)
    rng = random.Random(checkpoints)
    places = [(p, o) for p, d in disk.content().items() for o in range(len(d)) if any(d[o:])]
    damaged = 0
    tried = rng.sample(places, count(150, 2000))
    for path, offset in tried:
        flipped = disk.copy()
        node = flipped.names[path]
        assert node is not None
        node.data[offset] ^= 1 << rng.randrange(8)
        node.sync()
        before = flipped.content()
        report = check_directory("/data", flipped)
        assert flipped.content() == before
        bench = Bench(flipped)
        for log_id in bench.store.log_ids():
            found = bench.store.log(log_id)
            assert found is not None
            records(found)
        named = {(int(g.log_id, 16), s) for g in report.lost for s in range(g.first, g.last + 1)}
        assert named == lost(bench), (path, offset)
        assert report.status == DAMAGED if named else report.status in (CLEAN, DAMAGED)
        damaged += report.status == DAMAGED
    print(f"fsck after {checkpoints} checkpoints: tried {len(tried)}, damage reported {damaged}")
    assert damaged > len(tried) // 10


def test_fsck_finds_a_sound_directory_clean() -> None:
    report = check_directory("/data", filled(1))
    assert (report.status, report.logs, report.lost, report.findings) == (CLEAN, 2, [], [])
    assert report.records == 31


def test_fsck_calls_a_directory_without_its_snapshots_unusable() -> None:
    disk = filled(2)
    for path in [p for p in disk.names if "snapshot" in p or p.endswith("0000000001.log")]:
        disk.names.pop(path)
    report = check_directory("/data", disk)
    assert report.status == UNUSABLE
    assert "restore the missing files" in report.error
    assert check_directory("/nowhere", FakeDisk()).status == UNUSABLE


def test_a_dump_shows_every_record_entry_segment_and_snapshot() -> None:
    items: list[dict[str, Any]] = list(dump_directory("/data", filled(2)))
    kinds = {item["kind"] for item in items}
    assert {"wal", "entry", "record", "control", "segment", "snapshot"} <= kinds
    seqs = {(i["log_id"], i["seq"]) for i in items if i["kind"] == "record"}
    assert ("0000000000000001", 24) in seqs
    assert all(item["sound"] for item in items if item["kind"] == "entry")
