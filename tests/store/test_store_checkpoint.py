"""A checkpoint among the other jobs of the two file threads."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from millstream.store.disk.worker import Done, Job
from millstream.store.log.log import Durability
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SMALL, Bench, records

UNFLUSHED = replace(SMALL, log=replace(SMALL.log, flush_bytes=1 << 20))


class Later:
    """A file thread that does its next job when a test says so."""

    def __init__(self, post: Callable[[Callable[[], None]], object]) -> None:
        self._post = post
        self.jobs: deque[tuple[Job, Done]] = deque()

    def run(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))

    def close(self) -> None:
        while self.jobs:
            self.work()

    def work(self) -> None:
        job, done = self.jobs.popleft()
        job()
        self._post(lambda: done(None))


def begun(disk: FakeDisk) -> tuple[Bench, Later, Later]:
    """Return a store of eight records whose segment is being written when a checkpoint begins."""
    bench = Bench(disk, UNFLUSHED)
    store = bench.store
    log = store.create_log(1, Durability.FSYNC)
    for n in range(8):
        bench.append(log, [b"%d" % n * 150])
    bench.run()
    worker, syncer = Later(store._post), Later(store._post)
    store.worker, store.syncer = worker, syncer
    log.segments[-1].full = True
    log.flush()
    store.checkpoint({"begun": b"before"})
    return bench, worker, syncer


@pytest.mark.parametrize("mode", [Mode.GARBLE, Mode.ZERO])
def test_no_checkpoint_writes_into_a_file_that_is_sealed(mode: Mode) -> None:
    disk = FakeDisk()
    bench, worker, syncer = begun(disk)
    log = bench.store.logs[1]
    while not log.segments[0].sealed:
        (syncer if syncer.jobs else worker).work()  # the seal overtakes what it can
        bench.deliver()
    path = log.segments[0].path
    before = disk.trace.count(f"write {path}")
    left = disk.after_crash(mode, 1)
    while worker.jobs:
        worker.work()
        bench.deliver()
    assert disk.trace.count(f"write {path}") == before
    again = Bench(left, UNFLUSHED).store.logs[1]
    assert [record[0] for record in records(again)] == list(range(1, 9))


@pytest.mark.parametrize("jobs", [0, 1, 2, 3])
def test_a_checkpoint_that_was_begun_is_there_after_a_close(jobs: int) -> None:
    disk = FakeDisk()
    bench, worker, syncer = begun(disk)
    for _ in range(jobs):
        (worker if worker.jobs else syncer).work()
        bench.deliver()
    bench.store.close()
    bench.deliver()
    again = Bench(disk.after_crash(Mode.DROP, 0), UNFLUSHED).store
    assert again.recovery.sections == {"begun": b"before"}
    assert [record[0] for record in records(again.logs[1])] == list(range(1, 9))


def test_a_store_that_is_closed_with_a_last_word_takes_another_checkpoint_for_it() -> None:
    disk = FakeDisk()
    bench, worker, _ = begun(disk)
    worker.work()
    bench.store.close({"last": b"one"})
    bench.deliver()
    again = Bench(disk.after_crash(Mode.DROP, 0), UNFLUSHED).store
    assert again.recovery.sections == {"last": b"one"}
    assert [record[0] for record in records(again.logs[1])] == list(range(1, 9))


@pytest.mark.parametrize("jobs", range(6))
def test_a_store_that_is_closed_leaves_its_files_to_who_comes_next(jobs: int) -> None:
    disk = FakeDisk()
    bench, worker, syncer = begun(disk)
    for _ in range(jobs):
        (worker if worker.jobs else syncer).work()
        if worker.jobs or syncer.jobs:
            bench.deliver()
    bench.store.close()
    touched = list(disk.trace)
    bench.deliver()  # what the file threads reported last
    assert disk.trace == touched


def test_a_log_that_is_dropped_while_a_segment_waits_for_its_seal_leaves_nothing_behind() -> None:
    disk = FakeDisk()
    bench, worker, syncer = begun(disk)
    directory = bench.store.logs[1].directory
    for _ in range(2):
        worker.work()
        bench.deliver()
    worker.work()  # the seal is next, once that is delivered
    assert not worker.jobs
    bench.store.drop_log(1)
    while syncer.jobs:
        syncer.work()
    bench.deliver()
    while worker.jobs or syncer.jobs:
        (worker if worker.jobs else syncer).work()  # the removal overtakes what it can
        bench.deliver()
    assert not disk.exists(directory)
