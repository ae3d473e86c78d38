"""Clients that ask and do not read are slowed, then closed, and cost a bounded memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

from millstream.clock import ManualClock
from millstream.http.door import HttpDoor
from millstream.http.http2.connection import MOST_IDLE_FRAMES
from millstream.http.http2.frame_queue import FrameQueue
from millstream.http.request import Caller, Request
from millstream.http.response import Answer, Response, StreamedResponse
from millstream.http.unread import PATIENCE_SECONDS, UnreadBudget
from support.waiting import eventually

ANSWER = 100_000


class Served:
    """A door whose answers are counted."""

    def __init__(self, budget: UnreadBudget, size: int = ANSWER) -> None:
        self.clock = ManualClock()
        self.made = 0
        self.size = size
        self.budget = budget
        loop = asyncio.get_running_loop()
        self.door = HttpDoor(loop, self.app, self.clock, hosts=None, unread=budget)
        self.port = 0

    async def app(self, request: Request) -> Answer:
        request.caller = Caller(key=request.query.get("key", ""))
        if request.path == "/tail":
            return StreamedResponse(self.pieces())
        self.made += request.path == "/page"
        return Response(200, b"z" * (self.size if request.path == "/page" else 1))

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            self.made += 1
            await asyncio.sleep(0)
            yield b"z" * self.size


@contextlib.asynccontextmanager
async def served(budget: UnreadBudget, size: int = ANSWER) -> AsyncIterator[Served]:
    made = Served(budget, size)
    made.port = await made.door.start("127.0.0.1", 0)
    try:
        yield made
    finally:
        await made.door.stop()


class Hoarder:
    """An HTTP/2 client whose windows stay shut."""

    def __init__(self) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration())
        self.h2.local_settings = h2.settings.Settings(
            initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0}
        )
        self.h2.initiate_connection()
        self.end: h2.events.ConnectionTerminated | None = None

    async def join(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)

    def ask(self, path: str, times: int) -> None:
        for _ in range(times):
            head = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "a")]
            stream = self.h2.get_next_available_stream_id()
            self.h2.send_headers(stream, head, end_stream=True)
        self.writer.write(self.h2.data_to_send())

    async def read_to_the_end(self) -> None:
        async with asyncio.timeout(20):
            while data := await self.reader.read(65536):
                for event in self.h2.receive_data(data):
                    if isinstance(event, h2.events.ConnectionTerminated):
                        self.end = event
        self.writer.close()


async def test_no_answers_are_made_for_windows_that_stay_shut() -> None:
    budget = UnreadBudget(per_connection=3 * ANSWER)
    async with served(budget) as door:
        hoarder = Hoarder()
        await hoarder.join(door.port)
        hoarder.ask("/page", 50)
        await eventually(lambda: budget.waiting == 47)
        assert (door.made, budget.held) == (3, 3 * ANSWER)
        door.door.sweep()
        door.clock.advance(PATIENCE_SECONDS)
        door.door.sweep()
        await hoarder.read_to_the_end()
        assert hoarder.end is not None
        assert hoarder.end.error_code == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM
        assert b"max_unread_bytes_per_connection" in (hoarder.end.additional_data or b"")
        assert (door.made, budget.held, budget.closed) == (3, 0, 1)


async def test_an_answer_left_unread_for_long_is_given_up_though_nobody_waits() -> None:
    budget = UnreadBudget()
    async with served(budget) as door:
        hoarder = Hoarder()
        await hoarder.join(door.port)
        hoarder.ask("/page", 1)
        await eventually(lambda: budget.held == ANSWER)
        door.door.sweep()
        door.clock.advance(door.door.limits.stall_seconds)
        door.door.sweep()
        await hoarder.read_to_the_end()
        assert hoarder.end is not None
        assert b"unread for 30 s" in (hoarder.end.additional_data or b"")


async def test_who_opens_the_windows_gets_every_answer() -> None:
    budget = UnreadBudget(per_connection=2 * ANSWER)
    async with served(budget) as door:
        hoarder = Hoarder()
        await hoarder.join(door.port)
        hoarder.ask("/page", 10)
        await eventually(lambda: budget.waiting == 8)
        for stream in range(1, 21, 2):
            hoarder.h2.increment_flow_control_window(ANSWER, stream)
        hoarder.h2.increment_flow_control_window(10 * ANSWER)
        hoarder.writer.write(hoarder.h2.data_to_send())
        got = 0
        async with asyncio.timeout(20):
            while got < 10 * ANSWER:
                for event in hoarder.h2.receive_data(await hoarder.reader.read(65536)):
                    got += len(event.data) if isinstance(event, h2.events.DataReceived) else 0
        await eventually(lambda: budget.held == 0)
        assert (door.made, budget.closed) == (10, 0)
        hoarder.writer.close()


async def test_unread_tails_share_one_budget_and_others_get_it_in_the_end() -> None:
    size = 1_000_000
    budget = UnreadBudget(most=3 * size, per_connection=0)
    async with served(budget, size) as door:
        writers = []
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=1024)
            writer.write(b"GET /tail HTTP/1.1\r\nHost: a\r\n\r\n")
            writers.append(writer)
        await eventually(lambda: budget.waiting >= 1)
        assert budget.held < 5 * size
        door.door.sweep()
        door.clock.advance(PATIENCE_SECONDS)
        door.door.sweep()
        await eventually(lambda: budget.closed >= 1)
        for writer in writers:
            writer.close()
        await eventually(lambda: budget.held == 0)


async def test_a_key_has_a_share_of_its_own() -> None:
    budget = UnreadBudget(per_key=2 * ANSWER)
    async with served(budget) as door:
        hoarders = [Hoarder(), Hoarder(), Hoarder()]
        for each, key in zip(hoarders, ("a", "a", "b"), strict=True):
            await each.join(door.port)
            each.ask(f"/small?key={key}", 1)
            each.h2.increment_flow_control_window(1, 1)
            each.writer.write(each.h2.data_to_send())
        await eventually(lambda: door.door.connections == 3)
        hoarders[0].ask("/page?key=a", 5)
        await eventually(lambda: budget.waiting == 3)
        hoarders[2].ask("/page?key=b", 1)
        await eventually(lambda: door.made == 3)
        for each in hoarders:
            each.writer.close()
        await eventually(lambda: budget.held == 0)


async def test_a_flood_of_frames_that_ask_for_nothing_is_cut_with_the_reason() -> None:
    async with served(UnreadBudget()) as door:
        flooder = Hoarder()
        await flooder.join(door.port)
        for _ in range(MOST_IDLE_FRAMES + 50):
            flooder.h2.ping(b"12345678")
        flooder.writer.write(flooder.h2.data_to_send())
        await flooder.read_to_the_end()
        assert flooder.end is not None
        assert b"PING" in (flooder.end.additional_data or b"")


def test_frames_are_handed_on_one_by_one() -> None:
    frames = [b"\0\0\5\2\0\0\0\0\1hello", b"\0\0\0\4\0\0\0\0\0", b"\0\0\1\0\0\0\0\0\1x"]
    queue = FrameQueue(3)
    got = []
    for byte in b"PRI" + b"".join(frames):
        queue.add(bytes([byte]))
        while piece := queue.next():
            got.append(piece)
    assert got == [b"PRI", *frames]
    queue.add(b"\xff" * 9)
    assert (queue.next(), queue.is_too_large) == (b"", True)
