"""The size of a stream, header blocks counted as the reference counts them, to the byte."""

import json
from pathlib import Path
from typing import Any

import pytest
from jetstream_broker import Broker
from nats.aio.client import Client

import nats
from support.nats_server import nats_server

STREAM = {"name": "S", "subjects": ["s.*"], "allow_rollup_hdrs": True}


async def ask(client: Client, subject: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(f"$JS.API.{subject}", data, timeout=10)).data)


async def size(client: Client) -> tuple[int, int]:
    state = (await ask(client, "STREAM.INFO.S"))["state"]
    return state["messages"], state["bytes"]


async def fill(client: Client) -> None:
    for number in range(40):
        headers = {"A": "b" * number} if number % 3 else None
        await client.request(f"s.{number % 7}", b"x" * number, timeout=10, headers=headers)


async def steps(client: Client, storage: str) -> list[Any]:
    await ask(client, "STREAM.CREATE.S", {**STREAM, "storage": storage})
    await fill(client)
    seen = [await size(client)]
    for seq in (1, 2, 3, 20):
        await ask(client, "STREAM.MSG.DELETE.S", {"seq": seq})
        seen.append(await size(client))
    await ask(client, "STREAM.PURGE.S", {"filter": "s.3"})
    seen.append(await size(client))
    await client.request("s.4", b"r", timeout=10, headers={"Nats-Rollup": "sub"})
    seen.append(await size(client))
    await ask(client, "STREAM.PURGE.S", {"seq": 15})
    seen.append(await size(client))
    await ask(client, "STREAM.UPDATE.S", {**STREAM, "storage": storage, "max_bytes": 600})
    seen.append(await size(client))
    await ask(client, "STREAM.UPDATE.S", {**STREAM, "storage": storage, "max_msgs": 5})
    return [*seen, await size(client)]


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_bytes_are_those_of_the_reference_whatever_was_removed(tmp_path: Path, storage: str):
    broker = Broker(str(tmp_path / "ours"))
    client = await nats.connect(broker.start(), allow_reconnect=False)
    ours = await steps(client, storage)
    await client.close()
    await broker.stop()
    with nats_server("-js", "-sd", str(tmp_path / "theirs")) as reference:
        client = await nats.connect(reference.url, allow_reconnect=False)
        theirs = await steps(client, storage)
        await client.close()
    assert ours == theirs


async def test_bytes_are_the_same_after_a_restart(tmp_path: Path):
    seen = []
    for cycle in range(2):
        broker = Broker(str(tmp_path))
        client = await nats.connect(broker.start(), allow_reconnect=False)
        if cycle == 0:
            await ask(client, "STREAM.CREATE.S", STREAM)
            await fill(client)
            await ask(client, "STREAM.MSG.DELETE.S", {"seq": 2})
        seen.append(await size(client))
        await client.close()
        await broker.stop()
    assert seen[0] == seen[1]
