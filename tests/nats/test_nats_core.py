"""A real NATS client against the door over TCP."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

import nats
from millstream.clock import SystemClock
from millstream.kernel._batch import Batch
from millstream.kernel._interest import Interest
from millstream.nats.door import NatsDoor
from millstream.wire.info import server_info
from support.clients import flushed


@dataclass
class Serving:
    door: NatsDoor
    interest: Interest
    url: str
    clients: list[Client] = field(default_factory=list)

    async def client(self, **options: object) -> Client:
        client = await nats.connect(self.url, **options)  # type: ignore[arg-type]
        self.clients.append(client)
        return client


@asynccontextmanager
async def serve() -> AsyncIterator[Serving]:
    interest = Interest()
    info = server_info(os.urandom(32), host="127.0.0.1", port=0)
    door = NatsDoor(asyncio.get_running_loop(), SystemClock(), interest, info)
    host, port = door.start("127.0.0.1", 0)
    running = Serving(door, interest, f"nats://{host}:{port}")
    try:
        yield running
    finally:
        for client in running.clients:
            await client.close()
        door.stop()


class Collector:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.arrived = asyncio.Event()

    def deliver(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.arrived.set()

    def messages(self) -> list[tuple[bytes, bytes, bytes, bytes, int]]:
        return [batch.message(i) for batch in self.batches for i in range(len(batch))]


async def test_a_published_message_reaches_its_subscriber() -> None:
    async with serve() as serving:
        client = await serving.client()
        sub = await client.subscribe("greet.*")
        await client.publish("greet.joe", b"hello")
        msg = await sub.next_msg(timeout=5)
        assert (msg.subject, msg.data, msg.reply) == ("greet.joe", b"hello", "")


async def test_headers_arrive_as_they_were_sent() -> None:
    async with serve() as serving:
        client = await serving.client()
        sub = await client.subscribe("h")
        await client.publish("h", b"x", headers={"A": "1", "B": "two"})
        msg = await sub.next_msg(timeout=5)
        assert msg.headers == {"A": "1", "B": "two"}
        assert msg.data == b"x"


async def test_a_request_is_answered() -> None:
    async with serve() as serving:
        server = await serving.client()
        client = await serving.client()

        async def answer(msg: nats.aio.msg.Msg) -> None:
            await msg.respond(msg.data.upper())

        await server.subscribe("up", cb=answer)
        await flushed(server)
        assert (await client.request("up", b"abc", timeout=5)).data == b"ABC"


async def test_a_request_nobody_listens_to_fails_at_once() -> None:
    async with serve() as serving:
        client = await serving.client()
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"", timeout=5)


async def test_each_queue_group_gets_a_message_once() -> None:
    async with serve() as serving:
        client = await serving.client()
        got: list[str] = []

        def taker(name: str):  # type: ignore[no-untyped-def]
            async def take(msg: nats.aio.msg.Msg) -> None:
                got.append(name)

            return take

        for name in ("q1", "q1", "q2"):
            await client.subscribe("work", queue=name, cb=taker(name))
        for _ in range(100):
            await client.publish("work", b"")
        await flushed(client)
        await client.drain()
        assert sorted(got) == ["q1"] * 100 + ["q2"] * 100


async def test_a_subscription_ends_after_its_maximum() -> None:
    async with serve() as serving:
        client = await serving.client()
        sub = await client.subscribe("few")
        await sub.unsubscribe(limit=3)
        for i in range(10):
            await client.publish("few", b"%d" % i)
        await flushed(client)
        assert [(await sub.next_msg(timeout=5)).data for _ in range(3)] == [b"0", b"1", b"2"]
        assert serving.interest.stats()["num_subscriptions"] == 0


async def test_a_large_payload_arrives_whole() -> None:
    async with serve() as serving:
        client = await serving.client()
        sub = await client.subscribe("big")
        payload = os.urandom(1 << 20)
        for _ in range(4):
            await client.publish("big", payload)
        for _ in range(4):
            assert (await sub.next_msg(timeout=10)).data == payload


async def test_many_messages_arrive_in_order() -> None:
    async with serve() as serving:
        publisher = await serving.client()
        client = await serving.client()
        sub = await client.subscribe("seq", pending_msgs_limit=-1, pending_bytes_limit=-1)
        await flushed(client)
        for i in range(20_000):
            await publisher.publish("seq", b"%d" % i)
        await flushed(publisher)
        got = [(await sub.next_msg(timeout=10)).data for _ in range(20_000)]
        assert got == [b"%d" % i for i in range(20_000)]


async def test_a_sink_gets_every_message_in_order() -> None:
    async with serve() as serving:
        sink = Collector()
        serving.interest.add_sink(b"events.>", sink)
        client = await serving.client()
        for i in range(5_000):
            await client.publish(f"events.{i % 7}", b"%d" % i, reply="answer")
        await flushed(client)
        messages = sink.messages()
        assert [payload for _, _, _, payload, _ in messages] == [b"%d" % i for i in range(5_000)]
        assert messages[8][:2] == (b"events.1", b"answer")
        assert len(sink.batches) < 5_000


async def test_drain_delivers_what_was_sent() -> None:
    async with serve() as serving:
        client = await serving.client()
        got: list[bytes] = []

        async def take(msg: nats.aio.msg.Msg) -> None:
            got.append(msg.data)

        await client.subscribe("d", cb=take)
        for i in range(500):
            await client.publish("d", b"%d" % i)
        await client.drain()
        assert len(got) == 500


async def test_no_echo_keeps_own_messages_away() -> None:
    async with serve() as serving:
        quiet = await serving.client(no_echo=True)
        other = await serving.client()
        own = await quiet.subscribe("x")
        others = await other.subscribe("x")
        await flushed(other)
        await quiet.publish("x", b"1")
        assert (await others.next_msg(timeout=5)).data == b"1"
        await flushed(quiet)
        assert own.pending_msgs == 0
