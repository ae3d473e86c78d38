"""When an acknowledgement is true, and what happens when it cannot be given."""

import errno
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from millstream.errors import ShardReadOnly, StorageFull
from millstream.kernel._batch import Batch
from millstream.store import options as options_module
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Appended, Durability
from millstream.store.segments import segment as segment_module
from millstream.store.wal.pressure import Pressure
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import PROMISING, SMALL, Answer, Bench, records, wal_syncs

MARKED = "write /data/meta/marks-00.bin"


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "no space left on device")


def bad_disk() -> OSError:
    return OSError(errno.EIO, "input/output error")


class FailingDisk(FakeDisk):
    """Fails every call of one kind while told to."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: dict[str, OSError] = {}

    def enter(self, call: str, path: str) -> int | None:
        most = super().enter(call, path)
        if "wal" in path and call in self.refuse:
            raise self.refuse[call]
        return most


def test_an_fsync_record_is_invisible_and_unacknowledged_until_the_sync() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    _, answer = bench.append(log, [b"a"])
    assert answer == []
    assert records(log) == []
    bench.run()
    assert answer == [None]
    assert "sync /data/wal/shard-00/wal-0000000000000001.log" in disk.trace
    assert disk.trace[-1] == MARKED  # which is told behind it
    assert log.state().synced_seq == 1


def test_a_disk_record_is_acknowledged_after_the_write_and_synced_by_the_timer() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    bench.clock.advance(0.05)
    bench.run()
    assert log.state().synced_seq == 1
    _, answer = bench.append(log, [b"b"])
    bench.run()
    assert answer == [None]
    assert log.state().synced_seq == 1
    bench.clock.advance(0.049)
    bench.run()
    assert log.state().synced_seq == 1
    bench.clock.advance(0.001)
    bench.run()
    assert log.state().synced_seq == 2


def test_a_memory_record_is_visible_before_anything_is_written() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.MEMORY)
    calls = disk.calls
    bench.append(log, [b"a"])
    assert [r[3] for r in records(log)] == [b"a"]
    assert disk.calls == calls


def test_many_appends_share_one_sync() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    answers = [bench.append(log, [b"x"])[1] for _ in range(10)]
    bench.run()
    assert answers == [[None]] * 10
    assert sum(call.startswith("sync /data/wal") for call in disk.trace) == 2  # made, committed


def test_a_failed_sync_is_never_followed_by_an_ack() -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"kept"])
    bench.run()
    disk.refuse = {"sync": bad_disk()}
    _, first = bench.append(log, [b"lost"])
    _, second = bench.append(log, [b"lost too"])
    bench.run()
    disk.refuse = {}
    assert isinstance(first[0], ShardReadOnly)
    assert isinstance(second[0], ShardReadOnly)
    with pytest.raises(ShardReadOnly, match="shard 0 is read-only: sync"):
        bench.append(log, [b"refused"])
    assert "shard 0" in bench.store.health()[0]
    assert [r[3] for r in records(log)] == [b"kept"]


def test_after_a_failed_sync_a_restart_has_every_earlier_ack() -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"kept"])
    bench.run()
    disk.refuse = {"sync": bad_disk()}
    bench.append(log, [b"lost"])
    bench.run()
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)
    assert again is not None
    assert [r[3] for r in records(again)] == [b"kept"]


@pytest.mark.parametrize("call", ["write", "create", "preallocate"])
def test_a_full_disk_is_an_error_and_writes_resume_by_themselves(call: str) -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"before"])
    bench.run()
    disk.refuse = {call: no_space()}
    answers = [bench.append(log, [b"x" * 700])[1] for _ in range(9)]  # past the end of the file
    bench.run()
    assert isinstance(answers[-1][0], StorageFull)
    acked = sum(answer == [None] for answer in answers)
    assert log.next_seq == acked + 2
    assert len(records(log)) == acked + 1
    disk.refuse = {}
    first, answer = bench.append(log, [b"after"])
    bench.run()
    assert answer == [None]
    assert first == acked + 2
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)
    assert again is not None
    assert records(again) == records(log)
    assert [r[3] for r in records(again)][-1] == b"after"


def test_a_refused_write_is_not_found_by_the_next_start() -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"before"])
    bench.run()
    disk.failures = {disk.calls + 1: 150, disk.calls + 2: no_space()}  # half of it gets through
    _, answer = bench.append(log, [b"y" * 60, b"refused"])
    bench.run()
    assert isinstance(answer[0], StorageFull)
    left = disk.after_crash(Mode.KEEP, 0)
    assert b"y" * 60 not in b"".join(left.content().values())
    again = Bench(left).store.log(1)
    assert again is not None
    assert [r[3] for r in records(again)] == [b"before"]
    assert again.state().gaps == ()


def test_a_batch_larger_than_an_entry_is_whole_or_absent() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"before"])
    bench.run()
    start = disk.calls
    bench.append(log, [bytes([i]) * 600_000 for i in range(4)])
    bench.run()
    wrote = [n for n, call in enumerate(disk.trace[start:], start + 1) if call.startswith("write")]
    assert len(wrote) >= 4
    for call in range(start + 1, disk.calls + 1):
        torn = FakeDisk()
        torn.crash_at = call
        run = Bench(torn)
        other = run.store.create_log(1, Durability.FSYNC)
        run.append(other, [b"before"])
        run.run()
        run.append(other, [bytes([i]) * 600_000 for i in range(4)])
        with pytest.raises(Crashed):
            run.run()
        found = Bench(torn.after_crash(Mode.KEEP, 0)).store.log(1)
        assert found is not None
        assert len(records(found)) in (1, 5)


def test_pressure_is_told_at_the_high_and_the_low_mark() -> None:
    bench = Bench(FakeDisk(), replace(SMALL, high_water=1000))
    told: list[bool] = []
    bench.store.pressure.watch(told.append)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"x" * 400])
    assert told == []
    bench.append(log, [b"x" * 600])
    assert told == [True]
    assert bench.store.backlog_bytes >= 1000
    bench.run()
    assert told == [True, False]
    assert bench.store.backlog_bytes == 0


def test_a_full_disk_takes_nothing_from_a_log_in_memory() -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    file = bench.store.create_log(1, Durability.FSYNC)
    memory = bench.store.create_log(2, Durability.EPHEMERAL)
    disk.refuse = {"write": no_space()}
    _, refused = bench.append(file, [b"x"])
    _, taken = bench.append(memory, [b"y"])
    bench.run()
    assert isinstance(refused[0], StorageFull)
    assert taken == [None]
    assert [r[3] for r in records(memory)] == [b"y"]
    assert bench.append(memory, [b"z"])[0] == 2
    bench.run()


def test_a_read_only_shard_still_reads_and_refuses_removals() -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    bench.append(log, [b"a", b"b"])
    bench.run()
    disk.refuse = {"sync": bad_disk()}
    bench.append(log, [b"c"])
    bench.run()
    log.trim(2, "cap")
    bench.run()
    assert [r[3] for r in records(log)] == [b"a", b"b"]
    with pytest.raises(ShardReadOnly):
        log.delete([1], lambda error: None)


def test_a_failed_timer_sync_is_told_once_and_not_tried_again() -> None:
    disk = FailingDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"a"])
    bench.run()
    bench.append(log, [b"b"])
    bench.run()
    disk.refuse["sync"] = bad_disk()
    bench.clock.advance(1)
    bench.run()
    tried = len([call for call in disk.trace if call.startswith("sync /data/wal")])
    bench.clock.advance(1)
    bench.run()
    assert len([call for call in disk.trace if call.startswith("sync /data/wal")]) == tried
    assert len(bench.store.health()) == 1


def test_a_segment_whose_sync_failed_is_never_relied_on() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.FSYNC)
    for payload in (b"a" * 600, b"b" * 600):  # each is flushed at once
        bench.append(log, [payload])
        bench.run()
    failing = {"armed": True}

    def fail_once(call: str, path: str) -> None:
        if failing["armed"] and call == "sync" and path.endswith(".data"):
            failing["armed"] = False
            raise bad_disk()

    disk.hook = fail_once
    for _ in range(4):
        bench.store.checkpoint({})
        bench.run()
    assert "an earlier sync of this file failed" in bench.store.health()[0]
    after = Bench(disk.after_crash(Mode.DROP, 0))
    found = after.store.log(1)
    assert found is not None
    assert [r[3][:1] for r in records(found)] == [b"a", b"b"]


def test_a_disk_class_segment_is_removed_only_once_its_trim_is_stable() -> None:
    disk = FakeDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.DISK)
    for _ in range(3):
        bench.append(log, [b"x" * 900] * 3)
        bench.run()
    bench.clock.advance(1)
    bench.run()
    log.trim(4, "cap")
    bench.run()
    assert log.state().first_seq == 4
    assert not [call for call in disk.trace if call.startswith("unlink /data/streams")]
    bench.clock.advance(1)
    bench.run()
    assert [call for call in disk.trace if call.startswith("unlink /data/streams")]


def test_a_removal_that_can_wait_is_logged_with_the_next_write() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"a", b"b"])
    bench.run()
    steps = bench.deferred = []
    removed: list[object] = []
    assert log.delete([1], removed.append, can_wait=True) == 1
    assert steps == []
    _, answer = bench.append(log, [b"c"])
    (step,) = steps
    step()
    assert (removed, answer) == ([None], [None])
    assert [record[0] for record in records(log)] == [2, 3]


def test_a_removal_that_can_wait_is_logged_without_a_next_write_too() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"a", b"b"])
    bench.run()
    removed: list[object] = []
    log.delete([1], removed.append, can_wait=True)
    bench.run()
    assert removed == [None]


def test_what_can_wait_does_not_wait_for_a_sync_that_is_far_away() -> None:
    bench = Bench(FakeDisk(), options=replace(SMALL, dirty_age=60.0))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"a", b"b"])
    bench.run()
    steps = bench.deferred = []
    log.delete([1], lambda error: None, can_wait=True)
    assert len(steps) == 1


@pytest.mark.parametrize(("dirty_age", "bound"), [(0.1, "DIRTY_BYTES"), (60.0, "MOST_DIRTY_BYTES")])
def test_much_that_is_written_is_synced_before_its_time(
    monkeypatch: pytest.MonkeyPatch, dirty_age: float, bound: str
) -> None:
    monkeypatch.setattr(options_module, bound, 1000)
    disk = FakeDisk()
    bench = Bench(disk, options=replace(SMALL, dirty_age=dirty_age))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    before = wal_syncs(disk)
    for written in (1, 2):
        bench.append(log, [bytes(400)])
        bench.run()
        assert wal_syncs(disk) - before == written // 2  # 461 bytes and an entry's head each


@pytest.mark.parametrize("more", [False, True])
def test_a_promise_ahead_keeps_no_write_from_the_loop(more: bool) -> None:
    disk = FakeDisk()
    bench = Bench(disk, options=replace(PROMISING, dirty_age=60.0))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    (committer,) = bench.store.shards.committers
    before = wal_syncs(disk)
    while not committer._queue._apart:  # as the loop has written a promise
        _, answer = bench.append(log, [b"written by the loop"])
        bench.deliver()
        assert answer == [None]
    assert wal_syncs(disk) == before
    if more:  # the thread finds a group to write: the promise must not wait for the timer
        bench.append(log, [b"came meanwhile"])
    committer.step()
    assert (wal_syncs(disk), committer._queue._apart) == (before + 1, [])


def test_a_growing_segment_is_synced_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "DIRTY_BYTES", 2000)
    disk = FakeDisk()
    large = replace(SMALL.log, segment_bytes=1 << 20, segment_records=1000)
    bench = Bench(disk, options=replace(SMALL, wal_file_bytes=1 << 16, log=large))
    log = bench.store.create_log(1, Durability.DISK)
    for _ in range(12):
        bench.append(log, [bytes(540)])  # 602 bytes each, and the file's header
        bench.run()
    synced = [call for call in disk.trace if call.startswith("sync ") and call.endswith(".data")]
    assert len(synced) == 3


class _Bell(threading.Condition):
    """Counts how often the committer's thread was called."""

    rings = 0

    def notify(self, n: int = 1) -> None:
        self.rings += 1
        super().notify(n)


def test_a_thread_that_came_in_vain_hears_the_next_call() -> None:
    disk = VisitedDisk()
    bench = Bench(disk)
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    (committer,) = bench.store.shards.committers
    committer._prepare()  # as the thread does, which is called where the next file is missing
    committer._wake = bell = _Bell(committer._lock)
    steps = bench.deferred = []
    bench.append(log, [b"a"])
    committer._carry_out(committer._queue._call_thread())  # as when the loop could not write it
    disk.visit = committer.step  # it comes while the loop writes after all
    steps.pop()()
    disk.visit = None
    assert bell.rings == 1
    bench.store.control(20, 1, b"", lambda error: None)  # a sync is the thread's
    assert bell.rings == 2


def test_a_loop_that_took_the_file_made_ahead_calls_for_the_next() -> None:
    bench = Bench(FakeDisk(), options=replace(SMALL, dirty_age=60.0))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    (committer,) = bench.store.shards.committers
    committer._prepare()
    committer._wake = bell = _Bell(committer._lock)
    index = committer._engine.index
    while committer._engine.index == index:
        bench.append(log, [bytes(300)])
        bench.deliver()  # the loop alone
        assert bell.rings == (not committer._engine.is_prepared)
    assert bell.rings == 1


class VisitedDisk(FakeDisk):
    """Lets somebody in during a write."""

    def __init__(self) -> None:
        super().__init__()
        self.visit: Any = None

    def enter(self, call: str, path: str) -> int | None:
        if self.visit is not None and "wal" in path:
            self.visit()
        return super().enter(call, path)


@pytest.mark.parametrize("other", [Durability.FSYNC, Durability.DISK])
def test_what_came_while_the_thread_wrote_is_answered_during_its_sync(
    other: Durability,
) -> None:
    disk = VisitedDisk()
    few_promises = replace(SMALL.log, reserve_records=1000)
    bench = Bench(disk, replace(SMALL, wal_file_bytes=1 << 16, log=few_promises))
    log, second = bench.store.create_log(1, Durability.DISK), bench.store.create_log(2, other)
    for payload in (b"first: pays for the reservation", b"not synced"):
        bench.append(log, [payload])
        bench.append(second, [payload])
        bench.run()
    (committer,) = bench.store.shards.committers
    sync, answers, heard = committer._engine.sync, [], []

    def come() -> None:
        disk.visit = None
        answers.append(bench.append(log, [b"kept out"])[1])
        bench.deliver()

    def slow_sync() -> None:
        bench.deliver()
        heard.append(list(answers[0]))
        sync()

    limits = committer._queue._limits
    committer._queue._limits = msgspec.structs.replace(limits, small_group=1000)
    bench.append(second, [b"x" * 1000])  # the thread's, for its size or for the sync
    committer._queue._limits = limits
    bench.clock.advance(1.0)  # a sync is due in any case
    disk.visit, committer._engine.sync = come, slow_sync  # type: ignore[method-assign]
    committer.step()
    assert heard == [[None]]


def test_whoever_watches_is_told_when_the_timer_has_synced_more() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.MEMORY)
    told: list[int] = []
    undo = log.watch_synced(lambda: told.append(log.state().synced_seq))
    bench.append(log, [b"a"])
    bench.run()
    assert told == []
    bench.clock.advance(0.05)
    bench.run()
    assert told == [1]
    undo()
    undo()
    bench.append(log, [b"b"])
    bench.run()
    bench.clock.advance(0.05)
    bench.run()
    assert (told, log.state().synced_seq) == ([1], 2)


def test_sequences_left_out_do_not_make_records_stable_that_are_on_their_way() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.MEMORY)
    bench.append(log, [b"a"])
    log.skip_to(5, lambda error: None)
    assert (log.state().last_seq, log.state().synced_seq) == (4, 0)
    bench.run()
    assert log.state().synced_seq == 4


def _two_logs(disk: FakeDisk) -> tuple[Bench, Any, Any, Any]:
    """Return a bench, a log that is synced, one that is not, and who commits both."""
    few_promises = replace(SMALL.log, reserve_records=1000)
    bench = Bench(disk, replace(SMALL, wal_file_bytes=1 << 16, log=few_promises))
    synced = bench.store.create_log(1, Durability.FSYNC)
    log = bench.store.create_log(2, Durability.DISK)
    for each in (synced, log):
        bench.append(each, [b"first: pays for the reservation"])
        bench.run()
    (committer,) = bench.store.shards.committers
    return bench, synced, log, committer


def _during_sync(committer: Any, visit: Any) -> None:
    """Have ``visit`` called in the middle of the next sync."""
    sync = committer._engine.sync

    def visited() -> None:
        committer._engine.sync = sync
        visit()
        sync()

    committer._engine.sync = visited


def test_a_write_that_fails_takes_nothing_back_that_is_being_synced() -> None:
    disk = FailingDisk()
    bench, synced, log, committer = _two_logs(disk)
    refused: list[Any] = []

    def fill() -> None:
        disk.refuse = {"write": no_space()}
        refused.append(bench.append(log, [b"written by the loop"])[1])
        bench.deliver()
        disk.refuse = {}

    _during_sync(committer, fill)
    _, answer = bench.append(synced, [b"kept"])
    committer.step()
    bench.run()
    assert answer == [None]
    assert isinstance(refused[0][0], StorageFull)
    assert [r[3] for r in records(synced)][1:] == [b"kept"]
    first, answer = bench.append(log, [b"there is room again"])
    bench.run()
    assert (first, answer) == (2, [None])
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)
    assert again is not None
    assert [r[3] for r in records(again)][1:] == [b"kept"]


def test_nothing_is_written_behind_what_found_no_room() -> None:
    disk = FailingDisk()
    bench, synced, log, committer = _two_logs(disk)
    behind: list[Any] = []

    def follow() -> None:
        behind.append(bench.append(log, [b"small enough"])[1])
        bench.deliver()

    _during_sync(committer, follow)
    _, kept = bench.append(synced, [b"kept"])
    room = committer._engine.room
    committer._writer._entry_bytes = room + 80  # the two are entries of their own
    _, large = bench.append(log, [bytes(room)])
    disk.refuse = {"create": no_space()}
    committer.step()
    bench.run()
    assert kept == [None]
    assert isinstance(large[0], StorageFull)
    assert isinstance(behind[0][0], StorageFull)
    assert len(records(log)) == 1


def test_a_promise_written_during_a_sync_waits_for_the_next_one() -> None:
    disk = FailingDisk()
    bench = Bench(disk, replace(PROMISING, dirty_age=60.0, wal_file_bytes=1 << 16))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    (committer,) = bench.store.shards.committers

    def promise() -> None:
        while not committer._queue._apart:  # written by the loop
            bench.append(log, [b"x"])
            bench.deliver()

    def fail_and_promise() -> None:
        disk.refuse = {"write": no_space()}
        bench.append(log, [b"refused"])
        bench.deliver()
        disk.refuse = {}
        assert not committer._queue._apart
        promise()

    promise()
    _during_sync(committer, fail_and_promise)
    committer.step()
    assert len(committer._queue._apart) == 1
    committer.step()
    assert not committer._queue._apart


class _Sleepless(threading.Condition):
    """Is not waited for."""

    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError("there is work")


def test_a_call_between_two_looks_of_the_thread_is_not_missed() -> None:
    bench = Bench(FakeDisk(), replace(PROMISING, dirty_age=600.0, wal_file_bytes=1 << 16))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    (committer,) = bench.store.shards.committers
    while not committer._queue._apart:
        bench.append(log, [b"x"])
        bench.deliver()
    committer._wake = _Sleepless(committer._lock)
    assert committer._sleep()
    committer.step()
    assert not committer._queue._apart


def _prepared() -> tuple[Bench, FileLog]:
    """Return a log that nothing but a small write keeps from committing."""
    bench = Bench(FakeDisk(), replace(SMALL, wal_file_bytes=1 << 16))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    return bench, log


def _append(log: FileLog, answer: Answer, at_once: bool = True) -> Appended:
    batch = Batch()
    batch.add(b"s", b"", b"", b"x")
    return log.append(batch, 0, 1, 1, answer.append, at_once=at_once)


def test_an_append_says_whether_it_was_committed_at_once() -> None:
    bench, log = _prepared()
    answer: Answer = []
    assert _append(log, answer) == Appended(2, is_committed=True)
    assert (answer, log.committed_seq) == ([], 2)
    bench.run()
    assert answer == []


def test_what_is_not_to_be_committed_at_once_is_committed_in_the_next_turn() -> None:
    bench, log = _prepared()
    answer: Answer = []
    assert _append(log, answer, at_once=False) == Appended(2)
    assert log.committed_seq == 1
    bench.run()
    assert answer == [None]


def test_what_has_to_wait_is_answered_later_though_at_once_was_asked_for() -> None:
    bench, log = _prepared()
    answer: Answer = []
    _append(log, answer, at_once=False)  # a turn is due, which both share
    assert not _append(log, answer).is_committed
    synced = bench.store.create_log(2, Durability.FSYNC)
    assert not _append(synced, answer).is_committed
    bench.run()
    assert answer == [None, None, None]


def test_a_failure_is_told_later_though_at_once_was_asked_for() -> None:
    disk = FailingDisk()
    bench = Bench(disk, replace(SMALL, wal_file_bytes=1 << 16))
    log = bench.store.create_log(1, Durability.DISK)
    bench.append(log, [b"first: pays for the reservation"])
    bench.run()
    disk.refuse = {"write": no_space()}
    answer: Answer = []
    assert _append(log, answer) == Appended(2)
    assert answer == []
    disk.refuse = {}
    bench.run()
    assert isinstance(answer[0], StorageFull)
    assert _append(log, answer) == Appended(2, is_committed=True)


def test_what_a_commit_sets_in_motion_is_not_committed_inside_of_it() -> None:
    bench, log = _prepared()
    order: list[str] = []
    log.delete([1], lambda error: order.append("removed"), can_wait=True)
    batch = Batch()
    batch.add(b"s", b"", b"", b"x")

    def follow(error: object) -> None:
        order.append("first")
        log.append(batch, 0, 1, 1, lambda error: order.append("second"))
        order.append("staged")

    log.append(batch, 0, 1, 1, follow)
    bench.run()
    assert order == ["removed", "first", "staged", "second"]


def test_a_log_in_memory_commits_at_once_unless_something_was_granted_before() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.EPHEMERAL)
    answer: Answer = []
    assert _append(log, answer) == Appended(1, is_committed=True)
    _append(log, answer, at_once=False)
    assert not _append(log, answer).is_committed
    bench.run()
    assert (answer, log.state().count, log.committed_seq) == ([None, None], 3, 3)


def test_a_memory_log_is_answered_in_the_next_turn_though_it_commits_at_once() -> None:
    bench = Bench(FakeDisk())
    log = bench.store.create_log(1, Durability.MEMORY)
    answer: Answer = []
    assert _append(log, answer) == Appended(1)
    assert log.committed_seq == 1
    bench.run()
    assert answer == [None]


def test_pressure_is_told_when_the_first_shard_is_behind_and_when_the_last_has_caught_up() -> None:
    pressure, told = Pressure(), []
    undo = pressure.watch(told.append)
    for shard, is_behind in ((0, True), (1, True), (0, False)):
        pressure.set(shard, is_behind)
    assert (told, pressure.is_high) == ([True], True)
    pressure.set(1, False)
    assert (told, pressure.is_high) == ([True, False], False)
    undo()
    undo()
    pressure.set(0, True)
    assert told == [True, False]
