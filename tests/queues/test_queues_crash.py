"""For each disk call of a queue's life: crash there, start again, compare with the answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from queue_bench import QueueBench

from millstream.clock import ManualClock
from millstream.message import NewRecord
from millstream.queues.queue import Queue
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count
from support.store_bench import records

Step = Callable[[QueueBench, Queue], Awaitable[Any]]


def add(jobs: int) -> Step:
    return lambda bench, q: q.stream.append([NewRecord(b"", b"%d" % n) for n in range(jobs)])


def claim(node: str, jobs: int, connection: int = 0) -> Step:
    return lambda bench, q: q.claim(node, jobs, 60_000, connection)


def ack(node: str, *seqs: int) -> Step:
    return lambda bench, q: q.ack(node, seqs, [None] * len(seqs))


def nack(node: str, *seqs: int, delay_ms: int = 0) -> Step:
    return lambda bench, q: q.nack(node, seqs, [None] * len(seqs), delay_ms)


def extend(node: str, *seqs: int) -> Step:
    return lambda bench, q: q.extend(node, seqs, [None] * len(seqs), 90_000)


async def snapshot(bench: QueueBench, q: Queue) -> None:
    bench.checkpoint()


async def leave(bench: QueueBench, q: Queue) -> None:
    q.release(1)


LIFE: list[Step] = [
    add(6),
    claim("a", 4),
    ack("a", 1),
    nack("a", 2),
    nack("a", 3, delay_ms=5000),
    snapshot,
    extend("a", 4),
    claim("b", 2),
    nack("b", 2),
    claim("c", 1, connection=1),
    leave,
    add(2),
    claim("a", 1),  # the second job is delivered too often by now: it is moved, another given
    snapshot,
    ack("b", 5),
    claim("d", 9),
]


@dataclass(frozen=True)
class Seen:
    """A queue as its users see it; pushed leases end with the process that pushed them."""

    jobs: tuple[int, ...]
    held: tuple[tuple[int, str, int, int], ...]
    delayed: tuple[tuple[int, int], ...]
    deliveries: tuple[tuple[int, int], ...]


def look(bench: QueueBench) -> tuple[Seen, int]:
    queue = bench.queue()
    counters = queue.counters()
    jobs = tuple(record[0] for record in records(queue.stream.log))
    kept = queue.leases.projection()
    held = [
        (job.seq, lease.node, job.lease_id, job.deadline_ms)
        for lease in kept.claimed
        if not lease.pushed
        for job in lease.jobs
    ]
    counts = [(s, n) for s, n in queue.leases.deliveries.items() if s in jobs]
    seen = Seen(jobs, tuple(held), tuple(kept.delayed), tuple(sorted(counts)))
    return seen, counters.dead_lettered


async def live(bench: QueueBench, durability: str, answered: list[tuple[Seen, int]]) -> None:
    """Go through a queue's life, noting what it looks like after every answer."""
    queue = await bench.make(
        durability=durability, leases_durable=True, max_deliveries=3, dead_letter="dead"
    )
    answered.append(look(bench))
    for step in LIFE:
        await bench.drive(_run(step, bench, queue))
        answered.append(look(bench))


async def _run(step: Step, bench: QueueBench, queue: Queue) -> None:
    await step(bench, queue)


async def expected(durability: str) -> tuple[list[tuple[Seen, int]], int]:
    disk, answered = FakeDisk(), []
    bench = QueueBench(disk)
    await live(bench, durability, answered)
    calls = disk.calls
    bench.close()
    return answered, calls


@pytest.mark.parametrize(
    ("durability", "mode"),
    [("disk", Mode.KEEP)] + [("fsync", mode) for mode in Mode],
    ids=lambda value: getattr(value, "value", value),
)
async def test_what_was_answered_holds_wherever_the_process_ends(
    durability: str, mode: Mode
) -> None:
    states, calls = await expected(durability)
    assert states[-1][1] == 1  # a dead letter was among it all
    assert len(set(states)) > 10
    step = max(1, calls // count(60, calls))
    for crash_at in range(1, calls + 1, step):
        disk = FakeDisk()
        disk.crash_at = crash_at
        answered: list[tuple[Seen, int]] = []
        clock = ManualClock()
        with pytest.raises(Crashed):
            await live(QueueBench(disk, clock), durability, answered)
        after = disk.after_crash(mode, seed=crash_at)
        for _ in range(2):  # and a second start changes nothing
            bench = QueueBench(after, clock)
            check(bench, states, len(answered), f"crash at call {crash_at}")
            bench.close()


def without_second(state: Seen) -> Seen:
    """Return the queue between giving up its second job and the grant that follows."""
    left = tuple((seq, n) for seq, n in state.deliveries if seq != 2)
    return replace(state, jobs=tuple(seq for seq in state.jobs if seq != 2), deliveries=left)


def check(bench: QueueBench, states: list[tuple[Seen, int]], answered: int, where: str) -> None:
    """The queue looks as after the last answer, or as after the call that was under way."""
    if answered == 0:
        return  # its creation was never answered
    seen, dead = look(bench)
    allowed = states[answered - 1 : answered + 1]
    allowed += [(without_second(state), dead) for state, dead in allowed[:-1]]
    assert seen in [state for state, _ in allowed], where
    assert dead in {letters for _, letters in allowed}, where
    if answered > 1 and 2 not in seen.jobs:  # given up, so it is among the dead letters
        letters = records(bench.catalog.get("dead").log)
        assert {record[3] for record in letters} == {b"1"}, where
