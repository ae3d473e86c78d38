"""Pieces pushed to a client while its stream waits, with and without asking each time."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.http.connection import HttpConnection
from millstream.http.door import HttpDoor
from millstream.http.request import Request
from millstream.http.response import Answer, Response, chunk
from millstream.http.socket_writer import SocketWriter, send_all


async def nothing(request: Request) -> Answer:
    return Response()


class Transport:
    """A transport that notes what it is asked to write."""

    def __init__(self, **extra: object) -> None:
        self.written = b""
        self._extra = extra

    def get_extra_info(self, name: str) -> Any:
        return self._extra.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None:
        pass


@pytest.fixture
async def transport() -> Transport:
    return Transport()


def connected(transport: Transport) -> HttpConnection:
    door = HttpDoor(asyncio.get_running_loop(), nothing, ManualClock())
    made = HttpConnection(door, nothing)
    made.connection_made(transport)  # type: ignore[arg-type]
    return made


async def test_a_piece_is_sent_as_a_chunk(transport: Transport) -> None:
    assert connected(transport).answers.push(chunk(b"piece"))
    assert transport.written == b"5\r\npiece\r\n"


async def test_nothing_is_pushed_to_a_client_that_is_behind_or_gone(transport: Transport) -> None:
    connection = connected(transport)
    connection.pause_writing()
    assert not connection.answers.push(chunk(b"piece"))
    connection.resume_writing()
    connection.connection_lost(None)
    assert not connection.answers.push(chunk(b"piece"))
    assert transport.written == b""


async def test_who_joined_is_sent_to_without_being_asked(transport: Transport) -> None:
    writer = connected(transport).answers.writer(lambda: None)
    assert writer is not None
    writer.send(chunk(b"piece"))
    assert transport.written == b"5\r\npiece\r\n"


@pytest.mark.parametrize("leaves", [False, True])
async def test_who_joined_says_once_that_it_is_behind_or_gone(
    transport: Transport, leaves: bool
) -> None:
    connection, told = connected(transport), []
    connection.answers.writer(lambda: told.append("before"))
    connection.answers.writer(lambda: told.append("now"))
    if leaves:
        connection.connection_lost(None)
    else:
        connection.pause_writing()
        connection.resume_writing()
        connection.pause_writing()
    assert told == ["now"]


async def test_who_is_behind_or_gone_does_not_join(transport: Transport) -> None:
    connection = connected(transport)
    connection.pause_writing()
    assert connection.answers.writer(lambda: None) is None
    connection.resume_writing()
    assert connection.answers.writer(lambda: None) is not None
    connection.connection_lost(None)
    assert connection.answers.writer(lambda: None) is None


class Kept(asyncio.Protocol):
    """Knows when its connection is lost."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


Pair = tuple[asyncio.Transport, socket.socket]
Send = Callable[[SocketWriter, bytes], None]

BOTH = pytest.mark.parametrize(
    "send",
    [SocketWriter.send, lambda writer, data: send_all([writer], data)],
    ids=["alone", "with others"],
)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A transport as a server has it, and the socket of its client."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(Kept, sock=ours)
    yield transport, theirs
    transport.abort()
    theirs.close()
    await asyncio.sleep(0)


@BOTH
async def test_a_pushed_piece_is_with_the_client_before_the_loop_goes_round(
    pair: Pair, send: Send
) -> None:
    transport, client = pair
    send(SocketWriter(transport), b"piece")
    client.setblocking(False)
    assert client.recv(100) == b"piece"


@BOTH
async def test_a_piece_waits_behind_what_the_socket_did_not_take(pair: Pair, send: Send) -> None:
    transport, client = pair
    writer = SocketWriter(transport)
    pieces = [b"%06d" % n * 500 for n in range(40)]
    for piece in pieces:
        send(writer, piece)
    assert transport.get_write_buffer_size()
    client.setblocking(False)
    heard, whole = b"", b"".join(pieces)
    async with asyncio.timeout(10):
        while len(heard) < len(whole):
            heard += await asyncio.get_running_loop().sock_recv(client, 65536)
            if not transport.get_write_buffer_size() and len(pieces) == 40:
                pieces.append(b"last")  # which finds the transport empty again
                send(writer, b"last")
                whole += b"last"
    assert heard == whole


@BOTH
async def test_a_piece_waits_for_the_transport_even_where_the_socket_has_room(
    pair: Pair, send: Send
) -> None:
    transport, client = pair
    transport.write(b"." * 100_000)
    waiting = transport.get_write_buffer_size()
    assert waiting
    heard = client.recv(100_000)  # there is room now, and the loop has not seen it yet
    send(SocketWriter(transport), b"piece")
    client.setblocking(False)
    async with asyncio.timeout(10):
        while len(heard) < 100_005:
            heard += await asyncio.get_running_loop().sock_recv(client, 65536)
    assert heard == b"." * 100_000 + b"piece"


@BOTH
async def test_a_piece_for_one_who_left_is_the_transports_to_fail(pair: Pair, send: Send) -> None:
    transport, client = pair
    client.close()
    writer = SocketWriter(transport)
    send(writer, b"piece")
    send(writer, b"piece")
    protocol = transport.get_protocol()
    assert isinstance(protocol, Kept)
    async with asyncio.timeout(10):
        await protocol.lost.wait()


@BOTH
async def test_pieces_over_tls_go_through_their_transport(send: Send) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = Transport(socket=ours, sslcontext=ssl.create_default_context())
        send(SocketWriter(transport), b"piece")  # type: ignore[arg-type]
        assert transport.written == b"piece"


async def test_a_piece_for_many_reaches_each_in_the_way_that_it_can(pair: Pair) -> None:
    transport, client = pair
    client.close()
    full, clear, hidden = [socket.socketpair() for _ in range(3)]
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(Kept, sock=ours))[0] for ours, _ in (full, clear)]
    encrypted = Transport(socket=hidden[0], sslcontext=ssl.create_default_context())
    made[0].write(b"." * 1_000_000)
    assert made[0].get_write_buffer_size()
    writers = [SocketWriter(each) for each in (made[0], transport, encrypted, made[1])]  # type: ignore[arg-type]
    send_all(writers, b"piece")
    assert encrypted.written == b"piece"
    assert clear[1].recv(100) == b"piece"
    full[1].setblocking(False)
    heard = b""
    async with asyncio.timeout(10):
        while len(heard) < 1_000_005:
            heard += await loop.sock_recv(full[1], 1_000_000)
    assert heard == b"." * 1_000_000 + b"piece"
    for each in made:
        each.abort()
    await asyncio.sleep(0)
    for end in (full[1], clear[1], *hidden):
        end.close()
