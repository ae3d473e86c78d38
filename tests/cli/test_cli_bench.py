"""``millstream bench core`` as a user runs it, against the real nats-server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.cli.bench.core_runs import Load, Measured, _parts
from support.nats_server import RunningServer, nats_server
from support.peers import free_port

LIMIT = 120


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with nats_server() as running:
        yield running


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millstream", "bench", "core", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def told(server: RunningServer, *words: str) -> list[dict[str, Any]]:
    done = bench("-s", server.url, "--json", *words)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_work_is_measured_in_turn(server: RunningServer) -> None:
    found = told(server, "--msgs", "2000", "--size", "16", "--subs", "2", "--requests", "50")
    assert [(run["work"], run["messages"], run["size"]) for run in found] == [
        ("pub", 2000, 16),
        ("1->1", 2000, 16),
        ("1->2", 4000, 16),
        ("request/reply", 50, 16),
    ]
    for run in found:
        assert run["msgs_per_s"] == pytest.approx(run["messages"] / run["seconds"], rel=0.01)
        assert run["mb_per_s"] == pytest.approx(run["msgs_per_s"] * 16 / 1e6, abs=0.001)
        assert 0 < run["p50_us"] <= run["p99_us"]


def test_one_work_can_be_chosen_and_is_told_to_people(server: RunningServer) -> None:
    done = bench("-s", server.url, "--msgs", "500", "--work", "pub")
    (line,) = done.stdout.splitlines()
    for word in ("pub", "500 msgs of 128 B", "msgs/s", "MB/s", "p50", "p99"):
        assert word in line


def test_messages_too_small_for_a_time_have_no_latency(server: RunningServer) -> None:
    (run,) = told(server, "--msgs", "300", "--size", "4", "--work", "one")
    assert (run["messages"], run["p50_us"], run["p99_us"]) == (300, None, None)


def test_a_publisher_waits_for_slow_receivers(server: RunningServer) -> None:
    # Far more than the window, so that it only ends if progress is told and heeded.
    assert Load(server.url, 60, 1_000_000).window == 4
    (run,) = told(server, "--msgs", "60", "--size", "1000000", "--work", "one")
    assert run["messages"] == 60


def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    done = bench("-s", f"nats://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_payload_that_the_server_refuses_is_told_in_one_line(server: RunningServer) -> None:
    done = bench("-s", server.url, "--size", "2000000", "--msgs", "1")
    assert done.returncode == 1
    assert "above the server's limit" in done.stderr


def test_percentiles_come_from_the_sorted_latencies() -> None:
    measured = Measured("x", 4, 1, 2.0, [float(n) for n in range(100)])
    assert (measured.percentile(50), measured.percentile(99)) == (50.0, 99.0)
    assert measured.per_second == 2.0


def test_parts_add_up_to_the_whole() -> None:
    for messages in (1, 7, 100, 250, 100_001):
        assert sum(_parts(messages)) == messages
