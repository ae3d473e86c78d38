"""Many logs: few open files, and nothing goes through all of them at once."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from millstream.errors import MillstreamError
from millstream.store import checkpoints
from millstream.store.disk.files import OsFiles
from millstream.store.disk.open_files import OpenFiles
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from millstream.store.log.snapshot import LogSnapshot
from millstream.store.store import Store
from millstream.store.tending import SHARE, STEP
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SMALL, Bench, image, records

STREAM_GONE = 17
FEW_OPEN = replace(SMALL, open_files=4)


def filled(bench: Bench, logs: int) -> None:
    """Give each of so many logs one record."""
    for log_id in range(1, logs + 1):
        bench.append(bench.store.create_log(log_id, Durability.FSYNC), [b"%d" % log_id])
        bench.run()


def segments_open(directory: Path) -> int:
    """Return how many descriptors of segment files this process has, maps included."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sum(link.startswith(f"{directory}/streams/") for link in links)


def test_few_files_are_open_however_many_there_are(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    bench = Bench(OsFiles(), FEW_OPEN, directory=str(directory))
    filled(bench, 60)
    bench.store.tick()
    bench.run()
    assert segments_open(directory) <= 2 * 4
    for log in list(bench.store.logs.values()):
        log.segments[0].blocks.clear()  # as if later records had taken their room
        assert len(records(log)) == 1
        assert segments_open(directory) <= 2 * 4
    bench.close()


def test_a_file_is_stable_before_it_is_put_away() -> None:
    disk = FakeDisk()
    bench = Bench(disk, FEW_OPEN)
    filled(bench, 20)
    bench.store.tick()
    bench.run()
    synced = {call for call in disk.trace if call.startswith("sync ") and call.endswith(".data")}
    assert len(synced) == 20 - 4
    bench.store.checkpoint({})
    bench.run()
    again = [c for c in disk.trace if c.startswith("sync ") and c.endswith(".data")]
    assert len(again) == 20  # each once: what was stable is not synced again


def test_a_file_whose_sync_failed_fails_the_checkpoint() -> None:
    disk = FakeDisk()
    bench = Bench(disk, FEW_OPEN)
    filled(bench, 20)
    real = type(disk.open("/data/x", create=True)).sync

    def sync(file: object) -> None:
        raise OSError(5, "no")

    with patch.object(type(disk.open("/data/x")), "sync", sync):
        bench.store.tick()
    bench.run()
    assert real is type(disk.open("/data/x")).sync
    bench.store.checkpoint({})
    bench.run()
    assert any("checkpoint failed" in problem for problem in bench.store.health())


def test_the_oldest_is_put_away_and_who_cannot_be_is_asked_again() -> None:
    class User:
        def __init__(self, name: str, may: bool) -> None:
            self.name, self.may = name, may

        def put_away(self, may_sync: bool) -> bool:
            put.append(self.name)
            return self.may or may_sync

    put: list[str] = []
    files = OpenFiles(2)
    users = [User("busy", False), User("b", True), User("c", True)]
    for user in users:
        files.note(user)
    assert put == ["busy", "b"]
    assert len(files) == 2
    files.note(User("d", True))
    assert put == ["busy", "b", "c"]
    files.note(User("e", True))
    assert put == ["busy", "b", "c", "busy", "d"]
    files.note(User("f", True))
    files.trim(may_sync=True)
    assert len(files) == 2


def test_a_tick_looks_after_a_share_of_the_logs_step_by_step() -> None:
    bench = Bench(FakeDisk())
    many = 3 * SHARE
    for log_id in range(1, many + 1):
        bench.store.create_log(log_id, Durability.FSYNC)
    tended: list[int] = []
    with patch.object(FileLog, "tick", lambda log: tended.append(log.log_id)):
        bench.store.tick()
        assert len(tended) == STEP
        bench.run()
        assert len(tended) == SHARE
        for _ in range(2):
            bench.store.tick()
            bench.run()
    assert sorted(tended) == list(range(1, many + 1))
    bench.close()


def _steps(bench: Bench, between: Callable[[int], None]) -> list[int]:
    """Take a checkpoint; returns how many logs each turn of the loop described."""
    described: list[int] = []
    real = LogSnapshot.of.__func__  # type: ignore[attr-defined]

    def of(log: FileLog, ends: dict[int, int]) -> LogSnapshot:
        described[-1] += 1
        return real(LogSnapshot, log, ends)  # type: ignore[no-any-return]

    with patch.object(LogSnapshot, "of", of):
        described.append(0)
        bench.store.checkpoint({"later": lambda: b"said", "list": iter([b"1", b"2"])})
        while bench.store._checkpoints.is_running:
            between(len(described))
            described.append(0)
            bench._posted.popleft()()
    bench.run()
    return described


def test_a_checkpoint_describes_some_logs_at_a_time() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    many = 4 * checkpoints.SLICE
    for log_id in range(1, many + 1):
        bench.store.create_log(log_id, Durability.FSYNC)
    described = _steps(bench, lambda turn: None)
    assert sum(described) == many
    assert max(described) == checkpoints.SLICE
    bench.close()
    again = Bench(disk)
    assert again.store.recovery.sections == {"later": b"said", "list": b"[1,2]"}


def test_what_changes_during_a_checkpoint_is_there_after_a_crash() -> None:
    for seed in range(6):
        disk = FakeDisk()
        with patch.object(checkpoints, "SLICE", 4):
            bench = Bench(disk)
            filled(bench, 24)
            chance = random.Random(seed)

            def change(turn: int, bench: Bench = bench, chance: random.Random = chance) -> None:
                store = bench.store
                log = store.logs[chance.choice(sorted(store.logs))]
                what = chance.randrange(5)
                if what == 0:
                    gone = partial(drop, store, log.log_id)
                    store.control(STREAM_GONE, log.log_id, b"{}", gone)
                elif what == 1:
                    log.trim(log.committed_seq + 1, "delete")
                elif what == 2 and log.count:
                    log.delete([log.committed_seq], lambda error: None)
                elif what == 3:
                    bench.append(
                        store.create_log(100 + len(store.logs) + turn, Durability.FSYNC), [b"new"]
                    )
                for each in list(store.logs.values())[:: chance.randrange(1, 5)]:
                    bench.append(each, [b"turn %d" % turn])
                store.pump()

            for _ in range(3):
                _steps(bench, change)
            before = image(bench.store)
            after = image(Bench(disk.after_crash(Mode.GARBLE, seed)).store)
        assert after == before


def drop(store: Store, log_id: int, error: MillstreamError | None) -> None:
    assert error is None
    store.drop_log(log_id)
