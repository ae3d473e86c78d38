"""``millstream serve`` as a user meets it: the tour of the README, kill -9 included."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import nats
from millstream.client import connect

LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Serving:
    """A started server and where it listens."""

    process: subprocess.Popen[str]
    banner: list[str]
    nats_url: str
    http_url: str

    def get(self, path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http_url + path, data)
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            found: dict[str, object] = json.load(answer)
            return found


@contextmanager
def serve(data_dir: Path) -> Iterator[Serving]:
    ports = data_dir.parent / "ports"
    words = ["--port", "0", "--http-port", "-1", "--data-dir", str(data_dir)]
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "serve", *words, "--ports-file-dir", str(ports)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            banner = _until_ready(process)
            taken = json.loads(next(ports.glob(f"*{process.pid}.ports")).read_text())
            yield Serving(process, banner, taken["nats"][0], taken["monitoring"][0])
        finally:
            process.kill()


def _until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("ready in"):
            return lines
    raise AssertionError(f"the server ended: {lines}")


def cli(server: Serving, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *words, "-s", server.nats_url],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.stdout + done.stderr


async def test_one_log_is_written_and_read_through_every_door(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as server:
        assert "(new)" in server.banner[0]
        assert any(server.nats_url in line for line in server.banner)
        client = await nats.connect(server.nats_url)
        js = client.jetstream()
        await js.add_stream(name="ORDERS", subjects=["orders.>"])
        ack = await js.publish("orders.new", b'{"id":1}')
        assert (ack.stream, ack.seq) == ("ORDERS", 1)
        await client.close()
        assert (
            cli(server, "pub", "orders.new", '{"id":2}', "--ack") == "stored in ORDERS as seq 2\n"
        )
        record = {"subject": "orders.new", "data": {"id": 3}}
        assert server.get("/v0/topics/ORDERS", {"records": [record]})["seqs"] == [3]
        found = server.get("/v0/topics/ORDERS/diff", {})["records"]
        assert isinstance(found, list)
        assert [(r["$seq"], r["data"]) for r in found] == [(n, {"id": n}) for n in (1, 2, 3)]


def test_what_was_acknowledged_is_there_after_kill_9(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as server:
        with connect(server.nats_url) as client:
            body = b'{"name":"S","subjects":["s"]}'
            client.request("$JS.API.STREAM.CREATE.S", body, LIMIT)
            for number in range(1, 6):
                assert json.loads(client.request("s", b"x", LIMIT).payload)["seq"] == number
        server.process.kill()
        server.process.wait()
    with serve(tmp_path / "data") as server:
        assert any(line.startswith("recovered S: 5 records, 0 lost") for line in server.banner)
        assert server.get("/v0/topics/S")["head_seq"] == 5


def start_in_vain(data_dir: Path, port: str = "0", *more: str) -> subprocess.CompletedProcess[str]:
    words = ["serve", "--port", port, "--http-port", "0", "--data-dir", str(data_dir), *more]
    return subprocess.run(
        [sys.executable, "-m", "millstream", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_a_second_server_on_the_same_data_is_refused_in_one_line(tmp_path: Path) -> None:
    with serve(tmp_path / "data"):
        second = start_in_vain(tmp_path / "data")
    assert second.returncode == 1
    assert second.stderr.startswith("millstream: ")
    assert second.stderr.count("\n") == 1


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as server:
        address = server.nats_url.removeprefix("nats://")
        second = start_in_vain(tmp_path / "other", address.rpartition(":")[2])
    assert second.returncode == 1
    fix = "stop what listens there, or choose another port with --port"
    assert second.stderr == f"millstream: {address} is taken: {fix}\n"


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_directory_that_cannot_be_used_is_told_in_one_line(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    done = start_in_vain(tmp_path / "file" / below)
    assert done.returncode == 1
    assert done.stderr.startswith(f"millstream: cannot keep data in {tmp_path / 'file' / below} (")
    assert done.stderr.endswith("): name another with --data-dir\n")
    assert done.stderr.count("\n") == 1


def test_an_address_of_another_machine_is_told_in_one_line(tmp_path: Path) -> None:
    done = start_in_vain(tmp_path / "data", "0", "--host", "192.0.2.1", "--allow-insecure-no-auth")
    assert done.returncode == 1
    assert done.stderr.startswith("millstream: cannot listen on 192.0.2.1:0 (")
    assert done.stderr.endswith("): choose another host\n")


def test_an_interrupt_ends_it_cleanly(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(LIMIT) == 0
