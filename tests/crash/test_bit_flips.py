"""One flipped bit anywhere: at most one record lost, by name, and nothing served wrong."""

import random
from typing import Any

import pytest

from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from support.fake_disk import FakeDisk, Mode
from support.scale import count
from support.store_bench import SMALL, Bench, image, records

FSYNC, DISK = 1, 2


def filled(checkpoints: int, options: StoreOptions = SMALL) -> FakeDisk:
    """Return a disk with two logs, sealed and growing segments, as kill -9 left it."""
    disk = FakeDisk()
    bench = Bench(disk, options)
    one = bench.store.create_log(FSYNC, Durability.FSYNC)
    two = bench.store.create_log(DISK, Durability.DISK)
    answers: list[Any] = []
    bench.store.control(16, FSYNC, b"create one", answers.append)
    for step in range(8):
        bench.append(one, [b"one %d %d " % (step, i) + b"x" * 50 for i in range(3)], b"a.%d" % step)
        bench.append(two, [b"two %d " % step + b"y" * 80])
        bench.run()
        if step == 3:
            one.delete([2], answers.append)
            bench.run()
        if step in (2, 5)[:checkpoints]:
            bench.store.checkpoint({"controls": b"create one"})
            bench.run()
    bench.clock.advance(1)
    bench.run()
    bench.store.mark()
    return disk.after_crash(Mode.KEEP, 0)


def read_all(bench: Bench) -> dict[int, dict[int, tuple[Any, ...]]]:
    logs = {i: bench.store.log(i) for i in (FSYNC, DISK)}
    return {i: {r[0]: r for r in records(log)} if log else {} for i, log in logs.items()}


def lost(bench: Bench) -> set[tuple[int, int]]:
    return {
        (i, seq)
        for i in (FSYNC, DISK)
        if (log := bench.store.log(i))
        for gap in log.state().gaps
        for seq in range(gap.first, gap.last + 1)
    }


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_one_flipped_bit_costs_at_most_one_record_and_names_it(checkpoints: int) -> None:
    disk = filled(checkpoints)
    clean = Bench(disk.copy())
    expected = read_all(clean)
    controls = {c.body for c in clean.store.recovery.controls} | {
        clean.store.recovery.sections.get("controls", b"")
    }
    rng = random.Random(checkpoints)
    places = [
        (path, offset)
        for path, data in disk.content().items()
        for offset in range(len(data))
        if any(data[offset:])
    ]
    tried = fired = 0
    for path, offset in rng.sample(places, count(700, len(places))):
        flipped = disk.copy()
        node = flipped.names[path]
        assert node is not None
        node.data[offset] ^= 1 << rng.randrange(8)
        node.sync()
        tried += 1
        bench = Bench(flipped)
        found = read_all(bench)
        named = lost(bench)
        missing = {(i, s) for i in expected for s in expected[i].keys() - found[i].keys()}
        where = (path, offset, checkpoints)
        assert missing == named, (where, missing, named)
        assert len(missing) <= 1, (where, missing)
        for i in found:
            for seq, record in found[i].items():
                assert record == expected[i].get(seq), where
        again = {c.body for c in bench.store.recovery.controls} | {
            bench.store.recovery.sections.get("controls", b"")
        }
        assert b"create one" in controls & again, where
        fired += bool(missing) or bool(bench.store.recovery.damaged_bytes)
        second = Bench(flipped.after_crash(Mode.KEEP, 0))
        assert image(second.store) == image(bench.store), where
    print(f"bit flips after {checkpoints} checkpoints: tried {tried}, noticed {fired}")
    assert tried >= count(700, 10_000)
    assert fired > tried // 10
