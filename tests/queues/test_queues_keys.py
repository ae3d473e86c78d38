"""Jobs of one key go to one worker at a time, in order, whoever dies."""

import json
import random
import signal
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from queue_bench import QueueBench

from millstream.client.errors import ApiError, ConnectFailed
from millstream.client.topic_values import Job
from millstream.client.topics import Topic, Topics
from millstream.errors import BadRequest
from millstream.message import NewRecord
from millstream.queues.queue import Counters, Queue
from millstream.streams.config.config import StreamConfig
from support.broker import millstream
from support.fake_disk import FakeDisk, Mode
from support.key_order import KeyOrder
from support.scale import count

KEYS, EACH, WORKERS = 1000, count(2, 10), 8
KILLS = count(2, 10)
LEASE_MS = 4000


class Gang:
    """Eight workers in threads; one of them dies every now and then, as a killed process does."""

    def __init__(self, url: str, order: KeyOrder) -> None:
        self._url = url
        self._order = order
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(f"w{at}",), daemon=True)
            for at in range(WORKERS)
        ]

    def run(self, seconds: float) -> None:
        """Work for so long, or until all is done."""
        for thread in self._threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._order.is_complete:
            self._is_over.wait(0.05)

    def stop(self) -> None:
        """Let everybody go."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def _work(self, name: str) -> None:
        life = 0
        with Topics(self._url) as topics:
            queue = topics.topic("jobs")
            while not self._is_over.is_set() and not self._order.is_complete:
                node = f"{name}.{life}"
                try:
                    jobs = queue.claim(node, 10, lease_ms=LEASE_MS)
                    with self._lock:
                        for job in jobs:
                            self._order.begin(node, job.tag or "", int(job.text))
                    life += self._do(queue, node, jobs)
                except (ApiError, ConnectFailed, OSError):  # the server is gone
                    with self._lock:
                        self._order.lose(node)
                    return
                if not jobs:
                    self._is_over.wait(0.02)

    def _do(self, queue: Topic, node: str, jobs: list[Job]) -> int:
        """Answer jobs; returns 1 when the worker died over them."""
        for job in jobs:
            chance = random.random()
            with self._lock:
                if chance < 0.004:
                    self._order.lose(node)
                    return 1
                if chance < 0.03:
                    self._order.leave(job.tag or "")
                else:
                    self._order.finish(job.tag or "", int(job.text))
            if chance < 0.03:
                queue.nack(node, job, delay_ms=random.choice([0, 50]))
            else:
                queue.ack(node, job)
        return 0


@pytest.mark.timeout(count(170, 3600))
def test_jobs_of_a_key_keep_their_order_when_workers_and_the_server_die(tmp_path: Path) -> None:
    order = KeyOrder(KEYS, EACH)
    for life in range(KILLS + 1):
        with millstream(data_dir=tmp_path / "data") as peer:
            url = f"http://{peer.host}:{peer.http_port}"
            if life == 0:
                fill(url, order)
            gang = Gang(url, order)
            gang.run(random.uniform(0.5, 1.5) if life < KILLS else 120)
            if life < KILLS:
                peer.process.send_signal(signal.SIGKILL)
            gang.stop()
        assert order.faults == []
    print(order)
    assert order.is_complete
    assert order.deliveries > KEYS * EACH


def fill(url: str, order: KeyOrder) -> None:
    with Topics(url) as topics:
        queue = topics.topic("jobs")
        queue.put(type="queue", key="tag", durability="fsync")
        assert queue.state().config["key"] == "tag"
    records = [{"tag": key, "data": number} for key, number in order.plan()]
    for start in range(0, len(records), 500):
        body = json.dumps({"records": records[start : start + 500]}).encode()
        request = Request(f"{url}/v0/topics/jobs", body, {"Content-Type": "application/json"})
        with urlopen(request) as answer:
            assert answer.status == 200


async def filled(bench: QueueBench, tags: str, **config: object) -> Queue:
    queue = await bench.make(key="tag", **config)
    jobs = [NewRecord(b"", b"%d" % n, tag=tag.strip().encode()) for n, tag in enumerate(tags)]
    await bench.drive(queue.stream.append(jobs))
    return queue


async def claimed(bench: QueueBench, node: str = "w", most: int = 10) -> list[int]:
    return [job.record.seq for job in await bench.drive(bench.queue().claim(node, most, 60_000))]


async def test_a_key_is_free_again_when_its_job_is_deleted_and_not_before() -> None:
    bench = QueueBench(FakeDisk())
    queue = await filled(bench, "aab ab")
    assert await claimed(bench) == [1, 3, 4]  # the one without a tag waits for nobody
    assert queue.counters() == Counters(0, 3, 0)
    await bench.drive(queue.nack("w", [1], [None], 0))
    assert await claimed(bench, "v") == [1]
    assert await claimed(bench, "v") == []
    await bench.drive(queue.ack("v", [1], [None]))
    assert await claimed(bench, "v") == [2]
    await bench.drive(queue.nack("v", [2], [None], 1000))
    assert await claimed(bench, "v") == []  # its key waits out the delay with it
    bench.clock.advance(1.1)
    assert await claimed(bench, "v") == [2]
    await bench.drive(queue.ack("w", [3, 4], [None, None]))
    assert await claimed(bench, "v") == [6]
    bench.close()


async def test_leases_of_a_queue_with_a_key_outlive_a_crash() -> None:
    disk = FakeDisk()
    bench = QueueBench(disk)
    await filled(bench, "aaabb", durability="fsync")
    assert await claimed(bench) == [1, 4]
    after = QueueBench(disk.after_crash(Mode.DROP, 1), bench.clock)
    assert await claimed(after, "v") == []
    await after.drive(after.queue().ack("w", [4], [None]))
    assert await claimed(after, "v") == [5]
    after.clock.advance(61)
    assert await claimed(after, "v") == [1, 5]
    after.close()


async def test_a_job_that_is_given_up_frees_its_key() -> None:
    bench = QueueBench(FakeDisk())
    queue = await filled(bench, "aab", max_deliveries=1, dead_letter="dead")
    assert await claimed(bench) == [1, 3]
    await bench.drive(queue.nack("w", [1], [None], 0))
    assert await claimed(bench) == [2]
    assert queue.counters().dead_lettered == 1
    bench.close()


async def test_when_too_many_wait_for_their_keys_the_queue_goes_on_with_what_is_free() -> None:
    bench = QueueBench(FakeDisk())
    queue = await filled(bench, "aaaa" + "b" + "aa" + "c")
    queue.leases.lanes.most = 4
    assert await claimed(bench) == [1, 5]
    assert queue.leases.lanes.is_full
    await bench.drive(queue.ack("w", [1], [None]))
    assert await claimed(bench) == [2, 8]
    bench.close()


async def test_a_queue_that_gets_or_loses_its_key_goes_on() -> None:
    bench = QueueBench(FakeDisk())
    queue = await filled(bench, "aab")
    assert await claimed(bench) == [1, 3]
    plain = StreamConfig.from_topic("q", {"type": "queue"}, queue.stream.config)
    await bench.drive(bench.catalog.update(plain))
    assert await claimed(bench) == [2]
    await bench.drive(queue.nack("w", [2], [None], 0))
    again = StreamConfig.from_topic("q", {"type": "queue", "key": "tag"}, queue.stream.config)
    await bench.drive(bench.catalog.update(again))
    assert await claimed(bench) == []
    await bench.drive(queue.ack("w", [1], [None]))
    assert await claimed(bench) == [2]
    bench.close()


def test_a_key_is_for_queues_and_has_a_form() -> None:
    for wish, why in (
        ({"key": "tag"}, "only a queue has a key"),
        ({"type": "queue", "key": "nonsense"}, "a key is token:N"),
    ):
        with pytest.raises(BadRequest, match=why):
            StreamConfig.from_topic("q", wish)
