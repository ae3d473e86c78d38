"""A batch and its note: after a crash at any call both are there, or neither is."""

from contextlib import suppress
from dataclasses import replace

import pytest

from millstream.kernel._batch import Batch
from millstream.store.log.log import Durability, Note
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import SMALL, Answer, Bench, records

KIND = 26
LOG = 5
LARGE = replace(SMALL, entry_bytes=400)  # a batch of a dozen records spans several entries


def noted(bench: Bench, number: int, count: int) -> Answer:
    """Append a batch with a note of its number."""
    batch = Batch()
    for at in range(count):
        batch.add(b"s", b"", b"", b"%d/%d" % (number, at) + b"." * 40)
    answer: Answer = []
    log = bench.store.log(LOG)
    assert log is not None
    note = Note(KIND, b"%d" % number)
    log.append(batch, 0, count, bench.clock.time_ns(), answer.append, note)
    return answer


def work(disk: FakeDisk, durability: Durability) -> list[int]:
    """Append noted batches among plain ones; returns the numbers that were acknowledged."""
    acked: list[int] = []
    with suppress(Crashed):
        bench = Bench(disk, LARGE)
        log = bench.store.create_log(LOG, durability)
        for number in range(1, 5):
            bench.append(log, [b"plain"])
            answer = noted(bench, number, 12)
            bench.append(log, [b"plain"])
            bench.run()
            if answer == [None]:
                acked.append(number)
            if number == 2:
                bench.store.checkpoint({"seen": b"2"})
                bench.run()
        bench.close()
    return acked


def found(disk: FakeDisk) -> tuple[dict[int, int], set[int]]:
    """Return how many records of each batch came back, and which notes."""
    bench = Bench(disk, LARGE)
    log = bench.store.log(LOG)
    counts: dict[int, int] = {}
    for record in records(log) if log is not None else ():
        if b"/" in record[3]:
            number = int(record[3].partition(b"/")[0])
            counts[number] = counts.get(number, 0) + 1
    recovery = bench.store.recovery
    notes = {int(control.body) for control in recovery.controls if control.kind == KIND}
    if "seen" in recovery.sections:  # what a snapshot covers, its section tells
        notes |= set(range(1, int(recovery.sections["seen"]) + 1))
    bench.close()
    return counts, notes


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK])
@pytest.mark.parametrize("mode", list(Mode))
def test_no_crash_leaves_a_batch_without_its_note_or_a_note_without_its_batch(
    mode: Mode, durability: Durability
) -> None:
    whole = FakeDisk()
    assert work(whole, durability) == [1, 2, 3, 4]
    for crash_at in range(1, whole.calls + 1):
        disk = FakeDisk()
        disk.crash_at = crash_at
        acked = work(disk, durability)
        counts, notes = found(disk.after_crash(mode, crash_at))
        assert set(counts) == notes, f"crash at call {crash_at}"
        assert set(counts.values()) <= {12}, f"crash at call {crash_at}"
        assert notes >= set(acked), f"crash at call {crash_at}"
