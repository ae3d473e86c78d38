"""Messages of one consumer leave a connection in stream order, whatever requests they answer."""

import asyncio
import contextlib
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from support.certificates import Authority
from support.peers import free_port, nats_server_path
from support.scale import count
from support.server_process import OURS, started

NANO = 10**9
WAIT = 20.0
CONFIG = """
jetstream: { store_dir: "%(directory)s/data" }
tls: { cert_file: "%(cert)s", key_file: "%(key)s" }
allow_non_tls: true
websocket: { listen: "127.0.0.1:%(ws)d", no_tls: true }
accounts: {
  A: {
    users: [ {user: a, password: a} ]
    jetstream: enabled
    exports: [ {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"} ]
  }
  B: {
    users: [ {user: b, password: b} ]
    imports: [
      {service: {account: A, subject: "$JS.API.CONSUMER.>"}}
      {service: {account: A, subject: "$JS.ACK.>"}}
    ]
  }
}
"""


@dataclass(frozen=True)
class Place:
    """Where a server is reached in plain, through TLS, and by WebSocket."""

    port: int
    websocket_port: int
    trusting: ssl.SSLContext

    def way(self, name: str) -> dict[str, Any]:
        """Return how to connect by this way: its options for nats-py."""
        if name == "websocket":
            return {"servers": f"ws://127.0.0.1:{self.websocket_port}"}
        if name == "tls":
            return {"servers": f"tls://localhost:{self.port}", "tls": self.trusting}
        return {"servers": f"nats://127.0.0.1:{self.port}"}


@contextlib.contextmanager
def serving(directory: Path, program: tuple[str, ...]) -> Iterator[Place]:
    directory.mkdir()
    authority, port = Authority(directory), free_port()
    issued = authority.server()
    config = directory / "server.conf"
    files = {"cert": issued.cert_file, "key": issued.key_file}
    config.write_text(CONFIG % {"directory": directory, "ws": port, **files})
    with started("-c", str(config), program=program) as server:
        url = server.ready()
        yield Place(int(url.rpartition(":")[2]), port, authority.trusting())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("order") / "ours", OURS) as place:
        yield place


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("order") / "theirs", (nats_server_path(),)) as place:
        yield place


@dataclass
class Request:
    """What a request may have, and what came for it."""

    batch: int
    max_bytes: int
    got: int = 0
    bytes: int = 0
    status: str = ""

    @property
    def wants_more(self) -> bool:
        """Whether it still waits: one that has all its bytes ends without a status."""
        full = self.got == self.batch or (self.max_bytes and self.bytes == self.max_bytes)
        return not full and not self.status


@dataclass
class Heard:
    """One message as it came over the connection."""

    sid: int
    seq: int = 0
    deliveries: int = 0
    reply: str = ""
    status: str = ""


@dataclass
class Puller(Client):
    """A client that notes what comes over its connection, in order."""

    heard: list[Heard] = field(default_factory=list)
    requests: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        request = self.requests.get(sid)
        if request is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        if reply.startswith(b"$JS.ACK."):
            numbers = reply.split(b".")[4:]
            heard = Heard(sid, int(numbers[1]), int(numbers[0]), reply.decode())
            assert not request.status, f"{heard} behind its status"
            request.got += 1
            request.bytes += len(subject) + len(reply) + len(data) + len(headers or b"")
            assert request.got <= request.batch
            assert not request.max_bytes or request.bytes <= request.max_bytes
            self.heard.append(heard)
        elif not (status := _status(headers)).startswith("100"):
            request.status = status
            self.heard.append(Heard(sid, status=status))
        self.news.set()

    async def pull(self, stream: str, consumer: str, *, most: int = 0, **asked: Any) -> None:
        """Ask for messages at a new inbox, which is unsubscribed once it has got ``most``."""
        sub = await self.subscribe(self.new_inbox())
        if most:
            await self._send_unsubscribe(sub._id, most)
        self.requests[sub._id] = Request(asked.get("batch", 1), asked.get("max_bytes", 0))
        body = json.dumps(asked).encode()
        await self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, sub.subject)

    @property
    def waiting(self) -> list[Request]:
        """Return the requests that want more."""
        return [request for request in self.requests.values() if request.wants_more]

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until what was heard is enough."""
        async with asyncio.timeout(WAIT):
            while not done():
                self.news.clear()
                await self.news.wait()


def _status(headers: bytes) -> str:
    lines = headers.decode().split("\r\n")
    pending = [line.partition(": ")[2] for line in lines if line.startswith("Nats-Pending")]
    return " ".join([lines[0].removeprefix("NATS/1.0 "), *pending])


@contextlib.asynccontextmanager
async def connected(place: Place, way: str = "tcp", user: str = "a") -> AsyncIterator[Puller]:
    client = Puller()
    await client.connect(**place.way(way), user=user, password=user, allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


async def make(client: Client, stream: str, **consumer: Any) -> None:
    js = client.jetstream()
    await js.add_stream(name=stream, subjects=[f"{stream}.>"])
    config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 60 * NANO, **consumer}
    await ask(client, f"CONSUMER.CREATE.{stream}.C", {"stream_name": stream, "config": config})


async def ask(client: Client, api: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{api}", json.dumps(body).encode(), timeout=WAIT)
    told: dict[str, Any] = json.loads(answer.data)
    assert "error" not in told, told
    return told


# -- whatever is asked, and whenever ---------------------------------------------------------


class Flood:
    """A stream that is filled while several overlapping requests of each client drain it."""

    def __init__(self, stream: str, seed: int) -> None:
        self.stream = stream
        self.dice = random.Random(seed)
        self.total = count(400, 3000)
        self.seen: dict[int, int] = {}  # sequence → how often
        self.taken: dict[int, int] = {}  # client → how much of what it heard was looked at
        self.width = self.dice.randint(2, 5)
        self.threshold = self.dice.choice([0, 1, 5, 20])

    def consumer(self) -> dict[str, Any]:
        dice = self.dice
        return {
            "ack_policy": dice.choice(["explicit", "explicit", "explicit", "none", "all"]),
            "max_ack_pending": dice.choice([-1, 1000, 1000, 7, 30]),
            "max_deliver": dice.choice([-1, -1, 5]),
            "headers_only": dice.random() < 0.1,
        }

    def asked(self) -> dict[str, Any]:
        dice = self.dice
        asked: dict[str, Any] = {"batch": dice.choice([1, 2, 5, 17, 60, 500])}
        asked["expires"] = dice.choice([20_000_000, 200_000_000, 5 * NANO, 30 * NANO])
        if dice.random() < 0.3:
            asked["max_bytes"] = dice.choice([900, 3000, 20_000])
        if dice.random() < 0.1:
            asked["no_wait"] = True
        if dice.random() < 0.2:
            asked["idle_heartbeat"] = asked["expires"] // 4
        return asked

    async def fill(self, client: Client) -> None:
        for at in range(self.total):
            body = b"x" * self.dice.choice([0, 10, 100, 600])
            await client.publish(f"{self.stream}.{at % 7}", body)
            if self.dice.random() < 0.05:
                await client.flush()
        await client.flush()

    async def drain(self, *clients: Puller) -> None:
        """Pull until every message was seen, with answers and refills at random."""
        news = asyncio.Event()
        for client in clients:
            client.news = news
        while True:
            news.clear()
            for client in clients:
                await self.refill(client)
                await self.answer(client)
            if len(self.seen) == self.total:
                return
            async with asyncio.timeout(WAIT):
                await news.wait()

    async def refill(self, client: Puller) -> None:
        waiting = client.waiting
        wanted = sum(request.batch - request.got for request in waiting)
        if len(waiting) < self.width and (wanted <= self.threshold or self.dice.random() < 0.5):
            await client.pull(self.stream, "C", **self.asked())
        if not client.waiting:
            await client.pull(self.stream, "C", batch=10, expires=30 * NANO)

    async def answer(self, client: Puller) -> None:
        start = self.taken.get(id(client), 0)
        self.taken[id(client)] = len(client.heard)
        for heard in client.heard[start:]:
            if heard.seq:
                self.seen[heard.seq] = self.seen.get(heard.seq, 0) + 1
                again = heard.deliveries == 1 and self.dice.random() < 0.02
                await client.publish(heard.reply, b"-NAK" if again else b"+ACK")

    def check(self, *clients: Puller) -> None:
        assert set(self.seen) == set(range(1, self.total + 1))
        first = [[h.seq for h in client.heard if h.deliveries == 1] for client in clients]
        for seqs in first:
            assert all(one < two for one, two in pairwise(seqs)), seqs
        together = [seq for seqs in first for seq in seqs]
        assert len(together) == len(set(together))


through_aiohttp = pytest.mark.filterwarnings("ignore:parameter 'timeout':DeprecationWarning")


@through_aiohttp
@pytest.mark.parametrize("seed", range(count(4, 60)))
@pytest.mark.parametrize("way", ["tcp", "websocket", "tls"])
async def test_overlapping_requests_of_one_client_are_served_in_stream_order(
    ours: Place, way: str, seed: int
) -> None:
    flood = Flood(f"{way}{seed}", seed)
    async with connected(ours) as publisher, connected(ours, way) as client:
        await make(publisher, flood.stream, **flood.consumer())
        await asyncio.gather(flood.fill(publisher), flood.drain(client))
        flood.check(client)


@through_aiohttp
@pytest.mark.parametrize("seed", range(count(3, 40)))
async def test_each_of_several_clients_gets_its_messages_in_stream_order(
    ours: Place, seed: int
) -> None:
    flood = Flood(f"several{seed}", 1000 + seed)
    async with (
        connected(ours) as publisher,
        connected(ours, "websocket") as one,
        connected(ours, "tls") as two,
    ):
        await make(publisher, flood.stream, **flood.consumer())
        await asyncio.gather(flood.fill(publisher), flood.drain(publisher, one, two))
        flood.check(publisher, one, two)


@pytest.mark.parametrize("seed", range(count(3, 40)))
async def test_a_client_of_another_account_gets_its_messages_in_stream_order(
    ours: Place, seed: int
) -> None:
    flood = Flood(f"foreign{seed}", 2000 + seed)
    async with connected(ours) as publisher, connected(ours, user="b") as client:
        await make(publisher, flood.stream, **flood.consumer())
        await asyncio.gather(flood.fill(publisher), flood.drain(client))
        flood.check(client)


async def test_a_request_whose_subscription_ends_early_leaves_the_rest_to_the_others(
    ours: Place,
) -> None:
    async with connected(ours) as client:
        await make(client, "E")
        for most in (2, 0, 3):  # the first is alone with what is stored, the others wait
            await client.pull("E", "C", most=most, batch=9, expires=60 * NANO)
            for _ in range(6):
                await client.publish("E.x", b"x")
            await client.flush()
        await client.pull("E", "C", batch=9, expires=60 * NANO)
        await client.until(lambda: len(client.heard) == 18)
        assert [(heard.seq, heard.deliveries) for heard in client.heard] == [
            (seq, 1) for seq in range(1, 19)
        ]
        first, _, third, _ = client.requests.values()
        assert first.got == 2
        assert third.got <= 3


# -- as the reference does -------------------------------------------------------------------

Step = Callable[[Puller], Awaitable[object]]


def pulls(**asked: Any) -> Step:
    return lambda client: client.pull("D", "C", **asked)


def stores(*sizes: int) -> Step:
    """Store messages, which go to the server together."""

    async def step(client: Puller) -> None:
        for size in sizes[:-1]:
            await client.publish("D.x", b"x" * size)
        await client.request("D.x", b"x" * sizes[-1], timeout=WAIT)

    return step


def acks(most: int) -> Step:
    """Answer the oldest deliveries that were not answered."""

    async def step(client: Puller) -> None:
        pending = [heard for heard in client.heard if heard.reply][:most]
        for heard in pending:
            await client.request(heard.reply, b"+ACK", timeout=WAIT)
            heard.reply = ""

    return step


async def delete(client: Puller) -> None:
    """Send away whoever still waits, so that nothing can come behind what was compared."""
    await ask(client, "CONSUMER.DELETE.D.C", {})


def told(client: Puller) -> list[tuple[int, int, int, str]]:
    """Return what came, in order: for which request, what, how often."""
    places = {sid: at for at, sid in enumerate(client.requests)}
    return [(places[h.sid], h.seq, h.deliveries, h.status) for h in client.heard]


async def same(ours: Place, theirs: Place, config: dict[str, Any], steps: list[Step]) -> None:
    """Go through the steps on both servers; after each one the same has come, in order."""
    async with connected(ours) as mine, connected(theirs) as other:
        for client in (mine, other):
            await make(client, "D", **config)
        try:
            for step in [*steps, delete]:
                await step(mine)
                await mine.flush()
                await mine.flush()
                await step(other)
                with contextlib.suppress(TimeoutError):
                    await other.until(lambda: len(told(other)) >= len(told(mine)))
                with contextlib.suppress(TimeoutError):  # what time alone brings
                    await mine.until(lambda: len(told(mine)) >= len(told(other)))
                assert told(mine) == told(other)
        finally:
            for client in (mine, other):
                await ask(client, "STREAM.DELETE.D", {})


def some_steps(dice: random.Random) -> list[Step]:
    steps: list[Step] = []
    for _ in range(12):
        kind = dice.random()
        if kind < 0.45:
            asked: dict[str, Any] = {"batch": dice.randint(1, 6), "expires": 60 * NANO}
            if dice.random() < 0.4:
                asked["max_bytes"] = dice.choice([60, 150, 400, 1000])
            if dice.random() < 0.15:
                asked["no_wait"] = True
            steps.append(pulls(**asked))
        elif kind < 0.8:
            steps.append(
                stores(*(dice.choice([0, 10, 90, 300]) for _ in range(dice.randint(1, 5))))
            )
        else:
            steps.append(acks(dice.randint(1, 4)))
    return steps


@pytest.mark.parametrize("seed", range(count(15, 300)))
async def test_each_request_gets_the_messages_that_the_reference_gives_it(
    ours: Place, theirs: Place, seed: int
) -> None:
    dice = random.Random(seed)
    config = {
        "max_ack_pending": dice.choice([1000, 1000, 3, 5]),
        "max_deliver": dice.choice([-1, 3]),
        "headers_only": dice.random() < 0.2,
    }
    await same(ours, theirs, config, some_steps(dice))


OVERFLOW = {"priority_policy": "overflow", "priority_groups": ["g"]}


@pytest.mark.parametrize(
    "asked",
    [
        {"batch": 5, "min_pending": 8},
        {"batch": 2, "min_pending": 8},
        {"batch": 5, "min_pending": 11},
        {"batch": 5, "min_pending": 9, "min_ack_pending": 2},
        {"batch": 5, "min_ack_pending": 1},
        {"batch": 5, "min_pending": 8, "max_bytes": 150},
        {"batch": 20, "min_pending": 1},
    ],
)
async def test_a_request_helps_only_while_enough_is_pending_as_the_reference_judges(
    ours: Place, theirs: Place, asked: dict[str, Any]
) -> None:
    soon = {"expires": 300_000_000, "group": "g"}

    async def ended(client: Puller) -> None:
        await client.until(lambda: not client.waiting)

    steps = [stores(*[10] * 10), pulls(**asked, **soon), ended, stores(10, 10, 10)]
    await same(ours, theirs, OVERFLOW, [*steps, pulls(**asked, **soon), ended])
