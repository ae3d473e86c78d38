"""An account without JetStream that imports another one's API: it works as at the reference."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from configured_pair import Place, both
from nats.aio.client import Client
from nats.errors import TimeoutError as NothingCame

CONFIG = """
server_name: one
jetstream: { store_dir: "DIRECTORY" }
accounts {
  A {
    jetstream: enabled, users: [{user: a, password: secret}]
    exports: [
      {service: "$JS.API.>", response_type: stream}, {service: "$KV.>"}, {service: "$JS.ACK.>"}
      {stream: "deliver.>"}, {stream: "_INBOX.>"}
    ]
  }
  B {
    users: [{user: b, password: secret}]
    imports: [
      {service: {account: A, subject: "$JS.API.>"}}, {service: {account: A, subject: "$KV.>"}}
      {service: {account: A, subject: "$JS.ACK.>"}}, {stream: {account: A, subject: "deliver.>"}}
      {stream: {account: A, subject: "_INBOX.>"}}
    ]
  }
  C {
    jetstream: enabled, users: [{user: c, password: secret}]
    imports: [
      {service: {account: A, subject: "$JS.API.>"}, to: "from.A.>"}
      {service: {account: A, subject: "$JS.ACK.>"}}, {stream: {account: A, subject: "_INBOX.>"}}
    ]
  }
}
"""
CHANGES = re.compile(r'"\d{4}-\d\d-\d\dT[^"]*Z"|\.\d{15,}\.')


async def api(client: Client, subject: str, body: Any = None, prefix: str = "$JS.API") -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    answer = await client.request(f"{prefix}.{subject}", data, timeout=5)
    return json.loads(CHANGES.sub('""', answer.data.decode()))


def consumer(name: str, **config: Any) -> tuple[str, Any]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


async def received(sub: Any, client: Client, count: int) -> list[tuple[str, str, bytes]]:
    found = []
    for _ in range(count):
        message = await sub.next_msg(timeout=5)
        found.append((message.subject, CHANGES.sub(".T.", message.reply), message.data))
        await client.publish(message.reply, b"+ACK")
    await client.flush()
    return found


async def acked(owner: Client, name: str, count: int) -> Any:
    """Return the consumer once the owner's side has all acks."""
    for _ in range(500):
        info = await api(owner, f"CONSUMER.INFO.S.{name}")
        if info["ack_floor"]["stream_seq"] == count:
            return info["num_ack_pending"], info["num_pending"]
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{name} is not acknowledged")


async def streams(place: Place) -> list[Any]:
    owner = await place.client("a")
    seen: list[Any] = []
    for user, prefix in (("b", "$JS.API"), ("c", "from.A")):
        client = await place.client(user)
        seen.append(
            await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]}, prefix)
        )
        for at in range(3):
            await owner.request(f"s.{user}.{at}", b"x", timeout=5)
        for asked in (
            *(consumer("pull"), consumer("push", deliver_subject="deliver.x")),
            *(("CONSUMER.LIST.S",), ("CONSUMER.NAMES.S",), ("STREAM.NAMES",), ("STREAM.INFO.S",)),
        ):
            seen.append(await api(client, *asked, prefix=prefix))  # noqa: PERF401 - in this order
        inbox = client.new_inbox()
        sub = await client.subscribe(inbox)
        await client.publish(f"{prefix}.CONSUMER.MSG.NEXT.S.pull", b'{"batch":3}', reply=inbox)
        seen.append(await received(sub, client, 3))
        seen.append(await acked(owner, "pull", 3))
        if user == "b":
            pushed = await client.subscribe("deliver.x")
            seen.append(await received(pushed, client, 3))
            seen.append(await acked(owner, "push", 3))
            await pushed.unsubscribe()
            await client.flush()
        late = client.new_inbox()
        made = await api(client, *consumer("late", deliver_subject=late), prefix)
        seen.append("push_bound" in made)
        seen.append(await received(await client.subscribe(late), client, 3))
        seen.append(await api(client, "STREAM.DELETE.S", None, prefix))
    return seen


async def test_streams_and_consumers_of_another_account_work_through_imports(tmp_path: Path):
    seen = await both(tmp_path, CONFIG, streams)
    assert seen[0]["did_create"] is True


async def keys(place: Place) -> list[Any]:
    owner, client = await place.client("a"), await place.client("b")
    await owner.jetstream().create_key_value(bucket="K", history=3)
    bucket = await client.jetstream().key_value("K")
    seen: list[Any] = [await bucket.put("x", b"1"), await bucket.put("x", b"2")]
    seen += [await bucket.create("y", b"1"), await bucket.update("x", b"3", last=2)]
    seen.append((await bucket.get("x")).value)
    seen.append(sorted(await bucket.keys()))
    seen.append([(e.key, e.value, e.revision) for e in await bucket.history("x")])
    watcher = await bucket.watch("y")
    await bucket.put("y", b"5")
    try:
        while (entry := await watcher.updates(timeout=5)) is None or entry.value != b"5":
            seen.append(entry is None or entry.value)
    except NothingCame:
        seen.append("silence")
    await watcher.stop()
    return seen


async def test_a_bucket_of_another_account_is_written_read_and_watched(tmp_path: Path):
    seen = await both(tmp_path, CONFIG, keys)
    assert seen[4:6] == [b"3", ["x", "y"]]


def _sorted(listed: Any) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in listed)


async def accounts(place: Place) -> list[Any]:
    system, seen = await place.client("sys"), []
    for name in ("A", "B", "SYS", "$G"):
        asked = f"$SYS.REQ.ACCOUNT.{name}.INFO"
        told = json.loads((await system.request(asked, b"", timeout=5)).data)["data"]
        seen.append((name, told["jetstream_enabled"]))
        seen += [_sorted(told.get("imports", ())), _sorted(told.get("exports", ()))]
    nobody = await place.client()
    seen.append((await api(nobody, "INFO")).get("error"))
    found = place.page("jsz?accounts=1")
    seen.append(sorted(one["name"] for one in found["account_details"]))
    owner = await place.client("a")
    for retention in ("workqueue", "interest", "limits"):
        await api(
            owner, "STREAM.CREATE.W", {"name": "W", "subjects": ["w"], "retention": retention}
        )
        await api(owner, "STREAM.CREATE.D", {"name": "D", "sources": [{"name": "W"}]})
        expected = int(retention != "limits")
        for _ in range(500):  # the reference begins to draw a moment later
            count = (await api(owner, "STREAM.INFO.W"))["state"]["consumer_count"]
            if count == expected:
                break
            await asyncio.sleep(0.01)
        seen.append((retention, count))
        for stream in ("D", "W"):
            await api(owner, f"STREAM.DELETE.{stream}")
    return seen


async def test_accounts_are_described_and_the_global_one_is_closed_as_at_the_reference(
    tmp_path: Path,
):
    config = CONFIG.replace(
        "accounts {", "accounts { SYS { users: [{user: sys, password: secret}] }"
    )
    config += (
        "system_account: SYS\nno_auth_user: g\nauthorization { users: [{user: g, password: g}] }\n"
    )
    seen = await both(tmp_path, config, accounts)
    assert ("$G", False) in seen
    assert ("workqueue", 1) in seen
