"""What an account uses and may use, as /jsz, account info and publishers learn of it."""

import asyncio
import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from nats.aio.client import Client

import nats
from support.clients import flushed
from support.peers import free_port, nats_server_path, running

CONFIG = """
jetstream: {{ store_dir: "{dir}" }}
accounts: {{
  A: {{ users: [{{user: a, password: secret}}], jetstream: {{ max_mem: 1000, max_file: 2000 }} }}
}}
no_auth_user: a
"""
QUERIES = ("", "?accounts=1", "?acc=A", "?consumers=1&raft=1", "?acc=nope&streams=1")


async def ask(client: Client, subject: str, body: Any = None) -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    return json.loads((await client.request(subject, data, timeout=10)).data)


def look(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


def plain(value: Any) -> Any:
    """Drop what differs from one server or moment to the other."""
    text = re.sub(r'"20\d\d-[^"]*Z"', '"TIME"', json.dumps(value))
    shown = json.loads(re.sub(r'("(active|rtt|id)": )-?\d+', r"\1 1", text))
    # The global account has JetStream here, whether or not others have it.
    for key in ("server_id", "config", "limits", "now", "accounts", "total"):
        shown.pop(key, None)
    if "account_details" in shown:
        shown["account_details"] = [a for a in shown["account_details"] if a["name"] != "$G"]
    for account in shown.get("account_details", ()):
        for stream in account.get("stream_detail", ()):
            stream.pop("cluster")
        account.get("stream_detail", []).sort(key=lambda stream: stream["name"])
    return shown


async def scenario(client: Client, http: str) -> list[Any]:
    audits: list[Any] = []
    all_told = asyncio.Event()

    async def note(msg: Any) -> None:
        told = json.loads(msg.data)
        told["client"]["server"] = told["client"]["server"] == told.pop("server")
        told["client"].pop("rtt", None)  # when it was measured
        audits.append((told["subject"], sorted(told), told["client"]))
        if len(audits) == 6:
            all_told.set()

    await client.subscribe("$JS.EVENT.ADVISORY.API", cb=note)
    await flushed(client)
    seen = []
    for name, more in (
        ("F", {"max_bytes": 900}),
        ("M", {"max_bytes": 600, "storage": "memory"}),
        ("G", {}),
        ("H", {"max_bytes": 1200}),
    ):
        created = await ask(client, f"$JS.API.STREAM.CREATE.{name}", {"name": name, **more})
        seen.append(created.get("error"))
    config = {"name": "c", "durable_name": "c", "ack_policy": "explicit"}
    await ask(client, "$JS.API.CONSUMER.CREATE.G.c", {"stream_name": "G", "config": config})
    for size in (500, 500, 1200, 400, 100):
        reply = json.loads((await client.request("G", b"x" * size, timeout=10)).data)
        seen.append(reply)
    seen.append(await ask(client, "$JS.API.INFO"))
    seen += [(query, plain(look(f"{http}/jsz{query}"))) for query in QUERIES]
    await asyncio.wait_for(all_told.wait(), 5)
    return [*seen, plain({"audits": sorted(audits, key=str)})]


async def test_an_account_is_told_and_held_to_what_it_may_use_as_at_the_reference(tmp_path: Path):
    seen = []
    for name, command in (
        ("ours", [sys.executable, "-m", "millstream", "nats-server"]),
        ("theirs", [nats_server_path()]),
    ):
        directory = tmp_path / name
        directory.mkdir()
        conf = directory / "server.conf"
        conf.write_text(CONFIG.format(dir=directory / "data"))
        port, http = free_port(), free_port()
        command += ["-c", str(conf), "-a", "127.0.0.1", "-p", str(port), "-m", str(http)]
        with running(name, command, port, directory, http):
            client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
            try:
                seen.append(await scenario(client, f"http://127.0.0.1:{http}"))
            finally:
                await client.close()
    assert [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]] == []
