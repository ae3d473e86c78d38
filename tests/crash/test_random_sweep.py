"""Workloads nobody thought of: random operations, faults and crashes, judged by the same model."""

import errno
import random
from contextlib import suppress
from dataclasses import replace

from millstream.clock import ManualClock
from millstream.errors import MillstreamError, StorageUnusable
from millstream.store.log.file_log import FileLog
from millstream.store.log.log import Durability
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count
from support.store_bench import PROMISING, SMALL, Answer, Bench, image
from support.sweep import Sent, check_recovery

CLASSES = (Durability.FSYNC, Durability.DISK, Durability.FSYNC, Durability.DISK, Durability.MEMORY)
UNSYNCED = (Durability.DISK,) * 5
PIECES = replace(SMALL, entry_bytes=700)  # batches that span entries


class RandomWorkload:
    """One seed's operations; goes on after refused writes as a server does."""

    def __init__(self, disk: FakeDisk, sent: Sent, seed: int) -> None:
        self.disk = disk
        self.sent = sent
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = PIECES if seed % 3 == 0 else SMALL
        if seed % 4 < 2:
            self.options = replace(self.options, shards=2)
        if seed % 5 > 2:  # many promises ahead, which the loop writes too
            self.options = replace(self.options, log=PROMISING.log)
        self.is_rarely_synced = seed % 7 in (1, 4)  # so that several files wait for the disk
        if self.is_rarely_synced:
            self.options = replace(self.options, dirty_age=1e9, wal_file_bytes=1500)
        self.clock = ManualClock()
        self.n = 0
        self.bench: Bench | None = None

    def run(self, steps: int) -> None:
        """Open the store, do ``steps`` operations, close it."""
        self.open()
        assert self.bench is not None
        classes, first = (UNSYNCED, 2) if self.is_rarely_synced else (CLASSES, 1)
        for log_id, durability in enumerate(classes[: self.rng.randint(2, 5)], first):
            self.create(log_id, durability)
        operations = (
            [self.batch] * 6
            + [self.exact] * 2
            + [self.skip]
            + [self.delete, self.trim, self.turn, self.turn]
        )
        operations += [self.checkpoint, self.control, self.age, self.restart, self.drop]
        if self.is_rarely_synced:
            operations = [self.batch] * 8 + [self.exact, self.skip, self.delete] + operations[-5:]
        for _ in range(steps):
            with suppress(MillstreamError):
                self.rng.choice(operations)()
            if self.rng.random() < 0.6:
                self.bench.run()
                self.note_synced()
        self.close()

    def create(self, log_id: int, durability: Durability) -> None:
        assert self.bench is not None
        self.sent.classes[log_id] = durability
        self.bench.store.create_log(log_id, durability)
        with suppress(MillstreamError):
            self.control()

    def logs(self) -> list[FileLog]:
        assert self.bench is not None
        alive = [i for i in self.sent.classes if i not in self.sent.drops]
        return [self.bench.store.create_log(i, self.sent.classes[i]) for i in alive]

    def batch(self) -> None:
        assert self.bench is not None
        log = self.rng.choice(self.logs())
        payloads = []
        for _ in range(self.rng.randint(1, 5)):
            self.n += 1
            payloads.append(b"%06d" % self.n + b"x" * self.rng.choice((0, 40, 200, 900)))
        sent = (log.log_id, log.next_seq, payloads, [])
        self.sent.batches.append(sent)  # a crash inside the call may keep the records
        first, answer = self.bench.append(log, payloads)
        self.sent.batches[-1] = (log.log_id, first, payloads, answer)

    def exact(self) -> None:
        assert self.bench is not None
        log = self.rng.choice(self.logs())
        seqs: list[int] = []
        payloads = []
        seq = log.next_seq - 1
        for _ in range(self.rng.randint(1, 4)):
            seq += self.rng.choice((1, 1, 2, 5))
            self.n += 1
            seqs.append(seq)
            payloads.append(b"%06d" % self.n + b"x" * self.rng.choice((0, 40, 200, 900)))
        self.sent.batches.append((log.log_id, seqs, payloads, []))
        answer = self.bench.append_exact(log, seqs, payloads)
        self.sent.batches[-1] = (log.log_id, seqs, payloads, answer)

    def skip(self) -> None:
        log = self.rng.choice(self.logs())
        log.skip_to(log.next_seq + self.rng.randint(1, 9), lambda error: None)

    def delete(self) -> None:
        log = self.rng.choice(self.logs())
        seqs = sorted(self.rng.sample(range(1, log.next_seq + 1), min(3, log.next_seq)))
        live = [s for s in seqs if log.first_kept <= s <= log.committed_seq]
        answer: Answer = []
        self.sent.deletes.append((log.log_id, live, answer))
        log.delete(live, answer.append)

    def trim(self) -> None:
        log = self.rng.choice(self.logs())
        first_kept = self.rng.randint(log.first_kept, log.first_kept + 5)
        self.sent.trims.append((log.log_id, first_kept))
        log.trim(first_kept, self.rng.choice(("cap", "ttl", "delete")))

    def control(self) -> None:
        assert self.bench is not None
        self.n += 1
        answer: Answer = []
        body = b"control %d" % self.n
        self.sent.controls.append((body, answer))
        self.bench.store.control(16, 1, body, answer.append)

    def drop(self) -> None:
        assert self.bench is not None
        store = self.bench.store
        log = self.rng.choice(self.logs())
        if log.log_id <= 2 or self.rng.random() < 0.7:
            return
        answer: Answer = []

        def logged(error: MillstreamError | None) -> None:
            if error is None:
                store.drop_log(log.log_id)
            answer.append(error)

        store.control(17, log.log_id, b"drop", logged)
        self.sent.drops[log.log_id] = answer

    def known(self) -> dict[str, bytes]:
        return {"controls": b"\n".join(b for b, a in self.sent.controls if a == [None])}

    def checkpoint(self) -> None:
        assert self.bench is not None
        self.bench.run()
        self.bench.store.checkpoint(self.known())
        self.turn()

    def age(self) -> None:
        assert self.bench is not None
        self.clock.advance(4000)
        self.bench.store.tick()

    def turn(self) -> None:
        assert self.bench is not None
        self.bench.run()
        self.clock.advance(0.06)
        self.bench.run()
        self.bench.store.mark()
        self.note_synced()
        if not self.bench.store.health():
            self.sent.floors.update({g.log_id: (g.first_kept, g.evict_floor) for g in self.logs()})

    def note_synced(self) -> None:
        self.sent.synced.update({log.log_id: log.synced_seq for log in self.logs()})

    def restart(self) -> None:
        if self.rng.random() < 0.5:
            return
        self.close()
        self.open()

    def open(self) -> None:
        """Start the store; a disk that fails now is tried again, as by a supervisor."""
        if self.options.shards > 1:
            self.options = replace(self.options, shards=self.rng.randint(2, 3))
        for _ in range(3):
            try:
                self.bench = Bench(self.disk, self.options, self.clock)
                self.bench.loop_first = self.seed % 2 == 0
                return
            except (MillstreamError, OSError):
                self.bench = None

    def close(self) -> None:
        assert self.bench is not None
        self.bench.run()
        self.bench.store.close(self.known() if self.rng.random() < 0.5 else None)
        self.bench.deliver()


def run_until_crash(disk: FakeDisk, seed: int, steps: int) -> tuple[Sent, RandomWorkload]:
    sent = Sent()
    workload = RandomWorkload(disk, sent, seed)
    try:
        workload.run(steps)
    except Crashed:
        if workload.bench is not None:
            workload.bench.deliver()  # what was posted may have reached a client
    return sent, workload


def faults(rng: random.Random, calls: int) -> dict[int, OSError | int]:
    """Return nothing, or one or two refused, short or failed calls."""
    kinds = (OSError(errno.EIO, "input/output error"), OSError(errno.ENOSPC, "no space left"), 5, 0)
    return {rng.randint(1, calls): rng.choice(kinds[:3]) for _ in range(rng.choice((0, 1, 1, 2)))}


def without_newest_snapshot(disk: FakeDisk, rng: random.Random) -> FakeDisk | None:
    """Return the disk with one byte of its newest snapshot changed, where it has two."""
    snapshots = sorted(p for p in disk.content() if "/snapshot-" in p and p.endswith(".bin"))
    if len(snapshots) < 2:
        return None
    damaged = disk.copy()
    node = damaged.names[snapshots[-1]]
    assert node is not None
    node.data[rng.randrange(len(node.data))] ^= 1 << rng.randrange(8)
    node.sync()
    return damaged


def judge_older_snapshots(seeds: int) -> tuple[int, list[object]]:
    """Damage the newest snapshot at a crash; return how often, and the promises broken."""
    fired = 0
    wrong: list[object] = []
    for seed in range(seeds):
        rng = random.Random(seed)
        dry = FakeDisk()
        run_until_crash(dry, seed, 40)
        disk = FakeDisk()
        disk.crash_at = rng.randint(dry.calls // 2, dry.calls)
        sent, workload = run_until_crash(disk, seed, 40)
        damaged = without_newest_snapshot(disk.after_crash(Mode.KEEP, 0), rng)
        if damaged is None:
            continue
        fired += 1
        try:
            found = check_recovery(damaged, sent, Mode.KEEP, workload.options)
        except StorageUnusable as error:
            found = [str(error)]
        wrong += [(seed, each) for each in found]
    return fired, wrong


def test_a_damaged_snapshot_costs_nothing_as_the_older_one_is_as_good() -> None:
    fired, wrong = judge_older_snapshots(count(40, 600))
    print(f"damaged snapshots: fired {fired}")
    assert not wrong
    assert fired >= count(15, 200)


def test_what_a_memory_log_answered_before_a_failed_write_survives_every_start_or_none() -> None:
    disk = FakeDisk()
    keeping = replace(PIECES, log=replace(PIECES.log, waste_bytes=1 << 20))  # also what is dead
    bench = Bench(disk, keeping)
    log = bench.store.create_log(1, Durability.MEMORY)
    bench.append(log, [b"x" * 900, b"y" * 900])
    bench.run()
    log.delete([1, 2], lambda error: None)
    bench.run()
    bench.clock.advance(4000)
    bench.store.tick()
    bench.append(log, [b"a" * 900, b"b" * 900])  # visible at once, and never in the WAL
    disk.failures[disk.calls + 1] = OSError(errno.EIO, "input/output error")
    bench.run()
    bench.clock.advance(4000)
    bench.store.tick()
    assert log.segments[-1].sealed
    left = disk.after_crash(Mode.KEEP, 0)
    first = image(Bench(left, keeping).store)
    assert [record[0] for record in first[1][1]] == [3, 4]
    assert image(Bench(left.after_crash(Mode.KEEP, 0), keeping).store) == first


def refuse_wal(call: str, path: str) -> None:
    if call == "write" and "/wal/" in path:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_batch_that_only_a_segment_file_had_is_not_taken_in_part() -> None:
    disk = FakeDisk()
    bench = Bench(disk, SMALL)
    log = bench.store.create_log(1, Durability.MEMORY)
    disk.hook = refuse_wal
    bench.append(log, [b"a" * 206, b"b" * 206])  # answered, and never in the WAL
    bench.run()
    disk.hook = lambda call, path: None
    bench.append(log, [b"c"])
    bench.run()
    bench.clock.advance(60)
    bench.store.tick()
    bench.run()
    left = disk.after_crash(Mode.KEEP, 0)
    left.boots += 1
    node = next(node for path, node in left.names.items() if path.endswith(".data") and node)
    at = node.data.index(b"b" * 206)
    node.data[at : at + 206] = bytes(206)
    found = image(Bench(left, SMALL).store)[1]
    assert [record[0] for record in found[1]] == [3]


def in_files_only(disk: FakeDisk, *batches: list[bytes]) -> FakeDisk:
    """Return what a kill leaves of a memory log whose records a segment file has, not the WAL."""
    bench = Bench(disk, SMALL)
    log = bench.store.create_log(1, Durability.MEMORY)
    bench.store.control(16, 1, b"so that the WAL names the boot", lambda error: None)
    bench.run()
    disk.hook = refuse_wal
    for batch in batches:
        bench.append(log, batch)  # long enough to be flushed
        bench.run()
    return disk.after_crash(Mode.KEEP, 0)


def test_a_delete_from_a_batch_that_only_a_segment_file_has_keeps_the_rest_of_it() -> None:
    disk = FakeDisk()
    bench = Bench(disk, SMALL)
    log = bench.store.create_log(1, Durability.MEMORY)
    disk.hook = refuse_wal
    bench.append(log, [b"a", b"b", b"c" * 600, b"d"])
    bench.run()
    disk.hook = lambda call, path: None
    log.delete([2, 3], lambda error: None)  # the first that the WAL hears of the log
    bench.run()
    found = image(Bench(disk.after_crash(Mode.KEEP, 0), SMALL).store)[1]
    assert [record[0] for record in found[1]] == [1, 4]


def test_of_a_batch_that_was_given_up_nothing_comes_back_behind_a_new_record() -> None:
    left = in_files_only(FakeDisk(), [b"old" * 90] * 2, [b"old" * 200])
    bench = Bench(left, SMALL)
    log = bench.store.create_log(1, Durability.MEMORY)
    assert bench.append(log, [b"new"])[0] == 1
    bench.store.control(16, 1, b"synced", lambda error: None)
    bench.run()
    left = left.after_crash(Mode.KEEP, 0)
    left.boots += 1
    found = image(Bench(left, SMALL).store)[1]
    assert [record[3] for record in found[1]] == [b"new"]


def test_of_a_batch_that_was_given_up_nothing_comes_back_behind_one_as_long() -> None:
    left = in_files_only(FakeDisk(), [b"old" * 90] * 4)
    bench = Bench(left, SMALL)
    log = bench.store.create_log(1, Durability.MEMORY)
    bench.append(log, [b"new" * 90] * 2)  # over the first half of the old ones
    bench.store.control(16, 1, b"synced", lambda error: None)
    bench.run()
    left = left.after_crash(Mode.KEEP, 0)
    left.boots += 1
    found = image(Bench(left, SMALL).store)[1]
    assert [record[3][:3] for record in found[1]] == [b"new"] * 2


def test_random_workloads_with_faults_and_crashes_keep_every_promise() -> None:
    tried = fired = paired = 0
    for seed in range(count(120, 1500)):
        rng = random.Random(seed)
        steps = rng.randint(10, 40)
        dry = FakeDisk()
        run_until_crash(dry, seed, steps)
        for point in range(count(4, 16)):
            disk = FakeDisk()
            disk.failures = faults(rng, dry.calls)
            disk.crash_at = rng.randint(1, dry.calls)
            sent, workload = run_until_crash(disk, seed, steps)
            mode = rng.choice(list(Mode))
            tried += 1
            fired += disk.crashed
            paired += disk.crashed and any(call < disk.calls for call in disk.failures)
            left = disk.after_crash(mode, seed * 100 + point)
            wrong = check_recovery(left, sent, mode, workload.options)
            assert not wrong, (seed, point, mode, disk.failures, disk.crash_at, wrong)
    print(f"random sweep: tried {tried}, fired {fired}, fault and then crash {paired}")
    assert fired >= count(300, 20_000)
    assert paired > tried // 4
