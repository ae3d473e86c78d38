"""Records of one key go to one worker at a time, in order, whoever dies."""

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError

from millstream.client.jetstream.consumer_state import why_of
from support.broker import millstream
from support.clients import mortal_client
from support.key_order import KeyOrder
from support.peers import Peer
from support.scale import count

KEYS, EACH, WORKERS = 1000, count(3, 20), 8
KILLS = count(2, 20)
ACK_WAIT = 2.0


async def fill(peer: Peer, order: KeyOrder, **terms: Any) -> None:
    async with mortal_client(peer) as client:
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
        plan = order.plan()
        for start in range(0, len(plan), 500):  # in order, for the publishes of one connection are
            sent = [
                js.publish_async(f"orders.{key}.new", b"%d" % number)
                for key, number in plan[start : start + 500]
            ]
            await asyncio.gather(*[await each for each in sent])
        config = ConsumerConfig(
            durable_name="workers",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            max_ack_pending=300,
            metadata={"millstream.key": "token:2"},
            **terms,
        )
        await js.add_consumer("ORDERS", config)


async def handle(message: Msg, worker: str, order: KeyOrder) -> None:
    key, number = message.subject.split(".")[1], int(message.data)
    order.begin(worker, key, number)
    chance = random.random()
    if chance < 0.1:
        await asyncio.sleep(random.random() / 200)
    if chance < 0.03:
        order.leave(key)
        await message.nak(random.choice([None, 0.05]))
    elif chance < 0.04:
        order.leave(key)  # it forgets the record, which comes again by itself
    else:
        order.finish(key, number)
        await message.ack()


async def pull(peer: Peer, worker: str, order: KeyOrder) -> None:
    async with mortal_client(peer) as client:
        sub = await client.jetstream().pull_subscribe_bind("workers", stream="ORDERS")
        while not order.is_complete:
            with contextlib.suppress(TimeoutError):
                for message in await sub.fetch(10, timeout=0.3):
                    await handle(message, worker, order)


async def listen(peer: Peer, worker: str, order: KeyOrder) -> None:
    async with mortal_client(peer) as client:
        sub = await client.subscribe("work", "group")
        while not order.is_complete:
            with contextlib.suppress(TimeoutError):
                await handle(await sub.next_msg(timeout=0.3), worker, order)


async def work(
    peer: Peer, order: KeyOrder, one: Callable[[Peer, str, KeyOrder], Awaitable[None]]
) -> None:
    """Let eight workers run until all is done; one of them dies every now and then."""
    tasks: dict[str, asyncio.Task[None]] = {}
    names = iter(range(1_000_000))
    try:
        while not order.is_complete:
            for name, task in list(tasks.items()):
                if task.done():
                    order.lose(name)
                    del tasks[name]
            while len(tasks) < WORKERS:
                name = f"w{next(names)}"
                tasks[name] = asyncio.create_task(one(peer, name, order))
            await asyncio.sleep(0.3)
            if random.random() < 0.3:
                tasks[random.choice(list(tasks))].cancel()
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for name in tasks:
            order.lose(name)


@pytest.mark.timeout(count(170, 3600))
async def test_pulled_records_of_a_key_keep_their_order_when_workers_and_the_server_die(
    tmp_path: Path,
) -> None:
    order = KeyOrder(KEYS, EACH)
    for life in range(KILLS + 1):
        with millstream(data_dir=tmp_path / "data") as peer:
            if life == 0:
                await fill(peer, order)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.5, 1.5) if life < KILLS else 120):
                    await work(peer, order, pull)
            if life < KILLS:
                peer.process.send_signal(signal.SIGKILL)
        assert order.faults == []
    print(order)
    assert order.is_complete
    assert order.deliveries > KEYS * EACH  # some came again


@pytest.mark.timeout(120)
async def test_a_queue_group_gets_the_records_of_a_key_one_by_one() -> None:
    order = KeyOrder(count(200, 1000), EACH)
    with millstream() as peer:
        await fill(peer, order, deliver_subject="work", deliver_group="group")
        async with asyncio.timeout(100):
            await work(peer, order, listen)
    print(order)
    assert order.faults == []
    assert order.is_complete


async def keyed(client: Client, key: str, **terms: Any) -> Any:
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["s.>"]))
    config = ConsumerConfig(
        durable_name="c",
        ack_policy=AckPolicy.EXPLICIT,
        metadata={"millstream.key": key},
        **terms,
    )
    await js.add_consumer("S", config)
    return await js.pull_subscribe_bind("c", stream="S")


async def taken(sub: Any, most: int = 10) -> list[Msg]:
    try:
        return list(await sub.fetch(most, timeout=0.3))
    except TimeoutError:
        return []


@pytest.mark.parametrize("key", ["header:Order-Id", "token:2", "tag:order"])
async def test_a_key_is_a_token_a_header_or_a_tag(key: str) -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            sub, js = await keyed(client, key), client.jetstream()
            for n, order in enumerate("aabab"):
                fields = {"Order-Id": order, "Millstream-Tag": f"region=eu,order={order}"}
                await js.publish(f"s.{order}", b"%d" % n, headers=fields)
            found = await taken(sub)
            assert [each.data for each in found] == [b"0", b"2"]
            info = await sub.consumer_info()
            assert (info.num_pending, info.num_ack_pending) == (3, 2)
            await found[0].ack()
            (following,) = await taken(sub)
            assert following.data == b"1"
            await following.nak()
            (again,) = await taken(sub)
            assert (again.data, again.metadata.num_delivered) == (b"1", 2)
            await again.term()
            await found[1].ack()
            last = await taken(sub)
            assert sorted(each.data for each in last) == [b"3", b"4"]
            for each in last:
                await each.ack_sync()
            info = await sub.consumer_info()
            assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 5)


async def test_records_without_the_key_go_at_once() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            sub, js = await keyed(client, "header:Order-Id"), client.jetstream()
            for n in range(5):
                await js.publish("s.x", b"%d" % n)
            assert len(await taken(sub)) == 5


async def test_what_waits_for_its_key_goes_when_that_is_removed_or_no_key_counts_any_more() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            sub, js = await keyed(client, "token:2"), client.jetstream()
            for n in range(4):
                await js.publish("s.x", b"%d" % n)
            assert [each.data for each in await taken(sub)] == [b"0"]
            await js.delete_msg("S", 1)
            assert [each.data for each in await taken(sub)] == [b"1"]
            config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT)
            await js.add_consumer("S", config)
            assert [each.data for each in await taken(sub)] == [b"2", b"3"]


async def test_a_restart_keeps_what_waits_for_its_key(tmp_path: Path) -> None:
    with millstream(data_dir=tmp_path / "data") as peer:
        async with mortal_client(peer) as client:
            sub, js = await keyed(client, "token:2", ack_wait=60), client.jetstream()
            for n in range(6):
                await js.publish(f"s.{'x' if n < 5 else 'y'}", b"%d" % n)
            first, other = await taken(sub)
            await other.ack_sync()
            assert (first.data, other.data) == (b"0", b"5")
    with millstream(data_dir=tmp_path / "data") as peer:
        async with mortal_client(peer) as client:
            js = client.jetstream()
            sub = await js.pull_subscribe_bind("c", stream="S")
            assert await taken(sub) == []
            info = await sub.consumer_info()
            assert (info.num_pending, info.num_ack_pending) == (4, 1)
            assert first.reply
            await client.publish(first.reply, b"")
            (following,) = await taken(sub)
            assert (following.data, following.metadata.num_delivered) == (b"1", 1)


async def test_a_key_that_could_not_be_kept_is_refused() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            for key in ("token:0", "token:x", "header:", "subject", "tag:"):
                with pytest.raises(APIError, match="a key is token:N"):
                    await keyed(client, key)
            config = ConsumerConfig(
                durable_name="c", ack_policy=AckPolicy.NONE, metadata={"millstream.key": "tag"}
            )
            with pytest.raises(APIError, match="explicit ack policy"):
                await client.jetstream().add_consumer("S", config)


async def test_why_names_the_key_that_others_wait_for() -> None:
    with millstream() as peer:
        async with mortal_client(peer) as client:
            sub, js = await keyed(client, "token:2", ack_wait=60), client.jetstream()
            for n in range(3):
                await js.publish("s.x", b"%d" % n)
            assert len(await taken(sub)) == 1
            waiting = asyncio.create_task(sub.fetch(1, timeout=5))
            told: dict[str, Any] = {}
            for _ in range(50):
                told = json.loads((await client.request("$JS.API.CONSUMER.INFO.S.c", b"")).data)
                if told["num_waiting"]:
                    break
                await asyncio.sleep(0.05)
            waiting.cancel()
            reason = why_of(told)
    assert reason.code == "blocked_keys"
    assert "2 wait for seq 1 of key 'x', delivered once" in reason.text()
