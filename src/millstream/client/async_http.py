"""AsyncLink: requests to one server without waiting for each other, over asyncio's own streams."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from millstream.client.errors import ConnectFailed
from millstream.client.event_stream import EventReader, ServerEvent
from millstream.client.http_link import Place, seconds
from millstream.client.topic_calls import Call, Told, read

LONGEST_HEAD = 64 * 1024
_LOST = (ConnectionError, asyncio.IncompleteReadError, OSError)


@dataclass(slots=True)
class _Head:
    status: int
    headers: dict[str, str]

    @property
    def keeps(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class _Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, call: Call, host: str, headers: dict[str, str]) -> _Head:
        """Send a request and return the head of the answer."""
        lines = [f"{call.method} {call.path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in {**headers, **(call.headers or {})}.items()]
        if call.body is not None:
            lines.append(f"Content-Length: {len(call.body)}")
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + (call.body or b""))
        await self._writer.drain()
        raw = await self._reader.readuntil(b"\r\n\r\n")
        first, *rest = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in rest if line)
        return _Head(int(first.split()[1]), {n.lower(): v.strip() for n, _, v in pairs})

    async def body(self, head: _Head) -> bytes:
        """Return the whole body."""
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join([chunk async for chunk in self.chunks()])
        length = int(head.headers.get("content-length", "0"))
        return await self._reader.readexactly(length) if length else b""

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Return the pieces of a chunked body as they come."""
        while True:
            size = int((await self._reader.readline()).split(b";")[0] or b"0", 16)
            data = await self._reader.readexactly(size + 2)
            if not size:
                return
            yield data[:-2]

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class AsyncLink:
    """As many connections as there are calls under way; idle ones are used again."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._idle: list[_Line] = []

    async def close(self) -> None:
        """End the idle connections; a later call opens others."""
        while self._idle:
            self._idle.pop().close()

    async def call(self, call: Call) -> Any:
        """Carry a call out; a busy server is asked again when it says so."""
        for left in range(self.place.retries, -1, -1):
            told = await self._send(call)
            if told.status not in (429, 503) or not left:
                break
            await asyncio.sleep(told.retry_after or 1.0)
        return read(call, told, self.place.url)

    async def events(self, path: str, headers: dict[str, str]) -> AsyncGenerator[ServerEvent, None]:
        """Read an event stream until it ends; raises ApiError where it is refused."""
        call, place = Call("GET", path, dict[str, Any], headers=headers), self.place
        line: _Line | None = None
        try:
            async with asyncio.timeout(place.timeout):
                line = await self._dial()
                head = await line.ask(call, self._host, place.headers)
            if head.status != 200:
                read(call, Told(head.status, await line.body(head)), place.url)
            reader = EventReader()
            async with aclosing(line.chunks()) as chunks:
                while True:
                    async with asyncio.timeout(place.silence):
                        chunk = await anext(chunks, b"")
                    if not chunk:
                        return
                    for event in reader.feed(chunk):
                        yield event
        except _LOST as error:
            raise place.unreachable(error) from error
        finally:
            if line is not None:
                line.close()

    @property
    def _host(self) -> str:
        host = f"[{self.place.host}]" if ":" in self.place.host else self.place.host
        return f"{host}:{self.place.port}"

    async def _send(self, call: Call) -> Told:
        try:
            async with asyncio.timeout(self.place.timeout):
                if self._idle:
                    try:
                        return await self._send_over(self._idle.pop(), call)
                    except _LOST:
                        if not call.again:
                            raise
                return await self._send_over(await self._dial(), call)
        except TimeoutError as error:
            raise self._slow(call) from error
        except _LOST as error:
            raise self.place.unreachable(error) from error

    def _slow(self, call: Call) -> ConnectFailed:
        place = self.place
        return ConnectFailed(f"{place.url}: no answer to {call.method} in {place.timeout:g} s")

    async def _send_over(self, line: _Line, call: Call) -> Told:
        try:
            head = await line.ask(call, self._host, self.place.headers)
            body = await line.body(head)
        except BaseException:
            line.close()
            raise
        if head.keeps:
            self._idle.append(line)
        else:
            line.close()
        return Told(head.status, body, seconds(head.headers.get("retry-after")))

    async def _dial(self) -> _Line:
        place = self.place
        tls = (place.tls or ssl.create_default_context()) if place.secure else None
        try:
            streams = await asyncio.open_connection(
                place.host, place.port, ssl=tls, limit=LONGEST_HEAD
            )
        except OSError as error:
            raise place.unreachable(error) from error
        return _Line(*streams)
