"""An erased record's bytes are in no file any more when the erase is answered."""

from contextlib import suppress

import pytest

from millstream.store.disk.blocks import decode_block, find_blocks
from millstream.store.log.log import Durability
from millstream.store.segments.files import binding
from support.fake_disk import Crashed, FakeDisk, Mode
from support.store_bench import FORMS, Answer, Bench, image, records

SECRET = b"the secret that must go "
COMPRESSED = ("compressed", "both")


def plain_content(disk: FakeDisk, form: str) -> bytes:
    """Return all that anyone with the key could read on the disk."""
    found = []
    ring = FORMS[form].ring
    for path, data in disk.content().items():
        found.append(data)
        log_id = int(path.split("/")[3], 16) if "/streams/" in path else 0
        base = int(path.split("seg-")[1][:20]) if "seg-" in path else 0
        bound = b"millstream wal" if path.endswith(".log") else binding(log_id, base)
        refs, _ = find_blocks(data, 64, len(data), bound, rising=False)
        found += [bytes(decode_block(data, ref, bound, ring) or b"") for ref in refs]
    return b"".join(found)


def filled(form: str) -> tuple[FakeDisk, Bench]:
    disk = FakeDisk()
    bench = Bench(disk, FORMS[form])
    log = bench.store.create_log(1, Durability.FSYNC, form in COMPRESSED)
    for step in range(6):
        bench.append(log, [SECRET + b"%d %d" % (step, i) for i in range(4)])
        bench.run()
    return disk, bench


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seq", [2, 8, 11, 24])
@pytest.mark.parametrize("checkpoints", [0, 2])
def test_an_erased_record_is_nowhere_on_the_disk(form: str, seq: int, checkpoints: int) -> None:
    disk, bench = filled(form)
    log = bench.store.log(1)
    assert log is not None
    for _ in range(checkpoints):
        bench.store.checkpoint({})
        bench.run()
    bench.store.tick()
    payload = {r[0]: r[3] for r in records(log)}[seq]
    before = {r[0]: r for r in records(log) if r[0] != seq}
    assert payload in plain_content(disk, form)
    answer: Answer = []
    assert log.delete([seq], lambda error: None, answer.append) == 1
    bench.run()
    assert answer == [None]
    assert payload not in plain_content(disk, form)
    assert {r[0]: r for r in records(log)} == before
    again = Bench(disk.after_crash(Mode.KEEP, 0), FORMS[form])
    found = again.store.log(1)
    assert found is not None
    assert {r[0]: r for r in records(found)} == before
    assert found.state().gaps == ()
    assert again.store.recovery.damaged_bytes == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", [Mode.KEEP, Mode.DROP, Mode.GARBLE, Mode.REORDER])
def test_an_erase_that_a_crash_interrupts_is_done_by_the_next_start(form: str, mode: Mode) -> None:
    disk, bench = filled(form)
    bench.store.checkpoint({})
    bench.run()
    start = disk.calls

    def erase(on: Bench) -> Answer:
        log = on.store.log(1)
        assert log is not None
        answer: Answer = []
        log.delete([3, 20], lambda error: None, answer.append)
        on.run()
        return answer

    assert erase(bench) == [None]
    calls = disk.calls - start
    for call in range(1, calls + 1):
        disk, bench = filled(form)
        bench.store.checkpoint({})
        bench.run()
        log = bench.store.log(1)
        assert log is not None
        expected = {r[0]: r for r in records(log)}
        disk.crash_at = disk.calls + call
        with suppress(Crashed):  # random bytes take more or fewer calls
            erase(bench)
        left = disk.after_crash(mode, call)
        first = Bench(left, FORMS[form])
        first.run()
        found = first.store.log(1)
        assert found is not None
        held = {r[0]: r for r in records(found)}
        assert {s: r for s, r in expected.items() if s not in (3, 20)}.items() <= held.items()
        assert found.state().gaps == (), (call, disk.trace[-2:])
        gone = {3, 20} - held.keys()
        assert gone in (set(), {3, 20})
        for seq in gone:
            assert expected[seq][3] not in plain_content(left, form), (call, disk.trace[-2:])
        second = Bench(left.after_crash(Mode.KEEP, 0), FORMS[form])
        assert image(second.store) == image(first.store)


def test_an_erase_reaches_what_only_the_memory_holds() -> None:
    _, bench = filled("plain")
    log = bench.store.create_log(2, Durability.EPHEMERAL)
    bench.append(log, [SECRET, b"other"])
    bench.run()
    answer: Answer = []
    log.delete([1], lambda error: None, answer.append)
    bench.run()
    assert answer == [None]
    assert [r[3] for r in records(log)] == [b"other"]
    assert SECRET not in b"".join(block.data for s in log.segments for block in s.blocks)


def test_a_failed_erase_is_refused_and_tried_again() -> None:
    disk, bench = filled("plain")
    log = bench.store.log(1)
    assert log is not None
    bench.store.checkpoint({})
    bench.run()
    payload = {r[0]: r[3] for r in records(log)}[3]
    refused = OSError(28, "no space left")

    def hook(call: str, path: str) -> None:
        if path.endswith("erase.redo.tmp") and call == "write":
            raise refused

    disk.hook = hook
    answer: Answer = []
    log.delete([3], lambda error: None, answer.append)
    bench.run()
    assert "could not be overwritten" in str(answer[0])
    assert 3 not in {r[0] for r in records(log)}
    disk.hook = lambda call, path: None
    bench.store.tick()
    bench.run()
    assert payload not in plain_content(disk, "plain")
