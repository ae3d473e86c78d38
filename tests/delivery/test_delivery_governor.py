"""The governor climbs its ladder rung by rung, and comes down again."""

import pytest

from millstream.delivery.governor import (
    Governor,
    Measures,
    PressureSample,
    coalesce_window_ms,
    commit_window_ms,
)

FULL = PressureSample(depth=100, busy=1.0, ingest_full=True)


def pressed(governor: Governor, latency_ms: float, seen: PressureSample) -> Measures:
    for _ in range(50):
        governor.waited(latency_ms)
    return governor.sample(seen)


def test_an_idle_server_takes_no_measure() -> None:
    assert Governor().sample(PressureSample(0, 0.0)) == Measures()


@pytest.mark.parametrize(
    ("latency_ms", "depth", "busy", "pressure"),
    [
        (0, 0, 0.5, 0.0),
        (0, 0, 1.0, 0.3),
        (0, 8, 0.0, 0.3),
        (0, 4, 0.0, 0.15),
        (5, 0, 0.0, 0.4),
        (2.5, 0, 0.0, 0.2),
        (50, 800, 1.0, 1.0),
    ],
)
def test_pressure_is_made_of_latency_depth_and_busy_time(
    latency_ms: float, depth: int, busy: float, pressure: float
) -> None:
    found = pressed(Governor(), latency_ms, PressureSample(depth, busy)).pressure
    assert found == pytest.approx(pressure, abs=0.002)


def test_more_workers_bear_more_depth() -> None:
    assert pressed(Governor(workers=4), 0, PressureSample(8, 0.0)).pressure == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("pressure", "coalesce_ms", "window_ms"),
    [
        (0.0, 0.0, 0.0),
        (0.2, 0.0, 0.0),
        (0.4, 5.0, 0.0),
        (0.41, 5.25, 4.395),
        (0.6, 10.0, 6.2),
        (1.0, 20.0, 10.0),
    ],
)
def test_windows_grow_with_pressure(pressure: float, coalesce_ms: float, window_ms: float) -> None:
    assert coalesce_window_ms(pressure) == coalesce_ms
    assert commit_window_ms(pressure) == window_ms


def test_deferring_needs_pressure_that_lasts_and_ends_well_below_where_it_began() -> None:
    governor = Governor()
    assert not pressed(governor, 50, FULL).defers
    assert not governor.sample(FULL).defers
    assert governor.sample(FULL).defers
    calmer = PressureSample(depth=8, busy=0.5)  # 0.4 + 0.3
    assert governor.sample(calmer).defers
    assert governor.measures.pressure == pytest.approx(0.7, abs=0.01)
    assert not pressed(governor, 0, calmer).defers
    assert not governor.sample(FULL).defers


def test_writes_are_refused_only_at_full_pressure_with_a_full_log() -> None:
    governor = Governor()
    assert pressed(governor, 50, FULL).refuses
    assert not governor.sample(PressureSample(depth=100, busy=1.0, ingest_full=False)).refuses
    assert not governor.sample(PressureSample(depth=0, busy=1.0, ingest_full=True)).refuses


def test_latency_is_smoothed() -> None:
    governor = Governor()
    governor.waited(10)
    assert governor.latency_ms == pytest.approx(3.0)
    governor.waited(-5)
    assert governor.latency_ms == pytest.approx(2.1)


def test_each_rung_has_a_name() -> None:
    rungs = [
        Measures(),
        Measures(0.3, 2.5),
        Measures(0.5, 7.5, 5.25),
        Measures(0.9, 17.5, 9.05, True),
        Measures(1.0, 20.0, 10.0, True, True),
    ]
    assert [one.rung for one in rungs] == ["none", "coalesce", "widen", "defer", "refuse"]
