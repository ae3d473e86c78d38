"""The sweeps are worth something only if they catch bugs: each of these is planted and must be."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from test_bit_flips import test_one_flipped_bit_costs_at_most_one_record_and_names_it as flips
from test_random_sweep import faults, judge_older_snapshots, run_until_crash

from millstream.errors import ShardReadOnly
from millstream.store import checkpoints
from millstream.store import store as store_module
from millstream.store.disk import files as files_module
from millstream.store.log import file_log, promise
from millstream.store.log import snapshot as snapshot_module
from millstream.store.recovery import rebuild, replay
from millstream.store.segments import segment as segment_module
from millstream.store.shards import Shards
from millstream.store.wal import commit_queue, entry, local_engine
from support.fake_disk import FakeDisk, Mode
from support.scale import count
from support.sweep import check_recovery

Plant = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: Any, **__: Any) -> None:
    """Do not do it."""


def replaced(owner: Any, name: str, new: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, new)


def retry_sync(self: Any) -> None:
    for _ in range(2):
        try:
            if self._file is not None:
                self._file.sync()
            self.synced_position = self.position - 1
            return
        except OSError:
            continue
    raise ShardReadOnly("gave up")


def no_sync_at_all(self: Any) -> None:
    self.synced_position = self.position - 1


def everything_early(group: list[Any], waiting: set[int]) -> tuple[list[Any], list[Any]]:
    return group, []


def first_bad_ends_the_log(buffer: memoryview, start: int, after: int) -> Any:
    at = start
    while (found := entry.decode_entry(buffer, at)) is not None and found.position > after:
        yield found
        after, at = found.position, found.end


def always_sound(self: Any, buffer: memoryview) -> bool:
    return True


def resynced(self: Any) -> None:
    self.open().sync()


def removed_at_once(self: Any, segment: Any) -> None:
    segment.unlink()


def rename_unsynced(files: Any, directory: str, name: str, data: Any) -> None:
    file = files.open(f"{directory}/{name}.tmp", create=True)
    files_module.write_all(file, data, 0)
    file.close()
    files.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")


def forgets_gaps(self: Any, first: int, last: int, reason: str) -> list[Any]:
    return []


def never_reserves(self: Any, last: int, count: int) -> None:
    self.reserved_seq = last


class ForgetsDeletes:
    @staticmethod
    def of(log: Any, ends: Any) -> Any:
        return _without_deletes(snapshot_module.LogSnapshot.of(log, ends))


ENGINE, LOG = local_engine.LocalEngine, file_log.FileLog

BUGS: dict[str, Plant] = {
    "ack before the sync": replaced(commit_queue, "in_promise_order", everything_early),
    "retry a failed sync": replaced(ENGINE, "sync", retry_sync),
    "never sync the log": replaced(ENGINE, "sync", no_sync_at_all),
    "truncate at the first bad entry": replaced(replay, "scan_entries", first_bad_ends_the_log),
    "skip the checksum of an entry": replaced(entry.WalEntry, "sound", always_sound),
    "retry a failed sync of a segment": replaced(segment_module.Segment, "sync", resynced),
    "never sync a segment": replaced(segment_module.Segment, "sync", nothing),
    "skip directory syncs": replaced(FakeDisk, "sync_dir", nothing),
    "remove files before their trim is stable": replaced(
        store_module.Store, "remove", removed_at_once
    ),
    "rename a snapshot before its sync": replaced(snapshot_module, "replace_file", rename_unsynced),
    "drop the log with the newest snapshot": lambda patch: patch.setattr(
        Shards,
        "drop_below",
        lambda self, positions: DROP(self, {s.number: s.applied_position for s in self.in_use}),
    ),
    "lose without a gap": replaced(LOG, "add_gap", forgets_gaps),
    "never reserve sequences": replaced(promise.SequencePromise, "_make", never_reserves),
    "do not log again what is above the mark": replaced(Shards, "_entries", lambda self, *rest: []),
    "forget deletes in a snapshot": replaced(checkpoints, "LogSnapshot", ForgetsDeletes),
    "apply half a batch": replaced(replay, "_continues", lambda entry: True),
    "take what was skipped for lost": replaced(rebuild.Logs, "_skip", nothing),
    "replay only the shards in use": replaced(store_module, "shards_on_disk", lambda *_: []),
    "replay shards without waiting": replaced(
        replay.ShardWaits, "until", lambda self, log_id, last: iter(())
    ),
    "take pieces of batches from torn bytes": replaced(
        replay, "whole_batches", lambda frames, start: frames
    ),
}
DROP = Shards.drop_below


def _without_deletes(snapshot: Any) -> Any:
    return msgspec.structs.replace(snapshot, deleted=[], first_kept=1)


def sweep_finds_something(seeds: int) -> bool:
    for seed in range(seeds):
        rng = random.Random(seed)
        steps = rng.randint(10, 40)
        dry = FakeDisk()
        run_until_crash(dry, seed, steps)
        for point in range(8):
            disk = FakeDisk()
            disk.failures = faults(rng, dry.calls)
            disk.crash_at = rng.randint(1, dry.calls)
            sent, workload = run_until_crash(disk, seed, steps)
            mode = rng.choice(list(Mode))
            left = disk.after_crash(mode, seed * 100 + point)
            if check_recovery(left, sent, mode, workload.options):
                return True
    return False


def power_cuts_find_something(seeds: range) -> bool:
    """Crash long workloads with no other fault, and drop all that was not synced."""
    for seed in seeds:
        rng = random.Random(seed)
        dry = FakeDisk()
        run_until_crash(dry, seed, 40)
        for _ in range(4):
            disk = FakeDisk()
            disk.crash_at = rng.randint(1, dry.calls)
            sent, workload = run_until_crash(disk, seed, 40)
            left = disk.after_crash(Mode.DROP, seed)
            if check_recovery(left, sent, Mode.DROP, workload.options):
                return True
    return False


def flips_find_something() -> bool:
    try:
        for checkpoints in (0, 1, 2):
            flips(checkpoints)
    except Exception:
        return True
    return False


def test_there_are_enough_planted_bugs() -> None:
    assert len(BUGS) >= 20


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bug", list(BUGS)[: count(3, 99)])
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    try:
        caught = (
            bool(judge_older_snapshots(15)[1])
            or sweep_finds_something(count(150, 300))
            or power_cuts_find_something(range(120, 300))
            or flips_find_something()
        )
    except Exception:
        caught = True
    print(f"planted bug {bug!r}: caught {caught}")
    assert caught, bug
