"""The store with its own threads on a real disk: answers, order, reopening."""

import errno
import queue
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from millstream.clock import ManualClock, SystemClock
from millstream.errors import ShardReadOnly
from millstream.kernel._batch import Batch
from millstream.store.disk.files import OsFile, OsFiles
from millstream.store.log.file_log import LogOptions
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from millstream.store.wal.local_engine import BRIEF, LARGE
from support.scale import count
from support.store_bench import records

OPTIONS = StoreOptions(
    wal_file_bytes=1 << 20,
    log=LogOptions(segment_records=500, flush_bytes=16 << 10, cache_bytes=8 << 10),
)


class Loop:
    """Stands for the event loop: runs what the threads post."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def turn(self) -> None:
        while not self.posted.empty():
            self.posted.get()()

    def wait(self, until: Callable[[], bool]) -> None:
        while not until():
            self.posted.get(timeout=20)()


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.DISK, Durability.FSYNC])
def test_answers_come_in_order_while_files_roll_and_checkpoints_run(
    tmp_path: Path, durability: Durability
) -> None:
    loop = Loop()
    directory = str(tmp_path / "data")
    store = Store.open(directory, OsFiles(), SystemClock(), loop.posted.put, OPTIONS)
    log = store.create_log(1, durability)
    answered: list[int] = []
    removed = 0
    rounds = count(300, 3000)
    for i in range(rounds):
        batch = Batch()
        for j in range(10):
            batch.add(b"s.%d" % j, b"", b"", b"%d.%d" % (i, j))
        done = partial(lambda n, error: answered.append(n if error is None else -1), i)
        log.append(batch, 0, 10, i, done)
        if i % 50 == 49:
            removed += log.delete([i * 5], lambda error: None)  # 0 while it is not committed
            store.tick()
            store.checkpoint({})
        loop.turn()
    loop.wait(lambda: len(answered) == rounds and not store.backlog_bytes)
    assert answered == list(range(rounds))
    before = records(log)
    store.close()
    loop.turn()
    again = Store.open(directory, OsFiles(), SystemClock(), loop.posted.put, OPTIONS)
    try:
        found = again.log(1)
        assert found is not None
        assert records(found) == before
        assert len(before) == rounds * 10 - removed
        assert found.state().gaps == ()
    finally:
        again.close()


def test_a_lone_disk_write_is_synced_by_the_timer_thread(tmp_path: Path) -> None:
    loop = Loop()
    options = replace(OPTIONS, dirty_age=0.01)
    store = Store.open(str(tmp_path / "data"), OsFiles(), SystemClock(), loop.posted.put, options)
    log = store.create_log(1, Durability.DISK)
    answers: list[object] = []
    for _ in range(2):
        batch = Batch()
        batch.add(b"s", b"", b"", b"x")
        log.append(batch, 0, 1, 1, answers.append)
        loop.wait(lambda: len(answers) == log.next_seq - 1)
    loop.wait(lambda: log.state().synced_seq == 2)
    store.close()


class NoMoreFiles(OsFiles):
    """A disk on which no further WAL file can be made."""

    fails = False

    def open(self, path: str, create: bool = False) -> OsFile:
        if self.fails and create and path.endswith(".log"):
            raise OSError(errno.EIO, "input/output error")
        return super().open(path, create)


def test_a_failure_to_make_the_next_file_is_an_answer_not_a_silence(tmp_path: Path) -> None:
    loop, files = Loop(), NoMoreFiles()
    store = Store.open(str(tmp_path / "data"), files, SystemClock(), loop.posted.put, OPTIONS)
    log = store.create_log(1, Durability.FSYNC)
    files.fails = True
    failed: list[object] = []
    for _ in range(50):  # more than what is there takes
        batch = Batch()
        batch.add(b"s", b"", b"", bytes(100_000))
        try:
            log.append(batch, 0, 1, 0, failed.append)
        except ShardReadOnly as error:
            failed.append(error)
        known = len(failed)
        loop.wait(lambda known=known: len(failed) > known or bool(failed and failed[-1]))  # type: ignore[misc]
    store.close()
    loop.turn()
    assert isinstance(failed[-1], ShardReadOnly)


@pytest.mark.parametrize(("pause", "times"), [(0.0, LARGE), (BRIEF, 1)])
def test_who_fills_a_file_in_no_time_gets_larger_ones(
    tmp_path: Path, pause: float, times: int
) -> None:
    loop, clock = Loop(), ManualClock()
    directory = tmp_path / "data"
    store = Store.open(str(directory), OsFiles(), clock, loop.posted.put, OPTIONS)
    log = store.create_log(1, Durability.FSYNC)
    answers: list[object] = []
    for _ in range(15):  # ten fill a file
        batch = Batch()
        batch.add(b"s", b"", b"", bytes(100_000))
        log.append(batch, 0, 1, 0, answers.append)
        loop.wait(lambda: len(answers) == log.next_seq - 1)
        clock.advance(pause)
    store.close()
    made_ahead = directory / "wal" / "shard-00" / "wal-0000000000000003.log"
    assert made_ahead.stat().st_size == times * OPTIONS.wal_file_bytes
