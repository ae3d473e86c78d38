"""Payloads that are sent from where they were read, over TCP: to clients here, slow and gone."""

import contextlib
import fcntl
import socket
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hub_recorder import QUIET, Recorder

CHOICES = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
UNPACED = b"reno"
SMALL, LARGE = 100, 40_000


class Client:
    """Both ends of a TCP connection: the client's, and a look at the hub's."""

    def __init__(
        self,
        door: Recorder,
        *,
        host: str = "127.0.0.1",
        source: str = "",
        buffer: int = 0,
        waiting: int = 0,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as listening:
            if buffer:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            if waiting:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, waiting)
                if listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 2 * waiting:
                    pytest.skip("this machine lets sockets hold less")
            listening.bind((host, 0))
            listening.listen(1)
            self.socket = socket.socket(family)
            if buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            if source:
                self.socket.bind((source, 0))
            self.socket.connect(listening.getsockname())
            theirs, _ = listening.accept()
        theirs.setblocking(False)
        self.socket.setblocking(False)
        self.fd = theirs.detach()
        self.cid = door.hub.attach(self.fd, door.interest)
        self.received = bytearray()
        door.hub.configure(self.cid, **QUIET)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def read(self, most: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self.received += self.socket.recv(most)

    @contextlib.contextmanager
    def server_side(self) -> Iterator[socket.socket]:
        """The hub's own socket; a copy of it would outlive the connection in its epoll."""
        theirs = socket.socket(fileno=self.fd)
        try:
            yield theirs
        finally:
            theirs.detach()

    def unread(self) -> int:
        """How much of what the client sent waits for the hub."""
        size = fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4))
        return int.from_bytes(size, sys.byteorder)

    def arrived(self, least: int) -> None:
        """Wait until so much does; a busy machine brings it later than it was sent."""
        until = time.monotonic() + 20
        while self.unread() < least:
            assert time.monotonic() < until

    def choose(self, control: bytes) -> None:
        with self.server_side() as theirs:
            theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)

    def control(self) -> bytes:
        """What decides how fast the server may send to this client."""
        with self.server_side() as theirs:
            name = theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        return name.rstrip(b"\0")


def another_control() -> bytes:
    """Return one that clients do not have for large payloads, and that this process may set."""
    others = set(CHOICES.read_bytes().split()) - {UNPACED}
    if not others:
        pytest.skip("this machine lets a process choose no other congestion control")
    return min(others)


def publish(door: Recorder, to: Client, size: int) -> None:
    """Have a client of its own publish one message, and let the other have it."""
    wanted = len(to.received) + size
    with Client(door) as publisher:
        publisher.socket.setblocking(True)
        publisher.socket.sendall(b"PUB x %d\r\n%s\r\n" % (size, size * b"y"))
        until = time.monotonic() + 20
        while len(to.received) < wanted:
            assert time.monotonic() < until
            door.hub.poll()
            to.read(1 << 20)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_large_payloads_to_a_client_on_this_machine_are_not_paced(host: str) -> None:
    other = another_control()
    door = Recorder()
    try:
        client = Client(door, host=host)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with client:
        client.choose(other)
        door.hub.subscribe(client.cid, b"x", b"", b"1")
        publish(door, client, SMALL)
        assert client.control() == other
        publish(door, client, LARGE)
        assert client.control() == UNPACED


def test_a_client_that_comes_from_elsewhere_keeps_what_the_machine_chose() -> None:
    other = another_control()
    door = Recorder()
    with Client(door, source="127.0.0.2") as client:
        client.choose(other)
        door.hub.subscribe(client.cid, b"x", b"", b"1")
        publish(door, client, LARGE)
        assert client.control() == other


@pytest.mark.parametrize(
    ("size", "max_pending", "least", "most"),
    [
        (LARGE, 8 << 20, 600 << 10, 1 << 20),
        (SMALL, 8 << 20, 0, 512 << 10),
        (LARGE, 2 << 20, 0, 512 << 10),  # a longer read might not fit an outbox nearly full
    ],
)
def test_of_large_payloads_more_is_read_at_once_where_outboxes_have_room_for_it(
    size: int, max_pending: int, least: int, most: int
) -> None:
    door = Recorder(max_pending=max_pending)
    operation = b"PUB x %d\r\n%s\r\n" % (size, size * b"y")
    with Client(door, waiting=2 << 20) as publisher:
        publisher.socket.sendall(operation[:-10])
        publisher.arrived(len(operation) - 10)  # so that the hub sees whose size it has to do with
        door.hub.poll()
        publisher.socket.setblocking(True)
        publisher.socket.sendall(operation[-10:] + operation * ((3 << 19) // len(operation)))
        publisher.arrived(5 << 18)
        door.hub.poll()
        # an operation at each end may be counted or not
        assert least <= door.hub.stats()["in_bytes"] <= most + 2 * len(operation)


@pytest.mark.parametrize("seed", range(4))
def test_each_of_many_clients_gets_every_byte_however_slowly_it_reads(seed: int) -> None:
    random = Random(seed)
    door = Recorder(max_pending=64 << 20)
    sizes = [random.choice([0, 90, 4_080, 4_100, 16_384, LARGE, 200_000]) for _ in range(80)]
    payloads = [random.randbytes(size) for size in sizes]
    rest = b"".join(b"PUB x %d\r\n%s\r\n" % (len(p), p) for p in payloads)
    expected = b"".join(b"MSG x 1 %d\r\n%s\r\n" % (len(p), p) for p in payloads)
    paces = [1 << 20, 50_000, 9_001, 1 << 20]
    with contextlib.ExitStack() as stack:
        publisher = stack.enter_context(Client(door))
        clients = [stack.enter_context(Client(door, buffer=8_192)) for _ in paces]
        for client in clients:
            door.hub.subscribe(client.cid, b"x", b"", b"1")
        *staying, leaving = clients
        until = time.monotonic() + 20
        while any(len(client.received) < len(expected) for client in staying):
            assert time.monotonic() < until
            with contextlib.suppress(BlockingIOError):
                rest = rest[publisher.socket.send(rest[:100_000]) :]
            door.hub.poll()
            for client, pace in zip(staying, paces, strict=False):
                if random.random() < 0.7:
                    client.read(pace)
            if leaving.received:
                leaving.socket.close()
            elif len(staying[0].received) > len(expected) // 3:
                leaving.read(10_000)
        assert all(client.received == expected for client in staying)
        assert leaving.cid not in door.hub.connections()
        assert expected.startswith(leaving.received)
