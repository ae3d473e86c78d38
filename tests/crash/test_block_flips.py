"""One flipped bit in a compressed or sealed store: at most one block lost, by name."""

import random
from typing import Any

import pytest

from millstream.store.log.log import Durability
from millstream.store.upkeep.inspect import DAMAGED, check_directory
from support.fake_disk import FakeDisk, Mode
from support.scale import count
from support.store_bench import FORMS, Bench, image, records


def filled(form: str, checkpoints: int) -> FakeDisk:
    """Return a disk with sealed and growing segments, as kill -9 left it."""
    disk = FakeDisk()
    bench = Bench(disk, FORMS[form])
    logs = [
        bench.store.create_log(1, Durability.FSYNC, form in ("compressed", "both")),
        bench.store.create_log(2, Durability.DISK, form in ("compressed", "both")),
    ]
    for step in range(8):
        for log in logs:
            bench.append(log, [b"%d %d " % (step, i) + b"x" * 50 for i in range(3)], b"a.%d" % step)
        bench.run()
        if step == 3:
            logs[0].delete([2], lambda error: None)
            logs[1].delete([4], lambda error: None, lambda error: None)
            bench.run()
        if step in (2, 5)[:checkpoints]:
            bench.store.checkpoint({})
            bench.run()
    bench.clock.advance(1)
    bench.run()
    for shard in bench.store.shards.in_use:
        if shard.committer is not None:
            shard.committer.tick()
    return disk.after_crash(Mode.KEEP, 0)


def read_all(bench: Bench) -> dict[tuple[int, int], tuple[Any, ...]]:
    logs = [(i, bench.store.log(i)) for i in (1, 2)]
    return {(i, r[0]): r for i, log in logs if log is not None for r in records(log)}


def lost(bench: Bench) -> set[tuple[int, int]]:
    logs = [(i, bench.store.log(i)) for i in (1, 2)]
    return {
        (i, seq)
        for i, log in logs
        if log is not None
        for gap in log.state().gaps
        for seq in range(gap.first, gap.last + 1)
    }


@pytest.mark.parametrize("checkpoints", [0, 2])
@pytest.mark.parametrize("form", ["compressed", "sealed", "both"])
def test_one_flipped_bit_costs_at_most_one_block_and_names_it(form: str, checkpoints: int) -> None:
    disk = filled(form, checkpoints)
    expected = read_all(Bench(disk.copy(), FORMS[form]))
    rng = random.Random(checkpoints)
    places = [(p, o) for p, d in disk.content().items() for o in range(len(d)) if any(d[o:])]
    tried = noticed = 0
    for path, offset in rng.sample(places, count(250, 2_000)):
        flipped = disk.copy()
        node = flipped.names[path]
        assert node is not None
        node.data[offset] ^= 1 << rng.randrange(8)
        node.sync()
        where = (form, path, offset, checkpoints)
        bench = Bench(flipped, FORMS[form])
        found = read_all(bench)
        missing = expected.keys() - found.keys()
        assert missing == lost(bench), where
        assert len(missing) <= 9, where  # a segment or an entry of the test fits into one block
        assert found.items() <= expected.items(), where
        tried += 1
        noticed += bool(missing) or bool(bench.store.recovery.damaged_bytes)
        if missing and tried % 5 == 0:
            report = check_directory("/data", flipped, FORMS[form].ring)
            assert report.status == DAMAGED, where
        second = Bench(flipped.after_crash(Mode.KEEP, 0), FORMS[form])
        assert image(second.store) == image(bench.store), where
    print(f"bit flips {form} after {checkpoints} checkpoints: tried {tried}, noticed {noticed}")
    assert tried >= count(250, 2_000)  # of each form
    assert noticed > tried // 20
