"""HTTP/2 with prior knowledge on the same port: the same requests, many at a time."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest

from millstream.clock import ManualClock
from millstream.http.door import HttpDoor
from millstream.http.http2.connection import MOST_RESETS
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, Response, StreamedResponse


class Client:
    """An h2 client on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.bodies: dict[int, bytes] = {}
        self.statuses: dict[int, str] = {}
        self.ended: set[int] = set()
        self.reset: dict[int, int] = {}
        self.terminated = False
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def ask(self, path: str, body: bytes | None = None, method: str = "GET") -> int:
        stream_id: int = self.h2.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "a")]
        self.h2.send_headers(stream_id, headers, end_stream=body is None)
        if body is not None:
            for at in range(0, len(body), 16_384):
                self.h2.send_data(stream_id, body[at : at + 16_384])
            self.h2.end_stream(stream_id)
        self.flush()
        return stream_id

    async def step(self) -> bool:
        async with asyncio.timeout(10):
            data = await self.reader.read(65536)
        if not data:
            return False
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.statuses[event.stream_id] = dict(event.headers)[":status"]
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.reset[event.stream_id] = int(event.error_code)
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.terminated = True
        self.flush()
        return True

    async def answer(self, stream_id: int) -> tuple[str, bytes]:
        while stream_id not in self.ended:
            assert await self.step()
        return self.statuses[stream_id], self.bodies.get(stream_id, b"")


@pytest.fixture
async def served() -> AsyncIterator[Any]:
    release = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await release.wait()
        yield b"two"

    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise ValueError("no more")

    async def app(request: Request) -> Answer:
        if request.path == "/slow":
            await release.wait()
        if request.path == "/broken":
            return StreamedResponse(broken())
        if request.path == "/stream":
            return StreamedResponse(pieces())
        if request.path == "/big":
            return Response(200, b"z" * 3_000_000)
        return Response(200, request.body or request.path.encode())

    class Served:
        clock = ManualClock()
        go = release

        async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            """Return a connection that the door reads: what is sent now, its next look finds."""
            before = self.door.connections  # type: ignore[attr-defined]
            pair = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(20):
                while self.door.connections == before:  # type: ignore[attr-defined]  # noqa: ASYNC110
                    await asyncio.sleep(0)
            return pair

        async def client(self) -> Client:
            client = Client(*await self.connect())
            clients.append(client)
            return client

    clients: list[Client] = []
    made = Served()
    limits = Limits(body_bytes=20_000)
    made.door = HttpDoor(asyncio.get_running_loop(), app, made.clock, limits, hosts=None)  # type: ignore[attr-defined]
    port = await made.door.start("127.0.0.1", 0)  # type: ignore[attr-defined]
    made.port = port  # type: ignore[attr-defined]
    yield made
    for client in clients:
        client.writer.close()
    release.set()
    await made.door.stop()  # type: ignore[attr-defined]


async def test_a_request_is_answered(served: Any) -> None:
    client = await served.client()
    assert await client.answer(client.ask("/hello")) == ("200", b"/hello")
    assert await client.answer(client.ask("/", b"b" * 18_000, "POST")) == ("200", b"b" * 18_000)
    status, body = await client.answer(client.ask("/hello", method="HEAD"))
    assert (status, body) == ("200", b"")


async def test_a_slow_request_does_not_hold_up_the_next(served: Any) -> None:
    client = await served.client()
    slow, quick = client.ask("/slow"), client.ask("/quick")
    assert await client.answer(quick) == ("200", b"/quick")
    assert slow not in client.ended
    served.go.set()
    assert await client.answer(slow) == ("200", b"/slow")


async def test_a_large_answer_waits_for_the_clients_windows(served: Any) -> None:
    client = await served.client()
    assert await client.answer(client.ask("/big")) == ("200", b"z" * 3_000_000)


async def test_a_stream_is_sent_piece_by_piece(served: Any) -> None:
    client = await served.client()
    stream = client.ask("/stream")
    while client.bodies.get(stream) != b"one":
        await client.step()
    served.go.set()
    assert await client.answer(stream) == ("200", b"onetwo")


async def test_a_stream_that_fails_halfway_is_reset_and_the_connection_goes_on(
    served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = await served.client()
    stream = client.ask("/broken")
    while stream not in client.reset:
        assert await client.step()
    assert client.reset[stream] == h2.errors.ErrorCodes.INTERNAL_ERROR
    assert await client.answer(client.ask("/hello")) == ("200", b"/hello")
    assert [each.levelname for each in caplog.records] == ["ERROR"]


async def test_a_body_above_the_limit_is_refused(served: Any) -> None:
    client = await served.client()
    status, body = await client.answer(client.ask("/", b"b" * 30_000, "POST"))
    assert (status, b"payload_too_large" in body) == ("413", True)


async def headed(client: Client, *more: tuple[str, str], method: str = "GET") -> tuple[str, bytes]:
    """Return the answer to a request with these headers too."""
    stream_id: int = client.h2.get_next_available_stream_id()
    headers = [(":method", method), (":path", "/x"), (":scheme", "http"), (":authority", "a")]
    client.h2.send_headers(stream_id, [*headers, *more], end_stream=method == "GET")
    client.flush()
    return await client.answer(stream_id)


async def test_a_head_above_the_limit_is_refused_and_the_connection_goes_on(served: Any) -> None:
    client = await served.client()
    assert (await headed(client, ("x", "y" * 15_000)))[0] == "200"
    for method in ("GET", "POST"):  # also before a body has come
        status, body = await headed(client, ("x", "y" * 16_384), method=method)
        assert (status, b"headers_too_large" in body) == ("431", True)
    many = [("x", "y" * 5000) for _ in range(4)]
    assert (await headed(client, *many))[0] == "431"
    status, body = await client.answer(client.ask("/" + "p" * 16_384))
    assert (status, b"headers_too_large" in body) == ("431", True)
    assert await client.answer(client.ask("/hello")) == ("200", b"/hello")


async def test_too_many_headers_are_refused_as_over_http1(served: Any) -> None:
    client = await served.client()
    some = [(f"h{number}", "v") for number in range(63)]  # and the host
    assert (await headed(client, *some))[0] == "200"
    status, body = await headed(client, *some, ("one", "more"))
    assert (status, b"too many headers" in body) == ("431", True)


async def test_a_trickled_body_is_cut(served: Any) -> None:
    client = await served.client()
    stream_id = client.h2.get_next_available_stream_id()
    headers = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
    client.h2.send_headers(stream_id, headers)
    client.flush()
    async with asyncio.timeout(20):
        while not any(  # noqa: ASYNC110 - its time counts from when the head is read
            getattr(each, "_streams", ()) for each in served.door._connections
        ):
            await asyncio.sleep(0)
    for _ in range(6):
        client.h2.send_data(stream_id, b"x")
        client.flush()
        await asyncio.sleep(0.02)
        served.clock.advance(0.9)
        served.door.sweep()
    async with asyncio.timeout(20):
        await asyncio.gather(client.reader.read(), return_exceptions=True)
    assert served.door.connections == 0


async def test_stopping_says_goodbye(served: Any) -> None:
    client = await served.client()
    await client.answer(client.ask("/a"))
    await asyncio.sleep(0.05)  # let it read our acknowledgements: unread bytes become a reset
    await served.door.stop()
    while await client.step():
        pass
    assert client.terminated


async def test_connect_is_answered_like_any_method_that_nothing_answers(served: Any) -> None:
    client = await served.client()
    other = client.ask("/slow")
    headers = [(":method", "CONNECT"), (":authority", "elsewhere:443")]
    stream_id = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream_id, headers, end_stream=True)
    client.flush()
    assert (await client.answer(stream_id))[0] == "200"  # this application answers everything
    served.go.set()
    assert await client.answer(other) == ("200", b"/slow")


async def drop(client: Client, count: int) -> None:
    """Ask for something that takes its time, and leave; so many times."""
    for _ in range(count):
        client.h2.reset_stream(client.ask("/slow"))
    client.flush()


async def test_a_client_that_drops_requests_now_and_then_is_served_for_ever(served: Any) -> None:
    client = await served.client()
    for _ in range(4):
        await drop(client, MOST_RESETS // 2)
        assert (await client.answer(client.ask("/a")))[0] == "200"
        served.clock.advance(60)


async def test_a_client_that_opens_and_drops_without_end_is_cut(served: Any) -> None:
    client = await served.client()
    await drop(client, MOST_RESETS + 1)
    with contextlib.suppress(ConnectionError):
        while await client.step():
            pass
    assert served.door.connections == 0


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return (type, flags, stream, payload) of each frame."""
    found = []
    while data:
        end = 9 + int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:end]))
        data = data[end:]
    return found


DATA, RESET, GOAWAY = 0, 3, 7


async def test_stopping_answers_what_was_asked_and_refuses_what_comes_later(served: Any) -> None:
    client = await served.client()
    streamed, slow = client.ask("/stream"), client.ask("/slow")
    while client.bodies.get(streamed) != b"one":
        await client.step()
    stopping = asyncio.ensure_future(served.door.stop())
    await asyncio.sleep(0)
    late = client.ask("/late")
    async with asyncio.timeout(10):
        data = await client.reader.readuntil(RESET.to_bytes() + b"\0" + late.to_bytes(4, "big"))
        data += await client.reader.readexactly(4)  # what it is reset for
        served.go.set()
        data += await client.reader.read()
    await stopping
    heard = frames(data)
    assert [payload[:4] for kind, *_, payload in heard if kind == GOAWAY] == [
        slow.to_bytes(4, "big")
    ]
    assert [payload for kind, _, stream, payload in heard if kind == RESET] == [b"\0\0\0\x07"]
    bodies = dict.fromkeys((streamed, slow), b"")
    for kind, _, stream, payload in heard:
        if kind == DATA:
            bodies[stream] += payload
    assert bodies == {streamed: b"two", slow: b"/slow"}
    assert {stream for kind, flags, stream, _ in heard if kind == DATA and flags & 1} == {
        streamed,
        slow,
    }


async def test_an_idle_client_is_dropped(served: Any) -> None:
    client = await served.client()
    await client.answer(client.ask("/a"))
    await asyncio.sleep(0.05)
    served.clock.advance(80)
    served.door.sweep()
    while await client.step():
        pass
    assert client.terminated


async def test_half_a_preface_is_cut_at_the_head_deadline(served: Any) -> None:
    reader, writer = await served.connect()
    writer.write(b"PRI * HTTP/2.0\r\n")
    await asyncio.sleep(0.05)
    served.clock.advance(5)
    served.door.sweep()
    async with asyncio.timeout(20):
        await reader.read()
    writer.close()


@pytest.mark.parametrize("size", [100, 200_000])
async def test_garbage_after_the_preface_ends_the_connection(served: Any, size: int) -> None:
    reader, writer = await served.connect()
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * size)
    await asyncio.sleep(0.05)
    if size == 100:  # it could still become a frame, but not for long
        served.clock.advance(5)
        served.door.sweep()
    async with asyncio.timeout(20):
        await asyncio.gather(reader.read(), return_exceptions=True)
    writer.close()


async def test_curl_speaks_http2_by_prior_knowledge(served: Any) -> None:
    url = f"http://127.0.0.1:{served.port}/x"
    command = ["curl", "-sS", "-m", "10", "--http2-prior-knowledge", "-w", " %{http_version}", url]

    def talk() -> bytes:
        return subprocess.run(command, capture_output=True, check=True).stdout

    assert await asyncio.to_thread(talk) == b"/x 2"
