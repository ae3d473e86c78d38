"""What the HTTP door costs: ``python benches/http_door.py [--seconds S] [--only NAME …]``.

One millstream in a process of its own and clients that send bytes made beforehand. For each kind of
work: records a second as seen, records a second of one core (by the server's processor time, which
a busy machine disturbs less), and how long one call takes.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import itertools
import json
import multiprocessing
import os
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.broker import millstream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.peers import Peer

JSON, LINES = b"application/json", b"application/x-ndjson"
FANS = (1, 10, 100, 1000)
ROOM = 100
ROUTERS = (0, 1, 100, 1000)
BREATH = 0.1  # seconds between writes whose copies are not to be waited for
LOADED, WRITERS = 30, 6  # topics of ordinary priority, and who saturates the server with them


@dataclass
class Tally:
    """What was done, and how long each call took."""

    records: int = 0
    seconds: list[float] = field(default_factory=list)


def main() -> int:
    """Measure and print one line for each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    print("| work | records/s | records/s per core | server CPU µs a record | p50 ms | p99 ms |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, work in WORKS.items():
        if not given.only or any(word in name for word in given.only):
            measure(name, work, given.seconds)
    return 0


def measure(
    name: str, work: Callable[[int, float, Callable[[], None]], Tally], long: float
) -> None:
    """Run one kind of work on a server of its own."""
    with millstream() as peer:
        marks: list[tuple[float, float]] = []
        tally = work(
            peer.http_port, long, lambda: marks.append((time.perf_counter(), cpu_seconds(peer)))
        )
        (began, before), now, used = marks[0], time.perf_counter(), cpu_seconds(peer)
    took, cpu = now - began, max(used - before, 0.01)
    ordered = sorted(tally.seconds)
    low, high = (1000 * ordered[int(len(ordered) * q)] for q in (0.5, 0.99))
    each = 1e6 * cpu / tally.records
    rates = f"{tally.records / took:,.0f} | {tally.records / cpu:,.0f} | {each:.2f}"
    print(f"| {name} | {rates} | {low:.2f} | {high:.2f} |", flush=True)


def cpu_seconds(peer: Peer) -> float:
    """Return the processor time that the server has used."""
    fields = Path(f"/proc/{peer.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Line:
    """A connection that asks and reads whole answers."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of its answer, which must be a success."""
        self.sock.sendall(request)
        heard = bytearray()
        while (end := heard.find(b"\r\n\r\n")) < 0:
            heard += self.sock.recv(1 << 18)
        assert heard[9:11] == b"20", bytes(heard[:300])
        at = heard.index(b"Content-Length: ") + 16
        whole = end + 4 + int(heard[at : heard.index(b"\r", at)])
        while len(heard) < whole:
            heard += self.sock.recv(1 << 18)
        return bytes(heard[end + 4 :])


def post(topic: str, body: bytes, kind: bytes = JSON, method: str = "POST") -> bytes:
    """Return a request about a topic."""
    return request_to(f"topics/{topic}", body, kind, method)


def request_to(path: str, body: bytes, kind: bytes = JSON, method: str = "POST") -> bytes:
    """Return a request."""
    head = f"{method} /v0/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
    return head.encode() + kind + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def records(count: int) -> list[bytes]:
    """Return records as people write them."""
    return [
        json.dumps({"data": {"id": n, "name": f"user{n}", "amount": 1.5}}, separators=(",", ":"))
        .encode()
        for n in range(count)
    ]  # fmt: skip


def batch(count: int) -> bytes:
    """Return a JSON body of so many records."""
    return b'{"records":[%b]}' % b",".join(records(count))


def repeat(port: int, request: bytes, each: int, long: float, mark: Callable[[], None]) -> Tally:
    """Ask the same for a while."""
    line, tally = Line(port), Tally()
    for _ in range(5):
        line.ask(request)
    mark()
    end = time.perf_counter() + long
    while (began := time.perf_counter()) < end:
        line.ask(request)
        tally.seconds.append(time.perf_counter() - began)
        tally.records += each
    return tally


def single(port: int, long: float, mark: Callable[[], None]) -> Tally:
    """Write one record a call."""
    return repeat(port, post("t?return_seqs=false", batch(1)), 1, long, mark)


def batch_json(port: int, long: float, mark: Callable[[], None]) -> Tally:
    """Write 1,000 records a call."""
    return repeat(port, post("t?return_seqs=false", batch(1000)), 1000, long, mark)


def batch_lines(port: int, long: float, mark: Callable[[], None]) -> Tally:
    """Write 1,000 records a call, one a line."""
    body = b"\n".join(records(1000))
    return repeat(port, post("t?return_seqs=false", body, LINES), 1000, long, mark)


def diff(port: int, long: float, mark: Callable[[], None]) -> Tally:
    """Read 1,000 records a call."""
    Line(port).ask(post("t", batch(1000)))
    return repeat(port, post("t/diff", b'{"limit":1000}'), 1000, long, mark)


def queue(port: int, long: float, mark: Callable[[], None]) -> Tally:
    """Claim and ack ten jobs at a time."""
    line, tally = Line(port), Tally()
    line.ask(post("q", b'{"type":"queue"}', method="PUT"))
    mark()
    end = time.perf_counter() + long
    while time.perf_counter() < end:
        line.ask(post("q?return_seqs=false", batch(1000)))
        for _ in range(100):
            began = time.perf_counter()
            claimed = json.loads(line.ask(post("q/claim", b'{"node":"w","max":10}')))["claimed"]
            seqs = json.dumps([job["$seq"] for job in claimed]).encode()
            line.ask(post("q/ack", b'{"node":"w","seqs":%b}' % seqs))
            tally.seconds.append(time.perf_counter() - began)
            tally.records += len(claimed)
    return tally


def fan_out(watchers: int) -> Callable[[int, float, Callable[[], None]], Tally]:
    """Return the work of sending each write to so many event streams."""

    def run(port: int, long: float, mark: Callable[[], None]) -> Tally:
        with watching(port, watchers) as selector:
            line, tally, request = Line(port), Tally(), post("t?return_seqs=false", batch(1))
            mark()
            end = time.perf_counter() + long
            while (began := time.perf_counter()) < end:
                line.ask(request)
                delays = arrivals(selector, watchers, began, b'"$seq"')
                tally.seconds += delays
                tally.records += watchers
            return tally

    return run


@contextlib.contextmanager
def watching(port: int, watchers: int, config: bytes = b"{}") -> Iterator[selectors.BaseSelector]:
    """Open event streams on one topic."""
    Line(port).ask(post("t", config, method="PUT"))
    with contextlib.ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        for _ in range(watchers):
            selector.register(held.enter_context(tailing(port, "t")), selectors.EVENT_READ)
        yield selector


def tailing(port: int, topic: str) -> socket.socket:
    """Return a connection that hears of a topic's records, all of which it has seen."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(f"GET /v0/topics/{topic}/tail HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    heard = b""
    while b"caught-up" not in heard:
        heard += sock.recv(65536)
    return sock


def arrivals(
    selector: selectors.BaseSelector, count: int, began: float, sign: bytes
) -> list[float]:
    """Return how long each of ``count`` signs took to arrive at whoever waits for them."""
    delays: list[float] = []
    while len(delays) < count:
        for key, _ in selector.select(10):
            heard = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            delays += [time.perf_counter() - began] * heard.count(sign)
    return delays


def room(port: int, long: float, mark: Callable[[], None]) -> Tally:
    """Let everybody in a room of WebSockets speak in turn, and all hear it."""
    Line(port).ask(post("t", b'{"durability":"ephemeral"}', method="PUT"))
    said = frame(b'{"op":"publish","topic":"t","records":[{"data":"20 ms of sound"}]}')
    with contextlib.ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        sockets = [held.enter_context(upgraded(port)) for _ in range(ROOM)]
        for sock in sockets:
            sock.sendall(frame(b'{"op":"subscribe","topic":"t","tail":true}'))
            heard = b""
            while b'"caught_up"' not in heard:
                heard += sock.recv(65536)
            selector.register(sock, selectors.EVENT_READ)
        tally = Tally()
        mark()
        end = time.perf_counter() + long
        while (began := time.perf_counter()) < end:
            for sock in sockets:
                sock.sendall(said)
            tally.seconds += arrivals(selector, ROOM * ROOM, began, b'"$seq"')
            tally.records += ROOM * ROOM
        return tally


def upgraded(port: int) -> socket.socket:
    """Return a WebSocket."""
    sock = socket.create_connection(("127.0.0.1", port))
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        "GET /v0/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert b" 101 " in sock.recv(65536)
    return sock


def frame(text: bytes) -> bytes:
    """Return a text frame of a client; a mask of zeros leaves the text as it is."""
    if len(text) < 126:
        return bytes((0x81, 0x80 | len(text))) + bytes(4) + text
    return bytes((0x81, 0xFE)) + struct.pack("!H", len(text)) + bytes(4) + text


def routed(routers: int) -> Callable[[int, float, Callable[[], None]], Tally]:
    """Return the work of writing to a topic that so many routers copy, with time to copy."""

    def run(port: int, long: float, mark: Callable[[], None]) -> Tally:
        line, tally, request = Line(port), Tally(), post("t?return_seqs=false", batch(1))
        line.ask(post("t", b"{}", method="PUT"))
        for number in range(routers):
            body = b'{"source":"t","dest":"copy-%d"}' % number
            line.ask(request_to(f"routers/r{number}", body, method="PUT"))
        for _ in range(5):
            line.ask(request)
        time.sleep(0.2)
        mark()
        end = time.perf_counter() + max(long, 40 * BREATH)
        while (began := time.perf_counter()) < end:
            line.ask(request)
            tally.seconds.append(time.perf_counter() - began)
            tally.records += 1
            time.sleep(BREATH)
        return tally

    return run


def prioritised(*, saturated: bool) -> Callable[[int, float, Callable[[], None]], Tally]:
    """Return the work of sending a topic of high priority to ten streams, among others or alone."""

    def run(port: int, long: float, mark: Callable[[], None]) -> Tally:
        Line(port).ask(post("t", b'{"priority":900}', method="PUT"))
        with contextlib.ExitStack() as held:
            load = held.enter_context(other_load(port)) if saturated else None
            selector = held.enter_context(watching(port, 10, b'{"priority":900}'))
            line, tally, request = Line(port), Tally(), post("t?return_seqs=false", batch(1))
            time.sleep(2 * BREATH)
            mark()
            end = time.perf_counter() + long
            while (began := time.perf_counter()) < end:
                line.ask(request)
                tally.seconds += arrivals(selector, 10, began, b'"$seq"')
                tally.records += 10
                time.sleep(BREATH / 10)
            if load is not None:
                stillest = load.stop()
                print(f"| (the longest that a topic of the load stood still: {stillest:.2f} s) |")
            return tally

    return run


class Load:
    """Writers that never rest, to topics of ordinary priority that are watched."""

    def __init__(self, port: int) -> None:
        self._pipe, inner = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=press, args=(port, inner), daemon=True
        )
        self.process.start()

    def stop(self) -> float:
        """Return for how long the one that waited longest for an event waited."""
        self._pipe.send(None)
        stillest: float = self._pipe.recv()
        self.process.join()
        return stillest


@contextlib.contextmanager
def other_load(port: int) -> Iterator[Load]:
    """Keep a server busy from another process."""
    load = Load(port)
    try:
        yield load
    finally:
        load.process.kill()


def press(port: int, pipe: multiprocessing.connection.Connection) -> None:
    """Write to every topic of the load in turn, as fast as it goes, and time their events."""
    with contextlib.ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        requests: list[bytes] = []
        for number in range(LOADED):
            name = f"load-{number}"
            Line(port).ask(post(name, b'{"durability":"ephemeral"}', method="PUT"))
            for _ in range(5):
                sock = held.enter_context(tailing(port, name))
                selector.register(sock, selectors.EVENT_READ, number)
            requests.append(post(f"{name}?return_seqs=false", batch(20)))
        turns = itertools.cycle(requests)
        for _ in range(WRITERS):
            line = Line(port)
            selector.register(line.sock, selectors.EVENT_READ, None)
            line.sock.sendall(next(turns))
        heard, stillest = [time.perf_counter()] * LOADED, 0.0
        while not pipe.poll():
            for key, _ in selector.select(0.1):
                key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                if key.data is None:
                    key.fileobj.sendall(next(turns))  # type: ignore[union-attr]
                    continue
                now = time.perf_counter()
                stillest = max(stillest, now - heard[key.data])
                heard[key.data] = now
        now = time.perf_counter()
        pipe.send(max(stillest, *(now - last for last in heard)))


WORKS: dict[str, Callable[[int, float, Callable[[], None]], Tally]] = {
    "single write": single,
    "batch of 1,000, JSON": batch_json,
    "batch of 1,000, NDJSON": batch_lines,
    "diff of 1,000": diff,
    **{f"SSE fan-out to {n}": fan_out(n) for n in FANS},
    "queue: claim and ack 10": queue,
    f"WebSocket room of {ROOM}": room,
    **{f"write, copied by {n:,} routers": routed(n) for n in ROUTERS},
    "high priority to 10, calm": prioritised(saturated=False),
    "high priority to 10, saturated": prioritised(saturated=True),
}


if __name__ == "__main__":
    sys.exit(main())
