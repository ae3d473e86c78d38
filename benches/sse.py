"""How long a write takes to reach every watcher: ``python benches/sse.py [--watchers N]``.

One millstream, and in another process N event streams on one topic; each write is timed from before
its first byte is sent until each watcher has read it. Prints milliseconds, and the server's
processor time for one write to all of them, which a busy machine disturbs less. The watchers are
one thread that does little but read (``watch.c``): what it takes to read a hundred of them is in
the figures. The second line is of a process that does nothing but send as many bytes to as many
sockets, in rounds that alternate with those of the first: so much of it is the machine's. The last
column says how much of a core was taken by whoever else is on the machine meanwhile: percentiles of
a run with more than a few per cent there are theirs as well.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.broker import millstream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

TOPIC = "/v0/topics/bench"
PAUSE = 0.005
WARM_UP = 20
EVENT_BYTES = 260
HERE = Path(__file__).parent
WATCH = HERE / "build" / "watch"
SPAWN = multiprocessing.get_context("spawn")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """What the rounds of one server have shown so far."""

    delays: list[float] = field(default_factory=list)
    writes: int = 0
    seconds: float = 0.0
    server: float = 0.0  # seconds of the processor
    others: float = 0.0
    rounds: list[float] = field(default_factory=list)  # p99 of each


def main() -> int:
    """Measure and print two lines, and the p99 of each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--writes", type=int, default=500, help="in each round")
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    build_watch()
    servers = {"millstream": topic_server, "bare sockets": bare_sockets}
    tallies = {name: Tally() for name in servers}
    for _ in range(given.rounds):
        for name, server in servers.items():
            measure(server, tallies[name], given.watchers, given.writes)
    show(tallies, given.watchers)
    return 0


def show(tallies: dict[str, Tally], watchers: int) -> None:
    """Print the lines of a table."""
    heads = ("p50 ms", "p90 ms", "p99 ms", "p99 of each round", "server CPU ms a write")
    print("| | watchers | " + " | ".join(heads) + " | others % of a core |")
    print("|---|---:|---:|---:|---:|---|---:|---:|")
    for name, tally in tallies.items():
        delays = sorted(tally.delays)
        cells = [f"{1000 * delays[int(len(delays) * q)]:.2f}" for q in (0.5, 0.9, 0.99)]
        cells.append(", ".join(f"{1000 * each:.2f}" for each in tally.rounds))
        cells.append(f"{1000 * tally.server / tally.writes:.2f}")
        cells.append(f"{100 * tally.others / tally.seconds:.0f}")
        print("| " + " | ".join([name, str(watchers), *cells]) + " |", flush=True)


def build_watch() -> None:
    """Compile the watchers when they are missing or older than their source."""
    source = HERE / "watch.c"
    if WATCH.exists() and WATCH.stat().st_mtime >= source.stat().st_mtime:
        return
    WATCH.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-o", str(WATCH), str(source)], check=True)


def measure(
    server: Callable[[], AbstractContextManager[tuple[int, int]]],
    tally: Tally,
    watchers: int,
    writes: int,
) -> None:
    """Have a process watch and write for a round, and note what it saw."""
    pause_us = round(1e6 * PAUSE)
    with server() as (port, pid):
        wish = [WATCH, port, TOPIC, watchers, writes, WARM_UP, pause_us]
        with subprocess.Popen([str(each) for each in wish], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == b"ready\n"
            before = _used(pid), _used(client.pid), _busy(), time.perf_counter()
            assert client.stdout.readline() == b"done\n"
            after = _used(pid), _used(client.pid), _busy(), time.perf_counter()
            told = client.stdout.read()
    delays = struct.unpack(f"{len(told) // 8}d", told)
    assert len(delays) == watchers * writes
    served, watched, busy, seconds = (b - a for a, b in zip(before, after, strict=True))
    tally.delays += delays
    tally.rounds.append(sorted(delays)[int(len(delays) * 0.99)])
    tally.writes += writes
    tally.seconds += seconds
    tally.server += served
    tally.others += max(0.0, busy - served - watched)


@contextlib.contextmanager
def topic_server() -> Iterator[tuple[int, int]]:
    """Have a millstream with the topic; gives its port and its id."""
    with millstream() as peer:
        connection = http.client.HTTPConnection("127.0.0.1", peer.http_port)
        connection.request("PUT", TOPIC)
        connection.getresponse().read()
        connection.close()
        yield peer.http_port, peer.pid


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


def _used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _busy() -> float:
    """Return the seconds that all processors have worked, or were kept from it by their host."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


if __name__ == "__main__":
    sys.exit(main())
