"""JetStream beside what accounts configure: mappings, and what the system account hears."""

import asyncio
import json
from pathlib import Path
from typing import Any

from configured_pair import Place, both

from support.clients import flushed

CONFIG = """
jetstream: { store_dir: "DIRECTORY", limits: { batch: { max_inflight_per_stream: 1 } } }
accounts: {
  A: {
    users: [ {user: alice, password: secret} ]
    jetstream: enabled
    mappings: { "orders.*": "stored.$1", "lost": "nowhere" }
  }
  SYS: { users: [ {user: sys, password: secret} ] }
}
system_account: SYS
"""


async def ask(client: Any, subject: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await client.request(subject, data, timeout=5, headers=headers)
    return json.loads(answer.data) if answer.data else None


async def test_a_stream_captures_what_a_mapping_brings_under_the_mapped_subject(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        client = await place.client("alice")
        config = {"name": "S", "subjects": ["stored.>"]}
        await ask(client, "$JS.API.STREAM.CREATE.S", config)
        seen = [await ask(client, "orders.x", b"one"), await ask(client, "stored.y", b"two")]
        for seq in (1, 2):
            found = await ask(client, "$JS.API.STREAM.MSG.GET.S", {"seq": seq})
            seen.append((found["message"]["subject"], found["message"]["data"]))
        # Nobody captures a subject that is mapped away, though a stream names it.
        config = {"name": "O", "subjects": ["lost"]}
        await ask(client, "$JS.API.STREAM.CREATE.O", config)
        await client.publish("lost", b"three")
        await flushed(client)
        found = await ask(client, "$JS.API.STREAM.INFO.O", b"")
        return [*seen, found["state"]["messages"]]

    seen = await both(tmp_path, CONFIG, scenario)
    assert seen[2][0] == "stored.x"
    assert seen[-1] == 0


async def test_the_system_account_hears_of_batches_that_are_given_up(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        client, system = await place.client("alice"), await place.client("sys")
        heard: dict[str, asyncio.Future[Any]] = {}
        for name, one in (("alice", client), ("sys", system)):
            heard[name] = asyncio.get_running_loop().create_future()

            async def note(msg: Any, told: asyncio.Future[Any] = heard[name]) -> None:
                advisory = json.loads(msg.data)
                assert advisory.pop("id")
                assert advisory.pop("timestamp")
                told.set_result((msg.subject, advisory))

            await one.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>", cb=note)
            await flushed(one)
        config = {"name": "S", "subjects": ["s"], "allow_atomic": True}
        await ask(client, "$JS.API.STREAM.CREATE.S", config)
        batch = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
        await ask(client, "s", b"x", batch)
        await ask(client, "s", b"x", {**batch, "Nats-Batch-Sequence": "3"})
        return [await asyncio.wait_for(told, 5) for told in heard.values()]

    alice, system = await both(tmp_path, CONFIG, scenario)
    assert "account" not in alice[1]
    assert system[1]["account"] == "A"


async def test_the_system_account_can_delete_all_streams_of_an_account(tmp_path: Path):
    async def scenario(place: Place) -> list[Any]:
        client, system = await place.client("alice"), await place.client("sys")
        for name in ("S", "T"):
            await ask(client, f"$JS.API.STREAM.CREATE.{name}", {"name": name})
        names = [await ask(client, "$JS.API.STREAM.NAMES", b"")]
        seen = [await ask(system, f"$JS.API.ACCOUNT.PURGE.{name}", b"") for name in ("A", "NOBODY")]
        names.append(await ask(client, "$JS.API.STREAM.NAMES", b""))
        own = await ask(system, "$JS.API.INFO", b"")  # which has no streams of its own
        return [*seen, *(each["streams"] or [] for each in names), own]

    seen = await both(tmp_path, CONFIG, scenario)
    assert seen[2:4] == [["S", "T"], []]
