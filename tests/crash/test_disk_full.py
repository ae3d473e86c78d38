"""A full disk and a failing one: an error at once at both doors, and reads go on."""

import http.client
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from support.broker import millstream
from support.mounts import small_disk
from support.publisher import Publisher, api, create_stream, read_stream, stream_state
from support.scale import count

SOON = 1.0
LIMIT = 20.0  # of an answer from a machine that pauses
TRIES = 5  # of which one is quick, unless the server itself waits


def call(port: int, method: str, path: str, body: object) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        connection.close()


def refused_at_once(port: int, http_port: int, code: int) -> bool:
    """Expect an answer at both doors within a second; False when one of them took the write."""
    for _ in range(TRIES):
        started = time.monotonic()
        answer = api(port, "FULL.a", "x" * 40_000, timeout=LIMIT)
        status, _ = call(http_port, "POST", "/v0/topics/web", {"records": [{"data": "y" * 40_000}]})
        took = time.monotonic() - started
        assert status in (code, 200), answer
        if "error" not in answer or status != code:
            return False
        if took < 2 * SOON:
            return True
    raise AssertionError(f"refused after {took} seconds")


def resumes(port: int, http_port: int) -> bool:
    answer = api(port, "FULL.a", "x" * 1000, timeout=LIMIT)
    status, _ = call(http_port, "POST", "/v0/topics/web", {"records": [{"data": 1}]})
    return "error" not in answer and status < 300


def check_all(port: int, publisher: Publisher) -> None:
    found = read_stream(port, "FULL", 1, stream_state(port, "FULL")["last_seq"])
    for seq, number in publisher.acked.items():
        assert found[seq] == publisher.payload(number), seq


@pytest.mark.timeout(600)
def test_a_full_disk_is_told_at_once_and_writes_resume_by_themselves(tmp_path: Path) -> None:
    publisher = Publisher("FULL.a")
    cycles = count(3, 25)
    with small_disk(tmp_path, 16) as disk, millstream(data_dir=disk / "data") as peer:
        create_stream(peer.port, "FULL", "fsync")
        assert call(peer.http_port, "PUT", "/v0/topics/web", {})[0] < 300
        for _ in range(cycles):
            publisher.run(peer.port, 0.1)
            ballast = disk / "ballast"
            fill(ballast)
            while not publisher.errors or not refused_at_once(peer.port, peer.http_port, 507):
                publisher.run(peer.port, 0.2)  # the log's own room goes first
                fill(ballast)  # and what it has given back meanwhile
            publisher.errors.clear()
            check_all(peer.port, publisher)
            ballast.unlink()
            deadline = time.monotonic() + LIMIT
            while not resumes(peer.port, peer.http_port):
                assert time.monotonic() < deadline, "writes did not resume"
                time.sleep(0.05)
            api(peer.port, "$JS.API.STREAM.PURGE.FULL", {})
            publisher.acked.clear()
    print(f"disk full: cycles {cycles}, lost 0")


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(1 << 14)):
                pass
        except OSError:
            return


@pytest.mark.timeout(300)
def test_a_failed_sync_makes_the_log_read_only_until_a_restart(tmp_path: Path) -> None:
    if shutil.which("strace") is None or os.geteuid() != 0:
        pytest.skip("a failing sync needs strace and root: the system call is made to fail")
    data = tmp_path / "data"
    publisher = Publisher("FULL.a")
    with millstream(data_dir=data) as peer:
        create_stream(peer.port, "FULL", "fsync")
        assert call(peer.http_port, "PUT", "/v0/topics/web", {})[0] < 300
        publisher.run(peer.port, 0.2)
        fault = "inject=fdatasync:error=EIO"
        tracer = subprocess.Popen(
            ["strace", "-f", "-o", "/dev/null", "-e", fault, "-p", str(peer.pid)],
            stderr=subprocess.PIPE,
        )
        try:
            assert tracer.stderr is not None
            assert b"attached" in tracer.stderr.readline()
            answer = api(peer.port, "FULL.a", "lost", timeout=LIMIT)
            assert "error" in answer
            assert refused_at_once(peer.port, peer.http_port, 503)
        finally:
            tracer.terminate()
            tracer.communicate(timeout=LIMIT)
        assert refused_at_once(peer.port, peer.http_port, 503)  # also after the disk is well again
        check_all(peer.port, publisher)
        status, health = call(peer.http_port, "GET", "/healthz", None)
        assert status == 503, health
        peer.process.kill()
    with millstream(data_dir=data) as again:
        check_all(again.port, publisher)
        assert resumes(again.port, again.http_port)
    print(f"failed sync: acked before {len(publisher.acked)}, lost 0")
