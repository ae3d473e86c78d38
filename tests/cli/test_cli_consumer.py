"""``millstream consumer why`` against our server and the real one."""

import json
from collections.abc import Iterator

import pytest

from millstream.cli import main
from millstream.client import Client, connect
from support.broker import millstream
from support.peers import Peer, nats_server


@pytest.fixture(scope="module", params=["ours", "theirs"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with millstream() if request.param == "ours" else nats_server(jetstream=True) as running:
        yield running


def ask(client: Client, subject: str, body: object) -> None:
    answer = json.loads(client.request(f"$JS.API.{subject}", json.dumps(body).encode()).payload)
    assert "error" not in answer, answer


def create(client: Client, name: str, **config: object) -> None:
    wish = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": "ORDERS", "config": wish}
    ask(client, f"CONSUMER.DURABLE.CREATE.ORDERS.{name}", body)


def test_the_cause_is_told_in_one_line(peer: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"nats://{peer.host}:{peer.port}"

    def why(name: str) -> str:
        assert main.run(["consumer", "why", "ORDERS", name, "-s", url]) == 0
        return capsys.readouterr().out

    with connect(url) as client:
        ask(client, "STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        create(client, "billing")
        assert why("billing") == "caught up; 0 pending, 0 in flight\n"
        client.request("orders.new", b"1")
        client.request("orders.new", b"2")
        assert why("billing") == (
            "no waiting pull requests (nobody fetches); 2 pending, 0 in flight\n"
        )
        create(client, "narrow", max_ack_pending=1)
        taken = client.subscribe("taken")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.ORDERS.narrow", b"1", reply="taken")
        assert taken.next(5).payload == b"1"
        assert why("narrow") == (
            "waiting for acks (max_ack_pending of 1 reached); 1 pending, 1 in flight\n"
        )
        create(client, "pushed", deliver_subject="to.me")
        assert why("pushed") == (
            "no interest on the deliver subject to.me; 2 pending, 0 in flight\n"
        )
        until = "2099-01-01T00:00:00Z"
        ask(client, "CONSUMER.PAUSE.ORDERS.billing", {"pause_until": until})
        told = why("billing")
        assert told.startswith(f"paused until {until} (")
        assert told.endswith(" s more); 2 pending, 0 in flight\n")
    for stream, name, error in (
        (
            "ORDERS",
            "biling",
            "stream 'ORDERS' has no consumer named 'biling'; did you mean 'billing'?",
        ),
        ("ORDER", "nobody", "the server has no stream named 'ORDER'; did you mean 'ORDERS'?"),
    ):
        assert main.run(["consumer", "why", stream, name, "-s", url]) == 1
        assert capsys.readouterr().err == f"millstream: {error}\n"


def test_what_cannot_be_a_name_is_a_mistake_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["consumer", "why", "a.b", "c"]) == 2
    assert "not a name of a stream or consumer" in capsys.readouterr().err
