"""The listening socket under pressure."""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from millstream.listener import Listener


class Noticed(logging.Handler):
    """Sets an event when something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


class Reception:
    """Takes who is accepted, and says who came."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[str] = asyncio.Queue()
        self._taken: list[int] = []

    def __call__(self, fd: int, peer: str) -> None:
        self.peers.put_nowait(peer)
        self._taken.append(fd)

    def close(self) -> None:
        for fd in self._taken:
            os.close(fd)


async def test_running_out_of_descriptors_is_waited_out() -> None:
    noticed = Noticed()
    logging.getLogger("millstream.listener").addHandler(noticed)
    loop = asyncio.get_running_loop()
    reception = Reception()
    listener = Listener(loop, reception)
    address = listener.start("127.0.0.1", 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.setblocking(False)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            await loop.sock_connect(client, address)
            await asyncio.wait_for(noticed.event.wait(), 5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert reception.peers.empty()
        assert await asyncio.wait_for(reception.peers.get(), 5) == "127.0.0.1"
    listener.stop()
    logging.getLogger("millstream.listener").removeHandler(noticed)
    reception.close()


async def test_a_handover_that_fails_closes_the_connection_and_the_server_goes_on() -> None:
    loop = asyncio.get_running_loop()
    tries: list[int] = []

    def refuse(fd: int, peer: str) -> None:
        tries.append(fd)
        raise OSError("no room")

    listener = Listener(loop, refuse)
    host, port = listener.start("127.0.0.1", 0)
    for _ in range(2):
        reader, writer = await asyncio.open_connection(host, port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    listener.stop()
    assert len(tries) == 2


@pytest.fixture
def somewhere_on_ipv6() -> Iterator[socket.socket]:
    """A socket that is bound to a port of IPv6's loopback."""
    with socket.socket(socket.AF_INET6) as taken:
        try:
            taken.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        yield taken


@pytest.mark.usefixtures("somewhere_on_ipv6")
async def test_who_listens_everywhere_is_there_for_ipv6_too() -> None:
    reception = Reception()
    listener = Listener(asyncio.get_running_loop(), reception)
    host, port = listener.start("0.0.0.0", 0)
    assert host == "0.0.0.0"
    for address in ("127.0.0.1", "::1"):
        _, writer = await asyncio.open_connection(address, port)
        assert await asyncio.wait_for(reception.peers.get(), 5) == address
        writer.close()
        await writer.wait_closed()
    listener.stop()
    reception.close()


async def test_a_port_that_another_has_on_ipv6_is_taken(somewhere_on_ipv6: socket.socket) -> None:
    somewhere_on_ipv6.listen()
    port = somewhere_on_ipv6.getsockname()[1]
    listener = Listener(asyncio.get_running_loop(), lambda fd, peer: None)
    with pytest.raises(OSError, match="in use"):
        listener.start("0.0.0.0", port)
    listener.start("127.0.0.1", port)  # nothing is left of the failed start
    listener.stop()
