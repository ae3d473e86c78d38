"""The scheduler serves at once when nothing waits, in turns when something does."""

import asyncio
import itertools
from functools import partial
from typing import Any

from millstream.clock import ManualClock
from millstream.delivery.governor import Measures
from millstream.delivery.scheduler import ENOUGH, LONGEST_MS, Scheduler


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
        self.scheduler._pressure._look()
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
    assert not bench.scheduler._pressure._watching
    bench.ready("a")
    assert bench.scheduler._pressure._watching
    for _ in range(6):
        bench.look()
    assert not bench.scheduler._pressure._watching
    await turns()
    bench.ready("b")
    assert bench.scheduler._pressure._watching


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


async def test_one_late_look_alone_holds_no_delivery_back() -> None:
    bench = Bench()
    bench.ready("a")
    await turns()
    assert bench.look(0.15, busy=0.2).rung == "none"  # the machine was elsewhere for 50 ms
    assert bench.look().rung == "none"
    bench.ready("b")
    assert bench.done == ["a", "b"]


async def test_looks_that_are_late_one_after_another_are_load() -> None:
    bench = Bench()
    bench.ready("a")
    await turns()
    bench.look(0.15, busy=0.2)
    assert bench.look(0.15, busy=0.2).coalesce_ms > 0


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


async def test_the_highest_priority_is_not_held_back_for_more() -> None:
    bench = Bench()
    bench.ready("a", moved=0)
    for _ in range(10):
        bench.scheduler._governor.waited(20.0)
        bench.look(busy=1.0)
    assert bench.scheduler.measures.coalesce_ms > 0
    bench.done.clear()
    bench.ready("nearly", 749, moved=0)
    bench.ready("high", 750, moved=0)
    bench.ready("copy", 1000, moved=0, is_copying=True)
    assert bench.done == ["high"]


class OwnTime(asyncio.SelectorEventLoop):
    """A loop whose timers go by a clock that only work and idleness move."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        super().__init__()
        select = self._selector.select  # type: ignore[attr-defined]

        def idle(timeout: float | None) -> Any:
            self._clock.advance(timeout or 0.0)
            return select(0)

        self._selector.select = idle  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._clock.monotonic()


class Saturated:
    """Topics that always have more than there is time for; each delivery takes its share of it."""

    EACH = 0.00002  # seconds of one delivery
    LOW, WATCHERS = 40, 30
    PACE = 0.01  # seconds between two records of the topic with the highest priority

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.worked = 0.0
        self.scheduler = Scheduler(self.clock, measured=self.took, busy_seconds=lambda: self.worked)
        self.pressure = 0.0
        self.moments: dict[Any, list[float]] = {}
        self.waits: list[float] = []

    def took(self, measures: Measures) -> None:
        self.pressure = max(self.pressure, measures.pressure)

    def work(self, key: Any, watchers: int) -> int:
        self.worked += watchers * self.EACH
        self.clock.advance(watchers * self.EACH)
        self.moments.setdefault(key, []).append(self.clock.monotonic())
        return watchers

    def grow_low(self, number: int) -> None:
        def work() -> int:
            asyncio.get_running_loop().call_soon(self.grow_low, number)  # there is always more
            return self.work(number, self.WATCHERS)

        self.scheduler.ready(number, work, lambda: number % 4 * 240)

    def grow_high(self, due: float) -> None:
        def work() -> int:
            moved = self.work("high", 100)
            self.waits.append(self.clock.monotonic() - due)
            return moved

        self.scheduler.ready("high", work, lambda: 900)
        asyncio.get_running_loop().call_at(due + self.PACE, self.grow_high, due + self.PACE)

    def run(self, seconds: float, *, low: bool) -> float:
        """Let time pass; returns the 99th percentile of what the highest topic's records took."""
        loop = OwnTime(self.clock)

        async def pass_time() -> None:
            for number in range(self.LOW if low else 0):
                self.grow_low(number)
            self.grow_high(self.clock.monotonic())
            await asyncio.sleep(seconds)

        try:
            loop.run_until_complete(pass_time())
        finally:
            loop.close()
        return sorted(self.waits)[int(len(self.waits) * 0.99)]


def test_a_saturated_loop_doubles_at_most_what_the_highest_priority_waits() -> None:
    alone, pressed = Saturated(), Saturated()
    calm, busy = alone.run(2.0, low=False), pressed.run(10.0, low=True)
    assert alone.pressure <= 0.2
    assert pressed.pressure > 0.4  # a load that is noticed
    assert len(pressed.waits) > 900
    assert calm <= busy <= 2 * calm, (calm, busy)


def test_a_saturated_loop_moves_every_topic_within_ten_seconds() -> None:
    bench = Saturated()
    bench.run(25.0, low=True)
    assert bench.pressure > 0.4
    for number in range(bench.LOW):
        moments = [0.0, *bench.moments[number], 25.0]
        longest = max(after - before for before, after in itertools.pairwise(moments))
        assert longest <= 10.0, (number, longest)


async def test_a_turn_that_takes_long_is_cut_and_goes_on_when_the_loop_has_gone_round() -> None:
    bench = Bench()
    bench.scheduler._governor.measures = Measures(0.3, coalesce_ms=3_600_000.0)

    def slow(key: str) -> int:
        bench.clock.advance(LONGEST_MS / 1000)
        bench.done.append(key)
        return 1

    for key in ("a", "b", "c"):
        bench.scheduler.ready(key, partial(slow, key), lambda: 0)
    bench.scheduler._turn()  # as if the window was over
    assert bench.done == ["a"]
    await turns(1)
    assert bench.done == ["a", "b"]
    await turns(1)
    assert bench.done == ["a", "b", "c"]
