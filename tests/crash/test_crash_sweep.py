"""For each disk call and each way to lose unsynced bytes: crash there, recover twice, compare."""

import pytest

from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count
from support.store_bench import COLD, FORMS, PROMISING, Answer, Bench
from support.sweep import DISK, FSYNC, Sent, check_recovery

SWEPT = {**FORMS, "cold": COLD, "promising": PROMISING}


class Workload:
    """Several logs, batches, deletes, trims, seals, checkpoints, rotation: in a fixed order."""

    def __init__(self, bench: Bench, sent: Sent, form: str = "plain") -> None:
        self.bench = bench
        self.sent = sent
        self.compressed = form in ("compressed", "both")
        self.n = 0

    def batch(self, log: FileLog, size: int, length: int = 40) -> None:
        payloads = []
        for _ in range(size):
            self.n += 1
            payloads.append(b"%06d" % self.n + b"x" * length)
        first, answer = self.bench.append(log, payloads)
        self.sent.batches.append((log.log_id, first, payloads, answer))

    def exact(self, log: FileLog, steps: list[int]) -> None:
        seqs = [log.next_seq + step for step in steps]
        payloads = []
        for _ in steps:
            self.n += 1
            payloads.append(b"%06d exact" % self.n)
        answer = self.bench.append_exact(log, seqs, payloads)
        self.sent.batches.append((log.log_id, seqs, payloads, answer))

    def delete(self, log: FileLog, seqs: list[int]) -> None:
        answer: Answer = []
        self.sent.deletes.append((log.log_id, seqs, answer))
        log.delete(seqs, answer.append)

    def erase(self, log: FileLog, seqs: list[int]) -> None:
        answer: Answer = []
        self.sent.deletes.append((log.log_id, seqs, answer))
        self.sent.erases.append((log.log_id, seqs, answer))
        log.delete(seqs, lambda error: None, answer.append)

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
        self.bench.store.mark()

    def run(self) -> None:
        store = self.bench.store
        one = store.create_log(FSYNC, Durability.FSYNC, self.compressed)
        two = store.create_log(DISK, Durability.DISK, self.compressed)
        self.sent.classes = {FSYNC: Durability.FSYNC, DISK: Durability.DISK}
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
        self.erase(one, [12, 24])
        self.trim(two, 3, "cap")
        self.batch(one, 1)
        self.exact(one, [0, 3, 4])
        self.exact(two, [2])
        one.skip_to(one.next_seq + 3, lambda error: None)
        self.turn()
        self.checkpoint()
        self.batch(two, 2)
        self.bench.run()
        self.batch(one, 2)
        self.turn()
        self.delete(one, [11, 13, 14, 16, 17, 18])
        self.erase(two, [5])
        self.turn()
        for _ in range(3):  # more than half of a sealed segment is dead: it is rewritten
            self.bench.store.tick()
            self.bench.run()
        self.batch(one, 1)
        self.turn()
        if self.bench.store.options.cold.moves:
            self.use_cold(one)

    def use_cold(self, log: FileLog) -> None:
        """Delete, erase and trim what has moved."""
        assert any(segment.cold is not None for segment in log.segments)
        self.erase(log, [19])
        self.turn()
        for _ in range(4):
            self.bench.store.tick()
            self.turn()
        self.delete(log, [20])
        self.trim(log, 11, "ttl")
        self.turn()
        for _ in range(2):
            self.bench.store.tick()
            self.turn()


def each_with_a_form(forms: list[str]) -> list[tuple[Mode, str]]:
    """Return every mode with every form when proving, otherwise with one form in turn."""
    modes = list(Mode)
    turns = [(mode, forms[i % len(forms)]) for i, mode in enumerate(modes)]
    return count(turns, [(mode, form) for mode in modes for form in forms])


def chances(mode: Mode) -> int:
    """Return how often a crash is tried at one call: what is left may depend on luck."""
    return count(1, 4) if mode not in (Mode.KEEP, Mode.DROP) else 1


def test_the_sweep_has_enough_points() -> None:
    points = [total_calls(form) * chances(mode) for mode, form in each_with_a_form(list(SWEPT))]
    assert sum(points) >= count(1_200, 20_000)


def run_until_crash(disk: FakeDisk, form: str = "plain") -> Sent:
    sent = Sent()
    bench = None
    try:
        bench = Bench(disk, SWEPT[form])
        Workload(bench, sent, form).run()
        bench.close()
    except Crashed:
        if bench is not None:
            bench.deliver()  # what was posted may have reached a client before the lights went out
    return sent


def total_calls(form: str = "plain") -> int:
    disk = FakeDisk()
    run_until_crash(disk, form)
    return disk.calls


@pytest.mark.parametrize(("mode", "form"), each_with_a_form(list(SWEPT)))
def test_a_crash_at_any_disk_call_loses_nothing_acknowledged(mode: Mode, form: str) -> None:
    calls = total_calls(form)
    tried = fired = cut = 0
    for call in range(1, calls + 1):
        for seed in range(chances(mode)):
            disk = FakeDisk()
            disk.crash_at = call
            sent = run_until_crash(disk, form)
            tried += 1
            fired += disk.crashed
            left = disk.after_crash(mode, seed * 1000 + call)
            cut += disk.cuts
            wrong = check_recovery(left, sent, mode, SWEPT[form])
            assert not wrong, (mode, call, seed, disk.trace[-3:], wrong)
    print(f"crash sweep {form} {mode.value}: tried {tried}, fired {fired}, cut writes {cut}")
    assert fired == tried > 200 * chances(mode)
    assert cut > 10 or mode is not Mode.KILL


@pytest.mark.parametrize(("mode", "form"), each_with_a_form(["plain", "both"]))
def test_a_crash_inside_recovery_changes_nothing(mode: Mode, form: str) -> None:
    calls = total_calls(form)
    tried = fired = 0
    for call in range(1, calls + 1, count(23, 3)):
        disk = FakeDisk()
        disk.crash_at = call
        sent = run_until_crash(disk, form)
        left = disk.after_crash(mode, call)
        clean = left.copy()
        Bench(clean, FORMS[form])
        for inner in range(1, clean.calls + 1):
            again = left.copy()
            again.crash_at = inner
            tried += 1
            try:
                Bench(again, FORMS[form])
            except Crashed:
                fired += 1
            after = again.after_crash(mode, inner)
            wrong = check_recovery(after, sent, mode, FORMS[form])
            assert not wrong, (mode, call, inner, again.trace, wrong)
    print(f"recovery sweep {form} {mode.value}: tried {tried}, fired {fired}")
    assert fired == tried > count(100, 1000)


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
        if what == "write" and path.endswith((".data", ".data.tmp")):
            dirty.add(path)
        elif what == "sync":
            dirty.discard(path)
        elif what == "rename" and path.endswith(".data"):  # a rewritten one takes its place
            assert path + ".tmp" not in dirty
            dirty.discard(path)
        elif what == "rename" and path.endswith(".idx"):
            assert path[:-4] + ".data" not in dirty
            named += 1
    assert named >= 2


@pytest.mark.parametrize("form", FORMS)
def test_the_workload_erases_and_rewrites_in_every_form(form: str) -> None:
    disk = FakeDisk()
    run_until_crash(disk, form)
    renamed = [c for c in disk.trace if c.startswith("rename") and c.endswith(".data")]
    assert any("/meta/erase.redo" in call for call in disk.trace)
    assert len(renamed) > len(set(renamed)) or form == "plain"
    assert renamed
