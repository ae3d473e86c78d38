"""What streams do beyond limits: the same steps here and at the real nats-server."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jetstream_broker import Broker
from nats.aio.client import Client

import nats
from support.nats_server import nats_server

NANO = 10**9


async def both(tmp_path: Path, scenario: Callable[[Client], Awaitable[Any]]) -> tuple[Any, Any]:
    """Return what the scenario saw here and at the reference."""
    broker = Broker(str(tmp_path / "ours"))
    seen = []
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        for url in (broker.start(), reference.url):
            client = await nats.connect(url, allow_reconnect=False)
            seen.append(await scenario(client))
            await client.close()
    await broker.stop()
    return seen[0], seen[1]


async def api(client: Client, subject: str, body: Any = b"") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{subject}", data, timeout=2)
    answer = json.loads(re.sub(r'"20\d\d-[^"]*Z"', '"TIME"', reply.data.decode()))
    answer.pop("cluster", None)
    return answer


async def publish(
    client: Client, subject: str, data: bytes = b"x", headers: dict[str, str] | None = None
) -> Any:
    reply = await client.request(subject, data, timeout=2, headers=headers)
    return json.loads(reply.data)


async def counts(client: Client, stream: str) -> tuple[int, int, int]:
    state = (await api(client, f"STREAM.INFO.{stream}"))["state"]
    return state["messages"], state["first_seq"], state["last_seq"]


async def settled(client: Client, stream: str, wanted: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the counts once they are as wanted, or as they are after two seconds."""
    for _ in range(100):
        if await counts(client, stream) == wanted:
            break
        await asyncio.sleep(0.02)
    return await counts(client, stream)


def consumer(name: str, **config: Any) -> tuple[str, Any]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


async def work_queue(client: Client) -> list[Any]:
    seen = [await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"],
                                                  "retention": "workqueue"})]  # fmt: skip
    seen += [await publish(client, subject) for subject in ("s.a", "s.b", "s.a")]
    for name, config in (
        ("n", {"ack_policy": "none"}),
        ("l", {"ack_policy": "all"}),
        ("d", {"deliver_policy": "new"}),
        ("a", {"filter_subject": "s.a"}),
        ("o", {}),
        ("p", {"filter_subject": "s.*"}),
        ("b", {"filter_subject": "s.b"}),
        ("b", {"filter_subject": "s.a"}),
    ):
        seen.append(await api(client, *consumer(name, **config)))
    js = client.jetstream()
    pull = await js.pull_subscribe_bind("a", "S")
    first, second = await pull.fetch(2, timeout=2)
    await first.ack_sync()
    seen.append(await settled(client, "S", (2, 2, 3)))
    await second.term()
    seen.append(await settled(client, "S", (1, 2, 3)))
    seen.append(await api(client, "CONSUMER.DELETE.S.b"))
    seen.append(await counts(client, "S"))
    changed = {"name": "S", "subjects": ["s.*"]}
    seen.append(await api(client, "STREAM.UPDATE.S", changed))
    return seen


async def test_a_work_queue_hands_each_message_out_once_as_the_reference_does(tmp_path: Path):
    ours, theirs = await both(tmp_path, work_queue)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def interest(client: Client) -> list[Any]:
    wanted = {"name": "S", "subjects": ["s.*"], "retention": "interest"}
    seen = [await api(client, "STREAM.CREATE.S", wanted), await publish(client, "s.a")]
    seen.append(await settled(client, "S", (0, 2, 1)))
    await api(client, *consumer("a", filter_subject="s.a"))
    await api(client, *consumer("all"))
    seen += [await publish(client, subject) for subject in ("s.a", "s.b", "s.a")]
    js = client.jetstream()
    filtered = await (await js.pull_subscribe_bind("a", "S")).fetch(2, timeout=2)
    for message in filtered:
        await message.ack_sync()
    seen.append(await settled(client, "S", (3, 2, 4)))
    everything = await (await js.pull_subscribe_bind("all", "S")).fetch(2, timeout=2)
    for message in everything:
        await message.ack_sync()
    seen.append(await settled(client, "S", (1, 4, 4)))
    await api(client, "CONSUMER.DELETE.S.all")
    seen.append(await settled(client, "S", (0, 5, 4)))
    seen.append(await publish(client, "s.b"))
    seen.append(await settled(client, "S", (0, 6, 5)))
    seen.append(await publish(client, "s.a"))
    seen.append(await settled(client, "S", (1, 6, 6)))
    return seen


async def test_interest_keeps_a_message_until_the_last_consumer_acked_it(tmp_path: Path):
    ours, theirs = await both(tmp_path, interest)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine == wanted


async def test_messages_nobody_acks_are_let_go_once_they_are_delivered(tmp_path: Path):
    async def scenario(client: Client) -> list[Any]:
        wanted = {"name": "S", "subjects": ["s.*"], "retention": "interest"}
        await api(client, "STREAM.CREATE.S", wanted)
        inbox = await client.subscribe("in")
        await api(client, *consumer("p", deliver_subject="in", ack_policy="none"))
        for _ in range(3):
            await publish(client, "s.a")
            await inbox.next_msg(timeout=2)
        return [await settled(client, "S", (0, 4, 3))]

    ours, theirs = await both(tmp_path, scenario)
    assert ours == theirs == [(0, 4, 3)]


async def test_what_was_acked_and_what_was_not_survives_a_restart(tmp_path: Path):
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"],
                                          "retention": "interest"})  # fmt: skip
    await api(client, *consumer("a"))
    await api(client, *consumer("b"))
    for _ in range(3):
        await publish(client, "s.a")
    js = client.jetstream()
    for name in ("a", "b"):
        messages = await (await js.pull_subscribe_bind(name, "S")).fetch(3, timeout=2)
        await messages[1].ack_sync()
        if name == "a":
            await messages[0].ack_sync()
    assert await settled(client, "S", (2, 1, 3)) == (2, 1, 3)
    await client.close()
    await broker.stop()
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    assert await counts(client, "S") == (2, 1, 3)
    await api(client, "CONSUMER.DELETE.S.b")
    assert await settled(client, "S", (1, 3, 3)) == (1, 3, 3)
    with contextlib.suppress(nats.errors.Error):
        await client.close()
    await broker.stop()
