"""Who is answered first when more requests come than are answered at once; no time is measured."""

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from topics_api import Api

from millstream.clock import ManualClock
from millstream.delivery.governor import Measures
from millstream.http.door import HttpDoor
from millstream.http.request import Caller, Request
from millstream.http.response import Answer
from millstream.kernel._batch import Batch
from millstream.topics.limits.turns import LONGEST_MS, TOGETHER, RequestTurns, named_by

PRIORITIES = {"high": 900, "fresh": 500, "plain": 0, "low": -5}


class Bench:
    """Turns whose clock is the test's; each request that is served takes a while of it."""

    def __init__(self, cost_ms: float = LONGEST_MS / 4) -> None:
        self.clock = ManualClock()
        self.turns = RequestTurns(self.clock, lambda topic: PRIORITIES.get(topic, 0))
        self.cost_ms = cost_ms
        self.served: list[str] = []

    def come(self, topic: str, *, waits: bool = False, client: object = None) -> None:
        request = Request("POST", f"/v0/topics/{topic}")
        if waits:
            self.turns.wait(request, lambda: self.serve(topic))
        else:
            now, client = self.clock.monotonic(), client or object()
            self.turns.take(request, lambda: self.serve(topic), now, client)

    def serve(self, topic: str) -> None:
        self.clock.advance(self.cost_ms / 1000)
        self.served.append(topic)


async def go_round(times: int = 1) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_request_that_comes_alone_is_served_as_it_is_read() -> None:
    bench = Bench()
    for count in range(1, 4):
        bench.come("low")
        assert len(bench.served) == count
        bench.clock.advance(2 * TOGETHER)
    assert bench.served == ["low"] * 3
    assert bench.turns.waiting == 0


async def test_a_client_whose_next_request_follows_at_once_has_nobody_before_it() -> None:
    bench, client = Bench(), object()
    for count in range(1, 4):
        bench.come("low", client=client)
        assert len(bench.served) == count
    bench.come("plain")
    bench.come("low", client=client)
    assert bench.turns.waiting == 2


async def test_what_comes_in_the_same_turn_is_served_by_priority_once_all_is_read() -> None:
    bench = Bench(cost_ms=0)
    for topic in ("plain", "low", "plain", "high", "fresh", "high"):
        bench.come(topic)
    assert bench.served == ["plain"]
    await go_round(2)
    assert bench.served == ["plain", "high", "high", "fresh", "plain", "low"]


async def test_a_flood_ends_its_turn_so_that_the_loop_sees_who_else_has_come() -> None:
    bench = Bench(cost_ms=LONGEST_MS / 4)
    for _ in range(100):
        bench.come("plain")
    before = len(bench.served)
    await go_round()
    assert len(bench.served) - before == 4


async def test_a_high_priority_waits_for_one_turn_at_most_whatever_waits_before_it() -> None:
    bench = Bench()
    for _ in range(1000):
        bench.come("plain")
    for _ in range(50):
        await go_round()
        before = len(bench.served)
        bench.come("high")
        await go_round()
        assert bench.served[before] == "high"


async def test_one_request_longer_than_a_turn_is_the_last_of_it() -> None:
    bench = Bench(cost_ms=50 * LONGEST_MS)
    for topic in ("plain", "plain", "plain"):
        bench.come(topic)
    await go_round()
    assert bench.served == ["plain", "plain"]
    await go_round()
    assert bench.served == ["plain"] * 3


async def test_every_band_moves_in_its_weighted_turn_while_the_top_never_rests() -> None:
    bench = Bench(cost_ms=LONGEST_MS)
    for topic in PRIORITIES:
        for _ in range(400):
            bench.come(topic)
    await go_round(161)
    served = Counter(bench.served[1:161])
    assert served["high"] > served["fresh"] > served["plain"]
    assert set(served) == set(PRIORITIES)
    assert min(served.values()) >= 3


async def test_what_has_waited_for_ten_seconds_is_in_the_top_band() -> None:
    bench = Bench(cost_ms=LONGEST_MS)
    bench.come("plain")
    bench.come("low")
    bench.clock.advance(10)
    for _ in range(8):
        bench.come("high")
    await go_round(2)
    assert bench.served.index("low") <= 2


async def test_a_request_that_fails_keeps_nobody_from_their_turn() -> None:
    bench = Bench()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, found: failures.append(found))

    def fail() -> None:
        raise RuntimeError("its own fault")

    bench.come("plain")
    bench.turns.take(Request("GET", "/"), fail, bench.clock.monotonic(), object())
    bench.come("plain")
    await go_round(3)
    assert bench.served == ["plain", "plain"]
    assert len(failures) == 1


async def test_what_must_wait_is_not_served_before_the_loop_has_gone_round() -> None:
    bench = Bench()
    bench.come("plain", waits=True)
    assert bench.served == []
    await go_round()
    assert bench.served == ["plain"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v0/topics/a", "a"),
        ("/v0/topics/a%3Ab/diff", "a:b"),
        ("/v0/topics", ""),
        ("/v0/topics/", ""),
        ("/v0/routers/a", ""),
        ("/healthz", ""),
    ],
)
def test_a_request_names_its_topic_by_its_path(path: str, name: str) -> None:
    assert named_by(Request("GET", path)) == name


# -- through the door ------------------------------------------------------------------------------


class Site:
    """An API behind a door whose sockets are all readable before the loop looks at any."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.order: list[str] = []
        self.clients: list[socket.socket] = []
        self.door = HttpDoor(
            asyncio.get_running_loop(), self.app, ManualClock(), turns=api.topics.turns
        )

    async def app(self, request: Request) -> Answer:
        self.order.append(named_by(request))
        return await self.api.routes(request)

    async def connect(self, count: int) -> None:
        port = await self.door.start("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", port))
            self.clients.append(sock)
        while self.door.connections < count:  # noqa: ASYNC110 - each is accepted by the loop
            await asyncio.sleep(0)

    async def close(self) -> None:
        for sock in self.clients:
            sock.close()
        await self.door.stop()


@contextlib.asynccontextmanager
async def served(api: Api, clients: int) -> AsyncIterator[Site]:
    site = Site(api)
    try:
        await site.connect(clients)
        yield site
    finally:
        await site.close()


def write(topic: str) -> bytes:
    body = b'{"records":[{"data":1}]}'
    head = f"POST /v0/topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    return head.encode() + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_flood_of_other_requests_is_not_answered_before_one_of_high_priority(
    api: Api,
) -> None:
    await api.call("PUT", "/v0/topics/flood", {"priority": 0})
    await api.call("PUT", "/v0/topics/high", {"priority": 900})
    async with served(api, 21) as site:
        for sock in site.clients[:20]:
            sock.send(write("flood") * 5)  # pipelined: four of five wait behind their own
        site.clients[20].send(write("high"))
        async with asyncio.timeout(5):
            while len(site.order) < 101:  # noqa: ASYNC110 - the door answers by itself
                await asyncio.sleep(0)
        assert site.order.index("high") <= 1
        assert (await api.diff("flood", limit=1000))["head_seq"] == 100


async def test_pipelined_requests_of_one_client_take_turns_with_those_of_others(api: Api) -> None:
    for name in ("many", "one"):  # whose writes need nothing that would have to be waited for
        await api.call("PUT", f"/v0/topics/{name}", {"priority": 0, "durability": "ephemeral"})
    async with served(api, 2) as site:
        site.clients[0].send(write("many") * 200)
        site.clients[1].send(write("one"))
        async with asyncio.timeout(5):
            while len(site.order) < 201:  # noqa: ASYNC110 - the door answers by itself
                await asyncio.sleep(0)
        assert site.order.index("one") <= 2


async def test_a_client_that_leaves_before_its_turn_is_not_served(api: Api) -> None:
    async with served(api, 2) as site:
        api.topics.turns._turning = True  # as if somebody was served in this turn already
        site.clients[0].send(write("gone"))
        while not api.topics.turns.waiting:  # noqa: ASYNC110 - the loop reads it by itself
            await asyncio.sleep(0)
        reset = struct.pack("ii", 1, 0)
        site.clients[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        site.clients[0].close()
        while site.door.connections > 1:  # noqa: ASYNC110 - the loop sees it by itself
            await asyncio.sleep(0)
        api.topics.turns._turn()
        assert site.order == []


async def test_topics_of_another_account_are_ranked_once_they_were_asked_for(api: Api) -> None:
    theirs = Caller(account="THEIRS", key="k")
    await api.call("PUT", "/v0/topics/t", {"priority": 800}, caller=theirs)
    await api.call("GET", "/v0/topics/t", caller=theirs)
    assert api.topics._rank("t") == 800
    assert api.topics._rank("nobody knows") == 500


# -- commits ---------------------------------------------------------------------------------------


async def went_through_at_once(api: Api, topic: str) -> bool:
    """Say whether a write was answered without a turn of the loop.

    The log's own thread may be at work just then, on what went before: one of a few counts.
    """
    for _ in range(20):
        writing = api.send("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]})
        try:
            writing.send(None)
        except StopIteration as done:
            return bool(done.value.status == 200)
        writing.close()
        await api.write(topic, 0)  # behind which everything is settled
    return False


@pytest.mark.parametrize("durability", ["ephemeral", "disk"])
async def test_a_write_that_needs_no_sync_is_committed_before_the_loop_goes_round(
    api: Api, durability: str
) -> None:
    await api.call("PUT", "/v0/topics/t", {"durability": durability})
    assert await went_through_at_once(api, "t")


async def test_a_high_priority_does_not_wait_for_others_to_join_its_commit(api: Api) -> None:
    for name, priority in (("high", 900), ("plain", 0)):
        await api.call("PUT", f"/v0/topics/{name}", {"priority": priority, "durability": "fsync"})
    measures = Measures(0.5, commit_window_ms=3_600_000.0)
    api.topics.scheduler._governor.measures = measures
    api.topics._take_measures(measures)
    plain = asyncio.ensure_future(api.write("plain", 1))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        answer = await api.write("high", 1)  # whose sync covers what came before it
        await plain
    assert answer["performance"]["throttle_wait_ms"] == 0.0


async def test_a_high_priority_is_written_at_once_while_others_gather(api: Api) -> None:
    for name, priority in (("high", 900), ("plain", 0)):
        await api.call("PUT", f"/v0/topics/{name}", {"priority": priority})
    measures = Measures(0.5, commit_window_ms=3_600_000.0)
    api.topics.scheduler._governor.measures = measures
    api.topics._take_measures(measures)
    assert await went_through_at_once(api, "high")


async def test_what_a_commit_sets_in_motion_is_committed_after_it(api: Api) -> None:
    """A write made by whoever hears of a commit must not overtake what was committed with it."""
    for name in ("a", "b"):
        await api.call("PUT", f"/v0/topics/{name}", {"durability": "ephemeral"})
    told: list[tuple[str, int]] = []
    a, b = api.stream("a"), api.stream("b")
    begun: list[asyncio.Future[tuple[int, int]]] = []

    def again() -> None:
        told.append(("a", a.log.committed_seq))
        if len(begun) < 2:
            begun.append(b.begin_append(batch()))

    a.watch(again)
    b.watch(lambda: told.append(("b", b.log.committed_seq)))
    await api.write("a", 1)
    assert [future.done() for future in begun] == [False]
    await asyncio.gather(*begun)
    assert told == [("a", 1), ("b", 1)]


def batch() -> Batch:
    made = Batch()
    made.add(b"b", b"", b"", b"1")
    return made
