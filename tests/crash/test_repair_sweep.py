"""A repair that dies: another one ends where it would have, and nothing more is lost."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from test_bit_flips import filled, read_all
from test_block_flips import filled as filled_blocks
from test_repair import (
    PLAIN,
    damaged_record,
    flip,
    garbled_snapshots_and_old_wal_gone,
    lost,
    some,
    without_snapshots_and_old_wal,
    without_wal,
)

from millstream.errors import StorageUnusable
from millstream.store.disk.keys import KeyRing
from millstream.store.upkeep.inspect import CLEAN, check_directory
from millstream.store.upkeep.repair import plan_repair, repair_directory
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count
from support.store_bench import FORMS, SMALL, Bench

Damage = Callable[[FakeDisk], None]


def damaged_record_without_its_wal(disk: FakeDisk) -> None:
    for path in [p for p in disk.names if p.endswith("0000000001.log")]:
        disk.names.pop(path)
    damaged_record(disk)


def damaged_wal(disk: FakeDisk) -> None:
    path = max(p for p, data in disk.content().items() if "/wal-" in p and any(data))
    flip(disk, path, 64 + 64 + 24 + 60)


def damaged_block(disk: FakeDisk) -> None:
    flip(disk, some(disk, "/streams/", ".data"), 64 + 64 + 10)


PLAIN_DAMAGES: dict[str, Damage] = {
    "a record": damaged_record_without_its_wal,
    "the wal": damaged_wal,
    "no snapshot": without_snapshots_and_old_wal,
    "garbled snapshots": garbled_snapshots_and_old_wal_gone,
    "no wal": without_wal,
}
CASES = [*PLAIN_DAMAGES, "a sealed block"]


def broken(case: str) -> tuple[FakeDisk, KeyRing]:
    """Return a damaged disk that has been at rest for long, and its keys."""
    sealed = case not in PLAIN_DAMAGES
    disk = filled_blocks("both", 2) if sealed else filled(2)
    PLAIN_DAMAGES.get(case, damaged_block)(disk)
    for node in disk.names.values():
        if node is not None:
            node.sync()
    disk.stable_names = dict(disk.names)
    return disk, FORMS["both"].ring if sealed else PLAIN


def outcome(disk: FakeDisk, ring: KeyRing) -> tuple[Any, ...]:
    """Return all that a repaired directory tells."""
    report = check_directory("/data", disk, ring)
    bench = Bench(disk.copy(), SMALL if not ring.seals else FORMS["both"])
    recovery = bench.store.recovery
    controls = [(c.kind, c.log_id, c.body) for c in recovery.controls]
    return report.status, read_all(bench), lost(bench), controls, recovery.sections


def finish(disk: FakeDisk, ring: KeyRing) -> None:
    """Do what people do after a crash: look, and repair what is not clean."""
    if plan_repair("/data", disk, ring).is_needed:
        repair_directory("/data", disk, ring, "/data.again")


def serves_wrong(disk: FakeDisk, ring: KeyRing, expected: tuple[Any, ...]) -> bool:
    """Say whether a start in between, where one is possible, makes something up or hides a loss."""
    try:
        bench = Bench(disk.copy(), SMALL if not ring.seals else FORMS["both"])
    except StorageUnusable:
        return False
    found, named = read_all(bench), lost(bench)
    whole: dict[int, dict[int, Any]] = expected[1]
    missing = {(i, s) for i in whole for s in whole[i].keys() - found.get(i, {}).keys()}
    return not missing <= named or any(
        whole[i].get(seq, record) != record for i in found for seq, record in found[i].items()
    )


@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_call_of_a_repair_changes_nothing_of_its_outcome(case: str) -> None:
    disk, ring = broken(case)
    whole = disk.copy()
    repair_directory("/data", whole, ring, "/data.before")
    expected = outcome(whole, ring)
    assert expected[0] == CLEAN
    before = {p: d for p, d in disk.content().items() if not p.endswith("/lock")}
    tried = fired = 0
    for call in range(1, whole.calls + 1, count(5, 1)):
        for mode in count([list(Mode)[call % len(Mode)]], list(Mode)):
            again = disk.copy()
            again.crash_at = call
            tried += 1
            with suppress(Crashed):
                repair_directory("/data", again, ring, "/data.before")
            fired += again.crashed
            left = again.after_crash(mode, call)
            where = (case, call, mode, again.trace[-1])
            assert not serves_wrong(left, ring, expected), where
            finish(left, ring)
            assert outcome(left, ring) == expected, where
            if any(c.startswith(("unlink /data/", "rename /data/")) for c in again.trace):
                kept = left.content()  # the copy was whole before anything was touched
                assert {p: kept[p.replace("/data", "/data.before", 1)] for p in before} == before
    print(f"repair sweep {case}: tried {tried}, fired {fired}")
    assert fired == tried > 10
