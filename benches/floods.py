"""How long a bystander's PING takes while one client floods: ``python benches/floods.py --help``.

Each flood is one connection that writes as fast as the server reads, from a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from brokers import broker
from cases import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.peers import Peer

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
FLOODS = {
    "nothing": b"",
    "CONNECT": CONNECT * 400,
    "PING": b"PING\r\n" * 2000,
    "SUB/UNSUB": b"SUB flood.x.1 7\r\nUNSUB 7\r\n" * 500,
    "PUB": b"PUB flood.nobody 16\r\n0123456789abcdef\r\n" * 400,
    "JS INFO": b"SUB r 9\r\n" + b"PUB $JS.API.INFO r 0\r\n\r\n" * 400 + b"UNSUB 9\r\n",
    "JS STREAM.NAMES": b"SUB r 9\r\n"
    + b"PUB $JS.API.STREAM.NAMES r 0\r\n\r\n" * 400
    + b"UNSUB 9\r\n",
}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings
HTTP2_FLOODS = {  # nats-server's HTTP port does not speak it
    "HTTP/2 PRIORITY": b"\0\0\5\2\0\0\0\0\1\0\0\0\0\7" * 2000,
    "HTTP/2 PING": (b"\0\0\x08\6\0\0\0\0\0" + b"12345678") * 2000,
    "HTTP/2 WINDOW_UPDATE": b"\0\0\4\x08\0\0\0\0\0\0\0\0\1" * 2000,
}
# Reads all answers, so that it is never closed for being slow.
FLOODER = """
import socket, sys, threading
flood = sys.stdin.buffer.read()
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def read():
    while sock.recv(1 << 20):
        pass
threading.Thread(target=read, daemon=True).start()
sock.sendall(bytes.fromhex(sys.argv[2]))
print("on", flush=True)
while flood:
    sock.sendall(flood)
sys.stdin.read()
"""


@contextlib.contextmanager
def flooding(port: int, flood: bytes, opening: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Flood until the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-c", FLOODER, str(port), opening.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(flood)
        process.stdin.close()
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def pings(port: int, count: int, pause: float) -> list[float]:
    """Return the times of ``count`` exchanges of PING and PONG, in milliseconds."""
    taken = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        lines = sock.makefile("rb")
        sock.sendall(CONNECT + b"PING\r\n")
        while lines.readline() != b"PONG\r\n":
            pass
        for _ in range(count):
            time.sleep(pause)
            start = time.perf_counter()
            sock.sendall(b"PING\r\n")
            while lines.readline() != b"PONG\r\n":
                pass
            taken.append(1000 * (time.perf_counter() - start))
    return sorted(taken)


def measured(peer: Peer, name: str, count: int) -> tuple[float, float, float, bool]:
    """Return the median, the 99th percentile and the worst, and whether the flood went on."""
    place = (peer.http_port, PREFACE) if name in HTTP2_FLOODS else (peer.port, CONNECT)
    flood = (FLOODS | HTTP2_FLOODS)[name]
    with flooding(place[0], flood, place[1]) as process:
        time.sleep(0.3)
        taken = pings(peer.port, count, 0.002)
        alive = not flood or process.poll() is None
    return taken[count // 2], taken[-1 - count // 100], taken[-1], alive


def main() -> None:
    """Print a row for each flood and server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pings", type=int, default=500)
    parser.add_argument("--match", default="", help="only floods whose name contains this")
    parser.add_argument(
        "--servers",
        nargs="+",
        default=["millstream", "nats-server"],
        help="millstream, nats-server, or a checkout with an environment of its own",
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not arguments.json:
        print(
            "| flood | server | p50 ms | p99 ms | worst ms | |",
            "|---|---|---:|---:|---:|---|",
            sep="\n",
        )
    for name in FLOODS | HTTP2_FLOODS:
        if arguments.match not in name:
            continue
        for server in arguments.servers:
            if name in HTTP2_FLOODS and server == "nats-server":
                continue
            with broker(server, MEMORY) as peer:
                p50, p99, worst, alive = measured(peer, name, arguments.pings)
            if arguments.json:
                print(json.dumps({"flood": name, "server": server, "p50": p50, "p99": p99}))
            else:
                end = "" if alive else "the flood was cut off"
                print(
                    f"| {name} | {server} | {p50:.2f} | {p99:.2f} | {worst:.2f} | {end} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
