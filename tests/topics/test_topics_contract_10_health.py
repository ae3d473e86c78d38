"""Section 10 of the contract: health, readiness and metrics, one test for each of its sentences."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from topics_api import Api

from millstream import __version__
from millstream.clock import SystemClock
from millstream.delivery.governor import Measures
from millstream.http.exposition import gauge, render
from millstream.http.request import Request
from millstream.http.response import Response
from millstream.server.build import build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.http_parts import routes
from millstream.server.server import Server

GAUGES = [
    "topics_topics",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_topics_by_class",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_read_only",
]
COUNTERS = [
    "topics_uptime_ms",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_submit_full_total",
]
LATENCY = "topics_wal_fsync_latency_us"
BOUNDS = ["50", "100", "250", "500", "1000", "5000", "10000", "50000", "100000", "+Inf"]
MEMBERS = [
    "topics",
    "topics_ephemeral",
    "topics_memory",
    "topics_disk",
    "topics_fsync",
    "routers",
    "records_live",
    "bytes_live",
    "queue_topics",
    "queue_leases_in_flight",
    "sse_connections",
    "watch_sessions",
    "ready",
    "replay_progress",
    "uptime_ms",
    "wal",
]
WAL = [
    "fsyncs",
    "frames",
    "batches",
    "bytes_written",
    "rotations",
    "queue_depth",
    "queue_depth_peak",
    "submit_full_total",
    "read_only",
    "fsync_count",
    "fsync_micros_total",
]


class Served:
    """A whole server without a socket: its WAL is metered as one that people run."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def get(self, path: str, **headers: str) -> Response:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        answer = await self._app(Request("GET", path, "", pairs))
        assert isinstance(answer, Response)
        return answer

    async def send(self, method: str, path: str, body: object) -> None:
        kind = [(b"content-type", b"application/json")]
        answer = await self._app(Request(method, path, "", kind, msgspec.json.encode(body)))
        assert answer.status in (200, 201), answer

    async def figures(self) -> dict[str, float]:
        lines = (await self.get("/v0/metrics")).body.decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    given = {"port": 0, "http_port": 0, "data_dir": tmp_path / "data"}
    options = load_serve(given).options
    parts = build(options, asyncio.get_running_loop(), SystemClock())
    server = Server(options, parts)
    await server.start()
    yield Served(routes(options, parts.facts, parts.http.page, parts.http.gate))
    await server.stop()


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
async def test_s10_health_is_200_with_status_version_and_uptime(served: Served, path: str) -> None:
    answer = await served.get(path)
    shown = msgspec.json.decode(answer.body)
    assert (answer.status, shown["status"], shown["version"]) == (200, "ok", __version__)
    assert shown["uptime_ms"] >= 0
    assert "performance" not in shown


async def test_s10_v0_health_is_200_even_while_the_log_is_replayed(api: Api) -> None:
    api.topics.ready = False
    status, shown = await api.call("GET", "/v0/health")
    assert (status, set(shown)) == (200, {"status", "version", "uptime_ms"})


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
async def test_s10_ready_is_200_with_the_number_of_topics(api: Api, path: str) -> None:
    await api.write("a", 1)
    status, shown = await api.call("GET", path)
    assert status == 200
    assert shown == {"status": "ready", "wal_replay_complete": True, "topics": 1}


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
async def test_s10_not_ready_is_503_with_the_progress(api: Api, path: str) -> None:
    api.topics.ready, api.topics.replay_progress = False, 3 / 8
    answer = await api.send("GET", path)
    assert isinstance(answer, Response)
    assert (answer.status, answer.headers) == (503, ((b"Retry-After", b"1"),))
    error = msgspec.json.decode(answer.body)["error"]
    assert (error["code"], error["detail"]) == ("not_ready", {"replay_progress": 0.375})


async def test_s10_metrics_are_text_of_version_0_0_4(served: Served) -> None:
    answer = await served.get("/v0/metrics")
    assert answer.status == 200
    assert answer.content_type.startswith(b"text/plain; version=0.0.4")


async def test_s10_metrics_are_json_for_who_accepts_that(served: Served) -> None:
    answer = await served.get("/v0/metrics", accept="text/html, application/json;q=0.9")
    shown = msgspec.json.decode(answer.body)
    assert (answer.status, answer.content_type) == (200, b"application/json")
    assert set(MEMBERS) <= set(shown)
    assert set(WAL) <= set(shown["wal"])


async def test_s10_every_metric_has_help_and_its_type(served: Served) -> None:
    await served.send("PUT", "/v0/topics/q", {"type": "queue"})
    text = (await served.get("/v0/metrics")).body.decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helped = set(re.findall(r"^# HELP (\S+) \S.*$", text, re.MULTILINE))
    expected = dict.fromkeys(GAUGES, "gauge") | dict.fromkeys(COUNTERS, "counter")
    assert {name: kinds.get(name) for name in expected} == expected
    assert kinds[LATENCY] == "histogram"
    assert kinds.keys() <= helped


async def test_s10_topics_are_counted_by_class(served: Served) -> None:
    for number, durability in enumerate(("ephemeral", "memory", "disk", "fsync"), 1):
        for each in range(number):
            path = f"/v0/topics/{durability}-{each}"
            await served.send("PUT", path, {"durability": durability})
    figures = await served.figures()
    classes = ("ephemeral", "memory", "disk", "fsync")
    shown = [figures[f'topics_topics_by_class{{class="{each}"}}'] for each in classes]
    assert shown == [1, 2, 3, 4]
    assert figures["topics_topics"] == 10


async def test_s10_only_queues_have_queue_figures(served: Served) -> None:
    await served.send("PUT", "/v0/topics/q", {"type": "queue"})
    await served.send("POST", "/v0/topics/q", {"records": [{"data": 1}, {"data": 2}]})
    await served.send("POST", "/v0/topics/log", {"records": [{"data": 1}]})
    await served.send("POST", "/v0/topics/q/claim", {"node": "w"})
    figures = await served.figures()
    assert figures['topics_topic_queue_ready{topic="q"}'] == 1
    assert figures['topics_topic_queue_in_flight{topic="q"}'] == 1
    assert 'topics_topic_queue_ready{topic="log"}' not in figures
    assert figures["topics_queue_leases_in_flight"] == 1


async def test_s10_at_most_a_thousand_topics_have_labels_and_that_is_told(api: Api) -> None:
    async def labelled() -> tuple[int, str]:
        answer = await api.send("GET", "/v0/metrics")
        assert isinstance(answer, Response)
        lines = answer.body.decode().splitlines()
        heads = sum(line.startswith("topics_topic_head_seq{") for line in lines)
        (cut,) = [line for line in lines if line.startswith("topics_topic_metrics_truncated ")]
        return heads, cut.split()[1]

    for number in range(1000):
        await api.call("PUT", f"/v0/topics/t{number}", {"durability": "ephemeral"})
    assert await labelled() == (1000, "0")
    await api.call("PUT", "/v0/topics/t1000", {"durability": "ephemeral"})
    assert await labelled() == (1000, "1")


async def test_s10_the_sync_histogram_is_cumulative_and_counts_every_sync(served: Served) -> None:
    await served.send("PUT", "/v0/topics/t", {"durability": "fsync"})
    for _ in range(3):
        await served.send("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    figures = await served.figures()
    buckets = [figures[f'{LATENCY}_bucket{{le="{bound}"}}'] for bound in BOUNDS]
    assert buckets == sorted(buckets)
    assert buckets[-1] == figures[f"{LATENCY}_count"] == figures["topics_wal_fsyncs_total"] >= 3
    assert figures[f"{LATENCY}_sum"] > 0


async def test_s10_the_wal_figures_grow_with_what_is_written(served: Served) -> None:
    before = await served.figures()
    await served.send("POST", "/v0/topics/t", {"records": [{"data": "x" * 1000}]})
    after = await served.figures()
    for name in ("frames", "batches", "bytes_written"):
        assert after[f"topics_wal_{name}_total"] > before[f"topics_wal_{name}_total"], name
    assert after["topics_wal_bytes_written_total"] - before["topics_wal_bytes_written_total"] > 1000
    assert after["topics_wal_read_only"] == 0


def test_s10_label_values_are_escaped() -> None:
    text = render([gauge("m", "help", 1, {"topic": 'a\\b"c\nd'})]).decode()
    assert text.splitlines()[-1] == r'm{topic="a\\b\"c\nd"} 1'


async def test_s10_the_queue_of_commits_has_a_depth_and_a_peak(api: Api) -> None:
    async def shown() -> tuple[int, ...]:
        answer = await api.send("GET", "/v0/metrics")
        assert isinstance(answer, Response)
        text = answer.body.decode()
        names = ("queue_depth", "queue_depth_peak", "submit_full_total")
        return tuple(
            int(re.findall(rf"^topics_wal_{n} (\d+)$", text, re.MULTILINE)[0]) for n in names
        )

    await api.call("PUT", "/v0/topics/t", {"durability": "fsync"})  # whose writes wait for a sync
    await api.write("t", 0)
    assert await shown() == (0, 1, 0)
    writes = [asyncio.create_task(api.write("t", n)) for n in range(3)]
    await asyncio.sleep(0)
    assert await shown() == (3, 3, 0)
    await asyncio.gather(*writes)
    assert await shown() == (0, 3, 0)


async def test_s10_a_write_that_a_full_log_refuses_is_counted(api: Api) -> None:
    api.topics.scheduler._governor.measures = Measures(1.0, refuses=True)
    body = {"records": [{"data": 1}]}
    assert (await api.error("POST", "/v0/topics/t", body))[0] == 429
    assert api.topics.commits.refused == 1


async def test_s10_uptime_counts_up(api: Api) -> None:
    first = (await api.call("GET", "/v0/health"))[1]["uptime_ms"]
    api.clock.advance(1.5)
    assert (await api.call("GET", "/v0/health"))[1]["uptime_ms"] == first + 1500
