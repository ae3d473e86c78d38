"""The scheduler serves at once when nothing waits, in turns when something does."""

import asyncio
from typing import Any

from millstream.clock import ManualClock
from millstream.delivery.governor import Measures
from millstream.delivery.scheduler import ENOUGH, Scheduler


class Bench:
    """A scheduler whose clock and load are the test's; works note their keys."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.busy = 0.0
        self.full = False
        self.done: list[Any] = []
        self.measured: list[Measures] = []
        self.scheduler = Scheduler(
            self.clock,
            ingest_full=lambda: self.full,
            measured=self.measured.append,
            busy_seconds=lambda: self.busy,
        )

    def ready(self, key: Any, priority: int = 0, moved: int = 1, **more: Any) -> None:
        def work() -> int:
            self.done.append(key)
            return moved

        self.scheduler.ready(key, work, lambda: priority, **more)

    def look(self, seconds: float = 0.1, busy: float = 0.0) -> Measures:
        """Let the governor look after so long, of which the loop was busy for a part."""
        self.clock.advance(seconds)
        self.busy += busy * seconds
        self.scheduler._look()
        return self.scheduler.measures


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_comes_while_nothing_waits_is_served_at_once() -> None:
    bench = Bench()
    bench.ready("a")
    assert bench.done == ["a"]


async def test_what_comes_meanwhile_waits_for_its_turn_and_is_served_once() -> None:
    bench = Bench()
    bench.ready("a")
    for _ in range(3):
        bench.ready("low", -5)
        bench.ready("high", 900)
    assert bench.done == ["a"]
    await turns()
    assert bench.done == ["a", "high", "low"]


async def test_a_key_that_grows_again_after_its_turn_is_served_again() -> None:
    bench = Bench()
    bench.ready("a")
    bench.ready("a")
    await turns()
    assert bench.done == ["a", "a"]


async def test_a_turn_ends_when_enough_is_set_in_motion() -> None:
    bench = Bench()
    bench.ready("first")
    for n in range(4):
        bench.ready(n, moved=ENOUGH)
    await asyncio.sleep(0)
    assert bench.done == ["first", 0]
    await turns(6)
    assert bench.done == ["first", 0, 1, 2, 3]


async def test_copying_never_runs_inside_the_commit_that_asked_for_it() -> None:
    bench = Bench()
    bench.ready("copies", is_copying=True)
    assert bench.done == []
    await turns()
    assert bench.done == ["copies"]


async def test_what_is_called_off_is_not_served() -> None:
    bench = Bench()
    bench.ready("a")
    bench.ready("b")
    bench.scheduler.forget("b")
    await turns()
    assert bench.done == ["a"]


async def test_nobody_looks_while_there_is_nothing_to_do() -> None:
    bench = Bench()
    assert not bench.scheduler._watching
    bench.ready("a")
    assert bench.scheduler._watching
    for _ in range(6):
        bench.look()
    assert not bench.scheduler._watching
    await turns()
    bench.ready("b")
    assert bench.scheduler._watching


async def test_under_pressure_deliveries_wait_for_more() -> None:
    bench = Bench()
    bench.ready("a")
    await turns()
    measures = bench.look(0.15, busy=1.0)  # half as late again: 50 ms of delay
    assert measures.rung in ("coalesce", "widen")
    assert bench.measured[-1] == measures
    bench.ready("b")
    bench.ready("b")
    assert bench.done == ["a"]
    await asyncio.sleep(3 * measures.coalesce_ms / 1000)
    assert bench.done == ["a", "b"]


async def test_a_deferred_key_is_served_once_the_load_has_gone() -> None:
    bench = Bench()
    bench.ready("a")
    await turns()
    for n in range(20):
        bench.scheduler._ready.add(n, 900, 0)
        bench.scheduler._work[n] = lambda: 0
    for _ in range(4):
        bench.look(1.0, busy=1.0)
    assert bench.scheduler.measures.defers
    assert bench.scheduler.is_deferred(-1)
    assert not bench.scheduler.is_deferred(0)
    bench.ready("low", -1)
    bench.scheduler._turn()
    assert "low" not in bench.done
    while bench.scheduler.measures.coalesce_ms:
        bench.look()
    await turns()
    assert "low" in bench.done


async def test_writes_are_refused_when_everything_is_full() -> None:
    bench = Bench()
    bench.ready("a")
    for n in range(20):
        bench.scheduler._ready.add(n, 900, 0)
    bench.full = True
    for _ in range(4):
        bench.look(1.0, busy=1.0)
    assert bench.scheduler.measures.refuses
    bench.full = False
    assert not bench.look(1.0, busy=1.0).refuses
