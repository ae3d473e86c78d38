"""A topics API over a real store, without sockets, and a reader of its event streams."""

import asyncio
from collections.abc import Callable  # noqa: TC003
from pathlib import Path
from typing import Any

import msgspec

from millstream.clock import ManualClock
from millstream.delivery.timers import Timers
from millstream.http.request import ANYONE, Caller, Request
from millstream.http.response import Answer, Response, StreamedResponse
from millstream.http.routes import Routes
from millstream.store.disk.files import OsFiles
from millstream.store.store import Store
from millstream.streams.catalog import SECTION, Catalog
from millstream.streams.deposits.deposits import Deposits
from millstream.streams.stream import Stream
from millstream.topics.context import Topics
from millstream.topics.routes import topics_routes

JSON = {"content-type": "application/json"}


class Api:
    """Requests to the route table, answers as plain values."""

    def __init__(self, directory: Path, clock: ManualClock | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.clock = clock or ManualClock()
        self.timers = Timers(self.clock)
        self.held: asyncio.Queue[Callable[[], None]] | None = None  # what the store defers, if held
        self.store = Store.open(
            str(directory),
            OsFiles(),
            self.clock,
            loop.call_soon_threadsafe,
            defer=lambda call: (
                loop.call_soon(call) if self.held is None else self.held.put_nowait(call)
            ),
        )
        self.catalog = Catalog(self.store, self.clock, self.timers)
        deposits = Deposits(self.catalog, self.store, self.clock)
        self.topics = Topics(
            *(self.catalog, self.clock, self.store, self.timers, deposits), shortest_heartbeat_ms=1
        )
        found = self.store.recovery
        self.catalog.replay(found.sections.get(SECTION), found.controls)
        self.topics.recover(found)
        self.routes = Routes(topics_routes(self.topics))

    def _defer(self, call: "Callable[[], None]") -> None:
        if self.held is not None:
            self.held.put_nowait(call)
        else:
            asyncio.get_running_loop().call_soon(call)

    def stream(self, name: str) -> Stream:
        return self.catalog.get(name)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run_due()

    async def send(
        self,
        method: str,
        target: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        caller: Caller = ANYONE,
    ) -> Answer:
        path, _, query = target.partition("?")
        raw = b""
        if isinstance(body, bytes):
            raw = body
        elif body is not None:
            raw = msgspec.json.encode(body)
        if headers is None:
            headers = JSON if body is not None else {}
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        request = Request(method, path, query, pairs, raw, caller=caller)
        return await self.routes(request)

    async def call(self, method: str, target: str, body: object = None, **more: Any) -> Any:
        """Return (status, decoded body)."""
        answer = await self.send(method, target, body, **more)
        assert isinstance(answer, Response)
        return answer.status, msgspec.json.decode(answer.body)

    async def write(self, topic: str, *data: object, **fields: Any) -> Any:
        """Write plain records; returns the answer, which must be a success."""
        body = {"records": [{"data": each} for each in data], **fields}
        status, answer = await self.call("POST", f"/v0/topics/{topic}", body)
        assert status in (200, 201), answer
        return answer

    async def diff(self, topic: str, **body: Any) -> Any:
        status, answer = await self.call("POST", f"/v0/topics/{topic}/diff", body)
        assert status == 200, answer
        return answer

    async def error(self, method: str, target: str, body: object = None, **more: Any) -> Any:
        """Return (status, code), having checked the shape of the refusal."""
        status, answer = await self.call(method, target, body, **more)
        assert list(answer) == ["error"], answer
        assert set(answer["error"]) <= {"code", "message", "detail"}
        assert answer["error"]["message"]
        return status, answer["error"]["code"]


class Events:
    """Server-sent events of an answer, one after another."""

    def __init__(self, answer: Answer) -> None:
        assert isinstance(answer, StreamedResponse), answer
        self.answer = answer
        self._waiting: list[bytes] = []

    async def next(self) -> dict[str, str]:
        """Return the next event's fields; a comment is under ``comment``."""
        if not self._waiting:
            async with asyncio.timeout(20):
                chunk = await anext(self.answer.chunks)
            assert chunk.endswith(b"\n\n")
            self._waiting = chunk[:-2].split(b"\n\n")
        fields: dict[str, str] = {}
        for line in self._waiting.pop(0).decode().splitlines():
            if line.startswith(":"):
                fields["comment"] = line
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
        return fields

    async def named(self) -> tuple[str, Any]:
        """Return the next named event and its data, past comments and ``retry``."""
        while True:
            fields = await self.next()
            if "event" in fields:
                return fields["event"], msgspec.json.decode(fields["data"])

    async def close(self) -> None:
        await self.answer.chunks.aclose()  # type: ignore[attr-defined]


async def put_router(
    api: Api, name: str = "r", source: str = "a", dest: str = "b", **more: Any
) -> Any:
    """Return the answer to a PUT of a router."""
    body = {"source": source, "dest": dest, **more}
    return await api.call("PUT", f"/v0/routers/{name}", body)


async def data_of(api: Api, topic: str) -> list[Any]:
    """Return what the records of a topic hold."""
    return [record["data"] for record in (await api.diff(topic))["records"]]
