"""Pieces pushed to a client: past its transport where nothing waits there, else through it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.http.connection import HttpConnection
from millstream.http.door import HttpDoor
from millstream.http.request import Request
from millstream.http.response import Answer, Parcel, Response


async def nothing(request: Request) -> Answer:
    return Response()


class Transport:
    """A transport over one end of a pair of sockets; what it is asked to write it notes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting = 0
        self.is_closed = False
        self.is_tls = False
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.sock, "ssl_object": object() if self.is_tls else None}.get(name)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_closed = True


@pytest.fixture
def pair() -> Iterator[tuple[Transport, socket.socket]]:
    ours, theirs = socket.socketpair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        ours.setblocking(False)
        theirs.setblocking(False)
        yield Transport(ours), theirs


def connected(transport: Transport) -> HttpConnection:
    door = HttpDoor(asyncio.get_running_loop(), nothing, ManualClock())
    made = HttpConnection(door, nothing)
    made.connection_made(transport)  # type: ignore[arg-type]
    return made


def arrived(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 20)
    except BlockingIOError:
        return b""


async def test_a_piece_goes_past_a_transport_where_nothing_waits(pair: Any) -> None:
    transport, client = pair
    assert connected(transport)._push(Parcel(b"piece"))
    assert (arrived(client), transport.written) == (b"5\r\npiece\r\n", b"")


@pytest.mark.parametrize("what", ["waiting", "is_closed", "is_tls"])
async def test_a_piece_goes_through_its_transport_otherwise(pair: Any, what: str) -> None:
    transport, client = pair
    setattr(transport, what, 1)
    assert connected(transport)._push(Parcel(b"piece"))
    assert (arrived(client), transport.written) == (b"", b"5\r\npiece\r\n")


async def test_what_a_socket_does_not_take_is_left_to_its_transport(pair: Any) -> None:
    transport, client = pair
    parcel = Parcel(b"x" * 10_000_000)
    assert connected(transport)._push(parcel)
    heard = b"".join(iter(lambda: arrived(client), b""))
    assert heard + transport.written == parcel.chunked
    assert heard
    assert transport.written


async def test_a_socket_that_takes_nothing_leaves_it_all_to_its_transport(pair: Any) -> None:
    transport, client = pair
    with contextlib.suppress(BlockingIOError):
        while True:
            transport.sock.send(b"x" * 65536)
    assert connected(transport)._push(Parcel(b"piece"))
    assert transport.written == b"5\r\npiece\r\n"
    client.close()
    assert connected(transport)._push(Parcel(b"more"))  # a broken one too: it will find out
    assert transport.written.endswith(b"4\r\nmore\r\n")


async def test_nothing_is_pushed_to_a_client_that_is_behind_or_gone(pair: Any) -> None:
    transport, client = pair
    connection = connected(transport)
    connection.pause_writing()
    assert not connection._push(Parcel(b"piece"))
    connection.resume_writing()
    connection.connection_lost(None)
    assert not connection._push(Parcel(b"piece"))
    assert (arrived(client), transport.written) == (b"", b"")
