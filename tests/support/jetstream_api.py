"""Requests to the JetStream API as a plain client sends them."""

import asyncio
import json
from typing import Any

from nats.aio.client import Client

from support.scale import count

SECONDS = count(10, 60)
WAIT_SECONDS = count(20.0, 120.0)


async def api(client: Client, subject: str, body: Any = b"") -> Any:
    """Ask ``$JS.API.<subject>``; bytes go as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{subject}", data, timeout=SECONDS)
    return json.loads(reply.data)


async def info_at(client: Client, stream: str, last_seq: int) -> dict[str, Any]:
    """Return a stream's info once it has come so far, or as it is when the wait is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_SECONDS
    while True:
        info: dict[str, Any] = await api(client, f"STREAM.INFO.{stream}", {"deleted_details": True})
        if info["state"]["last_seq"] >= last_seq or loop.time() > deadline:
            return info
        await asyncio.sleep(0.02)
