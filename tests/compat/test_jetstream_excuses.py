"""The comparison of JetStream sessions: it excuses what has a written reason, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compat.jetstream_excuses import Occasions, differences
from compat.jetstream_sessions import Session, Step
from millstream.consumers.answers import DROPPED

PURGES = Occasions(cuts=True, purges=True)


def deliver(record: int, sequence: int) -> list[Any]:
    return ["pull", ["s.x.a", f"$JS.ACK.S.c.1.{record}.{sequence}.TIME.0", "", "payload"]]


def info(sequence: int, record: int, **shown: Any) -> list[Any]:
    """What a consumer's info shows of its floor: the last delivery below it, and its record."""
    told = {
        "stream_name": "S",
        "name": "c",
        "config": {"ack_policy": "explicit"},
        "delivered": {"consumer_seq": 4, "stream_seq": 4},
        "ack_floor": {"consumer_seq": sequence, "stream_seq": record},
        "num_ack_pending": 1,
        "num_pending": 0,
        **shown,
    }
    return ["ask", ["INBOX", "", "", told]]


FOUR = [deliver(record, record) for record in range(1, 5)]


@pytest.mark.parametrize("floor", [(0, 0), (1, 1), (3, 3)])
def test_a_floor_that_counts_a_purged_delivery_behind_it_is_excused(floor: tuple[int, int]) -> None:
    assert differences([*FOUR, info(*floor)], [*FOUR, info(3, 0)], PURGES) == []


def test_such_a_floor_is_excused_where_nothing_is_pending_any_more() -> None:
    ours, theirs = (info(*floor, num_ack_pending=0) for floor in ((4, 4), (3, 0)))
    assert differences([*FOUR, ours], [*FOUR, theirs], PURGES) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "occasions"),
    [
        pytest.param(
            info(3, 3, num_ack_pending=0),
            info(3, 0, num_ack_pending=0),
            PURGES,
            id="a floor behind the last delivery",
        ),
        pytest.param(info(2, 2), info(3, 3), PURGES, id="a floor that is behind"),
        pytest.param(info(3, 3), info(2, 2), PURGES, id="a floor that is ahead"),
        pytest.param(info(3, 3), info(0, 0), PURGES, id="a floor above what is pending"),
        pytest.param(info(2, 3), info(3, 3), PURGES, id="another consumer sequence"),
        pytest.param(info(0, 0), info(4, 2), PURGES, id="a floor below the purged record's"),
        pytest.param(info(3, 3), info(3, 0), Occasions(), id="no purge"),
        pytest.param(info(3, 3, num_pending=1), info(3, 0), PURGES, id="another count"),
        pytest.param(info(3, 3, num_ack_pending=2), info(3, 0), PURGES, id="more pending"),
        pytest.param(
            info(3, 3, delivered={"consumer_seq": 4, "stream_seq": 3}),
            info(3, 0),
            PURGES,
            id="another place",
        ),
    ],
)
def test_a_planted_difference_beside_an_excuse_is_named(
    ours: list[Any], theirs: list[Any], occasions: Occasions
) -> None:
    assert len(differences([*FOUR, ours], [*FOUR, theirs], occasions)) == 1


UPDATED = (Step("ask", "$JS.API.STREAM.UPDATE.@S", b"{}"),)
ENDED = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c"
DROP = json.dumps([ENDED, "", "", {"stream_seq": 1, "reason": DROPPED}])


def active(record: int) -> list[Any]:
    floor = {"consumer_seq": record, "stream_seq": record, "last_active": "TIME"}
    return info(record, record, ack_floor=floor, num_ack_pending=0)


def asked(ack_wait: int, *steps: Step) -> Occasions:
    body = {"stream_name": "@S", "config": {"name": "c", "ack_wait": ack_wait}}
    made = Step("ask", "$JS.API.CONSUMER.CREATE.@S.c", json.dumps(body).encode())
    return Occasions.of(Session(0, (made, *steps)))


def idle(record: int) -> list[Any]:
    return info(record, record, num_ack_pending=0)


def test_what_an_update_removed_ends_untold_where_the_wait_for_acks_is_shorter() -> None:
    ours, theirs = [active(1), ["events", DROP]], [idle(1), ["events"]]
    assert differences(ours, theirs, asked(1000, *UPDATED)) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "occasions"),
    [
        pytest.param(active(1), idle(1), asked(1000), id="no update"),
        pytest.param(active(1), idle(1), asked(10**9, *UPDATED), id="a longer wait"),
        pytest.param(idle(1), active(1), asked(1000, *UPDATED), id="no ack of ours"),
        pytest.param(active(1), idle(2), asked(1000, *UPDATED), id="another floor"),
        pytest.param(["events", DROP], ["events"], asked(1000), id="an advisory without update"),
        pytest.param(["events"], ["events", DROP], asked(1000, *UPDATED), id="no advisory of ours"),
    ],
)
def test_a_planted_difference_beside_a_short_wait_is_named(
    ours: list[Any], theirs: list[Any], occasions: Occasions
) -> None:
    assert len(differences([ours], [theirs], occasions)) == 1


def events(*told: str) -> list[Any]:
    return ["events", *(json.dumps([f"$JS.EVENT.ADVISORY.{each}", "", "", {}]) for each in told)]


GIVEN_UP = "CONSUMER.MAX_DELIVERIES.S.c"


def occasions_of(config: dict[str, Any], *steps: Step) -> Occasions:
    body = json.dumps({"stream_name": "@S", "config": {"name": "c", **config}}).encode()
    made = Step("ask", "$JS.API.CONSUMER.CREATE.@S.c", body)
    return Occasions.of(Session(0, (made, *steps)))


EARLY = occasions_of({"max_deliver": 2, "ack_wait": 1000})


def test_what_is_given_up_at_once_may_be_told_with_the_next_pull_or_never() -> None:
    ours = [events(GIVEN_UP), events()]
    assert differences([*ours], [events(), events(GIVEN_UP)], EARLY) == []
    assert differences([events(GIVEN_UP)], [events()], EARLY) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "occasions"),
    [
        pytest.param([events()], [events(GIVEN_UP)], EARLY, id="never told here"),
        pytest.param(
            [events(), events(GIVEN_UP)], [events(GIVEN_UP), events()], EARLY, id="told late here"
        ),
        pytest.param([events("CONSUMER.MSG_NAKED.S.c")], [events()], EARLY, id="something else"),
        pytest.param(
            [events("CONSUMER.MAX_DELIVERIES.S.d")], [events()], EARLY, id="another consumer"
        ),
        pytest.param(
            [events(GIVEN_UP)],
            [events()],
            occasions_of({"max_deliver": 1, "ack_wait": 1000}),
            id="its only delivery",
        ),
        pytest.param(
            [events(GIVEN_UP)], [events()], occasions_of({"max_deliver": 2}), id="a long wait"
        ),
    ],
)
def test_a_planted_difference_beside_an_early_end_is_named(
    ours: list[Any], theirs: list[Any], occasions: Occasions
) -> None:
    assert len(differences(ours, theirs, occasions)) == 1


ROLLED = Step("ask", "@.x.a", b"", (("Nats-Rollup", "SUB"),))


def created(**config: Any) -> Step:
    return Step("ask", "$JS.API.STREAM.CREATE.@S", json.dumps(config).encode())


def test_what_a_full_stream_drops_before_it_rolls_up_is_told_by_the_reference_alone() -> None:
    full = occasions_of({}, created(allow_rollup_hdrs=True, max_msgs=3), ROLLED)
    assert differences([events()], [["events", DROP]], full) == []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((created(allow_rollup_hdrs=True), ROLLED), id="never full"),
        pytest.param((created(allow_rollup_hdrs=True, max_msgs=3),), id="no roll-up"),
    ],
)
def test_a_planted_end_is_named_where_no_full_stream_rolls_up(steps: tuple[Step, ...]) -> None:
    assert len(differences([events()], [["events", DROP]], occasions_of({}, *steps))) == 1
