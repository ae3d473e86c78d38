"""What ports of JetStream tend to leave out, each asked of the broker by an unmodified client.

RAFT over a network and replication between servers are left out: one server has neither.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jetstream_broker import Broker
from nats.aio.client import Client
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    Placement,
    RetentionPolicy,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from nats.js.errors import APIError, BadRequestError, NotFoundError

import nats
from millstream.clock import Clock, ManualClock
from support.broker import serve_command
from support.peers import free_port, running


@contextlib.asynccontextmanager
async def connected(tmp_path: Path, clock: Clock | None = None) -> AsyncIterator[Client]:
    broker = Broker(str(tmp_path), clock)
    client = await nats.connect(broker.start(), allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()
        await broker.stop()


async def test_stream_delete_and_update(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"])
        await js.publish("s.1", b"x")
        changed = await js.update_stream(name="S", subjects=["s.*", "t"], max_msgs=7)
        assert changed.config.max_msgs == 7
        assert (await js.publish("t", b"x")).seq == 2
        assert await js.delete_stream("S")
        with pytest.raises(NotFoundError):
            await js.stream_info("S")


async def test_stream_list(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        for name in ("A", "B", "C"):
            await js.add_stream(name=name, subjects=[f"{name}.>"])
        assert [info.config.name for info in await js.streams_info()] == ["A", "B", "C"]
        assert await js.find_stream_name_by_subject("B.x") == "B"


async def test_consumer_delete_list_and_pause(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
        for name in ("one", "two"):
            await js.add_consumer("S", durable_name=name)
        assert [info.name for info in await js.consumers_info("S")] == ["one", "two"]
        assert await js.delete_consumer("S", "one")
        assert [info.name for info in await js.consumers_info("S")] == ["two"]
        body = b'{"pause_until":"2100-01-01T00:00:00Z"}'
        paused = await client.request("$JS.API.CONSUMER.PAUSE.S.two", body, timeout=5)
        assert b'"paused":true' in paused.data
        pull = await js.pull_subscribe_bind("two", "S")
        with pytest.raises(TimeoutError):
            await pull.fetch(1, timeout=0.3)
        await client.request("$JS.API.CONSUMER.PAUSE.S.two", b"", timeout=5)
        assert [message.data for message in await pull.fetch(1, timeout=10)] == [b"x"]


async def test_retention_policies_and_limits(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="L", subjects=["l"], max_bytes=200)
        await js.add_stream(name="A", subjects=["a"], max_age=0.2)
        await js.add_stream(name="I", subjects=["i"], retention=RetentionPolicy.INTEREST)
        await js.add_stream(name="W", subjects=["w"], retention=RetentionPolicy.WORK_QUEUE)
        for stream in ("I", "W"):
            await js.add_consumer(stream, durable_name="c", ack_policy=AckPolicy.EXPLICIT)
        for subject in ("l", "l", "l", "a", "i", "w"):
            await js.publish(subject, b"x" * 60)
        assert (await js.stream_info("L")).state.messages == 2
        for stream in ("I", "W"):
            assert (await js.stream_info(stream)).state.messages == 1
            pull = await js.pull_subscribe_bind("c", stream)
            await (await pull.fetch(1))[0].ack_sync(timeout=10)
            assert await _count(client, stream, 0) == 0
        assert await _count(client, "A", 0) == 0


async def _count(client: Client, stream: str, wanted: int) -> int:
    for _ in range(1000):
        count = (await client.jetstream().stream_info(stream)).state.messages
        if count == wanted:
            break
        await asyncio.sleep(0.02)
    return int(count)


async def test_ephemeral_consumers(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
        made = await js.add_consumer("S", config=ConsumerConfig(inactive_threshold=0.2))
        assert made.name
        assert not made.config.durable_name
        for _ in range(1000):
            try:
                await js.consumer_info("S", made.name)
            except NotFoundError:
                return
            await asyncio.sleep(0.02)
        pytest.fail("an ephemeral consumer that nobody uses must go")


async def test_push_delivery_over_the_nats_wire(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"])
        subscription = await js.subscribe("s.*", durable="d", deliver_policy="all")
        for i in range(20):
            await js.publish(f"s.{i}", b"%d" % i)
        got = [await subscription.next_msg(timeout=10) for _ in range(20)]
        assert [message.data for message in got] == [b"%d" % i for i in range(20)]
        for message in got:
            await message.ack()


async def test_consumer_filter_subject_enforcement(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        for subject in ("s.a", "s.b", "s.a", "s.c.d", "s.b"):
            await js.publish(subject, b"")
        await js.add_consumer("S", durable_name="one", filter_subject="s.a")
        await js.add_consumer("S", durable_name="two", filter_subjects=["s.b", "s.c.*"])
        for name, wanted in (("one", ["s.a", "s.a"]), ("two", ["s.b", "s.c.d", "s.b"])):
            pull = await js.pull_subscribe_bind(name, "S")
            fetched = await pull.fetch(len(wanted), timeout=10)
            assert [message.subject for message in fetched] == wanted
            assert (await js.consumer_info("S", name)).num_pending == 0


async def test_file_store_production_safety(tmp_path: Path):
    """Every record that was acknowledged is there after SIGKILL, in order and once."""
    port, http = free_port(), free_port()
    acked = 0
    for _ in range(2):
        directory = tmp_path / "logs"
        directory.mkdir(exist_ok=True)
        command = serve_command(port, http, tmp_path / "data")
        with running("millstream", command, port, directory, http) as peer:
            client = await nats.connect(peer.url, allow_reconnect=False)
            js = client.jetstream()
            await js.add_stream(name="S", subjects=["s"])
            state = (await js.stream_info("S")).state
            assert state.last_seq >= acked
            assert state.messages == state.last_seq
            for _ in range(200):
                acked = (await js.publish("s", b"x")).seq
            os.kill(peer.pid, signal.SIGKILL)
            await asyncio.to_thread(_wait, peer.process)
            await client.close()


def _wait(process: subprocess.Popen[bytes]) -> None:
    process.wait(10)


async def test_duplicate_message_window(tmp_path: Path):
    clock = ManualClock()
    async with connected(tmp_path, clock) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"], duplicate_window=0.2)
        first = await js.publish("s", b"x", headers={"Nats-Msg-Id": "m"})
        again = await js.publish("s", b"x", headers={"Nats-Msg-Id": "m"})
        assert (first.seq, again.seq, again.duplicate) == (1, 1, True)
        clock.advance(0.3)
        later = await js.publish("s", b"x", headers={"Nats-Msg-Id": "m"})
        assert (later.seq, later.duplicate) == (2, None)


async def test_subject_transforms_placement_and_mirroring_policies(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        transform = SubjectTransform(src="in.*", dest="out.{{wildcard(1)}}")
        placed = Placement(cluster="here", tags=["ssd"])
        await js.add_stream(
            StreamConfig(name="O", subjects=["in.*"], subject_transform=transform, placement=placed)
        )
        await js.publish("in.a", b"x")
        assert (await js.get_msg("O", 1)).subject == "out.a"
        assert (await js.stream_info("O")).config.placement.tags == ["ssd"]
        await js.add_stream(StreamConfig(name="M", mirror=StreamSource(name="O")))
        assert await _count(client, "M", 1) == 1
        assert (await js.get_msg("M", 1)).subject == "out.a"
        with pytest.raises(APIError):
            await js.add_stream(name="R", subjects=["r"], num_replicas=3)


async def test_max_deliver_and_acks_are_honoured(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.publish("s", b"x")
        config = ConsumerConfig(durable_name="c", max_deliver=2, ack_wait=0.1)
        await js.add_consumer("S", config=config)
        pull = await js.pull_subscribe_bind("c", "S")
        seen = [message for _ in range(2) for message in await pull.fetch(1, timeout=10)]
        assert [message.metadata.num_delivered for message in seen] == [1, 2]
        with pytest.raises(TimeoutError):
            await pull.fetch(1, timeout=0.4)


async def test_limits_of_the_store_are_enforced(tmp_path: Path):
    async with connected(tmp_path) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"], max_msgs=2, discard="new")
        await js.publish("s", b"1")
        await js.publish("s", b"2")
        with pytest.raises(APIError) as refused:
            await js.publish("s", b"3")
        assert refused.value.err_code == 10077
        with pytest.raises(BadRequestError):
            await js.add_stream(name="T", subjects=["s"])
