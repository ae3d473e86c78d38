"""Records under sequences and times that somebody else gave, and sequences that are left out."""

from dataclasses import replace

import pytest

from millstream.kernel._batch import Batch
from millstream.store.log.file_log import FileLog, LogOptions
from millstream.store.log.log import Durability
from millstream.store.upkeep.dump import dump_directory
from millstream.store.upkeep.inspect import CLEAN, check_directory
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SMALL, Answer, Bench, image, records

CLASSES = list(Durability)
ON_DISK = [Durability.MEMORY, Durability.DISK, Durability.FSYNC]
TINY = replace(SMALL, log=LogOptions(segment_records=3, flush_bytes=100, cache_bytes=100))


def exact(
    bench: Bench, log: FileLog, seqs: list[int], times: list[int] | None = None, size: int = 3
) -> Answer:
    batch = Batch()
    for seq in seqs:
        batch.add(b"s.%d" % (seq % 2), b"", b"", (b"%d " % seq) * size)
    answer: Answer = []
    log.append_exact(batch, 0, len(seqs), seqs, times or [seq * 10 for seq in seqs], answer.append)
    return answer


def started(durability: Durability) -> tuple[FakeDisk, Bench, FileLog]:
    disk = FakeDisk()
    bench = Bench(disk)
    return disk, bench, bench.store.create_log(1, durability)


def seqs_of(log: FileLog) -> list[int]:
    return [record[0] for record in records(log)]


@pytest.mark.parametrize("durability", CLASSES)
def test_records_keep_the_sequences_and_times_they_come_with(durability: Durability) -> None:
    _, bench, log = started(durability)
    answer = exact(bench, log, [3, 4, 9])
    bench.run()
    assert answer == [None]
    assert [(r[0], r[1]) for r in records(log)] == [(3, 30), (4, 40), (9, 90)]
    state = log.state()
    assert (state.first_seq, state.last_seq, state.count, state.gaps) == (3, 9, 3, ())
    assert (state.first_ts_ns, state.last_ts_ns) == (30, 90)
    assert state.evict_floor == 0


@pytest.mark.parametrize("durability", CLASSES)
def test_a_plain_append_goes_on_behind_the_last_sequence(durability: Durability) -> None:
    _, bench, log = started(durability)
    bench.append(log, [b"one"])
    exact(bench, log, [7], [0])
    assert bench.append(log, [b"eight"])[0] == 8
    bench.run()
    assert seqs_of(log) == [1, 7, 8]
    assert sorted(r[1] for r in records(log)) == [r[1] for r in records(log)]


def test_times_that_fall_are_raised_to_the_one_before() -> None:
    _, bench, log = started(Durability.FSYNC)
    exact(bench, log, [1, 2, 3, 4], [50, 40, 60, 55])
    bench.run()
    assert [r[1] for r in records(log)] == [50, 50, 60, 60]
    assert [log.seek_time(t) for t in (50, 51, 61)] == [1, 3, 5]


@pytest.mark.parametrize("seqs", [[5], [4], [7, 7], [8, 7], []])
def test_sequences_that_do_not_follow_are_refused_and_change_nothing(seqs: list[int]) -> None:
    _, bench, log = started(Durability.FSYNC)
    exact(bench, log, [5])
    bench.run()
    with pytest.raises(ValueError, match=r"follow|ascend"):
        exact(bench, log, seqs)
    assert (log.next_seq, seqs_of(log)) == (6, [5])
    assert exact(bench, log, [6]) == []
    bench.run()
    assert seqs_of(log) == [5, 6]


def test_holes_are_neither_live_nor_found_nor_deleted() -> None:
    _, bench, log = started(Durability.FSYNC)
    exact(bench, log, [2, 6, 20])
    bench.run()
    answer: Answer = []
    assert log.delete([1, 3, 6, 19], answer.append) == 1
    bench.run()
    assert seqs_of(log) == [2, 20]
    assert [record[0] for record in log.read(3, 1, 1000)] == [20]
    assert log.last_by_subject(b"s.0") == 20
    log.trim(5, "cap")
    bench.run()
    assert (log.state().first_seq, log.state().count) == (20, 1)


@pytest.mark.parametrize("durability", CLASSES)
def test_a_skip_raises_the_end_and_leaves_nothing_lost(durability: Durability) -> None:
    _, bench, log = started(durability)
    bench.append(log, [b"one"])
    answer: Answer = []
    log.skip_to(10, answer.append)
    log.skip_to(4, answer.append)
    assert bench.append(log, [b"ten"])[0] == 10
    bench.run()
    assert answer == [None, None]
    state = log.state()
    assert (state.first_seq, state.last_seq, state.count, state.gaps) == (1, 10, 2, ())
    assert seqs_of(log) == [1, 10]


def test_an_empty_log_that_skipped_starts_behind_it() -> None:
    disk, bench, log = started(Durability.FSYNC)
    log.skip_to(100, lambda error: None)
    bench.run()
    assert (log.state().first_seq, log.state().last_seq, log.state().count) == (100, 99, 0)
    again = Bench(disk.after_crash(Mode.DROP, 0)).store.log(1)
    assert again is not None
    assert again.state() == log.state()


@pytest.mark.parametrize("mode", [Mode.KEEP, Mode.DROP])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_holes_are_the_same_after_a_restart(mode: Mode, checkpoint: bool) -> None:
    disk, bench, log = started(Durability.FSYNC)
    exact(bench, log, [3, 4, 9, 11])
    bench.run()
    log.skip_to(50, lambda error: None)
    exact(bench, log, list(range(60, 100, 3)))
    log.delete([4, 63], lambda error: None)
    bench.run()
    if checkpoint:
        bench.store.checkpoint({})
        bench.run()
    exact(bench, log, [200, 205])
    bench.run()
    before = image(bench.store)
    left = disk.after_crash(mode, 0)
    report = check_directory("/data", left)
    assert (report.status, report.lost, report.records) == (CLEAN, [], log.count)
    again = Bench(left)
    assert image(again.store) == before
    found = again.store.log(1)
    assert found is not None
    assert found.next_seq == 206
    assert image(Bench(left.after_crash(Mode.DROP, 0)).store) == before


def test_a_jump_beyond_what_a_segment_counts_starts_another_one() -> None:
    disk, bench, log = started(Durability.FSYNC)
    far = 5 << 32
    exact(bench, log, [1, 2])
    exact(bench, log, [far, far + 2])
    log.skip_to(2 * far, lambda error: None)
    bench.append(log, [b"plain"])
    with pytest.raises(ValueError, match="reaches over"):
        exact(bench, log, [2 * far + 1, 4 * far])
    bench.run()
    assert seqs_of(log) == [1, 2, far, far + 2, 2 * far]
    assert len(log.segments) == 3
    before = image(bench.store)
    again = Bench(disk.after_crash(Mode.DROP, 0))
    assert image(again.store) == before


def test_a_batch_with_holes_that_spans_entries_is_whole_or_absent() -> None:
    disk = FakeDisk()
    options = replace(SMALL, entry_bytes=300)
    bench = Bench(disk, options)
    log = bench.store.create_log(1, Durability.FSYNC)
    answer = exact(bench, log, list(range(2, 40, 2)), size=20)
    bench.run()
    assert answer == [None]
    before = image(bench.store)
    again = Bench(disk.after_crash(Mode.DROP, 0), options)
    assert image(again.store) == before
    entries = [i for i in dump_directory("/data", disk) if i["kind"] == "entry"]
    assert len(entries) > 5


def test_a_failed_batch_gives_its_sequences_and_holes_back() -> None:
    disk, bench, log = started(Durability.FSYNC)
    exact(bench, log, [2])
    bench.run()
    disk.failures[disk.calls + 1] = OSError(28, "no space left")
    answer = exact(bench, log, [5, 9])
    bench.run()
    assert isinstance(answer[0], Exception)
    assert log.next_seq == 3
    first, again = bench.append(log, [b"three", b"four"])
    bench.run()
    assert (first, again, seqs_of(log)) == (3, [None], [2, 3, 4])


def test_a_skip_whose_sync_failed_still_explains_the_records_behind_it() -> None:
    disk, bench, log = started(Durability.FSYNC)
    bench.append(log, [b"one"])
    bench.run()
    log.skip_to(5, lambda error: None)
    bench.append(log, [b"five"])
    disk.failures[disk.calls + 2] = OSError(5, "input/output error")
    bench.run()
    assert "sync" in bench.store.health()[0]
    bench.store.checkpoint({})
    again = Bench(disk.after_crash(Mode.KEEP, 0)).store.log(1)
    assert again is not None
    assert (seqs_of(again), again.state().gaps) == ([1, 5], ())


def test_what_a_power_cut_took_of_a_disk_log_can_be_brought_again() -> None:
    disk, bench, log = started(Durability.DISK)
    exact(bench, log, [2, 5])
    bench.run()
    again = Bench(disk.after_crash(Mode.DROP, 0))
    log = again.store.create_log(1, Durability.DISK)
    assert (log.next_seq, log.state().gaps) == (1, ())
    exact(again, log, [2, 5, 6])
    again.run()
    assert seqs_of(log) == [2, 5, 6]


def test_sealed_segments_with_holes_lose_one_record_to_a_flipped_bit() -> None:
    disk = FakeDisk()
    bench = Bench(disk, TINY)
    log = bench.store.create_log(1, Durability.FSYNC)
    for seq in range(3, 60, 4):
        exact(bench, log, [seq, seq + 2])
        bench.run()
    bench.store.checkpoint({})
    bench.run()
    bench.store.checkpoint({})
    bench.run()
    sent = seqs_of(log)
    bench.close()
    path = sorted(p for p in disk.names if p.endswith(".data"))[3]
    node = disk.names[path]
    assert node is not None
    frame = 64 + 30
    node.data[frame] ^= 4
    node.sync()
    idx = disk.names[path.replace(".data", ".idx")]
    assert idx is not None
    idx.data[70] ^= 1  # so that the file is read anew
    idx.sync()
    again = Bench(disk.after_crash(Mode.KEEP, 0), TINY)
    found = again.store.log(1)
    assert found is not None
    held = seqs_of(found)
    lost = [seq for gap in found.state().gaps for seq in range(gap.first, gap.last + 1)]
    assert len(lost) == 1
    assert sorted(held + lost) == sent
