"""Workers drain a work queue while the broker is killed again and again."""

import asyncio
import contextlib
import random
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

import nats
from compat.replay import Delivery, Parser
from support.broker import millstream
from support.peers import Peer
from support.scale import count

CYCLES = count(3, 50)
WORKERS = 20
CONNECTIONS = 4
JOBS = count(1_500, 20_000)
HOPELESS = frozenset(range(7, JOBS + 1, 50))  # jobs that no worker ever finishes
MAX_DELIVER = 12
ACK_WAIT = 0.5
MAX_ACK_PENDING = 200


class Record:
    """What was seen of each job, over all lives of the broker.

    ``witnessed`` and ``confirmed`` come from the witness, in the order in which the broker sent
    them; ``told`` is what the workers know, who may have read a last confirmation that the
    witness was not sent any more.
    """

    def __init__(self) -> None:
        self.life = 0
        self.numbers: dict[int, list[int]] = defaultdict(list)  # which deliveries of a job came
        self.sent: set[int] = set()
        self.told: dict[int, int] = {}  # job → life
        self.confirmed: dict[int, int] = {}
        self.after_ack: list[str] = []
        self.deliveries = 0

    def delivered(self, seq: int, number: int) -> None:
        """The broker sent a job."""
        self.deliveries += 1
        self.numbers[seq].append(number)
        life = min(self.confirmed.get(seq, self.life + 1), self.told.get(seq, self.life))
        if seq in self.confirmed or life < self.life:
            self.after_ack.append(f"job {seq}, delivery {number}, life {self.life}, acked {life}")

    def __str__(self) -> str:
        counts = [len(numbers) for numbers in self.numbers.values()]
        hopeless = [len(self.numbers[seq]) for seq in HOPELESS]
        return (
            f"jobs {JOBS}, kills {CYCLES}, deliveries {self.deliveries}, acks confirmed "
            f"{len(self.told)}, sent without confirmation {len(self.sent - self.told.keys())}, "
            f"delivered after a confirmed ack {len(self.after_ack)}, most deliveries of a job "
            f"{max(counts)}, of {len(HOPELESS)} never acked {hopeless.count(MAX_DELIVER)} came "
            f"{MAX_DELIVER} times, the least {min(hopeless)}"
        )


class Witness:
    """A connection that hears every delivery, every ack and every confirmation, in order.

    Over several connections nobody could tell a delivery that was on its way from one that was
    sent after the ack; here all of them are in one sequence, which is the broker's own.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._acks: dict[bytes, int] = {}  # where a confirmation is awaited → job

    @classmethod
    async def open(cls, peer: Peer) -> "Witness":
        reader, writer = await asyncio.open_connection(peer.host, peer.port)
        writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
        writer.write(b"SUB _INBOX.> 1\r\nSUB $JS.ACK.JOBS.> 2\r\nPING\r\n")
        while b"PONG" not in await reader.readline():
            pass
        return cls(reader, writer)

    async def watch(self, record: Record) -> None:
        """Note everything until the broker is gone."""
        parser = Parser()
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(1 << 16):
                for event in parser.feed(data):
                    if isinstance(event, Delivery):
                        self._saw(event, record)
        self._writer.close()

    def _saw(self, message: Delivery, record: Record) -> None:
        if message.sid == "2":
            if message.reply and message.payload in (b"", b"+ACK"):
                self._acks[message.reply] = _numbers(message.subject)[1]
        elif message.subject in self._acks:
            record.confirmed.setdefault(self._acks.pop(message.subject), record.life)
        elif message.reply.startswith(b"$JS.ACK."):
            number, seq = _numbers(message.reply)
            record.delivered(seq, number)


def _numbers(ack_subject: bytes) -> tuple[int, int]:
    """Return how often a job was delivered, and which one it is."""
    parts = ack_subject.split(b".")
    return int(parts[4]), int(parts[5])


async def work(client: Client, record: Record) -> None:
    """Fetch and ack until nothing is left or the broker is gone."""
    js = client.jetstream()
    sub = await js.pull_subscribe_bind("workers", stream="JOBS")
    while True:
        try:
            messages = await sub.fetch(5, timeout=1)
        except TimeoutError:
            info = await sub.consumer_info()
            if info.num_pending == 0 and info.num_ack_pending == 0:
                return
            continue  # what is left is with a worker that failed: it comes again
        for message in messages:
            seq = message.metadata.sequence.stream
            if seq in HOPELESS or random.random() < 0.1:
                if random.random() < 0.5:
                    await message.nak()
                continue  # a worker that fails without a word: the job comes again by itself
            record.sent.add(seq)
            with contextlib.suppress(TimeoutError):
                await message.ack_sync(timeout=2)
                record.told.setdefault(seq, record.life)


async def drain(peer: Peer, record: Record, seconds: float) -> None:
    """Let all workers run for so long, or until every job is done; then kill the broker."""
    witness = await Witness.open(peer)
    watching = asyncio.create_task(witness.watch(record))
    clients = [
        await nats.connect(
            f"nats://127.0.0.1:{peer.port}",
            allow_reconnect=False,
            connect_timeout=20,  # who does not reconnect has one try
        )
        for _ in range(CONNECTIONS)
    ]
    tasks = [asyncio.create_task(work(clients[at % CONNECTIONS], record)) for at in range(WORKERS)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*tasks, return_exceptions=True)
    peer.process.send_signal(signal.SIGKILL)
    await watching  # to the last byte
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        with contextlib.suppress(Exception):
            await client.close()


async def fill(peer: Peer) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{peer.port}")
    js = client.jetstream()
    queue = StreamConfig(name="JOBS", subjects=["jobs"], retention=RetentionPolicy.WORK_QUEUE)
    await js.add_stream(queue)
    await asyncio.gather(*(js.publish("jobs", b"%d" % i, timeout=30) for i in range(JOBS)))
    config = ConsumerConfig(
        durable_name="workers",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT,
        max_deliver=MAX_DELIVER,
        max_ack_pending=MAX_ACK_PENDING,
    )
    await js.add_consumer("JOBS", config)
    await client.close()


async def left(peer: Peer) -> tuple[set[int], list[object]]:
    """Return which jobs are in the queue, and what a worker who asks once more is given."""
    client = await nats.connect(f"nats://127.0.0.1:{peer.port}")
    js = client.jetstream()
    info = await js.stream_info("JOBS")
    asked = range(info.state.first_seq, info.state.last_seq + 1)
    found = set()
    for seq in asked:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            found.add((await js.get_msg("JOBS", seq)).seq)
    sub = await js.pull_subscribe_bind("workers", stream="JOBS")
    given: list[object] = []
    with contextlib.suppress(TimeoutError):
        given += await sub.fetch(5, timeout=2 * ACK_WAIT)
    await client.close()
    return found, given


@pytest.mark.slow
@pytest.mark.timeout(count(180, 3600))
async def test_no_job_comes_again_after_its_ack_was_confirmed_however_often_the_broker_dies(
    tmp_path: Path,
):
    record = Record()
    for cycle in range(CYCLES + 1):
        record.life = cycle
        with millstream(data_dir=tmp_path / "data") as peer:
            if cycle == 0:
                await fill(peer)
            await drain(peer, record, random.uniform(0.4, 1.2) if cycle < CYCLES else 120)
        assert record.after_ack == []
    print(record)
    jobs = set(range(1, JOBS + 1))
    assert record.sent == jobs - HOPELESS
    assert len(record.told) >= JOBS - len(HOPELESS) - WORKERS * CYCLES  # lost with their broker
    for seq, numbers in record.numbers.items():  # counted on over all lives, none twice
        assert numbers == sorted(set(numbers)), f"job {seq} came as {numbers}"
        assert numbers[-1] <= MAX_DELIVER
    for seq in HOPELESS:  # what is missing was counted, and died with the broker on its way
        assert MAX_DELIVER - len(record.numbers[seq]) <= CYCLES
    with millstream(data_dir=tmp_path / "data") as peer:
        found, given = await left(peer)
    assert (found, given) == (set(HOPELESS), [])
