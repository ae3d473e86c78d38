"""A real server, killed at random times under load: every acknowledged record is still there."""

import random
import threading
import time
from pathlib import Path
from subprocess import Popen  # noqa: TC003

import pytest

from support.broker import millstream
from support.publisher import Publisher, create_stream, read_stream, stream_state
from support.scale import count


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path, durability: str) -> None:
    rng = random.Random(durability)
    publisher = Publisher("KILL.a")
    checked = killed = 0
    cycles = count(6, 110)
    for cycle in range(cycles + 1):
        with millstream(data_dir=tmp_path / "data") as peer:
            if cycle == 0:
                create_stream(peer.port, "KILL", durability)
            checked = check(peer.port, publisher, checked)
            if cycle == cycles:
                check(peer.port, publisher, 0)
                break
            least = cycles + 1 if cycle == cycles - 1 else 0  # acks, however slow the disk is
            kill_soon(peer.process, rng.uniform(0.02, count(0.3, 0.6)), publisher, least)
            publisher.run(peer.port, 10)
            assert peer.process.wait(20) == -9
            killed += 1
    print(f"kill -9 {durability}: killed {killed}, acked {len(publisher.acked)}, lost 0")
    assert killed >= count(6, 100)  # of each class
    assert len(publisher.acked) > cycles


def kill_soon(process: "Popen[bytes]", seconds: float, publisher: Publisher, least: int) -> None:
    """Kill the server after a while, and once so many records are acknowledged."""

    def kill() -> None:
        until = time.monotonic() + 10
        while len(publisher.acked) < least and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()


def check(port: int, publisher: Publisher, after: int) -> int:
    """Compare what the stream holds above ``after`` with what was sent; returns its end."""
    state = stream_state(port, "KILL")
    last = state["last_seq"]
    assert state["messages"] == last  # no gaps: nothing was ever removed
    found = read_stream(port, "KILL", after + 1, last)
    assert sorted(found) == list(range(after + 1, last + 1))
    for seq, number in publisher.acked.items():
        if seq > after:
            assert found[seq] == publisher.payload(number), seq
    return last
