"""The door over real sockets: order, streaming, deadlines, limits and a clean stop."""

import asyncio
import errno
import gc
import http.client
import json
import os
import socket
import struct
import subprocess
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
import uvloop

from millstream.clock import ManualClock, SystemClock
from millstream.http import sockets
from millstream.http.browser import BrowserGuard
from millstream.http.connection import HttpConnection
from millstream.http.door import App, HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, Response, StreamedResponse
from support.waiting import eventually

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Served:
    """A door with a clock of its own, and clients of it."""

    def __init__(self, app: App, limits: Limits | None = None, clock: ManualClock | None = None):
        self.clock = clock or ManualClock()
        self.door = HttpDoor(asyncio.get_running_loop(), app, self.clock, limits, hosts=None)
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Served":
        self.port = await self.door.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.close()
        await self.door.stop()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def accepted(self, count: int) -> None:
        await eventually(lambda: self.door.connections >= count)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.door.sweep()


async def echo(request: Request) -> Answer:
    return Response(200, request.body or request.path.encode(), b"text/plain")


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(length)


async def test_pipelined_requests_are_answered_in_order_even_when_the_first_is_slow() -> None:
    release = asyncio.Event()
    started: list[str] = []

    async def slow_first(request: Request) -> Answer:
        started.append(request.path)
        if request.path == "/1":
            await release.wait()
        return Response(200, request.path.encode())

    async with Served(slow_first) as served:
        reader, writer = await served.connect()
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in (1, 2, 3)))
        await eventually(lambda: started)
        assert started == ["/1"]
        release.set()
        assert [(await read_answer(reader))[1] for _ in range(3)] == [b"/1", b"/2", b"/3"]


async def test_thousands_of_pipelined_requests_are_all_answered() -> None:
    async with Served(echo) as served:
        reader, writer = await served.connect()
        writer.write(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(5000)))
        for n in range(5000):
            assert (await read_answer(reader))[1] == b"/%d" % n


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000
    async with Served(echo) as served:
        reader, writer = await served.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        assert await read_answer(reader) == (200, body)


async def test_a_large_chunked_body_arrives_whole() -> None:
    body = bytes(range(256)) * 4_000
    async with Served(echo) as served:
        reader, writer = await served.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 10_000):
            piece = body[at : at + 10_000]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n" + GET)
        assert await read_answer(reader) == (200, body)
        assert await read_answer(reader) == (200, b"/")


async def test_a_client_that_expects_it_is_told_to_continue() -> None:
    async with Served(echo) as served:
        reader, writer = await served.connect()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert await read_answer(reader) == (200, b"hi")


async def test_a_body_above_the_limit_is_refused_before_it_is_sent() -> None:
    async with Served(echo, Limits(body_bytes=10)) as served:
        reader, writer = await served.connect()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n"
        )
        status, body = await read_answer(reader)
        assert (status, b'"payload_too_large"' in body) == (413, True)
        assert await reader.read() == b""


async def test_who_closed_their_half_is_let_go_with_the_last_answer() -> None:
    gate = asyncio.Event()

    async def slow(request: Request) -> Answer:
        await gate.wait()
        return Response(200, b"done", b"text/plain", close=True)

    async with Served(slow) as served:
        reader, writer = await served.connect()
        writer.write(GET)
        writer.write_eof()
        await served.accepted(1)
        await asyncio.sleep(0.01)
        gate.set()
        assert (await read_answer(reader))[1] == b"done"
        await eventually(lambda: not served.door.connections)  # no clock moves: nobody lingers


async def test_no_more_than_the_read_ahead_is_taken_while_a_request_is_answered() -> None:
    gate, read = asyncio.Event(), []

    async def slow(request: Request) -> Answer:
        await gate.wait()
        return Response(200, b"done", b"text/plain")

    class Transport(asyncio.Transport):
        def pause_reading(self) -> None:
            read.append("paused")

        def resume_reading(self) -> None:
            read.append("resumed")

        def write(self, data: object) -> None:
            read.append("answered")

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    door = HttpDoor(asyncio.get_running_loop(), slow, ManualClock(), hosts=None)
    connection = HttpConnection(door, slow)
    connection.connection_made(Transport())
    connection.data_received(GET)
    connection.data_received(b"GET /" + b"a" * door.limits.read_ahead_bytes)
    assert read == ["paused"]
    gate.set()
    await eventually(lambda: not connection._busy)
    assert read[:2] == ["paused", "answered"]
    connection.connection_lost(None)


async def test_head_answers_without_a_body() -> None:
    async with Served(echo) as served:
        reader, writer = await served.connect()
        writer.write(b"HEAD /abc HTTP/1.1\r\nHost: a\r\n\r\n" + GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 4\r\n" in head
        assert await read_answer(reader) == (200, b"/")


async def test_a_slow_head_is_cut_at_its_deadline_however_it_trickles() -> None:
    async with Served(echo) as served:
        reader, writer = await served.connect()
        await served.accepted(1)
        for byte in b"GET /":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
            served.pass_time(0.9)
        served.pass_time(0.5)
        status, body = await read_answer(reader)
        assert (status, b"request_timeout" in body) == (408, True)
        assert await reader.read() == b""


async def test_a_client_that_says_nothing_is_cut_at_the_head_deadline() -> None:
    async with Served(echo) as served:
        reader, _ = await served.connect()
        await served.accepted(1)
        served.pass_time(4.0)
        assert served.door.connections == 1
        served.pass_time(1.0)
        assert await reader.read() == b""


async def test_a_thousand_half_open_clients_are_all_cut_within_five_seconds() -> None:
    async with Served(echo) as served:
        clients = [await served.connect() for _ in range(300)]
        await served.accepted(300)
        for _, writer in clients[::2]:
            writer.write(b"GET / HTTP/1.1\r\nHo")
        await asyncio.sleep(0.05)
        served.pass_time(5.0)
        for reader, _ in clients:
            await reader.read()


async def test_a_slow_body_is_cut_and_a_steady_one_is_not() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"
    async with Served(echo) as served:
        slow, slow_writer = await served.connect()
        steady, steady_writer = await served.connect()
        slow_writer.write(head)
        steady_writer.write(head)
        await served.accepted(2)
        await eventually(lambda: all(each._parser.in_body for each in served.door._connections))  # type: ignore[attr-defined]
        for second in range(10):
            if second < 5:
                slow_writer.write(b"x")
            steady_writer.write(b"x" * 20000)
            await asyncio.sleep(0.01)
            served.pass_time(1.0)
            if second == 5:
                assert (await read_answer(slow))[0] == 408
        assert (await read_answer(steady))[0] == 200


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with Served(echo) as served:
        reader, writer = await served.connect()
        writer.write(GET)
        await read_answer(reader)
        served.pass_time(60)
        writer.write(GET)
        assert await read_answer(reader) == (200, b"/")
        served.pass_time(80)
        assert await reader.read() == b""


async def test_a_client_that_does_not_read_its_answer_is_dropped() -> None:
    async def large(request: Request) -> Answer:
        return Response(200, b"x" * 50_000_000)

    async with Served(large) as served:
        _, writer = await served.connect()
        writer.write(GET)
        await served.accepted(1)
        await eventually(served.door.stalled)
        served.pass_time(31)
        await eventually(lambda: not served.door.connections)


async def test_a_stream_is_sent_piece_by_piece_and_closed_when_the_client_leaves() -> None:
    closed = asyncio.Event()
    go_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await go_on.wait()
            yield b"two"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def stream(request: Request) -> Answer:
        return StreamedResponse(pieces())

    async with Served(stream) as served:
        reader, writer = await served.connect()
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Type: text/event-stream\r\n" in head
        assert await reader.readexactly(8) == b"3\r\none\r\n"
        go_on.set()
        assert await reader.readexactly(8) == b"3\r\ntwo\r\n"
        writer.close()
        async with asyncio.timeout(5):
            await closed.wait()


async def test_a_stream_that_fails_halfway_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise ValueError("no more")

    async def stream(request: Request) -> Answer:
        return StreamedResponse(pieces())

    async with Served(stream) as served:
        reader, writer = await served.connect()
        writer.write(GET)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert not (await reader.read()).endswith(b"0\r\n\r\n")
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == "answer not finished method=GET path='/'"


async def test_a_handler_is_cancelled_when_its_client_disconnects() -> None:
    cancelled = asyncio.Event()
    entered = asyncio.Event()

    async def endless(request: Request) -> Answer:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with Served(endless) as served:
        _, writer = await served.connect()
        writer.write(GET)
        await entered.wait()
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        async with asyncio.timeout(5):
            await cancelled.wait()


async def test_stopping_finishes_the_request_under_way_and_closes_the_rest() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Answer:
        entered.set()
        await release.wait()
        return Response(200, b"done")

    async with Served(slow) as served:
        idle, _ = await served.connect()
        reader, writer = await served.connect()
        writer.write(GET)
        await entered.wait()
        stop = asyncio.create_task(served.door.stop())
        assert await idle.read() == b""
        release.set()
        assert await read_answer(reader) == (200, b"done")
        assert await reader.read() == b""
        writer.close()
        async with asyncio.timeout(5):
            await stop


async def test_stopping_gives_up_on_a_request_that_never_ends() -> None:
    async def endless(request: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with Served(endless, Limits(drain_seconds=0.05)) as served:
        _, writer = await served.connect()
        writer.write(GET)
        await served.accepted(1)
        async with asyncio.timeout(5):
            await served.door.stop()


async def test_connections_above_the_cap_are_refused_with_a_reason() -> None:
    async with Served(echo, Limits(connections=1)) as served:
        await served.connect()
        await served.accepted(1)
        reader, _ = await served.connect()
        assert (await read_answer(reader))[0] == 503


async def test_small_answers_leave_at_once() -> None:
    async with Served(echo) as served:
        await served.connect()
        await served.accepted(1)
        (connection,) = served.door._connections
        raw = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_a_door_on_loopback_keeps_foreign_hosts_out() -> None:
    door = HttpDoor(asyncio.get_running_loop(), echo, SystemClock())
    port = await door.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert (await read_answer(reader))[0] == 403
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
    assert (await read_answer(reader))[0] == 200
    writer.close()
    await door.stop()


async def test_a_door_by_a_name_that_leads_to_loopback_keeps_other_hosts_out_too() -> None:
    door = HttpDoor(asyncio.get_running_loop(), echo, SystemClock())
    port = await door.start("mill.example", 0, bound=sockets.bound("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for host, status in (("mill.example", 200), ("localhost", 200), ("evil.example", 403)):
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await read_answer(reader))[0] == status, host
    writer.close()
    await door.stop()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8222"}, 200),
        ({"Host": "[::1]:8222"}, 200),
        ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "mill.localhost"}, 200),
        ({"Host": "evillocalhost"}, 403),
        ({"Host": "127.0.0.1", "Origin": "http://evil.example"}, 403),
        ({"Host": "127.0.0.1:8222", "Origin": "http://127.0.0.1:9999"}, 403),
        ({"Host": "127.0.0.1", "Origin": "null"}, 403),
        ({"Host": "mill.example", "Origin": "https://mill.example"}, 200),
    ],
)
async def test_foreign_pages_are_kept_out(headers: dict[str, str], status: int) -> None:
    guard = BrowserGuard(echo, hosts=("mill.example",))
    request = Request(
        "GET", "/", headers=[(k.lower().encode(), v.encode()) for k, v in headers.items()]
    )
    answer = await guard(request)
    assert answer.status == status


LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
IMAGE = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}


@pytest.mark.parametrize(
    ("method", "path", "site", "how", "status"),
    [
        ("GET", "/v0/topics/jobs/work", "cross-site", IMAGE, 403),
        ("GET", "/v0/topics/jobs/work", "same-site", IMAGE, 403),
        ("GET", "/v0/topics/jobs/work", "Cross-Site", IMAGE, 403),
        ("GET", "/v0/topics/jobs/work", "cross-site", {}, 403),
        ("GET", "/v0/topics/jobs/work", "cross-site", LINK, 403),
        ("GET", "/v0", "cross-site", LINK, 403),
        ("GET", "/varz", "cross-site", IMAGE, 403),
        ("GET", "/varz", "cross-site", FRAME, 403),
        ("HEAD", "/varz", "cross-site", LINK, 403),
        ("POST", "/varz", "cross-site", LINK, 403),
        ("GET", "/varz", "cross-site", LINK, 200),
        ("GET", "/", "same-site", LINK, 200),
        ("GET", "/v0/topics", "same-origin", IMAGE, 200),
        ("GET", "/v0/topics", "none", LINK, 200),
    ],
)
async def test_what_a_foreign_page_fetches_without_an_origin_is_kept_out(
    method: str, path: str, site: str, how: dict[str, str], status: int
) -> None:
    headers = {"Host": "127.0.0.1:8222", "Sec-Fetch-Site": site, **how}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    answer = await BrowserGuard(echo)(Request(method, path, headers=pairs))
    assert answer.status == status
    if status == 403:
        assert isinstance(answer, Response)
        assert json.loads(answer.body)["error"]["code"] == "forbidden"


async def test_a_page_of_an_allowed_origin_may_fetch() -> None:
    guard = BrowserGuard(echo, origins=("https://board.example",))
    for origin, status in ((b"https://board.example", 200), (b"https://evil.example", 403)):
        headers = [(b"host", b"127.0.0.1"), (b"sec-fetch-site", b"cross-site"), (b"origin", origin)]
        assert (await guard(Request("GET", "/v0/topics", headers=headers))).status == status


async def test_the_standard_library_client_round_trips_on_one_connection() -> None:
    async with Served(echo) as served:

        def talk() -> list[tuple[int, bytes]]:
            client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
            answers = []
            for body in (b"one", b"two" * 10_000):
                client.request("POST", "/x", body)
                response = client.getresponse()
                answers.append((response.status, response.read()))
            client.close()
            return answers

        assert await asyncio.to_thread(talk) == [(200, b"one"), (200, b"two" * 10_000)]


async def test_curl_round_trips_a_body_large_enough_for_expect_continue() -> None:
    async with Served(echo) as served:

        def talk() -> bytes:
            url = f"http://127.0.0.1:{served.port}/"
            command = ["curl", "-sS", "-m", "20", "--data-binary", "@-", url]
            return subprocess.run(
                command, input=b"z" * 3_000_000, capture_output=True, check=True
            ).stdout

        assert await asyncio.to_thread(talk) == b"z" * 3_000_000


def gone_at_once(port: int) -> None:
    """Connect and reset, before the loop that serves has a turn."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_clients_that_are_refused_and_gone_at_once_are_no_error(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    told: list[str] = []

    async def refuse() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        async with Served(echo, Limits(connections=1)) as served:
            await served.connect()
            await served.accepted(1)
            for _ in range(50):
                gone_at_once(served.port)
            reader, _ = await served.connect()
            assert (await read_answer(reader))[0] == 503
            await eventually(lambda: served.door.connections == 2)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(refuse())
    gc.collect()
    assert told == []


async def test_a_refused_client_that_goes_while_it_is_answered_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[object] = []
    told: list[str] = []

    def gone(transport: object) -> None:  # what asyncio's loop says where the reset comes just then
        tried.append(transport)
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", gone)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    async with Served(echo, Limits(connections=1)) as served:
        await served.connect()
        await served.accepted(1)
        reader, _ = await served.connect()
        assert (await read_answer(reader))[0] == 503
    assert (len(tried), told) == (1, [])


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("turns", range(6))
def test_a_stop_closes_who_was_accepted_a_moment_ago(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], turns: int
) -> None:
    async def stopped() -> None:
        async with Served(echo) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as raw:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await served.door.stop()
                assert asyncio.all_tasks() == {asyncio.current_task()}
                raw.settimeout(10)
                with suppress(ConnectionResetError):  # or some of a refusal, and the end
                    while await asyncio.to_thread(raw.recv, 1000):
                        pass

    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(stopped())
        gc.collect()
    assert [str(each.message) for each in left] == []
