"""Backups of directories that this process wrote: what is stored, shared, refused and cut."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.backup.moment import moments
from millstream.backup.restore import restore
from millstream.backup.take import prune, take
from millstream.clock import ManualClock
from millstream.errors import BackupFailed
from millstream.store.disk.files import OsFiles
from millstream.store.disk.objects import DirectoryObjects
from millstream.store.log.log import Durability
from millstream.store.upkeep.inspect import CLEAN, check_directory
from support.store_bench import SEALED, Bench, records


class Kept:
    """A store in a real directory with one log, and where its backups go."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.target = DirectoryObjects(OsFiles(), str(root / "backups"))
        self.bench = Bench(OsFiles(), directory=str(root / "data"), clock=self.clock)
        self.log = self.bench.store.create_log(1, Durability.FSYNC)

    def append(self, *payloads: bytes) -> int:
        """Append, and let time pass; returns when they were written."""
        self.clock.advance(1)
        self.bench.append(self.log, list(payloads))
        self.bench.run()
        return self.clock.time_ns()

    def backup(self) -> None:
        self.clock.advance(1)
        take(self.root / "data", self.target, self.clock)

    def checkpoint(self) -> None:
        self.bench.store.checkpoint({})
        self.bench.run()

    def restored(self, at_ns: int | None = None) -> list[bytes]:
        """Restore into a new directory, check it, and return the payloads in it."""
        place = self.root / f"restored-{at_ns}-{len(list(self.root.iterdir()))}"
        restore(self.target, place, at_ns)
        assert check_directory(str(place), OsFiles()).status == CLEAN
        bench = Bench(OsFiles(), directory=str(place))
        try:
            log = bench.store.log(1)
            assert log is not None
            return [record[3] for record in records(log)]
        finally:
            bench.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.bench.close()


def test_a_running_store_is_restored_as_it_was_at_the_backup(kept: Kept) -> None:
    kept.append(b"one", b"two")
    kept.checkpoint()
    kept.append(b"three")
    kept.backup()
    kept.append(b"four")
    assert kept.restored() == [b"one", b"two", b"three"]


def test_what_did_not_change_is_not_stored_again(kept: Kept) -> None:
    kept.append(*(b"%d" % i * 500 for i in range(200)))
    kept.checkpoint()
    first = take(kept.root / "data", kept.target, kept.clock)
    second = take(kept.root / "data", kept.target, kept.clock)
    assert first.stored_bytes > 0
    assert second.stored_bytes == 0
    assert len(moments(kept.target)) == 2


def test_every_moment_between_two_backups_can_be_restored(kept: Kept) -> None:
    kept.append(b"before")
    kept.backup()
    times = [kept.append(b"%d" % i) for i in range(6)]
    kept.checkpoint()
    times += [kept.append(b"%d" % i) for i in range(6, 9)]
    kept.backup()
    for i, moment in enumerate(times):
        wanted = [b"before", *(b"%d" % j for j in range(i + 1))]
        assert kept.restored(moment) == wanted
        assert kept.restored(moment - 1) == wanted[:-1]


def test_a_moment_outside_of_the_backups_is_refused_with_what_there_is(kept: Kept) -> None:
    early = kept.append(b"one")
    kept.backup()
    late = kept.append(b"two")
    with pytest.raises(BackupFailed, match="nothing before"):
        kept.restored(early)
    with pytest.raises(BackupFailed, match="later changes are not in it"):
        kept.restored(late)


def test_a_moment_whose_wal_was_removed_between_backups_is_refused(kept: Kept) -> None:
    kept.append(b"one")
    kept.backup()
    moment = 0
    for _ in range(4):
        moment = kept.append(*(b"x" * 3000 for _ in range(40)))
        kept.checkpoint()
    kept.append(b"last")
    kept.backup()
    with pytest.raises(BackupFailed, match="take them more often"):
        kept.restored(moment)
    assert kept.restored()[-1] == b"last"


def test_older_backups_go_with_what_only_they_had(kept: Kept) -> None:
    kept.append(b"one" * 100)
    kept.backup()
    kept.append(b"two" * 100)
    kept.backup()
    before = len(kept.target.names("pieces"))
    assert prune(kept.target, 1) == 1
    assert len(kept.target.names("pieces")) < before
    assert kept.restored() == [b"one" * 100, b"two" * 100]


def test_a_damaged_piece_is_named_and_leaves_nothing(kept: Kept) -> None:
    kept.append(b"one")
    kept.backup()
    for name in kept.target.names("pieces"):
        path = kept.root / "backups" / "pieces" / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    with pytest.raises(BackupFailed, match=r"pieces/.* is damaged"):
        restore(kept.target, kept.root / "new")
    assert {path.name for path in kept.root.iterdir()} == {"backups", "data"}


def test_a_damaged_list_of_files_is_named(kept: Kept) -> None:
    kept.append(b"one")
    kept.backup()
    path = kept.root / "backups" / "moments" / kept.target.names("moments")[0]
    sealed = json.loads(path.read_bytes())
    sealed["moment"]["ended_ns"] += 1
    path.write_text(json.dumps(sealed))
    with pytest.raises(BackupFailed, match=r"moments/.* is damaged"):
        restore(kept.target, kept.root / "new")


def test_a_directory_in_use_is_never_restored_into(kept: Kept) -> None:
    kept.append(b"one")
    kept.backup()
    with pytest.raises(BackupFailed, match="is not empty"):
        restore(kept.target, kept.root / "data")


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="is not a data directory"):
        take(tmp_path, DirectoryObjects(OsFiles(), str(tmp_path / "backups")), ManualClock())


def test_a_copy_overtaken_by_two_snapshots_starts_again(kept: Kept) -> None:
    kept.append(b"one")
    kept.checkpoint()

    class Interrupting(DirectoryObjects):
        rounds = 0

        def put(self, name: str, data: bytes) -> None:
            super().put(name, data)
            self.rounds += 1
            if self.rounds == 1:
                for _ in range(3):
                    kept.append(b"more" * 300)
                    kept.checkpoint()

    kept.target = Interrupting(OsFiles(), str(kept.root / "backups"))
    take(kept.root / "data", kept.target, kept.clock)
    assert kept.restored() == [b"one", *[b"more" * 300] * 3]


def test_a_moment_of_an_encrypted_directory_is_restored_with_its_key(tmp_path: Path) -> None:
    clock, ring = ManualClock(), SEALED.ring
    target = DirectoryObjects(OsFiles(), str(tmp_path / "backups"))
    bench = Bench(OsFiles(), SEALED, clock, str(tmp_path / "data"))
    log = bench.store.create_log(1, Durability.FSYNC)
    times = []
    take(tmp_path / "data", target, clock)
    for payload in (b"one", b"two", b"three"):
        clock.advance(1)
        bench.append(log, [payload])
        bench.run()
        times.append(clock.time_ns())
    clock.advance(1)
    take(tmp_path / "data", target, clock)
    bench.close()
    with pytest.raises(BackupFailed, match="--key-file"):
        restore(target, tmp_path / "refused", times[1])
    assert not (tmp_path / "refused").exists()
    restore(target, tmp_path / "restored", times[1], ring)
    again = Bench(OsFiles(), SEALED, directory=str(tmp_path / "restored"))
    found = again.store.log(1)
    assert found is not None
    assert [record[3] for record in records(found)] == [b"one", b"two"]
    again.close()


def test_a_moment_does_not_miss_what_came_after_it(kept: Kept) -> None:
    kept.append(b"early")
    kept.backup()
    kept.append(b"late")
    kept.backup()
    named = [file.path for moment in moments(kept.target) for file in moment.files]
    assert (kept.root / "data" / "meta" / "marks-00.bin").exists()
    assert not [path for path in named if "marks" in path]
    assert kept.restored() == [b"early", b"late"]
