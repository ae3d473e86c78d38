"""NATS over WebSocket: the request, the frames, and what a hostile client may cost."""

import asyncio
import base64
import json
import os
import resource
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fed_door import CONNECT, Collector, Raw, Serving, raw, serving, tls_options

import nats
from millstream.clock import ManualClock
from millstream.nats.session import NatsLimits
from millstream.nats.transport.tls import Tls
from millstream.nats.transport.transport import Cookies, Kind
from millstream.server.options.auth_options import Authorization
from millstream.server.options.options import WebsocketOptions
from support.certificates import Authority
from support.waiting import eventually
from support.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    bomb,
    deflated,
    frame,
    malformed,
)

MALFORMED = malformed()
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
OFFER = "permessage-deflate; client_max_window_bits"
PLAIN = WebsocketOptions(port=0, no_tls=True)
PACKED = WebsocketOptions(port=0, no_tls=True, compression=True)


def request(path: str = "/", method: str = "GET", **headers: str | None) -> bytes:
    """Return a request for a WebSocket; a header given as None is left out."""
    fields: dict[str, str | None] = {
        "host": "localhost",
        "upgrade": "websocket",
        "connection": "keep-alive, Upgrade",
        "sec_websocket_key": KEY,
        "sec_websocket_version": "13",
        **headers,
    }
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Client:
    """Speaks frames; what comes back is taken apart."""

    def __init__(self, connection: Raw) -> None:
        self.raw = connection
        self.stream = b""  # bytes of data frames that nobody has asked for

    def send(self, data: bytes, **how: Any) -> None:
        self.raw.send(frame(BINARY, data, **how))

    async def next_frame(self) -> tuple[int, bytes]:
        """Return first byte and payload of the server's next frame."""
        first, length = await self._exactly(2)
        if length >= 126:
            length = int.from_bytes(await self._exactly(2 if length == 126 else 8), "big")
        return first, await self._exactly(length)

    async def _exactly(self, size: int) -> bytes:
        return await asyncio.wait_for(self.raw.reader.readexactly(size), 10)

    async def until(self, end: bytes) -> bytes:
        """Return the stream up to and with ``end``."""
        while end not in self.stream:
            first, payload = await self.next_frame()
            assert first == 0x82
            self.stream += payload
        said, _, rest = self.stream.partition(end)
        self.stream = rest
        return said + end

    async def greeted(self) -> None:
        self.send(CONNECT + b"PING\r\n")
        await self.until(b"PONG\r\n")
        await self.until(b"\r\n")

    async def closing(self) -> tuple[int, bytes]:
        """Return status and text of the close frame, with which the connection ends."""
        while True:
            first, payload = await self.next_frame()
            if first == 0x88:
                assert await self.raw.rest() == b""
                return int.from_bytes(payload[:2], "big"), payload[2:]
            self.stream += payload


@asynccontextmanager
async def connected(
    port: int, context: ssl.SSLContext | None = None, **headers: str | None
) -> AsyncIterator[Client]:
    async with raw(port, context) as connection:
        connection.send(request(**headers))
        answer = await connection.until(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        yield Client(connection)


async def answered(port: int, sent: bytes) -> bytes:
    async with raw(port) as connection:
        connection.send(sent)
        return await connection.rest()


@pytest.fixture
async def plain() -> AsyncIterator[Serving]:
    async with serving(websocket=PLAIN) as running:
        yield running


@pytest.fixture
async def packed() -> AsyncIterator[Serving]:
    async with serving(websocket=PACKED) as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("websocket"))


# nats-py passes aiohttp a timeout in a form that it is about to drop.
through_aiohttp = pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")


async def exchange(url: str, **options: Any) -> None:
    """Send messages of every size to oneself with a real client."""
    client = await nats.connect(url, **options)
    try:
        inbox = await client.subscribe("big")
        sizes = (0, 1, 125, 126, 65_535, 65_536, 1_000_000)
        for size in sizes:
            await client.publish("big", bytes([size % 251]) * size)
        for size in sizes:
            assert (await inbox.next_msg(10)).data == bytes([size % 251]) * size
    finally:
        await client.close()


@through_aiohttp
async def test_nats_py_exchanges_large_messages_over_ws(plain: Serving) -> None:
    await exchange(f"ws://127.0.0.1:{plain.websocket_port}")


@through_aiohttp
async def test_nats_py_exchanges_large_messages_over_wss(authority: Authority) -> None:
    terms = tls_options(authority.server())
    options = WebsocketOptions(port=0, tls=terms)
    async with serving(websocket=options, websocket_tls=Tls(terms)) as running:
        await exchange(f"wss://localhost:{running.websocket_port}", tls=authority.trusting())


async def test_a_client_over_websocket_and_one_over_tcp_share_subjects(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client, raw(plain.port) as other:
        await client.until(b"\r\n")
        await client.greeted()
        client.send(b"SUB a 1\r\nPING\r\n")
        await client.until(b"PONG\r\n")
        other.send(CONNECT + b"PUB a 2\r\nhi\r\n")
        assert await client.until(b"hi\r\n") == b"MSG a 1 2\r\nhi\r\n"


async def test_the_answer_proves_that_the_request_was_read(plain: Serving) -> None:
    async with raw(plain.websocket_port) as connection:
        connection.send(request())
        answer = await connection.until(b"\r\n\r\n")
    assert answer == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )


async def test_configured_headers_are_part_of_the_answer() -> None:
    options = WebsocketOptions(port=0, no_tls=True, headers=(("X-Proxy", "yes"), ("X-B", "a\r\nb")))
    async with serving(websocket=options) as running, raw(running.websocket_port) as connection:
        connection.send(request())
        answer = await connection.until(b"\r\n\r\n")
        assert b"\r\nX-Proxy: yes\r\n" in answer
        assert b"X-B" not in answer


async def test_info_names_the_port_that_the_client_came_to() -> None:
    options = WebsocketOptions(port=0, no_tls=True, advertise="broker.example:443")
    async with serving(websocket=options) as running:
        running.door.sessions.info = running.door.sessions.info.with_(connect_urls=["tcp:4222"])
        async with connected(running.websocket_port) as client:
            info = json.loads((await client.until(b"\r\n"))[5:])
        assert (info["host"], info["port"]) == ("127.0.0.1", running.websocket_port)
        assert info["connect_urls"] == ["broker.example:443"]
        assert "tls_required" not in info


async def test_info_over_wss_says_that_tls_is_required(authority: Authority) -> None:
    terms = tls_options(authority.server())
    options = WebsocketOptions(port=0, tls=terms)
    async with (
        serving(websocket=options, websocket_tls=Tls(terms)) as running,
        connected(running.websocket_port, authority.trusting()) as client,
    ):
        assert json.loads((await client.until(b"\r\n"))[5:])["tls_required"] is True
        (session,) = running.door.sessions.all()
        assert (session.transport.kind, session.transport.tls) == (Kind.WEBSOCKET, True)


async def test_the_names_in_a_certificate_reach_the_session(authority: Authority) -> None:
    terms = tls_options(authority.server(), verify=True, ca_file=authority.ca_file)
    shown = authority.trusting(authority.client("derek"))
    options = WebsocketOptions(port=0, tls=terms)
    async with (
        serving(websocket=options, websocket_tls=Tls(terms)) as running,
        connected(running.websocket_port, shown) as client,
    ):
        await client.greeted()
        (session,) = running.door.sessions.all()
        assert session.transport.certificate_names == ("CN=derek",)


async def test_cookies_that_hold_credentials_reach_the_session() -> None:
    options = WebsocketOptions(
        port=0, no_tls=True, jwt_cookie="j", user_cookie="u", pass_cookie="p", token_cookie="t"
    )
    cookie = 'u=derek; p="s3cr=et"; other=1; j=a.b.c; t=tok'
    async with (
        serving(websocket=options) as running,
        connected(running.websocket_port, cookie=cookie) as client,
    ):
        await client.greeted()
        (session,) = running.door.sessions.all()
        assert session.transport.cookies == Cookies("a.b.c", "derek", "s3cr=et", "tok")


REFUSED = {
    "mqtt": (request("/mqtt"), 404, b"MQTT"),
    "leafnode": (request("/leafnode"), 404, b"leafnode"),
    "leafnode below a path": (request("/proxy/leafnode"), 404, b"leafnode"),
    "post": (request(method="POST"), 405, b"GET"),
    "no upgrade": (request(upgrade=None), 400, b"Upgrade"),
    "another upgrade": (request(upgrade="h2c"), 400, b"Upgrade"),
    "no connection": (request(connection="keep-alive"), 400, b"Connection"),
    "no key": (request(sec_websocket_key=None), 400, b"Key"),
    "short key": (request(sec_websocket_key="c2hvcnQ="), 400, b"Key"),
    "key that is none": (request(sec_websocket_key="!" * 24), 400, b"Key"),
    "no version": (request(sec_websocket_version=None), 400, b"Version"),
    "old version": (request(sec_websocket_version="8"), 400, b"Version"),
    "no host": (request(host=None), 400, b"Host"),
    "two hosts": (request().replace(b"\r\n\r\n", b"\r\nHost: b\r\n\r\n"), 400, b"Host"),
    "http 1.0": (request().replace(b"HTTP/1.1", b"HTTP/1.0"), 400, b"1.1"),
    "a body": (request(content_length="5") + b"hello", 413, b"body"),
    "no http": (b"\x00" * 100, 400, b"not"),
    "nats": (CONNECT * 3 + b"\r\n\r\n", 400, b"not"),
    "a head without end": (b"GET / HTTP/1.1\r\nX: " + b"x" * 9000, 431, b"large"),
    "too many headers": (
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(99)) + b"\r\n",
        431,
        b"headers",
    ),
    "frames before the answer": (request() + frame(BINARY, CONNECT), 400, b"before the answer"),
}


@pytest.mark.parametrize("name", list(REFUSED))
async def test_another_request_is_refused_with_the_reason(plain: Serving, name: str) -> None:
    sent, status, word = REFUSED[name]
    answer = await answered(plain.websocket_port, sent)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Sec-WebSocket-Version: 13" in head
    assert word in body
    await eventually(lambda: plain.door.arriving == 0)


SAME = WebsocketOptions(port=0, no_tls=True, same_origin=True)
LISTED = WebsocketOptions(
    port=0, no_tls=True, allowed_origins=("https://a.example", "http://b.example:8080")
)


@pytest.mark.parametrize(
    ("options", "origin", "welcome"),
    [
        (PLAIN, "https://anywhere.example", True),
        (SAME, None, True),
        (SAME, "http://localhost", True),
        (SAME, "http://LOCALHOST:80", True),
        (SAME, "https://localhost", False),
        (SAME, "http://localhost:81", False),
        (SAME, "http://localhost.evil.example", False),
        (SAME, "null", False),
        (SAME, "http://[bad", False),
        (LISTED, None, True),
        (LISTED, "https://a.example", True),
        (LISTED, "https://a.example:443", True),
        (LISTED, "http://b.example:8080", True),
        (LISTED, "http://a.example", False),
        (LISTED, "http://b.example", False),
        (LISTED, "https://c.example", False),
    ],
)
async def test_pages_of_other_sites_are_kept_out_as_configured(
    options: WebsocketOptions, origin: str | None, welcome: bool
) -> None:
    async with serving(websocket=options) as running, raw(running.websocket_port) as connection:
        connection.send(request(origin=origin))
        line = await connection.line()
        assert line.startswith(b"HTTP/1.1 101" if welcome else b"HTTP/1.1 403")


async def test_a_request_that_never_ends_is_cut() -> None:
    clock = ManualClock()
    async with (
        serving(websocket=PLAIN, clock=clock) as running,
        raw(running.websocket_port) as half,
        raw(running.websocket_port) as silent,
    ):
        half.send(b"GET / HTTP/1.1\r\nHost: ")
        await eventually(lambda: running.door.arriving == 2)
        await asyncio.sleep(0.05)
        running.pass_time(1.9)
        assert running.door.arriving == 2
        running.pass_time(0.2)
        assert (await half.rest()).startswith(b"HTTP/1.1 408 ")
        await silent.rest()
        assert running.door.arriving == 0


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01"])
async def test_a_tls_handshake_that_never_ends_is_cut(authority: Authority, hello: bytes) -> None:
    clock = ManualClock()
    terms = tls_options(authority.server())
    options = WebsocketOptions(port=0, tls=terms)
    async with (
        serving(websocket=options, websocket_tls=Tls(terms), clock=clock) as running,
        raw(running.websocket_port) as client,
    ):
        client.send(hello)
        await eventually(lambda: running.door.arriving == 1)
        running.pass_time(2.1)
        assert await client.rest() == b""


async def test_a_client_that_asks_and_then_says_nothing_is_cut() -> None:
    clock = ManualClock()
    async with (
        serving(websocket=PLAIN, clock=clock) as running,
        connected(running.websocket_port) as client,
    ):
        running.pass_time(5.1)
        assert await client.closing() == (1008, b"Authentication Timeout")
        assert b"-ERR 'Authentication Timeout'" in client.stream


async def test_who_must_log_in_has_as_long_as_this_port_says() -> None:
    clock = ManualClock()
    terms = Authorization(token="t", timeout=3.0)
    options = WebsocketOptions(port=0, no_tls=True, authorization=terms)
    async with (
        serving(websocket=options, clock=clock, token="t") as running,
        connected(running.websocket_port) as client,
    ):
        await client.until(b"\r\n")
        running.pass_time(2.9)
        assert running.door.sessions.all()
        running.pass_time(0.2)
        assert await client.closing() == (1008, b"Authentication Timeout")


async def test_silent_clients_of_this_port_are_pinged_as_it_says() -> None:
    clock = ManualClock()
    options = WebsocketOptions(port=0, no_tls=True, ping_interval=10.0)
    async with (
        serving(websocket=options, clock=clock) as running,
        connected(running.websocket_port) as client,
    ):
        await client.until(b"\r\n")
        await client.greeted()
        running.pass_time(10)  # what it said just now counts as a sign of life
        running.pass_time(10)
        assert await client.until(b"\r\n") == b"PING\r\n"


@pytest.mark.parametrize("step", [1, 7])
async def test_frames_may_be_cut_anywhere_and_messages_too(plain: Serving, step: int) -> None:
    sent = (
        frame(BINARY, CONNECT + b"SUB a 1\r\nPU", fin=False)
        + frame(PING, b"x")
        + frame(CONTINUATION, b"B a 5\r\nhe", fin=False)
        + frame(CONTINUATION, b"llo\r\n")
        + frame(TEXT, b"PUB a 0\r\n\r\n")
    )
    async with connected(plain.websocket_port) as client:
        await client.until(b"\r\n")
        for at in range(0, len(sent), step):
            client.raw.send(sent[at : at + step])
            await client.raw.writer.drain()
        pongs, stream = [], b""
        while not pongs or not stream.endswith(b"0\r\n\r\n"):
            first, payload = await client.next_frame()
            if first == 0x8A:
                pongs.append(payload)
            else:
                stream += payload
        assert pongs == [b"x"]
        assert stream == b"MSG a 1 5\r\nhello\r\nMSG a 1 0\r\n\r\n"


async def test_what_answers_frames_that_came_together_leaves_together(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client:
        await client.greeted()
        sent = (b"PING\r\n", b"SUB a 1\r\n", b"PUB a 2\r\nhi\r\n")
        client.raw.send(b"".join(frame(BINARY, each) for each in sent))
        _, payload = await client.next_frame()
        assert payload == b"PONG\r\nMSG a 1 2\r\nhi\r\n"


async def test_frames_in_front_of_a_malformed_one_are_carried_out(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client:
        await client.greeted()
        sent = frame(BINARY, b"SUB a 1\r\n") + frame(BINARY, b"PUB a 2\r\nhi\r\n")
        client.raw.send(sent + frame(CONTINUATION, b""))
        assert (await client.closing())[0] == 1002
        assert client.stream.endswith(b"MSG a 1 2\r\nhi\r\n")


async def test_a_close_is_answered_in_kind(plain: Serving) -> None:
    for status, answer in ((b"", (0, b"")), (b"\x03\xe9", (1001, b""))):
        async with connected(plain.websocket_port) as client:
            await client.greeted()
            client.raw.send(frame(CLOSE, status))
            assert await client.closing() == answer
    await eventually(lambda: len(plain.door.sessions) == 0)


async def test_an_error_of_the_nats_protocol_is_said_before_the_close(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client:
        await client.greeted()
        client.send(b"BOGUS\r\n")
        assert await client.closing() == (1002, b"Protocol Violation")
        assert client.stream.endswith(b"-ERR 'Unknown Protocol Operation'\r\n")


async def test_stopping_says_that_the_server_goes_away(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client:
        await client.greeted()
        plain.door.stop()
        assert await client.closing() == (1001, b"Server Shutdown")


async def test_every_malformed_frame_ends_its_client_alone(packed: Serving) -> None:
    async with connected(packed.websocket_port) as healthy:
        await healthy.until(b"\r\n")
        for name, (sent, status) in MALFORMED.items():
            async with connected(packed.websocket_port, sec_websocket_extensions=OFFER) as client:
                client.raw.send(sent)
                # The text may offend as NATS before it does so as UTF-8.
                allowed = (status, 1002) if name.startswith("text") else (status,)
                assert (await client.closing())[0] in allowed, name
        await healthy.greeted()
    await eventually(lambda: len(packed.door.sessions) == 0)
    assert packed.door.arriving == 0


async def test_compression_is_agreed_on_only_where_it_is_configured(
    plain: Serving, packed: Serving
) -> None:
    agreed = b"permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
    for running, offered, expected in (
        (plain, OFFER, False),
        (packed, OFFER, True),
        (packed, "x-webkit-deflate-frame", False),
        (packed, None, False),
    ):
        async with raw(running.websocket_port) as connection:
            connection.send(request(sec_websocket_extensions=offered))
            assert (agreed in await connection.until(b"\r\n\r\n")) == expected


async def test_compressed_messages_go_both_ways(packed: Serving) -> None:
    async with connected(packed.websocket_port, sec_websocket_extensions=OFFER) as client:
        first, info = await client.next_frame()
        assert first == 0xC2
        assert inflated(info).startswith(b"INFO {")
        text = b"stream" * 10_000
        message = b"PUB a %d\r\n%b\r\n" % (len(text), text)
        client.raw.send(frame(BINARY, deflated(CONNECT + b"SUB a 1\r\n" + message), rsv=4))
        said = b""
        while not said.endswith(b"stream\r\n"):
            first, payload = await client.next_frame()
            assert first == 0xC2
            assert len(payload) < 2000
            said += inflated(payload)
        assert said == b"MSG a 1 %d\r\n%b\r\n" % (len(text), text)


def inflated(payload: bytes) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(payload + b"\x00\x00\xff\xff")


async def test_a_whole_payload_fits_into_one_compressed_message(packed: Serving) -> None:
    async with connected(packed.websocket_port, sec_websocket_extensions=OFFER) as client:
        size = 1 << 20
        message = b"PUB a %d\r\n%b\r\nPING\r\n" % (size, bytes(size))
        client.raw.send(frame(BINARY, deflated(message), rsv=4))
        said = b""
        while b"PONG" not in said:
            first, payload = await client.next_frame()
            said += inflated(payload) if first == 0xC2 else payload


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("text", [b"PING\r\n", b"PUB a 0\r\n\r\n", b"\x00", b"SUB a 1\r\n"])
async def test_a_bomb_before_any_login_is_closed_and_costs_little(
    packed: Serving, text: bytes
) -> None:
    sent = frame(BINARY, bomb(10 << 30, text), rsv=4)
    async with connected(packed.websocket_port, sec_websocket_extensions=OFFER) as first:
        first.raw.send(frame(BINARY, deflated(bytes(1 << 19)), rsv=4))
        await first.raw.rest()
    before = resident()
    async with connected(packed.websocket_port, sec_websocket_extensions=OFFER) as client:
        client.raw.send(sent)
        await client.raw.rest()
        grown = resident() - before
    assert grown - len(sent) <= 16 << 20
    await eventually(lambda: len(packed.door.sessions) == 0)


async def test_many_small_bombs_leave_others_their_turn(packed: Serving) -> None:
    each, count = 80_000, 200
    sent = frame(BINARY, deflated(b"PUB a 0\r\n\r\n" * each), rsv=4) * count
    async with (
        connected(packed.websocket_port, sec_websocket_extensions=OFFER) as hostile,
        connected(packed.websocket_port) as healthy,
    ):
        await healthy.until(b"\r\n")
        hostile.raw.send(sent)
        await eventually(lambda: packed.door.hub.stats()["in_msgs"] > 0)
        for _ in range(5):
            healthy.send(b"PING\r\n")
            await healthy.until(b"PONG\r\n")
        assert packed.door.hub.stats()["in_msgs"] < each * count
        await eventually(lambda: packed.door.hub.stats()["in_msgs"] == each * count)


async def test_a_frame_of_ten_gigabytes_is_not_waited_for(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client:
        await client.until(b"\r\n")
        head = frame(BINARY, b"", form=127, length=10 << 30)
        client.raw.send(head + frame(BINARY, b"PING\r\n")[6:])
        await client.until(b"PONG\r\n")


async def test_pings_of_a_client_that_does_not_read_are_not_collected(plain: Serving) -> None:
    async with connected(plain.websocket_port) as client:
        await client.until(b"\r\n")
        client.raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        flood = frame(PING, b"x" * 125) * 2000
        before = resident()
        for _ in range(20):
            client.raw.send(flood)
            await client.raw.writer.drain()
        assert resident() - before < 16 << 20
        client.raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        client.raw.send(frame(PING, b"last"))
        while (await client.next_frame())[1] != b"last":
            pass


async def test_a_client_that_does_not_read_is_closed_before_it_costs_much() -> None:
    limits = NatsLimits(max_pending=1 << 20)
    async with (
        serving(websocket=PLAIN, limits=limits) as running,
        connected(running.websocket_port) as slow,
        connected(running.websocket_port) as publisher,
    ):
        await slow.greeted()
        await publisher.until(b"\r\n")
        slow.send(b"SUB a 1\r\nPING\r\n")
        await slow.until(b"PONG\r\n")
        slow.raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        message = frame(BINARY, b"PUB a 100000\r\n" + bytes(100_000) + b"\r\n")
        async with asyncio.timeout(60):
            while len(running.door.sessions) == 2:
                publisher.raw.send(message)
                await publisher.raw.writer.drain()
                await asyncio.sleep(0)
        assert running.door.hub.stats()["slow_consumers"] == 1


async def test_a_publisher_into_a_sink_that_is_behind_is_not_read(packed: Serving) -> None:
    sink = Collector()
    handle = packed.interest.add_sink(b"s", sink)
    async with connected(packed.websocket_port, sec_websocket_extensions=OFFER) as client:
        packed.interest.pause_sink(handle, True)
        many = frame(BINARY, deflated(b"PUB s 10\r\n0123456789\r\n" * 40_000), rsv=4)
        for _ in range(20):
            client.raw.send(many)
        await asyncio.sleep(0.2)
        assert sink.count < 20_000
        packed.interest.pause_sink(handle, False)
        await eventually(lambda: sink.count == 800_000)


async def test_surplus_clients_are_told_so_in_a_frame() -> None:
    limits = NatsLimits(max_connections=1)
    async with (
        serving(websocket=PLAIN, limits=limits) as running,
        connected(running.websocket_port) as first,
    ):
        await first.greeted()
        async with connected(running.websocket_port) as second:
            assert (await second.closing())[0] == 1008
            greeting, refusal, _ = second.stream.split(b"\r\n")
            assert greeting.startswith(b"INFO {")
            assert refusal == b"-ERR 'maximum connections exceeded'"


async def test_a_random_key_gets_its_own_answer(plain: Serving) -> None:
    key = base64.b64encode(os.urandom(16)).decode()
    async with connected(plain.websocket_port, sec_websocket_key=key) as client:
        await client.greeted()
