"""Very many consumers of one stream: all of them work, and those that do nothing cost nothing."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker
from nats.aio.client import Client

import nats
from millstream.consumers.pump import ConsumerPump
from support.scale import count
from support.waiting import eventually

CROWD = count(2_000, 10_000)


async def create(client: Client, names: list[str]) -> list[Any]:
    """Create pull consumers, many requests under way at once."""
    made = []
    for start in range(0, len(names), 200):
        asked = [
            client.request(
                f"$JS.API.CONSUMER.CREATE.S.{name}",
                json.dumps(
                    {
                        "stream_name": "S",
                        "config": {
                            "name": name,
                            "ack_policy": "explicit",
                            "mem_storage": True,
                            "inactive_threshold": 3600 * 10**9,
                            "filter_subject": f"s.{at % 100}",
                        },
                    }
                ).encode(),
                timeout=30,
            )
            for at, name in enumerate(names[start : start + 200], start)
        ]
        made += [json.loads(reply.data) for reply in await asyncio.gather(*asked)]
    return made


async def publish(client: Client, count: int) -> float:
    """Return the CPU seconds of the whole process for this many acknowledged publishes."""
    before = time.process_time()
    for start in range(0, count, 100):
        asked = [
            client.request(f"s.{at % 100}", b"x", timeout=30) for at in range(start, start + 100)
        ]
        await asyncio.gather(*asked)
    return time.process_time() - before


async def crowd(tmp_path: Path, size: int) -> None:
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    try:
        asked = {"name": "S", "subjects": ["s.*"], "storage": "memory"}
        await client.request("$JS.API.STREAM.CREATE.S", json.dumps(asked).encode(), timeout=5)
        await publish(client, 500)
        alone = await publish(client, 2_000)
        names = [f"c{number}" for number in range(size)]
        made = await create(client, names)
        assert {answer["num_pending"] for answer in made} == {25}
        crowded = await publish(client, 2_000)
        info = json.loads((await client.request("$JS.API.STREAM.INFO.S", timeout=10)).data)
        assert info["state"]["consumer_count"] == size
        assert not broker.js.catalog.get("S").watchers  # nobody is woken by a commit
        js = client.jetstream()
        for name in names[:: size // 20]:
            subscription = await js.pull_subscribe_bind(name, "S")
            fetched = await subscription.fetch(45, timeout=10)
            assert len(fetched) == 45
            await fetched[-1].ack_sync(timeout=10)
        # Nobody looks when something comes; what is allowed for is the noise of a busy machine.
        assert crowded < 3 * alone + size * 0.0005
    finally:
        await client.close()
        await broker.stop()


async def test_a_crowd_of_consumers_works_and_idle_ones_cost_nothing(tmp_path: Path):
    await crowd(tmp_path, CROWD)


async def test_a_record_wakes_only_the_waiting_consumers_that_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken, look = list[ConsumerPump](), ConsumerPump._on_growth

    def counted(pump: ConsumerPump) -> None:
        woken.append(pump)
        look(pump)

    monkeypatch.setattr(ConsumerPump, "_on_growth", counted)
    broker = Broker(str(tmp_path))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    try:
        asked = {"name": "S", "subjects": ["s.*"], "storage": "memory"}
        await client.request("$JS.API.STREAM.CREATE.S", json.dumps(asked).encode(), timeout=5)
        await create(client, [f"c{number}" for number in range(100)])
        js = client.jetstream()
        waiting = [await js.pull_subscribe_bind(f"c{number}", "S") for number in range(100)]
        fetches = [asyncio.create_task(each.fetch(1, timeout=20)) for each in waiting]
        watchers = broker.js.catalog.get("S").watchers
        await eventually(lambda: len(watchers) == 100)
        changed = {"name": "c8", "ack_policy": "explicit", "mem_storage": True}
        changed |= {"inactive_threshold": 3600 * 10**9, "filter_subject": "s.other"}
        body = json.dumps({"stream_name": "S", "config": changed}).encode()
        answer = await client.request("$JS.API.CONSUMER.CREATE.S.c8", body, timeout=5)
        assert b'"s.other"' in answer.data
        await client.request("s.7", b"x", timeout=5)
        await client.request("s.8", b"not for it any more", timeout=5)
        assert (await fetches[7])[0].subject == "s.7"
        await client.request("s.other", b"x", timeout=5)
        assert (await fetches[8])[0].subject == "s.other"
        assert len(woken) == 2
        for each in fetches:
            each.cancel()
    finally:
        await client.close()
        await broker.stop()
