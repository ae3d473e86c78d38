"""Workers drain a queue of jobs while the broker is killed again and again."""

import asyncio
import contextlib
import random
import signal
from collections import Counter
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Asked:
    """A fetch: in which life of the broker, over which connection, and when.

    ``at`` counts steps; 0 when what it brings may have come before it was made.
    """

    life: int
    client: Client
    at: int

    def is_surely_after(self, confirmed: "Asked") -> bool:
        """Whether all it brings was sent after the confirmation.

        A job whose ack is slow may be on its way to another worker when the ack arrives. Over one
        connection what was sent before the confirmation is here before it.
        """
        if self.life != confirmed.life:
            return True
        return self.client is confirmed.client and self.at > confirmed.at


class Record:
    """What the workers saw: deliveries per job, acks sent, and the acks that were confirmed.

    An ack that was kept but whose confirmation died with the broker is sent and never confirmed,
    and its job does not come again.
    """

    def __init__(self) -> None:
        self.deliveries: Counter[int] = Counter()
        self.highest: dict[int, int] = {}
        self.sent: set[int] = set()
        self.confirmed: dict[int, Asked] = {}
        self.delivered_after_ack: list[int] = []
        self.overtaken = 0
        self.life = 0
        self._steps = 0

    def ask(self, client: Client, *, empty: bool) -> Asked:
        self._steps += 1
        return Asked(self.life, client, self._steps if empty else 0)

    def saw(self, seq: int, deliveries: int, asked: Asked) -> None:
        if seq in self.confirmed and asked.is_surely_after(self.confirmed[seq]):
            self.delivered_after_ack.append(seq)
        elif seq in self.confirmed:
            self.overtaken += 1
        self.deliveries[seq] += 1
        self.highest[seq] = max(self.highest.get(seq, 0), deliveries)

    def __str__(self) -> str:
        return (
            f"jobs {JOBS}, kills {CYCLES}, deliveries {self.deliveries.total()}, "
            f"acks confirmed {len(self.confirmed)}, sent without confirmation "
            f"{len(self.sent - self.confirmed.keys())}, delivered after a confirmed ack "
            f"{len(self.delivered_after_ack)}, on their way when the ack came {self.overtaken}, "
            f"most deliveries of a job {max(self.highest.values())}"
        )


async def work(client: Client, record: Record) -> None:
    """Fetch and ack until nothing is left or the broker is gone."""
    js = client.jetstream()
    sub = await js.pull_subscribe_bind("workers", stream="JOBS")
    while True:
        asked = record.ask(client, empty=sub.pending_msgs == 0)
        try:
            messages = await sub.fetch(5, timeout=1)
        except nats.errors.TimeoutError:
            info = await sub.consumer_info()
            if info.num_pending == 0 and info.num_ack_pending == 0:
                return
            continue  # what is left is with a worker that failed: it comes again
        for message in messages:
            seq = message.metadata.sequence.stream
            record.saw(seq, message.metadata.num_delivered, asked)
            if random.random() < 0.1:
                continue  # a worker that fails: the job comes again after ack_wait
            record.sent.add(seq)
            with contextlib.suppress(nats.errors.TimeoutError):
                await message.ack_sync(timeout=2)
                record.confirmed[seq] = record.ask(client, empty=True)


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
        record.life = cycle
        with millstream(data_dir=tmp_path / "data") as peer:
            if cycle == 0:
                await fill(peer)
            await drain(peer, record, random.uniform(0.3, 0.8) if cycle < CYCLES else 60)
        assert record.delivered_after_ack == []
    print(record)
    assert record.sent == set(range(1, JOBS + 1))
    assert len(record.confirmed) >= JOBS - WORKERS * CYCLES  # one lost confirmation each, at most
    assert max(record.highest.values()) <= MOST_DELIVERIES
