"""Workers drain a queue of jobs while the broker is killed again and again."""

import asyncio
import contextlib
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig

import nats
from support.broker import millstream
from support.peers import Peer
from support.scale import count

CYCLES = count(3, 50)
WORKERS = 20
CONNECTIONS = 4
JOBS = count(1_500, 20_000)
MOST_DELIVERIES = 60  # more than there are restarts: giving up is not what this is about


class Record:
    """What the workers saw: deliveries per job, acks sent, and the acks that were confirmed.

    An ack that was kept but whose confirmation died with the broker is sent and never confirmed,
    and its job does not come again.
    """

    def __init__(self) -> None:
        self.deliveries: Counter[int] = Counter()
        self.highest: dict[int, int] = {}
        self.sent: set[int] = set()
        self.confirmed: set[int] = set()
        self.delivered_after_ack: list[int] = []

    def saw(self, seq: int, deliveries: int) -> None:
        if seq in self.confirmed:
            self.delivered_after_ack.append(seq)
        self.deliveries[seq] += 1
        self.highest[seq] = max(self.highest.get(seq, 0), deliveries)


async def work(client: Client, record: Record) -> None:
    """Fetch and ack until nothing is left or the broker is gone."""
    js = client.jetstream()
    sub = await js.pull_subscribe_bind("workers", stream="JOBS")
    while True:
        try:
            messages = await sub.fetch(5, timeout=1)
        except nats.errors.TimeoutError:
            info = await sub.consumer_info()
            if info.num_pending == 0 and info.num_ack_pending == 0:
                return
            continue  # what is left is with a worker that failed: it comes again
        for message in messages:
            seq = message.metadata.sequence.stream
            record.saw(seq, message.metadata.num_delivered)
            if random.random() < 0.1:
                continue  # a worker that fails: the job comes again after ack_wait
            record.sent.add(seq)
            with contextlib.suppress(nats.errors.TimeoutError):
                await message.ack_sync(timeout=2)
                record.confirmed.add(seq)


async def drain(peer: Peer, record: Record, seconds: float) -> None:
    """Let all workers run for so long, or until every job is done."""
    clients = [
        await nats.connect(f"nats://127.0.0.1:{peer.port}", allow_reconnect=False)
        for _ in range(CONNECTIONS)
    ]
    tasks = [asyncio.create_task(work(clients[at % CONNECTIONS], record)) for at in range(WORKERS)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*tasks, return_exceptions=True)
    peer.process.send_signal(signal.SIGKILL)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        with contextlib.suppress(Exception):
            await client.close()


async def fill(peer: Peer) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{peer.port}")
    js = client.jetstream()
    await js.add_stream(name="JOBS", subjects=["jobs"])
    await asyncio.gather(*(js.publish("jobs", b"%d" % i, timeout=30) for i in range(JOBS)))
    config = ConsumerConfig(
        durable_name="workers",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=1,
        max_deliver=MOST_DELIVERIES,
        max_ack_pending=200,
    )
    await js.add_consumer("JOBS", config)
    await client.close()


@pytest.mark.slow
@pytest.mark.timeout(count(120, 3600))
async def test_no_job_comes_again_after_its_ack_was_confirmed_however_often_the_broker_dies(
    tmp_path: Path,
):
    record = Record()
    for cycle in range(CYCLES + 1):
        with millstream(data_dir=tmp_path / "data") as peer:
            if cycle == 0:
                await fill(peer)
            await drain(peer, record, random.uniform(0.3, 0.8) if cycle < CYCLES else 60)
        assert record.delivered_after_ack == []
    assert record.sent == set(range(1, JOBS + 1))
    assert len(record.confirmed) >= JOBS - WORKERS * CYCLES  # one lost confirmation each, at most
    assert max(record.highest.values()) <= MOST_DELIVERIES
