"""Wrong credentials: answered ever later, while those who are known come in as before."""

import pytest

from millstream.clock import ManualClock
from millstream.errors import Throttled
from millstream.topics.limits.guesses import FREE, INTERVAL, LONGEST, MOST_ADDRESSES, Guesses


def test_the_first_wrong_credentials_are_answered_at_once_and_further_ones_in_turn() -> None:
    clock = ManualClock()
    guesses = Guesses(clock.monotonic)
    waits = [guesses.wrong("10.0.0.1") for _ in range(FREE + 3)]
    assert waits[:FREE] == pytest.approx([0.0] * FREE)
    assert waits[FREE:] == pytest.approx([INTERVAL, 2 * INTERVAL, 3 * INTERVAL])
    assert guesses.wrong("10.0.0.2") == 0
    clock.advance(60)
    assert guesses.wrong("10.0.0.1") == 0


def test_an_address_that_guesses_at_full_speed_gets_ten_answers_a_second() -> None:
    clock = ManualClock()
    guesses = Guesses(clock.monotonic)
    answered = 0
    for _ in range(100 * 20):
        clock.advance(0.01)
        try:
            guesses.check("10.0.0.1", "wrong")
        except Throttled:
            continue
        guesses.wrong("10.0.0.1")
        answered += 1
    assert answered <= FREE + (20 + LONGEST) / INTERVAL + 2


def test_who_was_right_a_moment_ago_is_looked_at_behind_the_same_address() -> None:
    clock = ManualClock()
    guesses = Guesses(clock.monotonic)
    guesses.wrong("proxy")
    guesses.right("known")
    for _ in range(FREE + round(LONGEST / INTERVAL) + 1):
        guesses.wrong("proxy")
    guesses.check("proxy", "known")
    with pytest.raises(Throttled):
        guesses.check("proxy", "unknown")
    guesses.check("elsewhere", "unknown")


def test_addresses_are_forgotten_and_their_number_is_bounded() -> None:
    clock = ManualClock()
    guesses = Guesses(clock.monotonic)
    for number in range(MOST_ADDRESSES + 50):
        guesses.wrong(str(number))
    assert len(guesses._made_up) <= MOST_ADDRESSES
    clock.advance(60)
    guesses.wrong("one")
    assert len(guesses._made_up) == 1
