"""Memory that clients take which ask and do not read: ``python benches/hoarders.py --help``.

Prints how far the server's resident memory rises above what it was before, and what the system
holds in sockets of this machine, beside a nats-server where that has the case.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import h2.config
import h2.connection
import h2.settings
from brokers import broker
from cases import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.peers import Peer

TOPIC = "/v0/topics/hoard"
PAGE = 4096


def resident(peer: Peer) -> int:
    """Return the server's resident bytes."""
    return int(Path(f"/proc/{peer.pid}/statm").read_text().split()[1]) * PAGE


def in_sockets() -> int:
    """Return the bytes that all TCP sockets of this machine hold."""
    words = Path("/proc/net/sockstat").read_text().split()
    return int(words[words.index("mem") + 1]) * PAGE


def filled(peer: Peer, records: int = 2000, size: int = 4096) -> None:
    """Make a topic with records to read."""
    client = http.client.HTTPConnection("127.0.0.1", peer.http_port)
    body = json.dumps({"records": [{"data": "x" * size}] * 500})
    for _ in range(records // 500):
        headers = {"Content-Type": "application/json"}
        client.request("POST", TOPIC, body, headers)
        answer = client.getresponse()
        assert answer.read()
        assert answer.status in (200, 201), answer.status
    client.close()


def zero_window(peer: Peer, connections: int = 20, streams: int = 100) -> list[socket.socket]:
    """Ask for many pages by HTTP/2 and never open the window for one."""
    filled(peer)
    socks = []
    for _ in range(connections):
        client = h2.connection.H2Connection(h2.config.H2Configuration())
        client.local_settings = h2.settings.Settings(
            initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0}
        )
        client.initiate_connection()
        body = b'{"from_seq":0,"limit":1000}'
        for _ in range(streams):
            stream = client.get_next_available_stream_id()
            head = [(":method", "POST"), (":path", f"{TOPIC}/diff"), (":scheme", "http")]
            head += [(":authority", "127.0.0.1"), ("content-type", "application/json")]
            client.send_headers(stream, head)
            client.send_data(stream, body, end_stream=True)
        socks.append(socket.create_connection(("127.0.0.1", peer.http_port)))
        socks[-1].sendall(client.data_to_send())
    return socks


def tails(peer: Peer, count: int) -> list[socket.socket]:
    """Follow a topic from its beginning and read nothing."""
    filled(peer)
    request = f"GET {TOPIC}/tail?from_seq=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    socks = []
    for _ in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", peer.http_port))
        sock.sendall(request)
        socks.append(sock)
    return socks


def subscriptions(peer: Peer, count: int = 1_000_000) -> list[socket.socket]:
    """Subscribe to as many subjects on one connection."""
    sock = socket.create_connection(("127.0.0.1", peer.port))
    sock.sendall(b'CONNECT {"verbose":false}\r\n')
    for at in range(0, count, 10_000):
        sock.sendall(b"".join(b"SUB hoard.%d %d\r\n" % (n, n) for n in range(at, at + 10_000)))
    return [sock]


def objects(peer: Peer, count: int = 1_000_000) -> list[socket.socket]:
    """Send one request of many small records."""
    body = b'{"records":[' + b",".join([b'{"data":1}'] * count) + b"]}"
    head = f"POST {TOPIC} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    sock = socket.create_connection(("127.0.0.1", peer.http_port))
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return [sock]


def main() -> None:
    """Print a row for each hoarder and server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="only hoarders whose name contains this")
    parser.add_argument("--tails", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10, help="how long each is looked at")
    parser.add_argument("--servers", nargs="+", default=["millstream", "nats-server"])
    given = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cases: dict[str, tuple[Callable[[Peer], list[socket.socket]], bool]] = {
        "HTTP/2 zero window": (zero_window, False),
        f"{given.tails} unread tails": (lambda peer: tails(peer, given.tails), False),
        "a million SUBs": (subscriptions, True),
        "a million objects": (objects, False),
    }
    print("| hoarder | server | most MB | at the end MB | in sockets MB |")
    print("|---|---|---:|---:|---:|")
    for name, (case, everywhere) in cases.items():
        if given.match not in name:
            continue
        for server in given.servers if everywhere else given.servers[:1]:
            row = measured(server, case, given.seconds)
            print(f"| {name} | {server} | " + " | ".join(f"+{n:.0f}" for n in row) + " |")


def measured(
    server: str, case: Callable[[Peer], list[socket.socket]], seconds: float
) -> tuple[float, float, float]:
    """Return by how many MB the server grew at most, at the end, and the system's sockets."""
    with broker(server, MEMORY) as peer:
        before, sockets = resident(peer), in_sockets()
        socks, most, held = [], before, 0
        try:
            socks = case(peer)
        except OSError as error:
            print(f"  cut off: {error}", file=sys.stderr)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            most, held = max(most, resident(peer)), max(held, in_sockets() - sockets)
            time.sleep(0.1)
        last = resident(peer)
        for sock in socks:
            sock.close()
    return (most - before) / 1e6, (last - before) / 1e6, held / 1e6


if __name__ == "__main__":
    main()
