"""Programs on nats.go, against both servers: everything arrives, once and in order.

They run where ``go`` is on the PATH and can build ``tests/clients/go``, or where ``GO_CLIENTS``
names the built program.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nats
from support.jetstream_api import api, info_at
from support.peers import Peer, free_port, nats_server, running, scratch_directory
from support.scale import count

SOURCES = Path(__file__).parents[1] / "clients" / "go"
MESSAGES = count(5_000, 200_000)
RESTARTS = count(3, 20)
WAYS = ("consume", "messages", "fetch", "ordered", "kv", "object", "micro")
SECONDS = 600
STORED_BETWEEN = 200  # messages that each life of a server takes at least

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The built program; skipped by name where it cannot be had."""
    if named := os.environ.get("GO_CLIENTS"):
        return named
    go = shutil.which("go")
    if go is None:
        pytest.skip("nats.go: no go on the PATH, and GO_CLIENTS names no program")
    built = tmp_path_factory.mktemp("go") / "clients"
    made = subprocess.run(
        [go, "build", "-o", str(built), "."], cwd=SOURCES, capture_output=True, text=True,
        env={**os.environ, "GOFLAGS": "-p=1"}, timeout=SECONDS, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"nats.go: the programs cannot be built: {made.stderr[-200:]}")
    return str(built)


@contextmanager
def ours(directory: Path, port: int) -> Iterator[Peer]:
    command = [sys.executable, "-m", "millstream", "nats-server", "-a", "127.0.0.1"]
    command += ["-p", str(port), "-js", "-sd", str(directory / "data")]
    with running("ours", command, port, directory) as peer:
        yield peer


def moved(program: str, peer: Peer, way: str) -> Any:
    said = subprocess.run(
        [program, peer.url, way, str(MESSAGES)], capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_every_message_arrives_once_and_in_order(program: str, way: str) -> None:
    with (
        scratch_directory("ours") as directory,
        ours(directory, free_port()) as here,
        nats_server(jetstream=True) as there,
    ):
        found = [moved(program, peer, way) for peer in (here, there)]
    whole = {"way": way, "sent": MESSAGES, "received": MESSAGES}
    assert found == [{**whole, "inversions": 0, "lost": 0, "repeated": 0}] * 2


def test_a_client_goes_on_through_restarts_and_a_lame_duck(program: str) -> None:
    port = free_port()
    with scratch_directory("ours") as directory:
        with ours(directory, port) as peer:
            asked = [program, peer.url, "restarts", "0"]
            client = subprocess.Popen(
                asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline() == "ready\n"
        for turn in range(RESTARTS):
            with ours(directory, port) as peer:
                asyncio.run(wait_for_more(peer))
                if turn == RESTARTS // 2:
                    peer.process.send_signal(signal.SIGUSR2)
                    peer.process.wait(60)
                elif turn % 2:
                    peer.process.kill()
                    peer.process.wait(60)
        with ours(directory, port):
            said, _ = client.communicate("", timeout=SECONDS)
    told = json.loads(said)
    print(f"restarts={RESTARTS} {told}")
    assert told["sent"] >= RESTARTS * STORED_BETWEEN
    assert (told["inversions"], told["lost"]) == (0, 0)


async def wait_for_more(peer: Peer) -> None:
    """Return once the stream has taken more messages in this life of the server."""
    client = await nats.connect(peer.url)
    first = (await api(client, "STREAM.INFO.R"))["state"]["last_seq"]
    await info_at(client, "R", first + STORED_BETWEEN)
    await client.close()
