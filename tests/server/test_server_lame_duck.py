import pytest

from millstream.server.options.options import LameDuckOptions
from millstream.server.reload.lame_duck import departures, take

USUAL = LameDuckOptions(duration=120.0, grace_period=10.0)


def test_without_clients_nothing_is_waited_for() -> None:
    assert departures(0, USUAL) == []


def test_few_clients_leave_a_second_apart() -> None:
    assert [(leave.count, leave.pause) for leave in departures(3, USUAL)] == [(1, 1.0)] * 3


@pytest.mark.parametrize("clients", [1, 7, 110, 111, 5_000, 1_000_000])
def test_everybody_leaves_within_the_time(clients: int) -> None:
    leaves = departures(clients, USUAL)
    assert sum(leave.count for leave in leaves) == clients
    assert sum(leave.pause for leave in leaves) <= 110.0 + 1e-6


def test_clients_are_taken_in_turns() -> None:
    leaves = departures(5, LameDuckOptions(duration=10.025, grace_period=10.0))
    assert [list(items) for items, _ in take([1, 2, 3, 4, 5], leaves)] == [[1, 2, 3], [4, 5]]
