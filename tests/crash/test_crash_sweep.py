"""For each disk call and each way to lose unsynced bytes: crash there, recover twice, compare."""

from dataclasses import dataclass, field

import pytest

from millstream.store.file_log import FileLog
from millstream.store.log import Durability
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count
from support.store_bench import Answer, Bench, image, records

FSYNC, DISK = 1, 2


@dataclass
class Sent:
    """What the workload asked for, and which answers it got."""

    batches: list[tuple[int, int, list[bytes], Answer]] = field(default_factory=list)
    deletes: list[tuple[int, list[int], Answer]] = field(default_factory=list)
    trims: list[tuple[int, int]] = field(default_factory=list)
    controls: list[tuple[bytes, Answer]] = field(default_factory=list)
    checkpoints: list[set[bytes]] = field(default_factory=list)

    def removed(self, log_id: int) -> set[int]:
        """Return what may be missing because its removal was asked for."""
        gone = {s for owner, seqs, _ in self.deletes if owner == log_id for s in seqs}
        for owner, first_kept in self.trims:
            if owner == log_id:
                gone |= set(range(1, first_kept))
        return gone

    def surely_removed(self, log_id: int) -> set[int]:
        return {
            s for owner, seqs, a in self.deletes if owner == log_id and a == [None] for s in seqs
        }


class Workload:
    """Several logs, batches, deletes, trims, seals, checkpoints, rotation: in a fixed order."""

    def __init__(self, bench: Bench, sent: Sent) -> None:
        self.bench = bench
        self.sent = sent
        self.n = 0

    def batch(self, log: FileLog, size: int, length: int = 40) -> None:
        payloads = []
        for _ in range(size):
            self.n += 1
            payloads.append(b"%06d" % self.n + b"x" * length)
        first, answer = self.bench.append(log, payloads)
        self.sent.batches.append((log.log_id, first, payloads, answer))

    def delete(self, log: FileLog, seqs: list[int]) -> None:
        answer: Answer = []
        self.sent.deletes.append((log.log_id, seqs, answer))
        log.delete(seqs, answer.append)

    def trim(self, log: FileLog, first_kept: int, reason: str) -> None:
        self.sent.trims.append((log.log_id, first_kept))
        log.trim(first_kept, reason)

    def control(self, body: bytes) -> None:
        answer: Answer = []
        self.sent.controls.append((body, answer))
        self.bench.store.control(16, 1, body, answer.append)

    def checkpoint(self) -> None:
        known = b"\n".join(b for b, a in self.sent.controls if a == [None])
        self.bench.store.checkpoint({"controls": known})
        self.turn()

    def turn(self) -> None:
        self.bench.run()
        self.bench.clock.advance(0.06)
        self.bench.run()
        self.bench.store._committer.tick()

    def run(self) -> None:
        store = self.bench.store
        one = store.create_log(FSYNC, Durability.FSYNC)
        two = store.create_log(DISK, Durability.DISK)
        self.control(b"create one")
        self.batch(one, 1)
        self.batch(one, 3)
        self.turn()
        self.batch(two, 2)
        self.batch(one, 2)
        self.batch(two, 1)
        self.turn()
        self.delete(one, [2, 3])
        self.batch(one, 4, 200)
        self.turn()
        self.checkpoint()
        self.control(b"update one")
        for _ in range(3):
            self.batch(two, 3, 100)
            self.batch(one, 3, 100)
            self.bench.run()
        self.trim(one, 4, "ttl")
        self.delete(two, [1, 4])
        self.turn()
        self.bench.store.tick()
        self.bench.run()
        self.checkpoint()
        self.batch(one, 2, 900)
        self.batch(two, 5)
        self.turn()
        self.delete(one, [9])
        self.trim(two, 3, "cap")
        self.batch(one, 1)
        self.turn()
        self.checkpoint()
        self.batch(two, 2)
        self.bench.run()
        self.batch(one, 2)
        self.turn()


def run_until_crash(disk: FakeDisk) -> Sent:
    sent = Sent()
    bench = None
    try:
        bench = Bench(disk)
        Workload(bench, sent).run()
        bench.close()
    except Crashed:
        if bench is not None:
            bench.deliver()  # what was posted may have reached a client before the lights went out
    return sent


def total_calls() -> int:
    disk = FakeDisk()
    run_until_crash(disk)
    return disk.calls


def violations(sent: Sent, bench: Bench, mode: Mode) -> list[str]:
    wrong = []
    submitted = {
        (owner, first + i): payload
        for owner, first, payloads, _ in sent.batches
        for i, payload in enumerate(payloads)
    }
    acked_bodies = {b for b, a in sent.controls if a == [None]}
    known = {c.body for c in bench.store.recovery.controls}
    known |= set(bench.store.recovery.sections.get("controls", b"").split(b"\n"))
    if acked_bodies - known:
        wrong.append(f"acked controls lost: {acked_bodies - known}")
    for log_id in (FSYNC, DISK):
        log = bench.store.log(log_id)
        found = {r[0]: r[3] for r in records(log)} if log else {}
        lost = {s for g in log.gaps for s in range(g.first, g.last + 1)} if log else set()
        removed = sent.removed(log_id)
        acked = {
            first + i
            for owner, first, payloads, a in sent.batches
            if owner == log_id and a == [None]
            for i in range(len(payloads))
        }
        if log and log.count != len(found):
            wrong.append(f"log {log_id} counts {log.count}, holds {len(found)}")
        for seq, payload in found.items():
            if submitted.get((log_id, seq)) != payload:
                wrong.append(f"log {log_id} fabricated {seq}")
        kept = log_id == FSYNC or mode is Mode.KEEP  # a disk ack may go with the power
        if kept and (back := sent.surely_removed(log_id) & found.keys()):
            wrong.append(f"log {log_id} deleted came back {back}")
        missing = acked - found.keys() - removed
        if missing and kept:
            wrong.append(f"log {log_id} lost acked {missing}")
        if missing - lost:
            wrong.append(f"log {log_id} lost silently {missing - lost}")
        next_seq = log.next_seq if log else 1
        if acked and next_seq <= max(acked):
            wrong.append(f"log {log_id} would give {next_seq} again")
        for owner, first, payloads, _ in sent.batches:
            seqs = set(range(first, first + len(payloads))) - removed
            if owner == log_id and seqs & found.keys() not in (set(), seqs):
                wrong.append(f"log {log_id} tore the batch at {first}")
    return wrong


def check_recovery(disk: FakeDisk, sent: Sent, mode: Mode) -> list[str]:
    first = Bench(disk)
    wrong = violations(sent, first, mode)
    before = image(first.store)
    again = disk.after_crash(Mode.KEEP, 0)
    second = Bench(again)
    if image(second.store) != before:
        wrong.append(f"second recovery differs: {image(second.store)} != {before}")
    log = second.store.create_log(FSYNC, Durability.FSYNC)
    seq, answer = second.append(log, [b"new"])
    second.run()
    if answer != [None]:
        wrong.append(f"not writable: {answer}")
    before = image(second.store)
    third = image(Bench(again.after_crash(Mode.DROP, 0)).store)
    if third[FSYNC] != before[FSYNC] or third[FSYNC][1][-1][0] != seq:
        wrong.append(f"what a recovery kept is gone after the next: {third} != {before}")
    if DISK in before and third[DISK][1] != before[DISK][1]:
        wrong.append(f"what a recovery kept is gone after the next: {third} != {before}")
    return wrong


@pytest.mark.parametrize("mode", list(Mode))
def test_a_crash_at_any_disk_call_loses_nothing_acknowledged(mode: Mode) -> None:
    calls = total_calls()
    tried = fired = 0
    for call in range(1, calls + 1):
        for seed in range(count(1, 12) if mode not in (Mode.KEEP, Mode.DROP) else 1):
            disk = FakeDisk()
            disk.crash_at = call
            sent = run_until_crash(disk)
            tried += 1
            fired += disk.crashed
            wrong = check_recovery(disk.after_crash(mode, seed * 1000 + call), sent, mode)
            assert not wrong, (mode, call, seed, disk.trace[-3:], wrong)
    print(f"crash sweep {mode.value}: tried {tried}, fired {fired}")
    assert fired == tried > 100


@pytest.mark.parametrize("mode", list(Mode))
def test_a_crash_inside_recovery_changes_nothing(mode: Mode) -> None:
    calls = total_calls()
    tried = fired = 0
    for call in range(1, calls + 1, count(7, 1)):
        disk = FakeDisk()
        disk.crash_at = call
        sent = run_until_crash(disk)
        left = disk.after_crash(mode, call)
        clean = left.copy()
        Bench(clean)
        for inner in range(1, clean.calls + 1):
            again = left.copy()
            again.crash_at = inner
            tried += 1
            try:
                Bench(again)
            except Crashed:
                fired += 1
            after = again.after_crash(mode, inner)
            wrong = check_recovery(after, sent, mode)
            assert not wrong, (mode, call, inner, again.trace, wrong)
    print(f"recovery sweep {mode.value}: tried {tried}, fired {fired}")
    assert fired == tried


def test_nothing_old_is_removed_before_the_new_is_durable_under_its_name() -> None:
    disk = FakeDisk()
    run_until_crash(disk)
    removed = 0
    renamed = False
    for call in disk.trace:
        if call.startswith("rename /data/meta/snapshot"):
            renamed = True
        elif call == "sync_dir /data/meta":
            renamed = False
        elif call.startswith(("unlink /data/meta/snapshot", "unlink /data/wal")):
            assert not renamed, call
            removed += 1
    assert removed >= 2


def test_an_index_is_named_only_once_its_data_is_stable() -> None:
    disk = FakeDisk()
    run_until_crash(disk)
    named = 0
    dirty: set[str] = set()
    for call in disk.trace:
        what, path = call.split(" ", 1)
        if what == "write" and path.endswith(".data"):
            dirty.add(path)
        elif what == "sync":
            dirty.discard(path)
        elif what == "rename" and path.endswith(".idx"):
            assert path[:-4] + ".data" not in dirty
            named += 1
    assert named >= 2
