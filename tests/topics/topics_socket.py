"""The WebSocket of a topics API behind a real door, and a client of another make."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from topics_api import Api
from websockets.asyncio.client import ClientConnection, connect

from millstream.clock import SystemClock
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Caller, Request
from millstream.http.response import Answer


@dataclass
class Site:
    api: Api
    door: HttpDoor
    port: int
    caller: Caller | None = None

    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v0/ws"


@contextlib.asynccontextmanager
async def opened(api: Api) -> AsyncIterator[Site]:
    """Open a door to an API."""
    made: Site

    async def app(request: Request) -> Answer:
        if made.caller is not None:
            request.caller = made.caller
        return await api.routes(request)

    loop = asyncio.get_running_loop()
    door = HttpDoor(
        loop, app, SystemClock(), Limits(body_bytes=1 << 20, drain_seconds=20), api.topics.stop
    )
    made = Site(api, door, await door.start("127.0.0.1", 0))
    yield made
    await door.stop()


class Talk:
    """One socket, spoken to in plain values."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, op: str, **fields: Any) -> None:
        await self.connection.send(msgspec.json.encode({"op": op, **fields}).decode())

    async def hear(self) -> Any:
        async with asyncio.timeout(20):
            text = await self.connection.recv()
        assert isinstance(text, str)
        return msgspec.json.decode(text)

    async def until(self, op: str) -> Any:
        while True:
            message = await self.hear()
            if message["op"] == op:
                return message

    async def ask(self, op: str, **fields: Any) -> Any:
        """Say something and return the answer to it, past whatever else comes."""
        await self.say(op, request_id=7, **fields)
        while True:
            message = await self.hear()
            if message.get("request_id") == 7:
                return message

    async def silence(self, seconds: float = 0.2) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                pytest.fail(f"heard {await self.connection.recv()!r}")


@contextlib.asynccontextmanager
async def talk(site: Site, **more: Any) -> AsyncIterator[Talk]:
    async with connect(site.url(), **more) as connection:
        yield Talk(connection)


def publish(topic: str, *data: object, **fields: Any) -> dict[str, Any]:
    return {"topic": topic, "records": [{"data": each} for each in data], **fields}
