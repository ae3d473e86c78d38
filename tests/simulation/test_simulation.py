"""Seeded histories of a whole broker with its clients, through crashes: every promise holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the simulation calls the Spark source, which needs pyspark")
pytest.importorskip("pyarrow", reason="the simulation calls the Spark source, which needs pyarrow")

from simulation.history import run
from simulation.world import Tally
from support.scale import count

SHARES = 4  # so that workers divide them
HISTORIES = count(500, 20_000)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(7200)
def test_every_promise_holds_through_any_history(share: int) -> None:
    total = Tally()
    for seed in range(share, HISTORIES, SHARES):
        try:
            total.add(run(seed)[0])
        except BaseException as error:
            error.add_note(f"the history of seed {seed}: python tests/simulation/history.py {seed}")
            raise
    print(f"\nsimulation: {total.summary()}")
    assert total.crashes > total.histories, "too few crashes were fired"
    assert total.acks > 10 * total.histories, "too little was acknowledged"
    assert min(total.by_kind.values()) > 0
    assert len(total.by_kind) == 8, "not every kind of end occurred"
    assert total.lost > 0, "no crash took anything: the window of a disk stream was never hit"


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in range(count(6, 100)):
        assert run(seed)[1] == run(seed)[1]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_means_the_same_in_another_process(hash_seed: str) -> None:
    """Names are hashed anew in each process; nothing may depend on it."""
    seeds = [str(seed) for seed in range(2)]
    script = Path(__file__).with_name("history.py")
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    told = subprocess.run(
        [sys.executable, str(script), *seeds], env=env, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [run(int(seed))[1] for seed in seeds]
