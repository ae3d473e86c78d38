"""The monitoring answers of millstream and of the real nats-server have the same fields.

Both servers see the same clients and the same stream. Where the fields differ, the difference is
listed here with its reason; anything else fails.
"""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nats
from support.broker import millstream
from support.clients import flushed
from support.peers import Peer, free_port, nats_server_path, running, scratch_directory

# What nats-server tells and we do not: path → why.
NOT_OURS = {
    "varz.git_commit": "no such build",
    "varz.gomaxprocs": "a setting of Go's runtime",
    "varz.disk_io_wait_stats": "a figure of its own store",
}
# What we tell beyond it.
OURS = {
    "varz.millstream": "our own version, beside the one that clients gate features on",
    "varz.jetstream.config.sync_always": "synced before every acknowledgement by default",
    "jsz.config.sync_always": "synced before every acknowledgement by default",
    "healthz.version": "promised beside nats-server's fields",
    "healthz.uptime_ms": "promised beside nats-server's fields",
    "connz.connections.subscriptions_list_detail.account": "shown for open connections too",
}
ASKED = [
    "/varz",
    "/connz?subs=detail&state=any&auth=1",
    "/subsz?subs=1&test=orders.new",
    "/accountz?acc=$G",
    "/accstatz",
    "/routez",
    "/leafz",
    "/gatewayz",
    "/ipqueuesz",
    "/jsz?consumers=1&config=1",
    "/healthz",
]
METRICS = "/metrics"
REFUSED = [
    "/connz?subs=maybe",
    "/connz?limit=x",
    "/connz?state=ajar",
    "/connz?sort=bogus",
    "/connz?sort=stop",
    "/subsz?test=a.*",
    "/accountz?acc=nobody",
    "/accstatz?unused=x",
    "/routez?subs=x",
    "/ipqueuesz?all=x",
    "/raftz",
    "/jsz?accounts=x",
    "/healthz?js-enabled-only=x",
    "/healthz?stream=x",
    "/healthz?consumer=x",
    "/healthz?account=$G&stream=nothing",
    "/healthz?account=nobody",
    "/healthz?account=$G&stream=ORDERS&consumer=nobody",
    "/healthz?account=$G&stream=ORDERS&consumer=worker",
]


@contextmanager
def reference() -> Iterator[Peer]:
    with scratch_directory("nats-server") as directory:
        port, http_port = free_port(), free_port()
        command = [
            *(nats_server_path(), "-a", "127.0.0.1", "-p", str(port), "-m", str(http_port)),
            *("-js", "-sd", str(Path(directory) / "data")),
        ]
        with running("nats-server", command, port, directory, http_port) as peer:
            yield peer


def ask(peer: Peer, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{peer.http_port}{path}", timeout=10) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


async def used(peer: Peer) -> dict[str, tuple[int, bytes]]:
    """Use a server in the usual ways, and return what it then says about itself."""
    client = await nats.connect(f"nats://127.0.0.1:{peer.port}", name="one")
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    await stream.publish("orders.new", b"x")
    await stream.add_consumer("ORDERS", durable_name="worker", ack_policy="explicit")
    await client.subscribe("orders.*", queue="workers")
    await client.subscribe("bar")
    other = await nats.connect(f"nats://127.0.0.1:{peer.port}", name="two")
    await other.subscribe("a.b")
    await other.publish("bar", b"hi")
    await flushed(other)
    await other.close()
    await flushed(client)
    while b'"two"' not in (await asyncio.to_thread(ask, peer, "/connz?state=closed"))[1]:
        pass  # each look takes a while already
    said = {path: await asyncio.to_thread(ask, peer, path) for path in [*ASKED, *REFUSED, METRICS]}
    await client.close()
    return said


@pytest.fixture(scope="module")
def answers() -> Iterator[list[dict[str, tuple[int, bytes]]]]:
    with reference() as theirs, millstream() as ours:
        yield [asyncio.run(used(theirs)), asyncio.run(used(ours))]


def fields(shown: Any, path: str) -> set[str]:
    """Return the paths of all fields; items of a list share one path."""
    if isinstance(shown, dict):
        if path.endswith(("http_req_stats", ".metadata")):
            return {path}
        inner = [fields(value, f"{path}.{key}") for key, value in shown.items()]
        return {path}.union(*inner) if inner else {path}
    if isinstance(shown, list) and shown and isinstance(shown[0], dict):
        return {path}.union(*(fields(each, path) for each in shown))
    return {path}


def covered(path: str, by: dict[str, str]) -> bool:
    return any(path == known or path.startswith(f"{known}.") for known in by)


@pytest.mark.parametrize("path", ASKED)
def test_both_servers_show_the_same_fields(
    path: str, answers: list[dict[str, tuple[int, bytes]]]
) -> None:
    (their_status, theirs), (our_status, ours) = (said[path] for said in answers)
    assert our_status == their_status == 200, ours
    name = path[1:].partition("?")[0]
    want, have = fields(json.loads(theirs), name), fields(json.loads(ours), name)
    assert {p for p in want - have if not covered(p, NOT_OURS)} == set()
    assert {p for p in have - want if not covered(p, OURS)} == set()


@pytest.mark.parametrize("path", REFUSED)
def test_both_servers_refuse_the_same_questions(
    path: str, answers: list[dict[str, tuple[int, bytes]]]
) -> None:
    (theirs, _), (ours, _) = (said[path] for said in answers)
    assert ours == theirs


def test_both_servers_count_the_same_messages_and_subscriptions(
    answers: list[dict[str, tuple[int, bytes]]],
) -> None:
    shown = [json.loads(said["/connz?subs=detail&state=any&auth=1"][1]) for said in answers]
    figures = ("name", "reason", "subscriptions", "in_msgs", "out_msgs", "kind", "type", "lang")
    told = [
        [
            {key: each.get(key) for key in figures}
            for each in answer["connections"]
            if each.get("name") in ("one", "two")
        ]
        for answer in shown
    ]
    assert told[0] == told[1]
    kept = [json.loads(said["/jsz?consumers=1&config=1"][1]) for said in answers]
    for key in ("streams", "consumers", "messages", "bytes"):
        assert kept[1][key] == kept[0][key], key


def test_the_ports_shown_are_those_that_are_open(
    answers: list[dict[str, tuple[int, bytes]]],
) -> None:
    with millstream() as peer:
        shown = json.loads(ask(peer, "/varz")[1])
        assert (shown["port"], shown["http_port"]) == (peer.port, peer.http_port)


SERVER = {"server_id", "server_name", "cluster", "domain", "meta_leader", "is_meta_leader"}
STREAM = {
    *SERVER,
    *("account", "account_name", "account_id"),
    *("stream_name", "stream_leader", "is_stream_leader", "stream_raft_group"),
}
CONSUMER = {
    *STREAM,
    *("consumer_name", "consumer_leader", "is_consumer_leader", "consumer_desc"),
}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("jetstream_server_total_streams", SERVER, "1"),
        ("jetstream_server_total_consumers", SERVER, "1"),
        ("jetstream_server_total_messages", SERVER, "1"),
        ("jetstream_stream_total_messages", STREAM, "1"),
        ("jetstream_stream_total_bytes", STREAM, "41"),
        ("jetstream_stream_last_seq", STREAM, "1"),
        ("jetstream_stream_consumer_count", STREAM, "1"),
        ("jetstream_consumer_num_pending", CONSUMER, "1"),
        ("jetstream_consumer_num_ack_pending", CONSUMER, "0"),
        ("jetstream_consumer_delivered_consumer_seq", CONSUMER, "0"),
        ("jetstream_consumer_ack_floor_stream_seq", CONSUMER, "0"),
    ],
)
def test_metrics_have_the_names_and_labels_that_boards_expect(
    name: str, labels: set[str], value: str, answers: list[dict[str, tuple[int, bytes]]]
) -> None:
    status, page = answers[1][METRICS]
    assert status == 200
    (line,) = [each for each in page.decode().splitlines() if each.startswith(f"{name}{{")]
    assert set(re.findall(r'(\w+)="', line)) == labels
    assert line.rsplit(" ", 1)[1] == value
