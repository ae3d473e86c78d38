"""The feed: one look for everybody, little for each, and nothing piles up for who is stuck."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.broker import millstream
from support.peers import Peer
from support.scale import count

STREAMS, CLIENTS, SECONDS = count(200, 1000), count(50, 200), count(4, 20)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@contextlib.asynccontextmanager
async def following(port: int) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writer.write(b"GET /v0/feed HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await writer.drain()
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def sample(reader: asyncio.StreamReader) -> Any:
    while True:
        line = await asyncio.wait_for(reader.readline(), 20)
        if line.startswith(b"data: "):
            return json.loads(line[6:])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def asked(port: int, method: str, path: str, body: object = None) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n"
    writer.write(
        f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + raw
    )
    answer = await reader.read()
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), answer[:200]
    writer.close()


async def furnished(peer: Peer) -> None:
    for at in range(STREAMS):
        body = {"records": [{"data": at}], "config": {"durability": "memory"}}
        await asked(peer.http_port, "POST", f"/v0/topics/s{at:04}", body)


async def test_the_first_look_is_whole_and_later_ones_tell_what_changed() -> None:
    with millstream() as peer:
        await asked(peer.http_port, "PUT", "/v0/topics/one")
        await asked(peer.http_port, "PUT", "/v0/topics/two")
        async with following(peer.http_port) as reader:
            first = await sample(reader)
            assert first["full"]
            assert [row[0] for row in first["streams"]] == ["one", "two"]
            assert first["server"]["problems"] == []
            await asked(peer.http_port, "POST", "/v0/topics/two", {"records": [{"data": 1}]})
            while not (later := await sample(reader))["streams"]:
                pass
            assert not later["full"]
            assert [(row[0], row[2]) for row in later["streams"]] == [("two", 1)]
            await asked(peer.http_port, "DELETE", "/v0/topics/one")
            while not (later := await sample(reader)).get("gone"):
                pass
            assert later["gone"] == ["one"]


async def test_many_who_watch_cost_little_and_one_who_is_stuck_next_to_nothing() -> None:
    with millstream() as peer:
        await furnished(peer)
        async with contextlib.AsyncExitStack() as stack:
            before = peer.rss_bytes()
            stuck = await stack.enter_async_context(following(peer.http_port))
            assert stuck is not None  # and never read from
            readers = [
                await stack.enter_async_context(following(peer.http_port)) for _ in range(CLIENTS)
            ]
            seen = await asyncio.gather(*(sample(reader) for reader in readers))
            assert all(len(each["streams"]) == STREAMS for each in seen)
            began, used = time.monotonic(), cpu_seconds(peer.pid)
            for turn in range(SECONDS):
                body = {"records": [{"data": turn}]}
                await asked(peer.http_port, "POST", f"/v0/topics/s{turn:04}", body)
                await asyncio.gather(*(sample(reader) for reader in readers))
            spent = cpu_seconds(peer.pid) - used
            print(
                f"{CLIENTS} clients, {STREAMS} streams: "
                f"{100 * spent / (time.monotonic() - began):.1f} % of a core, "
                f"{(peer.rss_bytes() - before) / 1e6:.1f} MB more memory"
            )
            # A bound that a broken feed passes by far: rendering for each client takes ten times.
            assert spent / SECONDS < 0.5
            assert peer.rss_bytes() - before < (CLIENTS + 1) * 1_000_000
