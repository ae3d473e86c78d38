"""Repair: whatever was damaged, the directory is clean afterwards, and the loss stays on record."""

import random
from collections.abc import Callable

import pytest
from test_bit_flips import DISK, FSYNC, filled, read_all
from xxhash import xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.store.disk.keys import KeyRing
from millstream.store.log.log import Durability
from millstream.store.upkeep.inspect import CLEAN, DAMAGED, UNUSABLE, check_directory
from millstream.store.upkeep.repair import plan_repair, repair_directory
from millstream.store.wal.local_engine import HEADER_CHECKED
from support.fake_disk import FakeDisk, Mode
from support.scale import count
from support.store_bench import SEALED, Bench, image, records

KEPT = "/data.before"
PLAIN = KeyRing()


def lost(bench: Bench) -> set[tuple[int, int]]:
    """Return what is lost by damage; what a power cut puts in doubt is counted elsewhere."""
    return {
        (i, seq)
        for i in (FSYNC, DISK)
        if (log := bench.store.log(i))
        for gap in log.state().gaps
        if gap.reason not in ("void", "unsynced")  # which a power cut adds, whenever it comes
        for seq in range(gap.first, gap.last + 1)
    }


def known(bench: Bench) -> set[bytes]:
    """Return the control frames that the layers above learn of, by snapshot or by WAL."""
    recovery = bench.store.recovery
    sections = recovery.sections.get("controls", b"").split(b"\n")
    return {control.body for control in recovery.controls} | {each for each in sections if each}


def flip(disk: FakeDisk, path: str, offset: int, bit: int = 3) -> None:
    node = disk.names[path]
    assert node is not None
    node.data[offset] ^= 1 << bit
    node.sync()


def some(disk: FakeDisk, part: str, ending: str) -> str:
    return next(p for p in sorted(disk.content()) if part in p and p.endswith(ending))


def snapshots(disk: FakeDisk) -> list[str]:
    return sorted(p for p in disk.content() if "/meta/snapshot-" in p)


def repaired(disk: FakeDisk, ring: KeyRing = PLAIN) -> FakeDisk:
    """Repair, and check that the plan said the same and changed nothing."""
    before = disk.content()
    plan = plan_repair("/data", disk, ring)
    assert plan.error == ""
    assert disk.content() == before
    report = repair_directory("/data", disk, ring, KEPT)
    assert report.status == CLEAN, report
    assert report.plain() == plan.after.plain()
    kept = {p.replace(KEPT, "/data"): d for p, d in disk.content().items() if p.startswith(KEPT)}
    assert kept == {p: d for p, d in before.items() if not p.endswith("/lock")}
    return disk.after_crash(Mode.DROP, 0)  # everything was synced


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_after_any_flipped_bit_a_repair_leaves_a_clean_directory_with_the_same_records(
    checkpoints: int,
) -> None:
    disk = filled(checkpoints)
    rng = random.Random(checkpoints)
    places = [
        (path, offset)
        for path, data in disk.content().items()
        for offset in range(len(data))
        if any(data[offset:])
    ]
    repairs = 0
    for path, offset in rng.sample(places, count(25, 1000)):
        flipped = disk.copy()
        flip(flipped, path, offset, rng.randrange(8))
        report = check_directory("/data", flipped)
        if report.status == CLEAN:
            continue
        assert report.status == DAMAGED, (path, offset)
        expected = Bench(flipped.copy())
        found, named = read_all(expected), lost(expected)
        after = Bench(repaired(flipped))
        where = (path, offset)
        assert {i: found[i].items() <= read_all(after)[i].items() for i in found} == {
            FSYNC: True,
            DISK: True,
        }, where
        assert lost(after) <= named, where
        assert known(after) == known(expected), where
        repairs += 1
    print(f"repairs after {checkpoints} checkpoints: {repairs}")
    assert repairs > 5


def damaged_record(disk: FakeDisk) -> None:
    path = some(disk, "/streams/0000000000000001/", ".data")
    flip(disk, path, 64 + 60)


def test_what_stays_lost_is_listed_and_no_longer_counts_as_damage() -> None:
    disk = filled(2)
    for path in [p for p in disk.names if p.endswith("0000000001.log")]:
        disk.names.pop(path)  # the only other copy of the first records
    damaged_record(disk)
    before = check_directory("/data", disk)
    assert (before.status, [each.recorded for each in before.lost]) == (DAMAGED, [False])
    disk = repaired(disk)
    after = check_directory("/data", disk)
    assert after.status == CLEAN
    named = [
        (each.first, each.last, each.recorded) for each in after.lost if each.reason != "unsynced"
    ]
    assert named == [(before.lost[0].first, before.lost[0].last, True)]
    bench = Bench(disk)
    log = bench.store.log(FSYNC)
    assert log is not None
    assert [gap.reason for gap in log.state().gaps] == ["corruption"]


def test_a_record_that_the_wal_still_has_comes_back() -> None:
    disk = filled(2)
    whole = read_all(Bench(disk.copy()))
    damaged_record(disk)
    plan = plan_repair("/data", disk, PLAIN)
    assert any("repaired from the wal" in line for line in plan.rebuilt)
    assert read_all(Bench(repaired(disk))) == whole


def without_snapshots_and_old_wal(disk: FakeDisk) -> None:
    for path in [p for p in disk.names if "snapshot" in p or p.endswith("0000000001.log")]:
        disk.names.pop(path)


def garbled_snapshots_and_old_wal_gone(disk: FakeDisk) -> None:
    for path in snapshots(disk):
        node = disk.names[path]
        assert node is not None
        node.data[20:90] = bytes(70)
        node.sync()
    for path in [p for p in disk.names if p.endswith("0000000001.log")]:
        disk.names.pop(path)


@pytest.mark.parametrize(
    "damage", [without_snapshots_and_old_wal, garbled_snapshots_and_old_wal_gone]
)
def test_an_unusable_directory_is_rebuilt_from_segments_and_the_rest_of_the_wal(
    damage: Callable[[FakeDisk], None],
) -> None:
    disk = filled(2)
    whole = read_all(Bench(disk.copy()))
    damage(disk)
    assert check_directory("/data", disk).status == UNUSABLE
    after = Bench(repaired(disk))
    found = read_all(after)
    for log_id in whole:
        missing = whole[log_id].keys() - found[log_id].keys()
        assert {(log_id, seq) for seq in missing} <= lost(after)
        assert all(found[log_id].get(seq, r) == r for seq, r in whole[log_id].items())
    assert len(found[FSYNC]) > len(whole[FSYNC]) // 2


def without_wal(disk: FakeDisk) -> None:
    for path in [p for p in disk.names if p.startswith("/data/wal/")]:
        disk.names.pop(path)


def without_wal_and_snapshots(disk: FakeDisk) -> None:
    without_wal(disk)
    for path in snapshots(disk):
        disk.names.pop(path)


@pytest.mark.parametrize("damage", [without_wal, without_wal_and_snapshots])
def test_without_a_wal_the_records_of_all_segment_files_are_kept(
    damage: Callable[[FakeDisk], None],
) -> None:
    disk = filled(2)
    whole = read_all(Bench(disk.copy()))
    damage(disk)
    report = check_directory("/data", disk)
    assert report.status == DAMAGED
    assert "wal files are missing file=/data/wal/shard-00 offset=0" in report.findings
    after = Bench(repaired(disk))
    found = read_all(after)
    assert found[FSYNC].keys() >= set(range(1, 18)) - {2}
    for log_id in whole:
        assert all(r == whole[log_id][seq] for seq, r in found[log_id].items())


def test_one_wrong_bit_in_each_snapshot_costs_nothing() -> None:
    disk = filled(2)
    whole = Bench(disk.copy())
    for path in snapshots(disk):
        flip(disk, path, 60)
    for path in [p for p in disk.names if p.endswith("0000000001.log")]:
        disk.names.pop(path)
    assert check_directory("/data", disk).status == UNUSABLE
    after = Bench(repaired(disk))
    assert read_all(after) == read_all(whole)
    assert after.store.recovery.sections == whole.store.recovery.sections


def test_a_repaired_directory_takes_records_and_starts_again_and_again() -> None:
    disk = filled(2)
    damaged_record(disk)
    without_snapshots_and_old_wal(disk)
    disk = repaired(disk)
    for turn in range(3):
        bench = Bench(disk)
        log = bench.store.create_log(FSYNC, Durability.FSYNC)
        last = log.state().last_seq
        first, answer = bench.append(log, [b"after %d" % turn] * 5)
        bench.run()
        assert (first, answer) == (last + 1, [None])
        bench.store.checkpoint({})
        bench.run()
        before = image(bench.store)
        disk = disk.after_crash(Mode.DROP, turn)
        assert image(Bench(disk.copy()).store) == before
        assert check_directory("/data", disk).status == CLEAN


def test_a_sealed_directory_is_repaired_with_its_key_and_stays_sealed() -> None:
    disk = FakeDisk()
    bench = Bench(disk, SEALED)
    log = bench.store.create_log(FSYNC, Durability.FSYNC)
    for step in range(8):
        bench.append(log, [b"secret %d %d" % (step, i) for i in range(4)])
        bench.run()
        if step in (2, 5):
            bench.store.checkpoint({"streams": b"secret section"})
            bench.run()
    bench.store.mark()
    disk = disk.after_crash(Mode.KEEP, 0)
    before = {r[0]: r for r in records(log)}
    path = some(disk, "/streams/", ".data")
    flip(disk, path, 64 + 64 + 10)
    refused = plan_repair("/data", disk, PLAIN)
    assert "no key was given" in refused.error
    disk = repaired(disk, SEALED.ring)
    assert not any(b"secret" in d for p, d in disk.content().items() if p.startswith("/data/"))
    again = Bench(disk, SEALED)
    found = again.store.log(FSYNC)
    assert found is not None
    kept = {r[0]: r for r in records(found)}
    assert kept == before  # the WAL has what the damaged block held


def test_a_directory_of_a_newer_version_is_refused_and_stays_as_it_is() -> None:

    disk = filled(2)
    damaged_record(disk)
    node = disk.names[some(disk, "/wal/", ".log")]
    assert node is not None
    node.data[8] = 9
    node.data[56:64] = xxh3_64_intdigest(bytes(node.data[:HEADER_CHECKED])).to_bytes(8, "little")
    node.sync()
    plan = plan_repair("/data", disk, PLAIN)
    assert "format version 9" in plan.error
    before = disk.content()
    with pytest.raises(StorageUnusable, match="format version 9"):
        repair_directory("/data", disk, PLAIN, KEPT)
    assert {p: d for p, d in disk.content().items() if p.startswith("/data/")} == {
        p: d for p, d in before.items() if p.startswith("/data/")
    }


def test_a_clean_directory_needs_no_repair() -> None:
    plan = plan_repair("/data", filled(1), PLAIN)
    assert not plan.is_needed
    assert plan.rebuilt == []


def test_a_repair_never_overwrites_the_copy_of_an_earlier_one() -> None:
    disk = filled(1)
    repair_directory("/data", disk, PLAIN, KEPT)
    with pytest.raises(StorageUnusable, match="exists"):
        repair_directory("/data", disk, PLAIN, KEPT)
