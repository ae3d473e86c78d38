"""How many clients fit where a shell's limit of open files is low."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import serve_command
from support.peers import Peer, free_port, running

SOFT, CLIENTS = 200, 300  # fewer than a shell's usual 1024, so that the test itself has room


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    port, http_port = free_port(), free_port()
    limited = ["sh", "-c", f'ulimit -Sn {SOFT}; exec "$@"', "sh"]
    command = serve_command(port, http_port, tmp_path / "data")
    with running("millstream", [*limited, *command], port, tmp_path, http_port) as started:
        yield started


def test_there_is_room_for_as_many_clients_as_the_machine_grants(peer: Peer) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(CLIENTS):
            client = socket.create_connection((peer.host, peer.port), 20)
            held.enter_context(client)
            assert client.recv(5) == b"INFO "
            client.sendall(b"CONNECT {}\r\n")  # who says nothing is sent away before long
    shown = Path(f"/proc/{peer.pid}/limits").read_text().splitlines()
    *_, soft, hard, _ = next(line.split() for line in shown if line.startswith("Max open files"))
    assert soft == hard
