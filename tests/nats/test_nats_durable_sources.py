"""Mirrors and sources that read through a consumer of their origin: here and at nats-server."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker, both
from nats.aio.client import Client

import nats

CONSUMER = {"name": "C", "deliver_subject": "d"}


async def api(client: Client, subject: str, body: Any = None) -> Any:
    data = json.dumps(body).encode() if body else b""
    reply = await client.request(f"$JS.API.{subject}", data, timeout=5)
    return json.loads(reply.data)


async def origin(client: Client, **config: Any) -> None:
    made = await api(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], **config})
    assert "error" not in made


async def consumer(client: Client, **config: Any) -> Any:
    asked = {"durable_name": "C", "deliver_subject": "d", "ack_policy": "flow_control", **config}
    body = {"stream_name": "O", "config": {"name": "C", "max_ack_pending": 500, **asked}}
    return await api(client, "CONSUMER.CREATE.O.C", body)


async def target(client: Client, **config: Any) -> Any:
    return await api(client, "STREAM.CREATE.T", {"name": "T", **config})


async def publish(client: Client, count: int, subject: str = "o.a") -> None:
    for number in range(count):
        await client.request(subject, b"%d" % number, timeout=5)


async def until(client: Client, subject: str, is_so: Callable[[Any], bool]) -> Any:
    """Ask until it is so, or for ten seconds; returns the last answer."""
    for _ in range(200):
        answer = await api(client, subject)
        if is_so(answer):
            break
        await asyncio.sleep(0.05)
    return answer


def holds(last_seq: int) -> Callable[[Any], bool]:
    return lambda info: info["state"]["last_seq"] >= last_seq


def counts(info: Any) -> list[int]:
    return [info["state"][key] for key in ("messages", "first_seq", "last_seq")]


def floor(info: Any) -> list[int]:
    return [info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]]


def is_acked(last: int) -> Callable[[Any], bool]:
    return lambda info: info["ack_floor"]["stream_seq"] == last and not info["num_ack_pending"]


@pytest.mark.parametrize("kind", ["mirror", "sources"])
async def test_records_come_through_the_consumer_and_are_acked_by_flow_control(
    tmp_path: Path, kind: str
):
    async def scenario(client: Client) -> Any:
        await origin(client)
        await consumer(client)
        await publish(client, 5)
        named: Any = {"name": "O", "consumer": CONSUMER}
        made = await target(client, **{kind: named if kind == "mirror" else [named]})
        assert "error" not in made
        await until(client, "STREAM.INFO.T", holds(5))
        await publish(client, 5)
        copied = await until(client, "STREAM.INFO.T", holds(10))
        info = await until(client, "CONSUMER.INFO.O.C", is_acked(10))
        first = await api(client, "STREAM.MSG.GET.T", {"seq": 1})
        shown = copied["mirror"] if kind == "mirror" else copied["sources"][0]
        shown = {key: value for key, value in shown.items() if key != "active"}
        return counts(copied), floor(info), first["message"]["subject"], made["config"][kind], shown

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs
    assert ours[1] == [10, 0, 0]


async def test_what_the_consumer_filters_does_not_come(tmp_path: Path):
    async def scenario(client: Client) -> Any:
        await origin(client)
        await consumer(client, filter_subject="o.b")
        await publish(client, 2, "o.a")
        await publish(client, 2, "o.b")
        await target(client, mirror={"name": "O", "consumer": CONSUMER})
        copied = await until(client, "STREAM.INFO.T", holds(4))
        return counts(copied)

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs


async def test_a_queue_is_emptied_by_what_a_source_takes(tmp_path: Path):
    async def scenario(client: Client) -> Any:
        await origin(client, retention="workqueue")
        await consumer(client)
        await publish(client, 4)
        await target(client, sources=[{"name": "O", "consumer": CONSUMER}])
        copied = await until(client, "STREAM.INFO.T", holds(4))
        emptied = await until(client, "STREAM.INFO.O", lambda info: not info["state"]["messages"])
        return counts(copied), counts(emptied)

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs


async def test_a_consumer_that_is_acked_otherwise_is_told(tmp_path: Path):
    async def scenario(client: Client) -> Any:
        await origin(client)
        asked = {"durable_name": "C", "deliver_subject": "d", "ack_policy": "explicit"}
        await api(client, "CONSUMER.CREATE.O.C", {"stream_name": "O", "config": asked})
        await target(client, sources=[{"name": "O", "consumer": CONSUMER}])
        refused = await until(client, "STREAM.INFO.T", lambda info: "error" in info["sources"][0])
        return refused["sources"][0]["error"]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs


async def test_a_consumer_that_is_missing_is_waited_for(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await origin(client)
    await publish(client, 3)
    await target(client, mirror={"name": "O", "consumer": CONSUMER})
    refused = await until(client, "STREAM.INFO.T", lambda info: "error" in info["mirror"])
    await consumer(client)
    copied = await until(client, "STREAM.INFO.T", holds(3))
    await client.close()
    await broker.stop()
    assert (refused["mirror"]["error"]["err_code"], counts(copied)) == (10014, [3, 1, 3])


BAD = (
    {"mirror": {"name": "O", "consumer": {"name": "C"}}},
    {"mirror": {"name": "O", "consumer": CONSUMER, "opt_start_seq": 1}},
    {"mirror": {"name": "O", "consumer": CONSUMER, "filter_subject": "a"}},
    {"sources": [{"name": "O", "consumer": {"deliver_subject": "d"}}]},
    {"sources": [{"name": "O", "consumer": {"name": "C", "deliver_subject": "d.."}}]},
    {
        "sources": [
            {
                "name": "O",
                "consumer": CONSUMER,
                "subject_transforms": [{"src": ">", "dest": f"{one}.>"}],
            }
            for one in "ab"
        ]
    },
)


async def test_what_cannot_be_is_refused_alike(tmp_path: Path):
    async def scenario(client: Client) -> Any:
        await origin(client)
        return [(await target(client, **config))["error"] for config in BAD]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs


async def test_a_source_goes_on_where_it_was_after_a_restart(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await origin(client)
    await consumer(client)
    await publish(client, 3)
    await target(client, sources=[{"name": "O", "consumer": CONSUMER}])
    await until(client, "STREAM.INFO.T", holds(3))
    await client.close()
    await broker.stop()
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await publish(client, 2)
    copied = await until(client, "STREAM.INFO.T", holds(5))
    info = await until(client, "CONSUMER.INFO.O.C", is_acked(5))
    await client.close()
    await broker.stop()
    assert (counts(copied), floor(info)) == ([5, 1, 5], [5, 0, 0])


async def test_an_origin_that_is_made_anew_is_taken_from_its_beginning(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await origin(client)
    await consumer(client)
    await publish(client, 4)
    await target(client, sources=[{"name": "O", "consumer": CONSUMER}])
    await until(client, "STREAM.INFO.T", holds(4))
    await api(client, "STREAM.DELETE.O")
    await origin(client)
    await consumer(client)
    await publish(client, 2)
    copied = await until(client, "STREAM.INFO.T", holds(6))
    await client.close()
    await broker.stop()
    assert counts(copied) == [6, 1, 6]
