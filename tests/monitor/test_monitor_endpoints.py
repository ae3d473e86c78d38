"""The monitoring endpoints tell the truth, and turn red with the store."""

import msgspec
import pytest

from millstream.clock import ManualClock
from millstream.http.request import Request
from millstream.http.response import Response
from millstream.http.routes import Routes
from millstream.monitor.facts import Facts
from millstream.monitor.routes import monitor_routes
from millstream.monitor.varz import uptime


async def get(facts: Facts, path: str, query: str = "") -> tuple[int, dict[str, object]]:
    answer = await Routes(monitor_routes(facts))(Request("GET", path, query))
    assert isinstance(answer, Response)
    return answer.status, msgspec.json.decode(answer.body)


def facts(problems: list[str] | None = None) -> Facts:
    clock = ManualClock()
    started = clock.time_ns()
    clock.advance(61)
    return Facts(
        clock=clock,
        started_ns=started,
        server_id="NID",
        server_name="mill",
        nats_version="2.15.1",
        port=4222,
        health=lambda: problems or [],
        traffic=lambda: {"connections": 3, "in_msgs": 7, "secret": 1},
    )


async def test_healthz_is_ok_with_version_and_uptime() -> None:
    assert await get(facts(), "/healthz") == (
        200,
        {"status": "ok", "version": "0.1.0", "uptime_ms": 61_000},
    )


async def test_healthz_turns_red_with_the_store() -> None:
    status, body = await get(facts(["shard 0 is read-only: EIO"]), "/healthz")
    assert (status, body["status"], body["error"]) == (
        503,
        "unavailable",
        "shard 0 is read-only: EIO",
    )


async def test_healthz_of_a_stream_needs_its_account() -> None:
    status, body = await get(facts(), "/healthz", "stream=x")
    assert (status, body["status"]) == (400, "error")


async def test_varz_shows_identity_uptime_and_known_counters() -> None:
    status, body = await get(facts(), "/varz")
    assert status == 200
    assert body["server_name"] == "mill"
    assert body["version"] == "2.15.1"
    assert body["start"] == "2023-11-14T22:13:20.000000000Z"
    assert body["uptime"] == "1m1s"
    assert (body["connections"], body["in_msgs"]) == (3, 7)
    assert "secret" not in body
    assert isinstance(body["mem"], int)
    assert body["mem"] > 1_000_000


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (59, "59s"), (60, "1m0s"), (3600, "1h0m0s"), (90_061, "1d1h1m1s")],
)
def test_uptime_reads_as_nats_server_writes_it(seconds: int, shown: str) -> None:
    assert uptime(seconds * 1_000_000_000) == shown
