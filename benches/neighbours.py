"""How long a JetStream publish takes while another stream is flooded: ``benches/neighbours.py``.

One connection publishes into one stream as fast as the server reads, from a process of its own, and
reads all acks. A second one publishes into another stream and waits for each ack.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from brokers import broker
from cases import SYNCED, UNSYNCED
from floods import CONNECT, flooding

if TYPE_CHECKING:
    from support.peers import Peer


def made(peer: Peer, name: str) -> None:
    """Make a stream over the subject of its name in small letters."""
    config = json.dumps(
        {"name": name, "subjects": [name.lower()], "max_bytes": 1 << 30, "storage": "file"}
    ).encode()
    with socket.create_connection(("127.0.0.1", peer.port), timeout=60) as sock:
        request = b"PUB $JS.API.STREAM.CREATE.%b r %d\r\n" % (name.encode(), len(config))
        sock.sendall(CONNECT + b"SUB r 1\r\n" + request + config + b"\r\n")
        lines = sock.makefile("rb")
        while not lines.readline().startswith(b"MSG"):
            pass
        assert b'"error"' not in lines.readline()


def published(peer: Peer, count: int) -> list[float]:
    """Return the times of ``count`` publishes with their acks, in milliseconds, sorted."""
    taken = []
    with socket.create_connection(("127.0.0.1", peer.port), timeout=60) as sock:
        lines = sock.makefile("rb")
        sock.sendall(CONNECT + b"SUB acks 1\r\n")
        for _ in range(count):
            time.sleep(0.005)
            start = time.perf_counter()
            sock.sendall(b"PUB quiet acks 16\r\n0123456789abcdef\r\n")
            while not lines.readline().startswith(b"MSG"):
                pass
            lines.readline()
            taken.append(1000 * (time.perf_counter() - start))
    return sorted(taken)


def main() -> None:
    """Print a row for each setting and server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--size", type=int, default=16_384)
    parser.add_argument("--servers", nargs="+", default=["millstream", "nats-server"])
    given = parser.parse_args()
    message = b"PUB greedy flood.acks %d\r\n%b\r\n" % (given.size, b"x" * given.size)
    flood = message * max(1, (1 << 20) // given.size)
    print("| setting | server | p50 ms | p99 ms | worst ms |", "|---|---|---:|---:|---:|", sep="\n")
    for setting in (UNSYNCED, SYNCED):
        for server in given.servers:
            with broker(server, setting) as peer:
                made(peer, "GREEDY")
                made(peer, "QUIET")
                with flooding(peer.port, flood, CONNECT + b"SUB flood.acks 9\r\n"):
                    time.sleep(1)
                    taken = published(peer, given.count)
            p50, p99 = taken[given.count // 2], taken[-1 - given.count // 100]
            print(f"| {setting} | {server} | {p50:.1f} | {p99:.1f} | {taken[-1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
