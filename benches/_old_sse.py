"""How long a write takes to reach every watcher: ``python benches/sse.py [--watchers N]``.

One millstream, and in another process N event streams on one topic; each write is timed from its
first byte sent to the bytes' arrival at each watcher. Prints milliseconds, and the server's
processor time for one write to all of them, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.broker import millstream

if TYPE_CHECKING:
    from support.peers import Peer

TOPIC = "/v0/topics/bench"
PAUSE = 0.005
WARM_UP = 20


def main() -> int:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--writes", type=int, default=500)
    given = parser.parse_args()
    print("| watchers | p50 ms | p90 ms | p99 ms | server CPU ms a write | load |")
    print("|---:|---:|---:|---:|---:|---:|")
    with millstream() as peer:
        _create(peer)
        pipe, inner = multiprocessing.Pipe()
        work = (inner, peer.http_port, given.watchers, given.writes)
        before = _cpu_seconds(peer)
        client = multiprocessing.get_context("spawn").Process(target=watch, args=work)
        client.start()
        delays = pipe.recv()
        client.join()
        used = (_cpu_seconds(peer) - before) / (given.writes + WARM_UP)
    cells = [f"{1000 * delays[int(len(delays) * q)]:.2f}" for q in (0.5, 0.9, 0.99)]
    load = f"{os.getloadavg()[0]:.1f}"
    print("| " + " | ".join([str(given.watchers), *cells, f"{1000 * used:.2f}", load]) + " |")
    return 0


def watch(
    pipe: multiprocessing.connection.Connection, port: int, watchers: int, writes: int
) -> None:
    """Open the watchers, write, and send back every delay, sorted."""
    with contextlib.ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        for _ in range(watchers):
            selector.register(_watcher(held, port), selectors.EVENT_READ)
        writer = held.enter_context(socket.create_connection(("127.0.0.1", port)))
        writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        delays: list[float] = []
        for number in range(writes + WARM_UP):
            found = _write(writer, selector, watchers, number)
            delays += found if number >= WARM_UP else []
            time.sleep(PAUSE)
        pipe.send(sorted(delays))


def _create(peer: Peer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", peer.http_port)
    connection.request("PUT", TOPIC)
    connection.getresponse().read()
    connection.close()


def _watcher(held: contextlib.ExitStack, port: int) -> socket.socket:
    sock = held.enter_context(socket.create_connection(("127.0.0.1", port)))
    sock.sendall(b"GET %b/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % TOPIC.encode())
    heard = b""
    while b"caught-up" not in heard:
        heard += sock.recv(65536)
    return sock


def _write(
    writer: socket.socket, selector: selectors.BaseSelector, watchers: int, number: int
) -> list[float]:
    body = json.dumps({"records": [{"data": {"n": number}}]}).encode()
    head = f"POST {TOPIC} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    began = time.perf_counter()
    writer.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    delays: list[float] = []
    while len(delays) < watchers:
        for key, _ in selector.select(10):
            if b'"$seq"' in key.fileobj.recv(65536):  # type: ignore[union-attr]
                delays.append(time.perf_counter() - began)
    writer.recv(65536)
    return delays


def _cpu_seconds(peer: Peer) -> float:
    fields = Path(f"/proc/{peer.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
