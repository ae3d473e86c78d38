"""nats-py, unmodified, against the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from jetstream_broker import Broker
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

import nats
from millstream.clock import ManualClock
from millstream.kernel._batch import Batch


@asynccontextmanager
async def connected(
    directory: Path, clock: ManualClock | None = None
) -> AsyncIterator[tuple[Broker, Client]]:
    broker = Broker(str(directory), clock)
    client = await nats.connect(broker.start(), allow_reconnect=False)
    try:
        yield broker, client
    finally:
        await client.close()
        await broker.stop()


async def test_published_messages_are_fetched_and_acked(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="ORDERS", subjects=["orders.*"])
        for i in range(5):
            ack = await js.publish(f"orders.{i}", b"%d" % i, headers={"k": "v"})
            assert (ack.stream, ack.seq) == ("ORDERS", i + 1)
        sub = await js.pull_subscribe("orders.*", durable="worker")
        messages = await sub.fetch(5, timeout=10)
        assert [(m.subject, m.data, m.headers) for m in messages] == [
            (f"orders.{i}", b"%d" % i, {"k": "v"}) for i in range(5)
        ]
        assert [m.metadata.num_pending for m in messages] == [4, 3, 2, 1, 0]
        for message in messages:
            await message.ack_sync(timeout=10)
        info = await js.consumer_info("ORDERS", "worker")
        assert (info.num_ack_pending, info.ack_floor.stream_seq, info.num_pending) == (0, 5, 0)
        with pytest.raises(TimeoutError):
            await sub.fetch(1, timeout=0.2)


async def test_streams_records_and_acks_outlive_a_restart(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"], description="kept")
        await js.add_stream(name="GONE", subjects=["gone"])
        await js.publish("gone", b"x")
        await js.delete_stream("GONE")
        for i in range(4):
            await js.publish("s.a", b"%d" % i, headers={"Nats-Msg-Id": str(i)})
        sub = await js.pull_subscribe("s.>", durable="d")
        first, second, *_ = await sub.fetch(3, timeout=10)
        await first.ack_sync(timeout=10)
        await second.ack_sync(timeout=10)
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        assert [s.config.name for s in await js.streams_info()] == ["S"]
        info = await js.stream_info("S")
        assert (info.config.description, info.state.messages) == ("kept", 4)
        consumer = await js.consumer_info("S", "d")
        assert (consumer.ack_floor.stream_seq, consumer.num_ack_pending) == (2, 1)
        again = await js.publish("s.a", b"3", headers={"Nats-Msg-Id": "3"})
        assert (again.seq, again.duplicate) == (4, True)
        await js.add_stream(name="GONE", subjects=["gone"])
        assert (await js.publish("gone", b"y")).seq == 1
        sub = await js.pull_subscribe_bind("d", stream="S")
        (fresh,) = await sub.fetch(1, timeout=10)
        assert (fresh.metadata.sequence.stream, fresh.metadata.num_delivered) == (4, 1)


async def test_an_unanswered_message_comes_again_after_ack_wait_and_then_never(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
        config = ConsumerConfig(ack_wait=30, max_deliver=2)
        advisories = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
        sub = await js.pull_subscribe("s", durable="d", config=config)
        (message,) = await sub.fetch(1, timeout=10)
        assert message.metadata.num_delivered == 1
        clock.advance(31)
        broker.timers.run_due()
        (message,) = await sub.fetch(1, timeout=10)
        assert message.metadata.num_delivered == 2
        clock.advance(31)
        broker.timers.run_due()
        await advisories.next_msg(timeout=10)
        info = await js.consumer_info("S", "d")
        assert (info.num_ack_pending, info.num_redelivered) == (0, 1)


async def test_nak_term_and_progress_do_what_they_say(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for i in range(2):
            await js.publish("s", b"%d" % i)
        sub = await js.pull_subscribe("s", durable="d")
        first, second = await sub.fetch(2, timeout=10)
        await first.nak()
        (again,) = await sub.fetch(1, timeout=10)
        assert (again.data, again.metadata.num_delivered) == (b"0", 2)
        await again.in_progress()
        await again.term()
        await second.ack_sync(timeout=10)
        info = await js.consumer_info("S", "d")
        assert info.num_ack_pending == 0


async def test_a_push_subscription_receives_what_is_there_and_what_comes(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"])
        await js.publish("s.a", b"1")
        await js.publish("s.b", b"2")
        sub = await js.subscribe("s.a", durable="p")
        await js.publish("s.a", b"3")
        received = [await sub.next_msg(timeout=10) for _ in range(2)]
        assert [m.data for m in received] == [b"1", b"3"]
        for message in received:
            await message.ack()
        ordered = await js.subscribe("s.*", ordered_consumer=True)
        assert [(await ordered.next_msg(timeout=10)).data for _ in range(3)] == [b"1", b"2", b"3"]
        await ordered.unsubscribe()


async def test_a_queue_group_shares_a_push_consumer(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message):
            got.put_nowait(message.data)
            await message.ack()

        for _ in range(2):
            await js.subscribe("s", queue="workers", cb=take)
        for i in range(10):
            await js.publish("s", b"%d" % i)
        async with asyncio.timeout(20):
            received = [await got.get() for _ in range(10)]
        assert sorted(received) == [b"%d" % i for i in range(10)]


async def test_a_key_value_bucket_puts_gets_updates_deletes_and_watches(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        kv = await js.create_key_value(bucket="b", history=3)
        revision = await kv.put("name", b"ada")
        assert (await kv.get("name")).value == b"ada"
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.create("name", b"x")
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.update("name", b"x", last=revision + 7)
        await kv.update("name", b"bob", last=revision)
        for i in range(4):
            await kv.put("counter", b"%d" % i)
        assert [e.value for e in await kv.history("counter")] == [b"1", b"2", b"3"]
        watcher = await kv.watchall()
        seen = {}
        while (entry := await watcher.updates(timeout=10)) is not None:
            seen[entry.key] = entry.value
        assert seen == {"name": b"bob", "counter": b"3"}
        await kv.put("late", b"1")
        assert (await watcher.updates(timeout=10)).key == "late"
        await watcher.stop()
        await kv.delete("name")
        with pytest.raises(KeyNotFoundError):
            await kv.get("name")
        await kv.purge("counter")
        assert sorted(await kv.keys()) == ["late"]
        assert (await kv.status()).values == 5


async def test_an_object_store_keeps_an_object_of_many_chunks(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        store = await js.create_object_store("files")
        data = bytes(range(256)) * 2000
        await store.put("big", data)
        assert (await store.get("big")).data == data


async def test_filters_and_start_positions_choose_the_messages(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        for i in range(9):
            await js.publish(f"s.{i % 3}.x", b"%d" % i)

        async def first(**config) -> list[bytes]:
            config = ConsumerConfig(ack_policy=AckPolicy.NONE, **config)
            info = await js.add_consumer("S", config)
            sub = await js.pull_subscribe_bind(info.name, stream="S")
            messages = await sub.fetch(info.num_pending, timeout=10)
            assert (await js.consumer_info("S", info.name)).num_pending == 0
            return [m.data for m in messages]

        assert await first(filter_subject="s.1.*") == [b"1", b"4", b"7"]
        assert await first(filter_subjects=["s.0.x", "s.2.>"]) == [
            b"0", b"2", b"3", b"5", b"6", b"8",
        ]  # fmt: skip
        assert await first(deliver_policy=DeliverPolicy.LAST) == [b"8"]
        assert await first(deliver_policy=DeliverPolicy.LAST, filter_subject="s.0.x") == [b"6"]
        assert await first(
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="s.*.x"
        ) == [b"6", b"7", b"8"]
        assert await first(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=8
        ) == [b"7", b"8"]  # fmt: skip


async def test_deleting_a_consumer_ends_waiting_requests_and_its_subject(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.add_consumer("S", durable_name="d", ack_policy="explicit")
        inbox = await client.subscribe("inbox")
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.d", b"", reply="inbox")
        await js.delete_consumer("S", "d")
        status = await inbox.next_msg(timeout=10)
        assert status.headers == {"Status": "409", "Description": "Consumer Deleted"}
        with pytest.raises(NotFoundError):
            await js.consumer_info("S", "d")
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("$JS.API.CONSUMER.MSG.NEXT.S.d", b"", timeout=10)


async def test_an_ephemeral_consumer_goes_when_nobody_uses_it(tmp_path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as (broker, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        info = await js.add_consumer("S", ConsumerConfig(ack_policy=AckPolicy.EXPLICIT))
        clock.advance(6)
        broker.timers.run_due()
        with pytest.raises(NotFoundError):
            await js.consumer_info("S", info.name)


async def test_message_get_delete_and_purge(tmp_path):
    async with connected(tmp_path) as (_, client):
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"], allow_direct=True)
        for i in range(5):
            await js.publish(f"s.{i % 2}", b"%d" % i)
        assert (await js.get_msg("S", 3)).data == b"2"
        assert (await js.get_last_msg("S", "s.1", direct=True)).data == b"3"
        assert await js.delete_msg("S", 3)
        with pytest.raises(NotFoundError):
            await js.get_msg("S", 3)
        assert await js.purge_stream("S", subject="s.0")
        state = (await js.stream_info("S")).state
        assert (state.messages, state.first_seq, state.last_seq) == (2, 2, 5)
        await js.purge_stream("S")
        state = (await js.stream_info("S")).state
        assert (state.messages, state.first_seq, state.last_seq) == (0, 6, 5)


class Answers:
    """Keeps what is published to it."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def deliver(self, batch: Batch) -> None:
        self.payloads += [batch.message(at)[3] for at in range(len(batch))]


async def test_a_request_that_comes_with_the_start_is_answered(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    broker.start()
    answers = Answers()
    broker.interest.add_sink(b"answers", answers)
    request = Batch()
    request.add(b"$JS.API.INFO", b"answers", b"", b"")
    broker.js.deliver(request)  # before the loop has turned
    await asyncio.sleep(0)
    await broker.stop()
    assert [b"account_info_response" in payload for payload in answers.payloads] == [True]


async def test_work_that_fails_behind_an_answer_fails_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ValueError("unforeseen")

    async with connected(tmp_path) as (broker, client):
        js = client.jetstream()
        broker.js.spawn(broken())
        await js.add_stream(name="S", subjects=["s"])  # waits for the disk: a task of the group
        assert (await js.stream_info("S")).config.name == "S"
    assert "unforeseen" in caplog.text
