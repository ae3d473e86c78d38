"""Started brokers are reachable, and gone when their block ends."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest

from support.peers import PeerFailed, nats_server, running

if TYPE_CHECKING:
    from pathlib import Path


def test_a_started_server_greets_and_is_gone_afterwards() -> None:
    with nats_server() as peer:
        with socket.create_connection((peer.host, peer.port), timeout=5) as client:
            assert client.recv(5) == b"INFO "
        assert peer.rss_bytes() > 0
    assert peer.process.returncode is not None
    assert not peer.directory.exists()


def test_a_server_is_stopped_when_the_test_in_its_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), nats_server() as peer:
        raise ZeroDivisionError
    assert peer.process.returncode is not None


def test_the_server_of_somebody_else_on_the_same_port_is_not_taken_for_it(tmp_path: Path) -> None:
    with nats_server() as other:
        command = [sys.executable, "-c", "import time; time.sleep(0.5); print('port taken')"]
        with (
            pytest.raises(PeerFailed, match="port taken"),
            running("toy", command, other.port, tmp_path),
        ):
            pass


def test_a_server_that_ends_at_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such option'); raise SystemExit(2)"]
    with pytest.raises(PeerFailed, match="no such option"), running("toy", command, 1, tmp_path):
        pass
