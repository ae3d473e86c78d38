"""What many or stuck clients cost: ``python benches/crowd.py [--connections N]``.

Prints, for millstream and for nats-server: resident memory with N idle connections of one
subscription each; and how fast a healthy subscriber is served while ten others never read, with
the memory that they cost.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from brokers import broker
from cases import CORE, Case
from measure import build_load, measured

if TYPE_CHECKING:
    from support.peers import Peer

STUCK = 10
HELLO = b'CONNECT {"verbose":false}\r\n'
MIB = 1 << 20


def main() -> int:
    """Measure both servers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    connections = parser.parse_args().connections
    _allow_descriptors(connections)
    build_load()
    print("| server | idle connections | RSS MiB | 1→1 msg/s | with 10 stuck | ratio | peak MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in ("millstream", "nats-server"):
        print(_line(name, connections), flush=True)
    return 0


def _line(name: str, connections: int) -> str:
    with broker(name, CORE) as peer:
        idle = _idle(peer, connections)
    with broker(name, CORE) as peer:
        alone, beside, peak = _beside_the_stuck(peer)
    cells = [name, f"{connections:,}", f"{idle:.0f}", f"{alone:,.0f}", f"{beside:,.0f}"]
    return "| " + " | ".join([*cells, f"{beside / alone:.2f}", f"{peak:.0f}"]) + " |"


def _idle(peer: Peer, connections: int) -> float:
    """Resident MiB once every connection's subscription stands."""
    with contextlib.ExitStack() as crowd:
        for number in range(connections):
            sock = crowd.enter_context(socket.create_connection((peer.host, peer.port), timeout=10))
            sock.sendall(HELLO + b"SUB idle.%d 1\r\nPING\r\n" % number)
            _read_until(sock, b"PONG\r\n")
        return peer.rss_bytes() / MIB


def _beside_the_stuck(peer: Peer) -> tuple[float, float, float]:
    """Rates without and with the stuck subscribers, and the peak of resident memory added."""
    case = Case("1→1", CORE, 5_000_000, {"mode": "fan", "size": 128})
    alone = measured(case, peer, 1.0).rate
    before = peer.rss_bytes()
    with contextlib.ExitStack() as stuck:
        for _ in range(STUCK):
            sock = stuck.enter_context(socket.create_connection((peer.host, peer.port), timeout=10))
            sock.sendall(HELLO + b"SUB bench.x 1\r\nPING\r\n")
            _read_until(sock, b"PONG\r\n")
        beside = measured(case, peer, 1.0).rate
        return alone, beside, (_peak_bytes(peer) - before) / MIB


def _read_until(sock: socket.socket, end: bytes) -> None:
    data = b""
    while end not in data:
        received = sock.recv(4096)
        if not received:
            raise ConnectionError("the server closed a connection")
        data += received


def _peak_bytes(peer: Peer) -> int:
    for line in Path(f"/proc/{peer.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _allow_descriptors(connections: int) -> None:
    """Raise the soft limit; both servers inherit it."""
    needed = connections + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
