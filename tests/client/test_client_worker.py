"""What a worker does while its queue has nothing."""

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from millstream.client.async_worker import AsyncWorker
from millstream.client.patience import Patience
from millstream.client.topic_values import Job
from millstream.client.worker import (
    FIRST_POLL_SECONDS,
    POLL_SECONDS,
    IdleWait,
    Worker,
    WorkTerms,
)

TERMS = WorkTerms("n", 1, 60_000, 0)
STATE = SimpleNamespace(config={"claim_jitter_ms": 0})
LOOKS = 4


class Told(IdleWait):
    """Waits for nothing, and has its worker stop after some looks; notes what it was told."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker
        self.told: list[str] = []

    def pause(self) -> float:
        self.told.append("in vain")
        if self.told.count("in vain") == LOOKS:
            self._worker.stop()
        return 0.0

    def end(self) -> None:
        self.told.append("a job")


def jobs() -> list[list[Job]]:
    """Return what the claims of a queue with one job get, the job second."""
    job = Job(1, "lease", 0, 1, msgspec.Raw(b"{}"))
    return [[], [job], *([] for _ in range(99))]


def test_an_idle_worker_looks_less_and_less_often_until_there_is_a_job() -> None:
    idleness = IdleWait()
    pauses = [idleness.pause() for _ in range(8)]
    assert pauses[:3] == [FIRST_POLL_SECONDS, 2 * FIRST_POLL_SECONDS, 4 * FIRST_POLL_SECONDS]
    assert pauses == sorted(pauses)
    assert pauses[-1] == POLL_SECONDS
    idleness.end()
    assert idleness.pause() == FIRST_POLL_SECONDS


def test_a_worker_says_of_each_look_whether_it_was_in_vain() -> None:
    found = iter(jobs())
    queue: Any = SimpleNamespace(
        name="q",
        state=lambda: STATE,
        patience=lambda: Patience(1.0),
        claim=lambda *_, **__: next(found),
        ack=lambda *_: 1,
    )
    worker = Worker(queue, TERMS, lambda job: None)
    told = worker._idleness = Told(worker)
    worker.run()
    assert told.told == ["in vain", "a job", *["in vain"] * (LOOKS - 1)]
    assert worker.done == 1


def test_a_worker_whose_leases_nobody_keeps_any_more_stops_and_says_why() -> None:
    ended = threading.Event()
    job = Job(1, "lease", 0, 1, msgspec.Raw(b"{}"))
    found = iter([[job]])

    def extend(*_: Any, **__: Any) -> None:
        ended.set()
        raise ValueError("not a number")

    queue: Any = SimpleNamespace(
        name="q",
        state=lambda: STATE,
        patience=lambda: Patience(1.0),
        claim=lambda *_, **__: next(found, []),
        ack=lambda *_: 1,
        extend=extend,
    )
    worker = Worker(queue, WorkTerms("n", 1, 20, 0), lambda job: ended.wait(20) and None)
    with pytest.raises(ValueError, match="not a number"):
        worker.run()
    assert worker.done == 1


async def test_an_asynchronous_worker_says_the_same() -> None:
    found = iter(jobs())

    async def answer(value: Any) -> Any:
        return value

    async def handle(job: Job) -> None:
        """Do nothing with it."""

    queue: Any = SimpleNamespace(
        name="q",
        state=lambda: answer(STATE),
        patience=lambda: Patience(1.0),
        claim=lambda *_, **__: answer(next(found)),
        ack=lambda *_: answer(1),
    )
    worker = AsyncWorker(queue, TERMS, handle)
    told = worker._idleness = Told(worker)
    await worker.run()
    assert told.told == ["in vain", "a job", *["in vain"] * (LOOKS - 1)]
    assert worker.done == 1
