"""A replay at the old pace: each record when its time comes, in order, once."""

import json
from dataclasses import dataclass, field

import pytest

from millstream.client.blocking import connect
from millstream.pipelines.paced import ReplayPace, publish
from millstream.pipelines.problems import PipelineError
from millstream.spark.server import Server
from support.peers import Peer

SECOND = 1_000_000_000
# What its publisher expected when the record was stored where it came from.
ONCE = {"Nats-Expected-Stream": ["OLD"], "Nats-Expected-Last-Sequence": ["7"]}


@dataclass(frozen=True)
class Row:
    seq: int
    ts_ns: int
    stream: str = "OLD"
    subject: str = "paced.old"
    payload: bytes = b"x"
    headers: dict[str, list[str]] = field(default_factory=dict)
    tag: str | None = None


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.time += seconds


def create(broker: Peer, name: str) -> None:
    config = {"name": name, "subjects": [f"{name.lower()}.>"], "duplicate_window": 120 * SECOND}
    with connect(broker.url) as client:
        client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())


def stored(broker: Peer, name: str) -> list[dict[str, object]]:
    with connect(broker.url) as client:
        info = json.loads(client.request(f"$JS.API.STREAM.INFO.{name}").payload)
        found = []
        for seq in range(1, info["state"]["last_seq"] + 1):
            body = json.dumps({"seq": seq}).encode()
            found.append(json.loads(client.request(f"$JS.API.STREAM.MSG.GET.{name}", body).payload))
    return [one["message"] for one in found]


def test_a_record_is_due_as_long_after_the_first_as_it_was_divided_by_the_speed() -> None:
    assert ReplayPace(1).due(61 * SECOND, SECOND) == 60.0
    assert ReplayPace(60).due(61 * SECOND, SECOND) == 1.0
    assert ReplayPace(0.5).due(2 * SECOND, SECOND) == 2.0
    assert ReplayPace(1).due(0, SECOND) == 0.0


def test_records_are_published_in_order_each_when_it_is_due(broker: Peer) -> None:
    create(broker, "PACED")
    clock = Clock()
    rows = [
        Row(1, 10 * SECOND, tag="t", headers={"H": ["1", "2"], "Nats-Msg-Id": ["old"]} | ONCE),
        Row(2, 12 * SECOND, subject="paced.b"),
        Row(3, 12 * SECOND),
        Row(4, 16 * SECOND),
    ]
    sent = publish(Server(broker.url), rows, "PACED", None, ReplayPace(2), clock.sleep, clock.now)
    assert (sent, clock.slept) == (4, [1.0, 2.0])
    found = stored(broker, "PACED")
    assert [one["subject"] for one in found] == ["paced.old", "paced.b", "paced.old", "paced.old"]


def test_a_subject_of_another_stream_is_refused_and_not_stored_there(broker: Peer) -> None:
    create(broker, "LIVE")
    create(broker, "TEST")
    with pytest.raises(PipelineError, match=r"'TEST' does not take .* --subject"):
        publish(Server(broker.url), [Row(1, 1, subject="live.a")], "TEST", None, ReplayPace(1))
    assert stored(broker, "LIVE") == stored(broker, "TEST") == []


def test_a_replay_that_starts_again_is_stored_once_within_the_duplicate_window(
    broker: Peer,
) -> None:
    create(broker, "AGAINST")
    rows = [Row(seq, seq * SECOND) for seq in range(1, 601)]  # more than are on their way at once
    clock = Clock()
    for _ in range(2):
        pace = ReplayPace(1_000_000)
        sent = publish(
            Server(broker.url), rows, "AGAINST", "against.x", pace, clock.sleep, clock.now
        )
        assert sent == 600
    assert len(stored(broker, "AGAINST")) == 600


def test_a_subject_that_no_stream_takes_is_told(broker: Peer) -> None:
    with pytest.raises(PipelineError, match=r"no stream of .* captures these subjects"):
        publish(Server(broker.url), [Row(1, 1)], "NOBODY", "nobody.listens", ReplayPace(1))
