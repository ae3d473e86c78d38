"""How long a write takes to reach every watcher: ``python benches/sse.py [--watchers N]``.

One millstream, and in another process N event streams on one topic; each write is timed from its
first byte sent to the bytes' arrival at each watcher. Prints milliseconds, and the server's
processor time for one write to all of them, which a busy machine disturbs less. The watchers are
one process that does little but read: what it takes to read a hundred of them is in the figures.
The second line is of a process that does nothing but send as many bytes to as many sockets: so much
of the first is the machine's, and whoever else is busy on it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import http.client
import json
import multiprocessing
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.broker import millstream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.peers import Peer

TOPIC = "/v0/topics/bench"
PAUSE = 0.005
WARM_UP = 20
EVENT_BYTES = 260
SPAWN = multiprocessing.get_context("spawn")


def main() -> int:
    """Measure and print two lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--writes", type=int, default=500)
    given = parser.parse_args()
    print("| | watchers | p50 ms | p90 ms | p99 ms | server CPU ms a write | load |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with millstream() as peer:
        _create(peer)
        measure("millstream", peer.http_port, peer.process.pid, given.watchers, given.writes)
    with bare_sockets() as (port, pid):
        measure("bare sockets", port, pid, given.watchers, given.writes)
    return 0


def measure(name: str, port: int, server: int, watchers: int, writes: int) -> None:
    """Have a process watch and write, and print what it saw."""
    pipe, inner = SPAWN.Pipe()
    client = SPAWN.Process(target=watch, args=(inner, port, server, watchers, writes))
    client.start()
    delays, used = pipe.recv()
    client.join()
    cells = [f"{1000 * delays[int(len(delays) * q)]:.2f}" for q in (0.5, 0.9, 0.99)]
    cpu, load = f"{1000 * used / writes:.2f}", f"{os.getloadavg()[0]:.1f}"
    print("| " + " | ".join([name, str(watchers), *cells, cpu, load]) + " |", flush=True)


@contextlib.contextmanager
def bare_sockets() -> Iterator[tuple[int, int]]:
    """Have a process send without anything else to do; gives its port and its id."""
    pipe, inner = SPAWN.Pipe()
    server = SPAWN.Process(target=send_only, args=(inner,), daemon=True)
    server.start()
    try:
        yield pipe.recv(), server.pid or 0
    finally:
        server.kill()
        server.join()


def send_only(pipe: multiprocessing.connection.Connection) -> None:
    """Answer each write by sending as many bytes as an event has to all who watch."""
    event = b'"$seq"'.ljust(EVENT_BYTES)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        pipe.send(listener.getsockname()[1])
        watching: list[socket.socket] = []
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (asked := sock.recv(65536)).startswith(b"GET"):
                sock.sendall(b"caught-up")
                watching.append(sock)
                continue
            while asked:
                for each in watching:
                    each.send(event)
                sock.sendall(b"done")
                asked = sock.recv(65536)


def watch(
    pipe: multiprocessing.connection.Connection, port: int, server: int, watchers: int, writes: int
) -> None:
    """Open the watchers, write, and send back every delay, sorted, and the server's seconds."""
    with contextlib.ExitStack() as held:
        poll = held.enter_context(select.epoll())
        read = {}
        for _ in range(watchers):
            sock = _watcher(held, port)
            poll.register(sock, select.EPOLLIN)
            read[sock.fileno()] = sock.recv_into
        writer = held.enter_context(socket.create_connection(("127.0.0.1", port)))
        writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gc.disable()  # a collection of ours is no delay of the server's
        delays: list[float] = []
        for number in range(writes + WARM_UP):
            if number == WARM_UP:
                delays, began = [], _cpu_seconds(server)
            delays += _write(writer, poll, read, number)
            time.sleep(PAUSE)
        pipe.send((sorted(delays), _cpu_seconds(server) - began))


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
    writer: socket.socket,
    poll: select.epoll,
    read: Mapping[int, Callable[[bytearray], int]],
    number: int,
) -> list[float]:
    body = json.dumps({"records": [{"data": {"n": number}}]}).encode()
    head = f"POST {TOPIC} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    heard, now, delays = bytearray(4096), time.perf_counter, []
    began = now()
    writer.sendall(request)
    while len(delays) < len(read):
        for fd, _ in poll.poll(10, len(read)):
            size = read[fd](heard)
            at = now()
            if heard.find(b'"$seq"', 0, size) >= 0:
                delays.append(at - began)
    writer.recv(65536)
    return delays


def _cpu_seconds(server: int) -> float:
    fields = Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
