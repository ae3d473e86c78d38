"""The benches' load generator must notice a server that loses, repeats or refuses messages."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.peers import nats_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).parents[2] / "benches" / "load.c"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("load") / "load"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(binary), str(SOURCE)], check=True
    )
    return binary


def run(binary: Path, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(binary), "--port", str(port), "--size", "4", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@contextmanager
def echoing(answer: Callable[[int, bytes], bytes]) -> Iterator[int]:
    """A toy server for one client that only asks: ``answer(n, inbox)`` is said to the n-th PUB."""

    def serve(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client, client.makefile("rb") as lines:
            asked = 0
            for line in lines:
                if line.startswith(b"PING"):
                    client.sendall(b"PONG\r\n")
                elif line.startswith(b"PUB"):
                    lines.readline()
                    client.sendall(answer(asked, line.split()[2]))
                    asked += 1

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


def message(inbox: bytes, body: bytes) -> bytes:
    return b"MSG %b 1 %d\r\n%b\r\n" % (inbox, len(body), body)


GOOD = b'{"stream":"S","seq":1}'
BAD = b'{"error":{"code":503},"stream":"S","seq":0}'
IMPATIENT = ("--mode", "jspub", "--patience", "1")  # for what ends only by waiting in vain


@pytest.mark.parametrize(
    "options",
    [
        ("--mode", "pub"),
        ("--mode", "fan", "--publishers", "2", "--subscribers", "3"),
        ("--mode", "wild", "--subscribers", "4"),
        ("--mode", "literal", "--subscribers", "4"),
        ("--mode", "request", "--publishers", "4", "--window", "3"),
    ],
)
def test_a_run_against_a_sound_server_has_no_errors(load: Path, options: tuple[str, ...]) -> None:
    with nats_server() as peer:
        done = run(load, peer.port, "--messages", "2000", "--pid", str(peer.pid), *options)
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["errors"], shown["messages"]) == (0, 0, 2000)
    assert shown["cpu_ns"] > 0


def test_every_ack_counts(load: Path) -> None:
    with echoing(lambda _, inbox: message(inbox, GOOD)) as port:
        done = run(load, port, "--mode", "jspub", "--messages", "50", "--window", "5")
    assert (done.returncode, json.loads(done.stdout)["deliveries"]) == (0, 50)


def test_an_ack_that_is_an_error_fails_the_run(load: Path) -> None:
    with echoing(lambda n, inbox: message(inbox, BAD if n == 20 else GOOD)) as port:
        done = run(load, port, *IMPATIENT, "--messages", "50", "--window", "1")
    assert done.returncode != 0


def test_a_repeated_ack_fails_the_run(load: Path) -> None:
    with echoing(lambda n, inbox: message(inbox, GOOD) * (2 if n == 49 else 1)) as port:
        done = run(load, port, "--mode", "jspub", "--messages", "50", "--window", "1")
    assert done.returncode == 1
    assert json.loads(done.stdout)["errors"] >= 1


def test_a_lost_ack_ends_the_run_after_the_patience(load: Path) -> None:
    with echoing(lambda n, inbox: b"" if n == 20 else message(inbox, GOOD)) as port:
        done = run(load, port, *IMPATIENT, "--messages", "50", "--window", "1")
    assert done.returncode == 3
    assert "no progress" in done.stderr
