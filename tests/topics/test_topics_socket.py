"""The socket between a client that does not read and one that has much to read."""

import asyncio
from collections.abc import Callable

import pytest
from topics_api import Api
from topics_socket import Site, publish, talk

from millstream.clock import ManualClock
from millstream.http.door import HttpDoor
from millstream.http.request import ANYONE
from millstream.topics.page.page import MOST_PASSED_OVER
from millstream.topics.watch.incoming_messages import MOST_WAITING
from millstream.topics.watch.socket import TURN, Socket

PING = b'{"op":"ping"}'


class Transport(asyncio.Transport):
    """Notes what is written, and whether the client is read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_read = True
        self.is_ended = False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        assert not self.is_ended
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def frame(kind: int, payload: bytes) -> bytes:
    """Return a frame as a client sends it, masked by zeros."""
    return bytes([0x80 | kind, 0x80 | len(payload)]) + bytes(4) + payload


@pytest.fixture
async def transport() -> Transport:
    return Transport()


@pytest.fixture
async def socket(api: Api, transport: Transport) -> Socket:
    door = HttpDoor(asyncio.get_running_loop(), api.routes, ManualClock())
    made = Socket(door, api.topics, ANYONE, False, lambda: None)
    made.connection_made(transport)
    return made


async def until(condition: Callable[[], object]) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


async def test_who_does_not_read_is_not_answered_and_soon_not_read_either(
    socket: Socket, transport: Transport
) -> None:
    socket.pause_writing()
    for _ in range(MOST_WAITING + 3):
        socket.data_received(frame(1, PING))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (transport.written, transport.is_read) == (b"", False)
    socket.resume_writing()
    await until(lambda: transport.written.count(b"pong") == MOST_WAITING + 3)
    assert transport.is_read
    socket.connection_lost(None)


async def test_a_ping_that_comes_with_the_close_is_answered_before_it(
    socket: Socket, transport: Transport
) -> None:
    socket.data_received(frame(9, b"ping") + frame(8, b"\x03\xe8"))
    assert transport.written == b"\x8a\x04ping\x88\x02\x03\xe8"
    assert transport.is_ended
    socket.connection_lost(None)


async def test_pings_of_who_does_not_read_are_answered_once_by_the_latest(
    socket: Socket, transport: Transport
) -> None:
    socket.pause_writing()
    for n in range(100):
        socket.data_received(frame(9, b"%d" % n))
    assert transport.written == b""
    socket.resume_writing()
    assert transport.written == b"\x8a\x0299"
    socket.connection_lost(None)


async def test_a_topic_with_much_to_read_keeps_no_other_waiting(site: Site) -> None:
    count = 3 * TURN
    await site.api.write("a", *range(count))
    await site.api.write("b", 0)
    heard = []
    async with talk(site) as client:
        await client.say("subscribe", topics={"a": {}, "b": {}}, limit=1)
        while heard.count("a") < count:
            message = await client.hear()
            if message["op"] == "record":
                heard.append(message["topic"])
        assert heard == ["a", "b", *["a"] * (count - 1)]
        await client.say("publish", request_id=1, **publish("b", 1))
        assert (await client.until("ack"))["request_id"] == 1


async def test_who_did_not_read_while_a_topic_was_made_anew_gets_all_of_it(
    api: Api, socket: Socket, transport: Transport
) -> None:
    await api.write("t", 1, 2)
    socket.data_received(frame(1, b'{"op":"subscribe","topic":"t"}'))
    await until(lambda: b"caught_up" in transport.written)
    socket.pause_writing()
    await api.call("DELETE", "/v0/topics/t")
    await api.write("t", "a", "b", "c")
    transport.written = b""
    socket.resume_writing()
    await until(lambda: b"caught_up" in transport.written)
    assert b'"reason":"recreated"' in transport.written
    assert transport.written.count(b'"$seq"') == 3
    socket.connection_lost(None)


async def test_a_filter_that_passes_over_much_keeps_nobody_waiting_and_misses_nothing(
    api: Api, socket: Socket, transport: Transport
) -> None:
    hay, needle = [{"data": 0}] * (3 * MOST_PASSED_OVER), {"data": "needle", "tag": "x"}
    assert (await api.call("POST", "/v0/topics/t", {"records": [*hay, needle]}))[0] == 201
    socket.data_received(frame(1, b'{"op":"subscribe","topic":"t","filter":{"tag":"x"}}'))
    await until(lambda: b"subscribed" in transport.written)
    turns = 0
    while b"needle" not in transport.written:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 3
    assert b"caught_up" in transport.written
    socket.connection_lost(None)
