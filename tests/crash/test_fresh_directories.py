"""A directory made right before a kill is as durable, once the next start answers, as any other."""

from contextlib import suppress

import pytest

from millstream.store.log.log import Durability
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import Bench, records

DIRECTORY = "/srv/broker/data"  # none of it is there at first


def first_run(disk: FakeDisk) -> None:
    """Make every directory that there is: the store's own, and those of two logs."""
    bench = Bench(disk, directory=DIRECTORY)
    for log_id in (1, 2):
        log = bench.store.create_log(log_id, Durability.FSYNC)
        bench.append(log, [b"x" * 600])
        bench.run()
    bench.store.checkpoint({})
    bench.run()


def calls_of_the_first_run() -> int:
    disk = FakeDisk()
    first_run(disk)
    return disk.calls


@pytest.mark.parametrize("crash_at", range(1, calls_of_the_first_run() + 1))
def test_what_a_start_after_a_kill_has_answered_outlives_a_power_cut(crash_at: int) -> None:
    disk = FakeDisk()
    disk.crash_at = crash_at
    with suppress(Crashed):
        first_run(disk)
    killed = disk.after_crash(Mode.KEEP, 0)

    again = Bench(killed, directory=DIRECTORY)
    for log_id in (1, 2):
        log = again.store.create_log(log_id, Durability.FSYNC)
        _, answer = again.append(log, [b"answered" + b"y" * 600])
        again.run()
        assert answer == [None]

    cut = Bench(killed.after_crash(Mode.DROP, 0), directory=DIRECTORY)
    for log_id in (1, 2):
        found = cut.store.log(log_id)
        assert found is not None, f"log {log_id} is gone with its directory"
        assert any(record[3].startswith(b"answered") for record in records(found))
