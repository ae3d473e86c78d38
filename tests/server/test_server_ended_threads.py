"""Whatever ends a thread, a task or a repeated call of the server: nothing hangs, health is red."""

import asyncio
import itertools
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import nats
from millstream.clock import SystemClock
from millstream.http.request import Request
from millstream.http.response import Response
from millstream.server.build import ServerParts, build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.http_parts import routes
from millstream.server.opening import begin
from millstream.server.server import Server
from millstream.store.wal.meter import MeteredFiles
from millstream.supervisor import Supervisor
from support.killed import Killed

LIMIT = 20.0  # seconds, after which something hangs


class Fault:
    """Ends a thread by its name, or fails a function by its own, at its next call of a seam."""

    def __init__(self) -> None:
        self.thread = ""
        self.function = ""

    def strike(self) -> None:
        if self.thread and threading.current_thread().name == self.thread:
            raise Killed(f"in {self.thread}")
        if self.function and self.function in _callers():
            raise ValueError(f"in {self.function}")


def _callers() -> set[str]:
    frame, found = sys._getframe(2), set()
    for _ in range(8):
        if frame is None:
            break
        found.add(frame.f_code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
    return found


class FaultyClock(SystemClock):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def monotonic(self) -> float:
        self._fault.strike()
        return super().monotonic()

    def time_ns(self) -> int:
        self._fault.strike()
        return super().time_ns()


class FaultyFiles(MeteredFiles):
    def __init__(self, fault: Fault, clock: SystemClock) -> None:
        super().__init__(clock)
        self._fault = fault

    def open(self, path: str, create: bool = False) -> Any:
        self._fault.strike()
        return super().open(path, create)

    def exists(self, path: str) -> bool:
        self._fault.strike()
        return super().exists(path)

    def listdir(self, path: str) -> list[str]:
        self._fault.strike()
        return super().listdir(path)

    def free_bytes(self, path: str) -> int:
        self._fault.strike()
        return super().free_bytes(path)


class Site:
    """A whole server in this process, with a fault to be struck."""

    def __init__(self, parts: ServerParts, server: Server, fault: Fault, app: Any) -> None:
        self.parts = parts
        self.server = server
        self.fault = fault
        self._app = app

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        raw = b"" if body is None else json.dumps(body).encode()
        headers = [(b"content-type", b"application/json")]
        async with asyncio.timeout(LIMIT):
            answer = await self._app(Request(method, path, "", headers, raw))
        assert isinstance(answer, Response)
        return answer.status, json.loads(answer.body)

    async def write(self) -> int:
        asked = {"records": [{"data": 1}], "config": {"durability": "fsync"}}
        return (await self.call("POST", "/v0/topics/t", asked))[0]

    async def until(self, is_so: Callable[[int, Any], bool]) -> None:
        """Ask for the health until it is so."""
        async with asyncio.timeout(LIMIT):
            for _ in itertools.repeat(None):
                if is_so(*await self.call("GET", "/healthz")):
                    return
                await asyncio.sleep(0.01)

    async def until_red(self, name: str) -> None:
        """Wait until every health check names what has ended, and why."""
        await self.until(lambda status, shown: name in str(shown))
        status, shown = await self.call("GET", "/healthz")
        assert (status, shown["status"]) == (503, "unavailable")
        status, shown = await self.call("GET", "/v0/health")
        assert (status, shown["status"]) == (200, "unavailable")
        assert name in shown["error"]

    async def until_green(self) -> None:
        await self.until(lambda status, shown: status == 200)


@asynccontextmanager
async def site(directory: Path, fault: Fault, **values: Any) -> AsyncIterator[Site]:
    given = {"port": 0, "http_port": 0, "data_dir": directory / "data", **values}
    options = load_serve(given, "").options
    clock, loop = FaultyClock(fault), asyncio.get_running_loop()
    parts = build(options, loop, clock, files=FaultyFiles(fault, clock))
    server = Server(options, parts)
    await server.start()
    try:
        yield Site(
            parts, server, fault, routes(options, parts.facts, parts.http.page, parts.http.gate)
        )
    finally:
        async with asyncio.timeout(LIMIT):
            await server.stop()


@pytest.fixture
def fault() -> Fault:
    return Fault()


def checkpoint(parts: ServerParts) -> None:
    """Give both file threads something to do."""
    assert parts.kept is not None
    parts.kept.store.checkpoint(parts.kept.sections())


THREADS: dict[str, Callable[[ServerParts], None]] = {
    "millstream-committer-0": lambda parts: None,  # the writes themselves are its work
    "millstream-files": checkpoint,
    "millstream-syncs": checkpoint,
}


@pytest.mark.parametrize("name", THREADS)
async def test_writes_are_refused_once_a_thread_of_the_store_has_ended(
    tmp_path: Path, fault: Fault, name: str
) -> None:
    async with site(tmp_path, fault) as found:
        assert await found.write() in (200, 201)
        waiting = [asyncio.create_task(found.write()) for _ in range(5)]
        fault.thread = name
        THREADS[name](found.parts)
        waiting += [asyncio.create_task(found.write()) for _ in range(5)]
        acknowledged = 1 + sum(status == 200 for status in await asyncio.gather(*waiting))
        await found.until_red(f"{name} thread ended (Killed")
        await found.until_red("shard 0 is read-only")
        assert await found.write() == 503
        status, shown = await found.call("POST", "/v0/topics/t", {"records": [{"data": 1}]})
        assert (status, shown["error"]["code"]) == (503, "shard_read_only")
        assert "ended (Killed" in shown["error"]["message"]
        status, topic = await found.call("GET", "/v0/topics/t")  # reads go on
        assert topic["head_seq"] >= acknowledged
    fault.thread = ""
    async with site(tmp_path, fault) as found:
        status, topic = await found.call("GET", "/v0/topics/t")
        assert topic["head_seq"] >= acknowledged
        assert await found.write() == 200


async def test_a_thread_of_the_cold_tier_that_ends_is_named(tmp_path: Path, fault: Fault) -> None:
    fault.thread = "millstream-cold-moves-0"
    async with site(tmp_path, fault, cold=str(tmp_path / "cold"), hot_segments=1) as found:
        await found.until_red("millstream-cold-moves-0 thread ended (Killed")
        assert await found.write() in (200, 201)


async def test_the_api_refuses_requests_once_its_task_has_ended(
    tmp_path: Path, fault: Fault
) -> None:
    async with site(tmp_path, fault) as found:
        [task] = [
            each
            for each in asyncio.all_tasks()
            if getattr(each.get_coro(), "__qualname__", "") == "RequestTasks._run"
        ]
        host, port = found.server.nats_address
        client = await nats.connect(f"nats://{host}:{port}", allow_reconnect=False)
        try:
            await client.request("$JS.API.INFO", b"", timeout=LIMIT)
            task.cancel()
            await found.until_red("the JetStream API of $G task ended (CancelledError)")
            answer = await client.request("$JS.API.INFO", b"", timeout=LIMIT)
        finally:
            await client.close()
        shown = json.loads(answer.data)
        assert shown["type"] == "io.nats.jetstream.api.v1.account_info_response"
        assert (shown["error"]["code"], shown["error"]["err_code"]) == (503, 10008)
        assert "restart the server" in shown["error"]["description"]


REPEATED = {
    "Sessions.tick": "the deadlines of NATS clients",
    "HttpDoor.sweep": "the deadlines of HTTP clients",
    "Store.tick": "the tending of logs and segments",
    "Deposits.tick": "the sweep of staged records",
    "Checkpoints.is_due": "the look whether a snapshot is due",
    "HttpGate.check": "the look at revoked credentials",
    "Observer._tick": "the hub's time",
    "PressureWatch._measure": "the governor's look",
}


@pytest.mark.parametrize("function", REPEATED)
async def test_a_repeated_call_that_fails_is_named_and_goes_on(
    tmp_path: Path, fault: Fault, function: str
) -> None:
    values = {"api_keys": ()} if function != "HttpGate.check" else {}
    async with site(tmp_path, fault, **values) as found:
        assert await found.write() in (200, 201)
        fault.function = function
        found.parts.kept.topics.scheduler.ready("key", lambda: 1, lambda: 0)  # type: ignore[union-attr]
        await found.until_red(f"{REPEATED[function]} fails (ValueError: in {function})")
        fault.function = ""
        found.parts.kept.topics.scheduler.ready("key", lambda: 1, lambda: 0)  # type: ignore[union-attr]
        await found.until_green()
        assert await found.write() == 200


async def test_a_timer_and_a_turn_that_fail_are_named_and_those_behind_them_come(
    tmp_path: Path, fault: Fault
) -> None:
    def broken_deadline() -> None:
        raise ValueError("late")

    def broken_work() -> int:
        raise ValueError("none")

    async with site(tmp_path, fault) as found:
        assert found.parts.kept is not None
        scheduler, came = found.parts.kept.topics.scheduler, asyncio.Event()
        found.parts.timers.after(0.0, broken_deadline)
        scheduler.ready("first", lambda: 1, lambda: 0)  # so that the others wait for a turn
        scheduler.ready("second", broken_work, lambda: 0)
        scheduler.ready("third", lambda: came.set() or 1, lambda: 0)
        async with asyncio.timeout(LIMIT):
            await came.wait()
        await found.until_red("broken_work failed (ValueError: none)")
        await found.until_red("broken_deadline failed (ValueError: late)")


async def test_a_start_goes_on_when_the_thread_that_answers_meanwhile_ends(
    tmp_path: Path, fault: Fault
) -> None:
    async with site(tmp_path, fault) as found:
        assert await found.write() in (200, 201)
    given = {"port": 0, "http_port": 0, "data_dir": tmp_path / "data"}
    options, supervisor = load_serve(given, "").options, Supervisor()
    clock = FaultyClock(fault)
    fault.thread = "waiting-room"
    opening = begin(options, clock, supervisor)
    try:
        [problem] = supervisor.problems()
        assert problem.startswith("waiting-room thread ended (Killed")
        bound = opening._bound
        assert bound is not None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*bound[0].getsockname())
    finally:
        fault.thread = ""
    parts = build(options, asyncio.get_running_loop(), clock, None, opening.files, supervisor)
    server = Server(options, parts, opening)
    await server.start()
    try:
        assert supervisor.problems() == []
        assert server.http_address is not None
        _, writer = await asyncio.open_connection(*server.http_address)
        writer.close()
        await writer.wait_closed()
    finally:
        await server.stop()
