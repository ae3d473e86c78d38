"""Section 10 of the contract: the port is bound first, and says how far the recovery is."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from millstream import __version__
from millstream.clock import SystemClock
from millstream.errors import StorageUnusable
from millstream.server.build import build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.opening import Opening, begin
from millstream.server.options.options import Options
from millstream.server.recovery_progress import RecoveringFiles, RecoveryProgress
from millstream.server.server import Server


def options_for(directory: Path, **values: Any) -> Options:
    given = {"port": 0, "http_port": 0, "data_dir": directory / "data", **values}
    return load_serve(given).options


async def served(options: Options, opening: Opening | None = None) -> Server:
    files = opening.files if opening is not None else None
    parts = build(options, asyncio.get_running_loop(), SystemClock(), files=files)
    server = Server(options, parts, opening)
    await server.start()
    return server


class Client:
    """One connection, on which one request after another is asked."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes, Any]:
        """Return the status, the head and the decoded body."""
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)
        async with asyncio.timeout(5):
            answer = await self._reader.readuntil(b"\r\n\r\n")
            size = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            shown = await self._reader.readexactly(size)
        return int(answer.split()[1]), answer, json.loads(shown)

    async def has_ended(self) -> bool:
        async with asyncio.timeout(5):
            return await self._reader.read() == b""


@pytest.fixture
async def written(tmp_path: Path) -> Path:
    """A directory that a server has left behind with a record in it."""
    server = await served(options_for(tmp_path))
    assert server.http_address is not None
    client = await Client.connect(server.http_address[1])
    status, _, _ = await client.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    assert status == 201
    client.writer.close()
    await server.stop()
    return tmp_path


def port_of(opening: Opening) -> int:
    bound = opening._bound
    assert bound is not None
    port: int = bound[0].getsockname()[1]
    return port


async def test_s10_while_the_log_is_replayed_the_port_answers_that_it_is_not_ready(
    written: Path,
) -> None:
    opening = begin(options_for(written), SystemClock())
    client = await Client.connect(port_of(opening))
    for path in ("/v0/ready", "/readyz"):
        status, head, shown = await client.ask("GET", path)
        assert status == 503
        assert b"\r\nRetry-After: 1\r\n" in head
        assert list(shown) == ["error"]
        assert (shown["error"]["code"], shown["error"]["detail"]) == (
            "not_ready", {"replay_progress": 0.0},
        )  # fmt: skip
        assert shown["error"]["message"]
    client.writer.close()
    opening.abandon()


async def test_s10_health_is_200_while_the_log_is_replayed_and_everything_else_waits(
    written: Path,
) -> None:
    opening = begin(options_for(written), SystemClock())
    client = await Client.connect(port_of(opening))
    status, _, shown = await client.ask("GET", "/v0/health")
    assert (status, shown["status"], shown["version"]) == (200, "ok", __version__)
    assert set(shown) == {"status", "version", "uptime_ms"}
    status, _, shown = await client.ask("GET", "/healthz")
    assert (status, shown["status"]) == (503, "unavailable")
    body = {"records": [{"data": 2}]}
    for method, path in (("GET", "/v0/topics"), ("POST", "/v0/topics/t"), ("GET", "/v0/metrics")):
        status, head, shown = await client.ask(method, path, body)
        assert (status, shown["error"]["code"]) == (503, "not_ready")
        assert b"\r\nRetry-After: 1\r\n" in head
    client.writer.close()
    opening.abandon()


async def test_s10_whoever_comes_while_the_port_changes_hands_is_answered(written: Path) -> None:
    options = options_for(written)
    opening = begin(options, SystemClock())
    port = port_of(opening)
    early = await Client.connect(port)
    assert (await early.ask("GET", "/v0/ready"))[0] == 503
    parts = build(options, asyncio.get_running_loop(), SystemClock(), files=opening.files)
    server = Server(options, parts, opening)
    starting = asyncio.create_task(server.start())
    assert await early.has_ended()  # so that its next request reaches the server
    early.writer.close()
    late = await Client.connect(port)
    await starting
    assert server.http_address == ("127.0.0.1", port)
    status, _, shown = await late.ask("GET", "/v0/ready")
    assert (status, shown) == (200, {"status": "ready", "wal_replay_complete": True, "topics": 1})
    status, _, shown = await late.ask("POST", "/v0/topics/t/diff", {})
    assert [record["data"] for record in shown["records"]] == [1]
    late.writer.close()
    await server.stop()


async def test_s10_where_nothing_is_to_be_replayed_nobody_waits(tmp_path: Path) -> None:
    opening = begin(options_for(tmp_path), SystemClock())
    assert opening.take() is None
    server = await served(options_for(tmp_path), opening)
    assert server.http_address is not None
    await server.stop()


async def test_s10_probes_that_must_say_who_they_are_are_told_nothing_more(written: Path) -> None:
    opening = begin(options_for(written, probe_auth=True), SystemClock())
    client = await Client.connect(port_of(opening))
    for path in ("/v0/health", "/v0/ready", "/healthz"):
        status, _, shown = await client.ask("GET", path)
        assert (status, set(shown["error"])) == (503, {"code", "message"})
    client.writer.close()
    opening.abandon()


async def test_s01_a_directory_that_is_in_use_is_told_before_the_port_is_bound(
    written: Path,
) -> None:
    server = await served(options_for(written))
    assert server.http_address is not None
    taken = options_for(written, http_port=server.http_address[1])  # which is taken as well
    with pytest.raises(StorageUnusable, match="in use by another"):
        begin(taken, SystemClock())
    await server.stop()


async def test_s10_a_start_that_fails_gives_the_port_back(written: Path) -> None:
    opening = begin(options_for(written), SystemClock())
    port = port_of(opening)
    opening.abandon()
    opening.abandon()
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(port)
    again = begin(options_for(written, http_port=port), SystemClock())
    assert port_of(again) == port
    again.abandon()


# -- the progress ----------------------------------------------------------------------------------


def made(directory: Path, shards: int, files: int) -> list[str]:
    paths = []
    for shard in range(shards):
        place = directory / "wal" / f"shard-{shard:02}"
        place.mkdir(parents=True)
        for number in range(1, files + 1):
            (place / f"wal-{number:016}.log").write_bytes(b"MWAL" + bytes(996))
            paths.append(str(place / f"wal-{number:016}.log"))
        (place / f"wal-{files + 1:016}.log").write_bytes(bytes(1000))  # made ahead
    return paths


def test_s10_three_of_eight_is_a_progress_of_0_375(tmp_path: Path) -> None:
    paths = made(tmp_path, 1, 8)
    progress = RecoveryProgress(tmp_path)
    shares = []
    for path in paths:  # what is there is looked for first
        progress.opened(path)
        shares.append(progress.share)
    for path in paths:  # and then replayed, one after another
        progress.opened(path)
        shares.append(progress.share)
    progress.opened(paths[0])  # what it used is cut to size at the end
    shares.append(progress.share)
    assert shares == [0.0] * 8 + [done / 8 for done in range(8)] + [1.0]


def test_s10_several_shards_are_looked_through_before_they_are_replayed(tmp_path: Path) -> None:
    paths = made(tmp_path, 2, 2)
    progress = RecoveryProgress(tmp_path)
    for path in [*paths, *paths]:
        progress.opened(path)
    assert progress.share == 0.0
    shares = []
    for path in paths:
        progress.opened(path)
        shares.append(progress.share)
    assert shares == [0.0, 0.25, 0.5, 0.75]


def test_s10_a_directory_without_a_log_needs_no_replay(tmp_path: Path) -> None:
    assert not RecoveryProgress(tmp_path / "none").is_needed
    made(tmp_path, 1, 0)  # only what was made ahead
    assert not RecoveryProgress(tmp_path).is_needed


async def test_s10_the_progress_is_that_of_a_real_start(written: Path) -> None:
    options = options_for(written)
    assert options.jetstream is not None
    progress = RecoveryProgress(options.jetstream.directory.resolve())
    assert progress.is_needed
    files = RecoveringFiles(SystemClock(), progress)
    parts = build(options, asyncio.get_running_loop(), SystemClock(), files=files)
    server = Server(options, parts)
    assert progress.share == 1.0
    files.recovered()
    await server.start()
    await server.stop()
