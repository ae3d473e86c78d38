"""Threads of the store that are ended by force, wherever they are: every write is answered once."""

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millstream.clock import SystemClock
from millstream.errors import MillstreamError, ShardReadOnly
from millstream.kernel._batch import Batch
from millstream.store.cold.pool import PoolEnded, ThreadPool
from millstream.store.disk.files import OsFiles
from millstream.store.disk.worker import ThreadWorker, WorkerEnded
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from millstream.supervisor import Supervisor
from support.killed import Killed
from support.scale import count
from support.store_bench import records

COMMITTER = "millstream-committer-0"
OPTIONS = StoreOptions(wal_file_bytes=256 << 10)
LIMIT = 20.0
ROUNDS = 60
FIRST_CALLS = range(1, 31)


class Fault:
    """Raises at one thread's call number ``at`` of the seams."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self._left = at
        self._error = error
        self.is_armed = False
        self.has_struck = False

    def strike(self) -> None:
        if self.is_armed and threading.current_thread().name == COMMITTER:
            self._left -= 1
            if self._left == 0:
                self.has_struck = True
                raise self._error("struck")


class FaultyClock(SystemClock):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def monotonic(self) -> float:
        self._fault.strike()
        return super().monotonic()


class FaultyFile:
    """A file whose calls may be struck."""

    def __init__(self, file: Any, fault: Fault) -> None:
        self._file, self._fault = file, fault

    def __getattr__(self, name: str) -> Any:
        if name in ("pwritev", "sync", "preallocate"):
            self._fault.strike()
        return getattr(self._file, name)


class FaultyFiles(OsFiles):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def open(self, path: str, create: bool = False) -> Any:
        if "/wal/" not in path:  # what the marks fail at is no harm
            return super().open(path, create)
        self._fault.strike()
        return FaultyFile(super().open(path, create), self._fault)

    def sync_dir(self, path: str) -> None:
        if "/wal/" in path:
            self._fault.strike()
        super().sync_dir(path)

    def free_bytes(self, path: str) -> int:
        self._fault.strike()
        return super().free_bytes(path)


class Loop:
    """Stands for the event loop: runs what the threads post."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def turn(self) -> None:
        while not self.posted.empty():
            self.posted.get()()

    def wait(self, until: Callable[[], bool]) -> None:
        while not until():
            self.posted.get(timeout=LIMIT)()


@pytest.mark.parametrize("error", [Killed, ValueError, OSError])
@pytest.mark.parametrize("durability", [Durability.DISK, Durability.FSYNC])
@pytest.mark.parametrize("step", count([3], [1]), ids=lambda step: f"every {step}")
def test_each_write_is_answered_once_wherever_the_committer_thread_ends(
    tmp_path: Path, durability: Durability, error: type[BaseException], step: int
) -> None:
    struck = 0
    for at in FIRST_CALLS[::step]:
        struck += ended_at(tmp_path / str(at), durability, Fault(at, error))
    assert struck


def ended_at(place: Path, durability: Durability, fault: Fault) -> bool:
    """Write until the fault strikes; return whether it did."""
    loop, supervisor = Loop(), Supervisor()
    clock, files = FaultyClock(fault), FaultyFiles(fault)
    store = Store.open(str(place), files, clock, loop.posted.put, OPTIONS, supervisor)
    answers: dict[int, list[MillstreamError | None]] = {}
    try:
        log = store.create_log(1, durability)
        fault.is_armed = True
        for number in range(ROUNDS):
            try:
                append(log, number, answers)
            except ShardReadOnly:
                break
            loop.turn()
        loop.wait(lambda: all(answers.values()) and not store.backlog_bytes)
        fault.is_armed = False
        if fault.has_struck:
            loop.wait(lambda: "shard 0 is read-only" in str(store.health()))
            with pytest.raises(ShardReadOnly):
                append(log, ROUNDS, {})
    finally:
        fault.is_armed = False
        store.close()
        loop.turn()
    assert all(len(each) == 1 for each in answers.values())
    promised = [number for number, [answer] in answers.items() if answer is None]
    again = Store.open(str(place), OsFiles(), SystemClock(), loop.posted.put, OPTIONS)
    try:
        found = again.log(1)
        kept = [payload for _, payload in payloads(found)] if found is not None else []
        assert [b"%d" % number for number in promised] == kept[: len(promised)]
    finally:
        again.close()
        loop.turn()
    return fault.has_struck


def append(log: Any, number: int, answers: dict[int, list[MillstreamError | None]]) -> None:
    batch = Batch()
    batch.add(b"s", b"x" * (16 << 10), b"", b"%d" % number)
    answers[number] = []
    try:
        log.append(batch, 0, 1, number, answers[number].append)
    except ShardReadOnly:
        del answers[number]
        raise


def payloads(log: Any) -> list[tuple[int, bytes]]:
    return [(each[0], each[3]) for each in log.read(1, ROUNDS, 64 << 20)]


def test_a_worker_that_ended_fails_each_job_it_was_given_and_each_that_comes() -> None:
    loop, told, done, hold = Loop(), [], [], threading.Event()
    supervisor = Supervisor()
    worker = ThreadWorker(loop.posted.put, "files", supervisor, told.append)

    def ends() -> None:
        hold.wait(LIMIT)
        raise Killed

    worker.run(lambda: None, partial(lambda n, error: done.append((n, error)), 1))
    worker.run(ends, partial(lambda n, error: done.append((n, error)), 2))
    worker.run(lambda: None, partial(lambda n, error: done.append((n, error)), 3))
    hold.set()
    loop.wait(lambda: len(done) == 3)
    worker.run(lambda: None, partial(lambda n, error: done.append((n, error)), 4))
    loop.wait(lambda: len(done) == 4)
    worker.close()
    assert [number for number, _ in done] == [1, 2, 3, 4]
    assert done[0][1] is None
    assert all(isinstance(error, WorkerEnded) for _, error in done[1:])
    assert [type(error) for error in told] == [Killed]
    assert supervisor.problems() == ["millstream-files thread ended (Killed)"]


def test_a_pool_of_which_a_thread_ended_fails_each_job_at_once() -> None:
    loop, done, hold = Loop(), [], threading.Event()
    supervisor = Supervisor()
    pool = ThreadPool(loop.posted.put, 1, "reads", supervisor)

    def ends() -> None:
        hold.wait(LIMIT)
        raise Killed

    pool.run(ends, lambda found, error: done.append(error))
    pool.run(lambda: 1, lambda found, error: done.append(error))
    hold.set()
    loop.wait(lambda: len(done) == 2)
    pool.run(lambda: 1, lambda found, error: done.append(error))
    loop.wait(lambda: len(done) == 3)
    pool.close()
    assert all(isinstance(error, PoolEnded) for error in done)
    assert supervisor.problems() == ["millstream-cold-reads-0 thread ended (Killed)"]


def test_an_answer_that_fails_keeps_no_other_from_being_given(tmp_path: Path) -> None:
    loop, answered = Loop(), []
    options = replace(OPTIONS, threads=False)
    store = Store.open(str(tmp_path), OsFiles(), SystemClock(), loop.posted.put, options)
    try:
        log = store.create_log(1, Durability.DISK)

        def fails(error: MillstreamError | None) -> None:
            raise ValueError("bad")

        for done in (fails, answered.append):
            batch = Batch()
            batch.add(b"s", b"", b"", b"")
            log.append(batch, 0, 1, 1, done)
        store.pump()
        loop.turn()
        assert answered == [None]
        assert store.health() == ["log 1 took no answer (ValueError: bad)"]
        assert len(records(log)) == 2
    finally:
        store.close()
