"""The WebSocket of a running server, with keys: who comes in, and what each message may."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.accounts.api_keys import make_key
from millstream.clock import SystemClock
from millstream.server.access.key_file import KeyFile
from millstream.server.build import build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.server import Server


class Ws:
    """A client that says and hears JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def say(self, **message: Any) -> None:
        text = json.dumps(message).encode()
        assert len(text) < 126
        self.writer.write(bytes((0x81, 0x80 | len(text))) + bytes(4) + text)

    async def hear(self) -> Any:
        """Return the next message, None for a close."""
        async with asyncio.timeout(10):
            first, size = await self._reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self._reader.readexactly(2))
            text = await self._reader.readexactly(size)
        return None if first & 15 == 8 else json.loads(text)

    async def ask(self, **message: Any) -> Any:
        self.say(**message)
        return await self.hear()


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[int]:
    given = {"port": 0, "http_port": 0, "data_dir": directory / "data"}
    options = load_serve(given, "").options
    server = Server(options, build(options, asyncio.get_running_loop(), SystemClock()))
    await server.start()
    try:
        assert server.http_address is not None
        yield server.http_address[1]
    finally:
        await server.stop()


async def upgrade(port: int, secret: str) -> tuple[bytes, Ws]:
    """Return the status line and the client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    nonce = base64.b64encode(bytes(16)).decode()
    key = f"Authorization: Bearer {secret}\r\n" if secret else ""
    writer.write(
        "GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\n{key}\r\n".encode()
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    return head.split(b"\r\n")[0], Ws(reader, writer)


def hand_out(directory: Path, **rights: Any) -> str:
    key, secret = make_key("k", **rights)
    with KeyFile(directory / "data").changed() as keys:
        keys.append(key)
    return secret


async def test_only_a_key_that_counts_opens_a_socket(tmp_path: Path) -> None:
    secret = hand_out(tmp_path)
    async with serving(tmp_path) as port:
        for wrong in ("", "nobody's", secret + "x"):
            status, refused = await upgrade(port, wrong)
            assert status == b"HTTP/1.1 401 Unauthorized"
            refused.writer.close()
        status, ws = await upgrade(port, secret)
        assert status == b"HTTP/1.1 101 Switching Protocols"
        assert (await ws.ask(op="ping"))["op"] == "pong"
        ws.writer.close()


async def test_each_message_is_judged_by_scope_and_name(tmp_path: Path) -> None:
    secret = hand_out(tmp_path, scopes=frozenset(("read",)), prefixes=("a",))
    async with serving(tmp_path) as port:
        _, ws = await upgrade(port, secret)
        said = await ws.ask(op="publish", topic="a", records=[{"data": 1}])
        assert (said["op"], said["code"]) == ("error", "forbidden")
        said = await ws.ask(op="subscribe", topic="b")
        assert (said["op"], said["code"]) == ("error", "forbidden")
        said = await ws.ask(op="subscribe", topic="a")
        assert (said["op"], said["code"]) == ("error", "topic_not_found")
        ws.writer.close()


async def test_a_revoked_key_ends_its_socket_within_five_seconds(tmp_path: Path) -> None:
    secret = hand_out(tmp_path)
    async with serving(tmp_path) as port:
        _, ws = await upgrade(port, secret)
        assert (await ws.ask(op="publish", topic="t", records=[{"data": 1}]))["op"] == "ack"
        with KeyFile(tmp_path / "data").changed() as keys:
            keys.clear()
        async with asyncio.timeout(5):
            said = await ws.hear()
            assert (said["op"], said["code"]) == ("error", "unauthorized")
            assert await ws.hear() is None
        ws.writer.close()


async def test_a_key_whose_rights_change_opens_its_socket_anew(tmp_path: Path) -> None:
    secret = hand_out(tmp_path)
    async with serving(tmp_path) as port:
        _, ws = await upgrade(port, secret)
        assert (await ws.ask(op="publish", topic="t", records=[{"data": 1}]))["op"] == "ack"
        with KeyFile(tmp_path / "data").changed() as keys:
            keys[:] = [replace(key, scopes=frozenset(("read",))) for key in keys]
        assert (await ws.hear())["code"] == "unauthorized"
        ws.writer.close()
        _, ws = await upgrade(port, secret)
        said = await ws.ask(op="publish", topic="t", records=[{"data": 1}])
        assert said["code"] == "forbidden"
        ws.writer.close()
