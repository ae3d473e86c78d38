"""Pieces pushed to a client while its stream waits, with and without asking each time."""

import asyncio
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
    """A transport that notes what it is asked to write."""

    def __init__(self) -> None:
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return None

    def write(self, data: bytes) -> None:
        self.written += data


@pytest.fixture
async def transport() -> Transport:
    return Transport()


def connected(transport: Transport) -> HttpConnection:
    door = HttpDoor(asyncio.get_running_loop(), nothing, ManualClock())
    made = HttpConnection(door, nothing)
    made.connection_made(transport)  # type: ignore[arg-type]
    return made


async def test_a_piece_is_sent_as_a_chunk(transport: Transport) -> None:
    assert connected(transport).push(Parcel(b"piece"))
    assert transport.written == b"5\r\npiece\r\n"


async def test_nothing_is_pushed_to_a_client_that_is_behind_or_gone(transport: Transport) -> None:
    connection = connected(transport)
    connection.pause_writing()
    assert not connection.push(Parcel(b"piece"))
    connection.resume_writing()
    connection.connection_lost(None)
    assert not connection.push(Parcel(b"piece"))
    assert transport.written == b""


async def test_who_joined_is_sent_to_without_being_asked(transport: Transport) -> None:
    way = connected(transport).join(lambda: None)
    assert way is not None
    way(Parcel(b"piece").chunked)
    assert transport.written == b"5\r\npiece\r\n"


@pytest.mark.parametrize("leaves", [False, True])
async def test_who_joined_says_once_that_it_is_behind_or_gone(
    transport: Transport, leaves: bool
) -> None:
    connection, stirred = connected(transport), []
    connection.join(lambda: stirred.append("before"))
    connection.join(lambda: stirred.append("now"))
    if leaves:
        connection.connection_lost(None)
    else:
        connection.pause_writing()
        connection.resume_writing()
        connection.pause_writing()
    assert stirred == ["now"]


async def test_who_is_behind_or_gone_does_not_join(transport: Transport) -> None:
    connection = connected(transport)
    connection.pause_writing()
    assert connection.join(lambda: None) is None
    connection.resume_writing()
    assert connection.join(lambda: None) is not None
    connection.connection_lost(None)
    assert connection.join(lambda: None) is None
