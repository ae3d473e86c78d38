"""``millstream work`` against a real server: jobs in, exit codes out."""

import http.client
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millstream.cli import main
from millstream.cli.interrupts import HeldInterrupts
from millstream.client.topic_values import Job
from support.broker import millstream, serve_command
from support.peers import Peer, free_port, running
from support.waiting import until


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with millstream() as running:
        yield running


def call(peer: Peer, method: str, path: str, body: object) -> Any:
    client = http.client.HTTPConnection(peer.host, peer.http_port, timeout=10)
    try:
        json = {"Content-Type": "application/json"}
        client.request(method, path, msgspec.json.encode(body), json)
        return msgspec.json.decode(client.getresponse().read())
    finally:
        client.close()


def make(peer: Peer, name: str, *data: object, **config: Any) -> None:
    call(peer, "PUT", f"/v0/topics/{name}", {"type": "queue", **config})
    call(peer, "POST", f"/v0/topics/{name}", {"records": [{"data": each} for each in data]})


def work(peer: Peer, queue: str, *command: str, options: tuple[str, ...] = ()) -> Any:
    url = f"http://{peer.host}:{peer.http_port}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "millstream", "work", queue, "--http-url", url, *options),
            *("--", *command),
        ],
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_each_job_reaches_the_command_and_is_finished(peer: Peer) -> None:
    make(peer, "jobs", {"id": 1}, {"$base64": "/w=="}, "text")
    done = work(peer, "jobs", "sh", "-c", 'echo "$MILLSTREAM_SEQ $(od -An -c | tr -d " ")"')
    assert done.stdout == b'1 {"id":1}\n2 377\n3 "text"\n3 leased   3 acked\n'
    assert done.returncode == 0
    assert call(peer, "GET", "/v0/topics/jobs", {})["count"] == 0


def test_a_job_that_keeps_failing_ends_among_the_dead_letters(peer: Peer) -> None:
    make(peer, "bills", 1, 2, 3, max_deliveries=3, dead_letter="bills.dead")
    done = work(peer, "bills", "sh", "-c", '[ "$(cat)" != 2 ]')
    told, _, replay = done.stdout.decode().rstrip("\n").partition("   → ")
    assert told == "3 leased   2 acked   1 dead-lettered (seq 2: exit 1, 3 tries)"
    assert replay == f"millstream dlq replay bills --http-url http://{peer.host}:{peer.http_port}"
    assert done.returncode == 1
    assert call(peer, "GET", "/v0/topics/bills.dead", {})["count"] == 1
    assert call(peer, "GET", "/v0/topics/bills", {})["queue"]["dead_lettered"] == 1
    assert main.run(shlex.split(replay)[1:]) == 0
    assert call(peer, "GET", "/v0/topics/bills", {})["queue"]["ready"] == 1


def test_the_command_that_replays_is_told_as_it_was_called(
    peer: Peer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(peer, "calls", 1, max_deliveries=1, dead_letter="calls.dead")
    monkeypatch.setenv("MILLSTREAM_HTTP_URL", f"http://{peer.host}:{peer.http_port}")
    monkeypatch.setenv("MILLSTREAM_COMMAND", "./millstream")
    assert main.run(["work", "calls", "--", "false"]) == 1
    assert capsys.readouterr().out.endswith("   → ./millstream dlq replay calls\n")


def test_a_failed_job_without_a_limit_waits_for_its_next_try(peer: Peer) -> None:
    make(peer, "tries", 1)
    done = work(peer, "tries", "sh", "-c", "exit 7")
    assert done.stdout == b"1 leased   0 acked   1 failed (seq 1: exit 7, 1 try)\n"
    state = call(peer, "GET", "/v0/topics/tries", {})
    assert state["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}


def test_a_job_may_take_longer_than_its_lease(peer: Peer) -> None:
    make(peer, "slow", 1, lease_ms=2000)
    done = work(peer, "slow", "sleep", "3")
    assert done.stdout == b"1 leased   1 acked\n"


def test_a_worker_that_follows_goes_on_after_a_restart(tmp_path: Path) -> None:
    port, http_port, done = free_port(), free_port(), tmp_path / "done"
    command = serve_command(port, http_port, tmp_path / "data")
    with running("millstream", command, port, tmp_path, http_port) as peer:
        make(peer, "jobs", 1)
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "millstream", "work", "jobs", "--follow"),
                *("--http-url", f"http://{peer.host}:{http_port}"),
                *("--", "sh", "-c", f'echo "$MILLSTREAM_SEQ" >> {done}'),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda: call(peer, "GET", "/v0/topics/jobs", {})["count"] == 0)
    with worker:
        try:
            assert worker.stderr is not None
            assert b"(waiting for it)" in worker.stderr.readline()
            with running("millstream", command, port, tmp_path, http_port) as peer:
                call(peer, "POST", "/v0/topics/jobs", {"records": [{"data": 2}]})
                until(lambda: call(peer, "GET", "/v0/topics/jobs", {})["count"] == 0)
                worker.send_signal(signal.SIGINT)
                out, _ = worker.communicate(timeout=30)
        finally:
            worker.kill()
    assert (out, worker.returncode) == (b"2 leased   2 acked\n", 0)
    assert done.read_text() == "1\n2\n"


def unread(port: int) -> bool:
    """Say whether bytes lie at a server's port that it has not read."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # local address, remote address, state (01: established), bytes to send : to read
    return any(
        int(row[1].partition(":")[2], 16) == port and row[3] == "01" and row[4][9:] != "00000000"
        for row in rows
    )


def test_an_interrupt_waits_for_the_answer_that_a_job_is_done(tmp_path: Path) -> None:
    port, http_port = free_port(), free_port()
    command = serve_command(port, http_port, tmp_path / "data")
    with running("millstream", command, port, tmp_path, http_port) as peer:
        make(peer, "jobs", 1, 2)
        url = f"http://{peer.host}:{http_port}"
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "millstream", "work", "jobs", "--follow"),
                *("--http-url", url, "--", "kill", "-STOP", str(peer.pid)),
            ],
            stdout=subprocess.PIPE,
        ) as worker:
            until(lambda: unread(http_port))  # the job is done, and the server not told yet
            worker.send_signal(signal.SIGINT)
            os.kill(peer.pid, signal.SIGCONT)
            out, _ = worker.communicate(timeout=30)
        assert (out, worker.returncode) == (b"1 leased   1 acked\n", 0)
        assert call(peer, "GET", "/v0/topics/jobs", {})["count"] == 1


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        held = HeldInterrupts()
        with held:
            signal.raise_signal(signal.SIGINT)
        held.heed()  # nothing was noted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_second_interrupt_counts_at_once() -> None:
    held = HeldInterrupts()
    with held:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        held.heed()


def test_mistakes_are_told_in_one_line(peer: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://{peer.host}:{peer.http_port}"
    call(peer, "PUT", "/v0/topics/plain", {})
    for queue, address, told in (
        ("plain", url, "plain is a log; a queue is created with type queue"),
        ("none", url, "no topic named none (topic_not_found)"),
        ("jobs", "http://127.0.0.1:1", "is `millstream serve` running there?"),
        ("jobs", "nats://x", "write http://host:port"),
    ):
        assert main.run(["work", queue, "--http-url", address, "--", "true"]) == 1
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1


def test_an_object_that_only_looks_like_wrapped_bytes_stays_what_it_is() -> None:
    def payload(data: bytes) -> bytes:
        return Job(1, "lease_1", 0, 1, msgspec.Raw(data)).payload()

    assert payload(b'{"$base64":"/w=="}') == b"\xff"
    assert payload(b'{"$$base64":"/w=="}') == b'{"$base64":"/w=="}'
    assert payload(b'{"$$other":1}') == b'{"$$other":1}'
