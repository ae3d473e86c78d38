"""The comparer itself: it must see a planted difference, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat.differences import differences, shrink
from compat.replay import Delivery, Line, Outcome, Parser, error_class
from compat.sessions import Session, Step, generate

FIRST = Delivery("p-0", b"s.a", b"", b"", b"000001")
SECOND = Delivery("p-0", b"s.b", b"s.r", b"NATS/1.0\r\n\r\n", b"000002")
QUEUED = Delivery("qA-0", b"s.a", b"", b"", b"000001")


def outcome(*events: Delivery | Line, other: tuple[Delivery, ...] = ()) -> Outcome:
    return Outcome([[Line("+OK"), *events, Line("PONG")], list(other)], ["open", "open"])


def test_equal_outcomes_have_no_differences() -> None:
    assert differences(outcome(FIRST, SECOND), outcome(FIRST, SECOND)) == []


@pytest.mark.parametrize(
    "planted",
    [
        outcome(FIRST),
        outcome(SECOND, FIRST),
        outcome(FIRST, FIRST, SECOND),
        outcome(FIRST, replace(SECOND, reply=b"")),
        outcome(FIRST, replace(SECOND, headers=b"")),
        outcome(FIRST, replace(SECOND, payload=b"000003")),
        outcome(FIRST, replace(SECOND, sid="p-1")),
        outcome(FIRST, SECOND, Line("-ERR invalid subject")),
        outcome(FIRST, SECOND, Line("+OK")),
        outcome(FIRST, SECOND, other=(FIRST,)),
        replace(outcome(FIRST, SECOND), states=["open", "closed"]),
    ],
)
def test_a_planted_difference_is_named(planted: Outcome) -> None:
    assert len(differences(planted, outcome(FIRST, SECOND))) >= 1


def test_another_member_of_a_queue_group_makes_no_difference() -> None:
    elsewhere = replace(QUEUED, sid="qA-7")
    assert differences(outcome(QUEUED), outcome(other=(elsewhere,))) == []


def test_a_queue_message_that_reaches_two_members_is_named() -> None:
    assert differences(outcome(QUEUED, other=(QUEUED,)), outcome(QUEUED)) != []


def test_error_class_leaves_out_what_the_error_quotes() -> None:
    line = b"-ERR 'Permissions Violation for Publish to \"a.b\"'"
    assert error_class(line) == "-ERR permissions violation for publish to"


def test_parser_takes_a_message_that_arrives_byte_by_byte() -> None:
    parser = Parser()
    data = b"INFO {}\r\nHMSG s.b p-0 s.r 12 18\r\nNATS/1.0\r\n\r\n000002\r\n+OK\r\n"
    events = [event for byte in data for event in parser.feed(bytes([byte]))]
    assert events == [SECOND, Line("+OK")]


def test_a_seed_always_gives_the_same_session() -> None:
    assert generate(41) == generate(41)
    assert generate(41) != generate(42)


async def test_shrinking_leaves_only_the_steps_that_matter() -> None:
    steps = tuple(Step(0, b"%d" % number) for number in range(30))

    async def differ(session: Session) -> bool:
        return {steps[3], steps[17]} <= set(session.steps)

    small = await shrink(Session(1, 1, steps), differ)
    assert small.steps == (steps[3], steps[17])
