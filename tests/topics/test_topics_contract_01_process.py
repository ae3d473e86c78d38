"""Section 1 of the contract: process, transport and environment, a test for each sentence."""

import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from millstream.clock import ManualClock
from millstream.http.connection import PREFACE
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, Response, Upgraded
from millstream.server.command_line.serve_options import load_serve
from millstream.server.options.config_error import ConfigError
from millstream.server.options.serve_config import ServeConfig, given

LIMIT = 20.0
GET = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


# -- a server as people start it -------------------------------------------------------------


@dataclass
class Serving:
    process: subprocess.Popen[bytes]
    address: tuple[str, int]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the decoded answer of one request on a connection of its own."""
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        with socket.create_connection(self.address, LIMIT) as client:
            client.sendall((head + kind).encode() + raw)
            heard = b"".join(iter(lambda: client.recv(65536), b""))
        return json.loads(heard.partition(b"\r\n\r\n")[2])

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Return the exit code, and how many seconds the end took."""
        began = time.monotonic()
        self.process.send_signal(how)
        return self.process.wait(LIMIT), time.monotonic() - began


def command(directory: Path, **environ: str) -> tuple[list[str], dict[str, str]]:
    kept = {name: value for name, value in os.environ.items() if "TOPICS_" not in name}
    told = {"TOPICS_DATA_DIR": str(directory / "data"), "MILLSTREAM_PORT": "0", **environ}
    return [sys.executable, "-m", "millstream", "serve"], {**kept, **told}


@contextlib.contextmanager
def serving(directory: Path, **environ: str) -> Iterator[Serving]:
    """Start it with this environment; it says by ``TOPICS_PORT_FILE`` where it listens."""
    file = directory / "port"
    file.unlink(missing_ok=True)
    line, told = command(
        directory, **{"TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(file), **environ}
    )
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(line, env=told, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + LIMIT
        while not file.exists():
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        host, _, port = file.read_text().rpartition(":")
        yield Serving(process, (host, int(port)))
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_s01_a_signal_tells_streams_to_close_and_the_drain_takes_less_than_5_seconds(
    tmp_path: Path, how: signal.Signals
) -> None:
    with serving(tmp_path) as server:
        server.ask("PUT", "/v0/topics/t", {})
        with socket.create_connection(server.address, LIMIT) as stream:
            stream.sendall(b"GET /v0/topics/t/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heard = b""
            while b"caught-up" not in heard:
                heard += stream.recv(65536)
            code, seconds = server.end(how)
            rest = b"".join(iter(lambda: stream.recv(65536), b""))
        assert b"event: error" in rest
        assert b"server_shutting_down" in rest
        assert (code, seconds < 5) == (0, True)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(server.address, 1)


@pytest.mark.slow
def test_s01_a_stop_drains_routers_and_writes_a_last_snapshot(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
        for number in range(20):
            server.ask("POST", "/v0/topics/a", {"records": [{"data": number}]})
        assert not [*(tmp_path / "data").rglob("snapshot-*")]
        assert server.end()[0] == 0
    assert [*(tmp_path / "data").rglob("snapshot-*")]
    with serving(tmp_path) as server:
        # What was copied before the stop is what a reader finds without driving the router.
        assert server.ask("GET", "/v0/topics?prefix=b")["topics"][0]["count"] == 20
        assert server.ask("POST", "/v0/topics/b/diff", {})["head_seq"] == 20
        server.end()


@pytest.mark.slow
@pytest.mark.parametrize("spare", [2, -5], ids=["some connections fit", "not even one fits"])
def test_s01_an_accept_error_does_not_end_the_server(tmp_path: Path, spare: int) -> None:
    with serving(tmp_path) as server, contextlib.ExitStack() as held:
        pid = server.process.pid
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + spare, before[1]))
        clients = [
            held.enter_context(socket.create_connection(server.address, LIMIT)) for _ in range(12)
        ]
        for client in clients:
            client.sendall(GET)
        deadline = time.monotonic() + LIMIT
        while "cannot accept connections" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        answered = select.select(clients, [], [], 0.3)[0]
        assert len(answered) < len(clients)  # the others could not be accepted
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        # Nobody was sent away: who waited is served as soon as there is room.
        assert all(b" 200 " in client.recv(65536) for client in clients)
        assert server.ask("GET", "/v0/health")["status"] == "ok"
        server.end()


@pytest.mark.slow
def test_s01_a_second_process_on_the_same_directory_does_not_start(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        line, environ = command(tmp_path, TOPICS_PORT="0")
        second = subprocess.run(line, env=environ, capture_output=True, timeout=LIMIT, check=False)
        assert second.returncode != 0
        assert b"in use by another millstream" in second.stdout + second.stderr
        assert server.ask("GET", "/v0/health")["status"] == "ok"
        server.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"TOPICS_HOST": "0.0.0.0"}, b"refusing to listen"),
        ({"TOPICS_HOST": "[::]"}, b"refusing to listen"),
        ({"TOPICS_HOST": "0.0.0.0:0"}, b"refusing to listen"),
        ({"TOPICS_HOST": "no-such-host.invalid"}, b"refusing to listen"),
        ({"TOPICS_API_KEYS": "s:reed"}, b"API_KEYS"),
    ],
)
def test_s01_what_may_not_be_served_is_refused_before_anything_listens(
    tmp_path: Path, environ: dict[str, str], why: bytes
) -> None:
    line, told = command(tmp_path, **{"TOPICS_PORT": "0", **environ})
    done = subprocess.run(line, env=told, capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode != 0
    assert why in done.stdout + done.stderr
    assert not (tmp_path / "data").exists()


def test_s01_keys_or_the_insecure_override_open_another_address() -> None:
    for more in ({"TOPICS_API_KEYS": "s"}, {"TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}):
        values = given({}, {"TOPICS_HOST": "0.0.0.0", **more})
        assert load_serve(values).options.monitor_host == "0.0.0.0"
    with pytest.raises(ConfigError, match="refusing"):
        load_serve(given({}, {"TOPICS_HOST": "0.0.0.0"}))


# -- the environment -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("HOST", "::1", "http_host", "::1"),
        ("PORT", "4000", "http_port", 4000),
        ("PORT", "0", "http_port", 0),
        ("PORT_FILE", "/p", "http_port_file", Path("/p")),
        ("DATA_DIR", "/d", "data_dir", Path("/d")),
        ("WAL_SHARDS", "4", "wal_shards", 4),
        ("SEGMENT_MAX_EVENTS", "7", "segment_max_events", 7),
        ("SEGMENT_MAX_BYTES", "8", "segment_max_bytes", 8),
        ("SEGMENT_MAX_AGE_MS", "9", "segment_max_age_ms", 9),
        ("HOT_RETAIN_SEGMENTS", "2", "hot_segments", 2),
        ("HOT_RETAIN_BYTES", "3", "hot_bytes", 3),
        ("PROBE_AUTH", "true", "probe_auth", True),
        ("PROBE_AUTH", "1", "probe_auth", True),
        ("ALLOW_INSECURE_NO_AUTH", "true", "allow_insecure_no_auth", True),
        ("MAX_BODY_BYTES", "100", "max_body_bytes", 100),
        ("MAX_TOPICS", "0", "max_topics", 0),
        ("MAX_ROUTERS", "5", "max_routers", 5),
        ("MAX_WATCH_SESSIONS", "6", "max_watch_sessions", 6),
        ("MAX_SSE_CONNECTIONS", "7", "max_sse_connections", 7),
        ("MAX_SSE_CONNECTIONS_PER_KEY", "8", "max_sse_connections_per_key", 8),
        ("MAX_INFLIGHT_PER_KEY", "9", "max_inflight_per_key", 9),
        ("MAX_TOTAL_BYTES", "10", "max_total_bytes", 10),
        ("MAX_UNREAD_BYTES", "11", "max_unread_bytes", 11),
        ("MAX_UNREAD_BYTES_PER_KEY", "12", "max_unread_bytes_per_key", 12),
        ("MAX_UNREAD_BYTES_PER_CONNECTION", "13", "max_unread_bytes_per_connection", 13),
        ("TEST_MIN_HEARTBEAT_MS", "100", "test_min_heartbeat_ms", 100),
    ],
)
def test_s01_every_name_of_the_environment_is_taken(
    name: str, text: str, field: str, value: object
) -> None:
    assert given({}, {f"TOPICS_{name}": text}) == {field: value}


def test_s01_the_caps_have_the_contracts_defaults() -> None:
    config = ServeConfig()
    assert (config.max_body_bytes, config.max_topics, config.max_routers) == (
        67108864, 100000, 10000,
    )  # fmt: skip
    assert (config.max_watch_sessions, config.max_sse_connections) == (10000, 10000)
    assert (config.max_sse_connections_per_key, config.max_inflight_per_key) == (1000, 1000)
    assert (config.max_total_bytes, config.segment_max_bytes) == (0, 64 << 20)
    assert config.segment_max_age_ms == 3_600_000


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:4000", "127.0.0.1", 4000), ("[::1]:0", "::1", 0), ("localhost:5", "localhost", 5)],
)
def test_s01_a_host_that_names_its_port_makes_port_ignored(text: str, host: str, port: int) -> None:
    values = given({}, {"TOPICS_HOST": text, "TOPICS_PORT": "9"})
    assert values == {"http_host": host, "http_port": port}


@pytest.mark.parametrize(
    ("text", "floor"), [("100", 100), ("1", 1), ("0", 1), ("-5", 1), ("1001", 1000), ("5000", 1000)]
)
def test_s01_the_heartbeat_floor_can_only_be_lowered(text: str, floor: int) -> None:
    values = given({}, {"TOPICS_TEST_MIN_HEARTBEAT_MS": text})
    assert values == {"test_min_heartbeat_ms": floor}


# -- the transport ---------------------------------------------------------------------------


class Door:
    """A door with a clock of its own; answers with the version that a request came by."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.release = asyncio.Event()
        self.door = HttpDoor(asyncio.get_running_loop(), self.app, self.clock, hosts=None)
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def app(self, request: Request) -> Answer:
        if request.path == "/wait":
            await self.release.wait()
        if request.path == "/ws":
            return Upgraded((), lambda door: None, lambda: None)
        return Response(200, request.version.encode())

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.door.sweep()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    made = Door()
    made.port = await made.door.start("127.0.0.1", 0)
    yield made
    made.release.set()
    for writer in made.writers:
        writer.close()
    await made.door.stop()


class Two:
    """A client of HTTP/2."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def ask(self, path: str) -> None:
        names = (":method", ":path", ":scheme", ":authority")
        values = ("GET", path, "http", "localhost")
        self.h2.send_headers(
            self.h2.get_next_available_stream_id(), [*zip(names, values, strict=True)], True
        )
        self.flush()

    async def until(self, kind: type[Any], *, answer: bool = True) -> Any:
        """Return the next event of a kind; without ``answer`` nothing is said in return."""
        async with asyncio.timeout(5):
            while True:
                for at, event in enumerate(self.events):
                    if isinstance(event, kind):
                        return self.events.pop(at)
                data = await self.reader.read(65536)
                assert data, "closed"
                self.events += self.h2.receive_data(data)
                if answer:
                    self.flush()


async def test_s01_one_port_serves_http1_with_keep_alive_and_http2_by_prior_knowledge(
    door: Door,
) -> None:
    reader, writer = await door.connect()
    for _ in range(3):  # on one connection
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n1.1")
        assert answer.startswith(b"HTTP/1.1 200 OK")
    writer.close()
    two = Two(*await door.connect())
    two.ask("/")
    assert (await two.until(h2.events.DataReceived)).data == b"2"


@pytest.mark.parametrize("cut", [1, 3, 17, 23])
async def test_s01_the_preface_is_recognised_however_it_is_cut(door: Door, cut: int) -> None:
    reader, writer = await door.connect()
    writer.write(PREFACE[:cut])
    await asyncio.sleep(0.02)
    writer.write(PREFACE[cut:] + b"\0\0\0\x04\0\0\0\0\0")
    async with asyncio.timeout(5):
        frame = await reader.readexactly(9)
    assert frame[3] == 4  # SETTINGS


async def test_s01_there_is_no_upgrade_to_http2(door: Door) -> None:
    reader, writer = await door.connect()
    writer.write(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    )
    assert (await reader.readuntil(b"\r\n\r\n1.1")).startswith(b"HTTP/1.1 200 OK")


async def test_s01_a_websocket_is_an_upgrade_of_http1_only(door: Door) -> None:
    two = Two(*await door.connect())
    two.ask("/ws")
    headers = dict((await two.until(h2.events.ResponseReceived)).headers)
    assert headers.get(":status", headers.get(b":status")) in ("400", b"400")


async def test_s01_accepted_sockets_send_without_delay(door: Door) -> None:
    await door.connect()
    async with asyncio.timeout(5):
        while not door.door.connections:  # noqa: ASYNC110 - accepting is the loop's
            await asyncio.sleep(0)
    (connection,) = door.door._connections
    sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_s01_a_head_must_come_within_five_seconds(door: Door) -> None:
    assert Limits().head_seconds + Limits().sweep_seconds <= 5.0
    reader, writer = await door.connect()
    writer.write(b"GET / HTTP/1.1\r\nHost")
    async with asyncio.timeout(20):
        while not any(  # noqa: ASYNC110 - reading is the loop's
            each._parser.in_head  # type: ignore[attr-defined]
            for each in door.door._connections
        ):
            await asyncio.sleep(0)
    door.pass_time(4.0)
    writer.write(b": a\r\nX")
    await asyncio.sleep(0.05)
    door.pass_time(1.0)
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


async def test_s01_http2_has_the_contracts_windows_and_streams(door: Door) -> None:
    two = Two(*await door.connect())
    changed = (await two.until(h2.events.RemoteSettingsChanged)).changed_settings
    codes = h2.settings.SettingCodes
    assert changed[codes.INITIAL_WINDOW_SIZE].new_value == 1024 * 1024
    assert changed[codes.MAX_CONCURRENT_STREAMS].new_value == 1024
    await two.until(h2.events.WindowUpdated)
    assert two.h2.outbound_flow_control_window == 4 * 1024 * 1024


async def test_s01_http2_clients_that_wait_are_pinged_every_20_seconds(door: Door) -> None:
    two = Two(*await door.connect())
    two.ask("/wait")
    await two.until(h2.events.WindowUpdated)
    await asyncio.sleep(0.05)
    for _ in range(3):
        door.pass_time(20.0)
        await two.until(h2.events.PingReceived)
        await asyncio.sleep(0.05)  # its acknowledgement arrives
    assert door.door.connections == 1
    door.release.set()
    await two.until(h2.events.DataReceived)


async def test_s01_an_http2_client_that_leaves_a_ping_unanswered_is_dropped_after_20_seconds(
    door: Door,
) -> None:
    two = Two(*await door.connect())
    two.ask("/wait")
    await two.until(h2.events.WindowUpdated)
    await asyncio.sleep(0.05)
    door.pass_time(20.0)
    await two.until(h2.events.PingReceived, answer=False)
    door.pass_time(19.0)
    assert door.door.connections == 1
    door.pass_time(1.0)
    async with asyncio.timeout(5):
        while door.door.connections:  # noqa: ASYNC110 - the end of a socket is the loop's
            await asyncio.sleep(0)
