"""Holds: what limits wait for, and who is shown under a name."""

import pytest

from millstream.errors import Throttled
from millstream.streams.retention.holds import LINGER, MOST_HOLDS, Holds


def test_limits_wait_for_the_last_reader_until_its_time_is_over() -> None:
    holds = Holds()
    holds.put("a", 10, 60.0, now=0.0)
    holds.put("b", 4, 30.0, now=0.0)
    assert holds.first(now=29.0) == 5
    assert holds.first(now=30.0) == 11
    holds.put("a", 20, 0.0, now=31.0)
    assert holds.first(now=31.0) is None


def test_readers_of_one_name_hold_each_for_itself_and_the_last_is_shown() -> None:
    holds = Holds()
    assert holds.put("pipe", 4, 60.0, now=0.0, reader="x") == 4
    assert holds.put("pipe", 9, 60.0, now=0.0, reader="y") == 4
    assert holds.put("other", 1, 60.0, now=0.0) == 1
    assert holds.put("other", 99, 0.0, now=0.0) == 99
    assert holds.first(now=1.0) == 5
    assert holds.put("pipe", 12, 60.0, now=50.0, reader="x") == 9
    assert holds.first(now=50.0) == 10


def test_a_reader_that_holds_nothing_is_forgotten_after_a_while() -> None:
    holds = Holds()
    holds.put("pipe", 4, 0.0, now=0.0, reader="x")
    assert holds.first(now=0.0) is None
    assert holds.put("pipe", 9, 0.0, now=LINGER - 1, reader="y") == 4
    assert holds.put("pipe", 9, 0.0, now=LINGER, reader="y") == 9


def test_a_stream_has_a_bound_of_readers() -> None:
    holds = Holds()
    for number in range(MOST_HOLDS):
        holds.put("pipe", 0, 0.0, now=0.0, reader=str(number))
    with pytest.raises(Throttled):
        holds.put("pipe", 0, 0.0, now=0.0, reader="one more")
    holds.put("pipe", 0, 0.0, now=LINGER, reader="one more")
