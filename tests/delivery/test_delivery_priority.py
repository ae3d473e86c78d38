"""Priorities, bands, turns and aging, as the table of the contract has them."""

import pytest

from millstream.delivery.priority import aged, band_of, effective
from millstream.delivery.ready_set import ReadySet


@pytest.mark.parametrize(
    ("idle_s", "priority"),
    [(0, 500), (15, 354), (30, 250), (60, 125), (120, 31), (300, 0), (4000, 0)],
)
def test_interest_halves_every_thirty_seconds(idle_s: int, priority: int) -> None:
    assert effective(None, True, idle_s * 1000) == priority


def test_what_was_never_consumed_or_is_not_automatic_has_no_interest() -> None:
    assert effective(None, True, None) == 0
    assert effective(None, False, 0) == 0


@pytest.mark.parametrize(("manual", "priority"), [(7, 7), (-5000, -1000), (5000, 1000), (0, 0)])
def test_a_manual_priority_is_clamped_and_switches_interest_off(manual: int, priority: int) -> None:
    assert effective(manual, True, 0) == priority


@pytest.mark.parametrize(
    ("waited_ms", "priority"), [(0, -200), (1000, -100), (5000, 300), (10_000, 800), (99_000, 800)]
)
def test_waiting_is_worth_a_hundred_a_second_and_a_thousand_at_most(
    waited_ms: int, priority: int
) -> None:
    assert aged(-200, waited_ms) == priority


@pytest.mark.parametrize(
    ("priority", "band"),
    [(1000, 4), (750, 4), (749, 3), (500, 3), (499, 2), (250, 2), (249, 1), (0, 1), (-1, 0)],
)
def test_bands_are_cut_where_the_table_says(priority: int, band: int) -> None:
    assert band_of(priority) == band


def served(ready: ReadySet, turns: int, now_ms: float = 0) -> list[object]:
    found = [ready.next(now_ms) for _ in range(turns)]
    return [one[0] for one in found if one is not None]


def test_each_key_waits_once_and_keeps_its_place() -> None:
    ready = ReadySet()
    assert ready.add("a", 0, 0)
    assert ready.add("b", 0, 1)
    assert not ready.add("a", 0, 2)
    assert len(ready) == 2
    assert served(ready, 3, 3) == ["a", "b"]


def test_a_key_that_was_served_waits_anew() -> None:
    ready = ReadySet()
    ready.add("a", 0, 0)
    assert ready.next(4) == ("a", 4)
    assert ready.add("a", 0, 5)
    assert ready.next(6) == ("a", 1)


def test_a_round_gives_each_band_its_weight_in_turns() -> None:
    ready = ReadySet()
    for n in range(20):
        for band, priority in enumerate((-10, 100, 300, 600, 900)):
            ready.add((band, n), priority, 0)
    bands = [key[0] for key in served(ready, 16)]
    assert {band: bands.count(band) for band in range(5)} == {0: 1, 1: 1, 2: 2, 3: 4, 4: 8}
    assert bands == [4] * 8 + [3] * 4 + [2] * 2 + [1] + [0]
    assert [key[0] for key in served(ready, 16)] == bands


def test_an_empty_band_gives_its_turns_to_the_others() -> None:
    ready = ReadySet()
    for n in range(3):
        ready.add(("low", n), -10, 0)
    assert len(served(ready, 3)) == 3


def test_what_waits_rises_by_a_tick_of_fifty_milliseconds_and_keeps_its_order() -> None:
    ready = ReadySet()
    ready.add("old", -10, 0)
    ready.add("other", 1000, 100)
    assert served(ready, 1, 110) == ["other"]  # which made it age, by too little
    assert ready.band("old") == 1
    ready.add("new", 990, 9_000)
    ready.add("newer", 990, 9_010)
    assert served(ready, 3, 9_020) == ["old", "new", "newer"]


@pytest.mark.parametrize("load", [1, 7, 100])
def test_nothing_waits_for_more_than_about_ten_seconds_however_busy_the_top_is(load: int) -> None:
    """One turn takes 10 ms, and the top band is never empty: the lowest still moves."""
    ready, now, waits = ReadySet(), 0.0, []
    for n in range(5):
        ready.add(("low", n), -900, now)
    for _ in range(3000):
        now += 10
        for n in range(load):
            ready.add(("high", n), 1000, now)
        found = ready.next(now)
        assert found is not None
        key, waited = found
        if key[0] == "low":
            waits.append(waited)
            ready.add(key, -900, now)
    assert len(waits) >= 10
    assert max(waits) <= 12_000


def test_the_top_keeps_half_of_the_turns_while_every_band_is_crowded() -> None:
    ready, now, high = ReadySet(), 0.0, 0
    for turn in range(1000):
        now += 1
        for band, priority in enumerate((-10, 100, 300, 600, 900)):
            for n in range(10):
                ready.add((band, n), priority, now)
        found = ready.next(now)
        assert found is not None
        high += found[0][0] == 4
        del turn
    assert high >= 500


def test_while_it_defers_the_bottom_gets_no_turn_and_copying_is_a_band_lower() -> None:
    ready = ReadySet()
    ready.defers = True
    ready.add("low", -1, 0)
    ready.add("push", 300, 0)
    ready.add("copy", 300, 0, is_lowered=True)
    assert (ready.band("push"), ready.band("copy")) == (2, 1)
    assert served(ready, 5, 20_000) == ["push", "copy"]
    assert "low" in ready
    ready.defers = False
    assert served(ready, 5, 20_100) == ["low"]
