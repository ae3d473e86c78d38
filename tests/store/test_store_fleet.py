"""A store over objects: what is acknowledged is there, on whichever disk the next member has."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.errors import ObjectsFailed, StorageUnusable, StoreAway
from millstream.store.disk.files import OsFiles
from millstream.store.fleet.engines import LogTaken
from millstream.store.fleet.fleet_file import NAME, agree
from millstream.store.fleet.uploads import SnapshotUploads
from millstream.store.log.log import Durability
from millstream.store.object_log.folder import FolderPlace
from millstream.store.object_log.judgement import STORED
from millstream.store.object_log.object_engine import ObjectEngine
from millstream.store.object_log.requests import (
    Answer,
    Create,
    ListedPlace,
    Request,
    Unsure,
)
from support.fake_store import FakeStore
from support.fleet_store import FleetBench, SmallFleet
from support.scale import count
from support.store_bench import SEALED, SMALL, image, records

FILE_CLASSES = (Durability.DISK, Durability.FSYNC, Durability.MEMORY)


class Away(FakeStore):
    """A store that answers nothing for a while; entries of a log alone, so that tests can go on."""

    is_away = False

    def carry_out(self, request: Request) -> Answer:
        if self.is_away and isinstance(request, Create) and "/log/" in request.name:
            return Unsure("away")
        return super().carry_out(request)


@pytest.fixture
def store() -> Away:
    return Away()


@pytest.fixture
def fleet(store: FakeStore) -> Iterator[SmallFleet]:
    with closing(SmallFleet(store, ManualClock())) as fleet:
        yield fleet


@pytest.fixture(params=["fake store", "folder", "bucket"])
def each_fleet(request: pytest.FixtureRequest, tmp_path: Path, s3: object) -> Iterator[SmallFleet]:
    place: ListedPlace = FakeStore()
    if request.param == "folder":
        place = FolderPlace(OsFiles(), str(tmp_path / "objects"), "one")
    elif request.param == "bucket":
        place = request.getfixturevalue("bucket")
    with closing(SmallFleet(place, ManualClock())) as fleet:
        yield fleet


def write(bench: FleetBench, log_id: int = 1, times: int = 3) -> None:
    log = bench.store.create_log(log_id, Durability.DISK)
    answers = [bench.append(log, [b"%d %d" % (log_id, n)] * 2)[1] for n in range(times)]
    bench.run()
    assert answers == [[None]] * times


@pytest.mark.parametrize("durability", FILE_CLASSES)
def test_rule_6_every_file_class_is_acknowledged_after_the_put(
    fleet: SmallFleet, store: Away, tmp_path: Path, durability: Durability
) -> None:
    bench = fleet.member(tmp_path / "a")
    log = bench.store.create_log(1, durability)
    store.is_away = True
    _, answer = bench.append(log, [b"x"])
    bench.run()
    assert answer == []
    assert log.committed_seq == 0
    store.is_away = False
    bench.clock.advance(10)
    bench.run()
    assert answer == [None]


def test_rule_11_a_member_with_an_empty_disk_has_everything(
    each_fleet: SmallFleet, tmp_path: Path
) -> None:
    bench = each_fleet.member(tmp_path / "a")
    for log_id in (1, 2):
        write(bench, log_id, 12)
    bench.snapshot()
    write(bench, 2)
    write(bench, 3)
    log = bench.store.log(2)
    assert log is not None
    log.delete([log.committed_seq], lambda error: None)
    bench.run()
    expected = image(bench.store)
    bench.die()
    again = each_fleet.member(tmp_path / "b", name="n")
    assert image(again.store) == expected
    write(again, 2)
    assert each_fleet.epochs[0] < each_fleet.epochs[1]


def test_rule_11_a_cache_that_rotted_is_fetched_anew(fleet: SmallFleet, tmp_path: Path) -> None:
    bench = fleet.member(tmp_path / "a")
    write(bench, times=20)
    bench.snapshot()
    expected = image(bench.store)
    bench.die()
    for path in (tmp_path / "a").glob("streams/*/*"):
        path.write_bytes(bytes(path.stat().st_size))
    (tmp_path / "a" / "streams" / "stray.data").write_bytes(b"of another time")
    again = fleet.member(tmp_path / "a")
    assert image(again.store) == expected
    assert again.store.recovery.damaged_bytes == 0


def test_rule_13_the_epoch_entry_comes_last_and_one_of_two_wins(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    write(fleet.member(tmp_path / "a"))
    first, _ = fleet.prepared(tmp_path / "b", name="b")
    second, uploads = fleet.prepared(tmp_path / "c", name="c")
    assert len(fleet.epochs) == 1  # both have all they need, and nothing is taken
    fleet.opened(second, uploads, tmp_path / "c")
    with pytest.raises(LogTaken):
        fleet.opened(first, uploads, tmp_path / "b")


def test_rule_14_a_fenced_owner_is_told_before_anybody_is_answered(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    zombie = fleet.member(tmp_path / "a")
    write(zombie)
    owner = fleet.member(tmp_path / "b")
    log = zombie.store.log(1)
    assert log is not None
    _, answer = zombie.append(log, [b"too late"])
    zombie.store.shards.committers[0].step()  # the server would start over in here
    assert fleet.fenced
    assert answer == []
    assert [each[-1] for each in records(owner.store.logs[1])].count(b"too late") == 0


def test_rule_5_and_8_a_snapshot_covers_entries_which_go_but_for_epochs(
    fleet: SmallFleet, store: FakeStore, tmp_path: Path
) -> None:
    bench = fleet.member(tmp_path / "a")
    for _ in range(4):
        write(bench, times=6)
        bench.snapshot()
        bench.clock.advance(5)
    left = store.names("shards/0/log/")
    assert left == ["shards/0/log/" + "1".rjust(20, "0")]
    files = store.names("shards/0/files/")
    write(bench, times=6)
    bench.snapshot()
    assert len(store.names("shards/0/files/")) <= len(files) + 3  # what nobody names any more goes
    assert all(len(bodies) == 1 for name, bodies in store.bodies.items() if "/files/" in name)
    expected = image(bench.store)
    bench.die()
    assert image(fleet.member(tmp_path / "b").store) == expected


def test_rule_8_objects_that_an_older_writer_removed_are_made_anew(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    """A zombie raises the head twice, and removes what its successor took over by name."""
    zombie = fleet.member(tmp_path / "a")
    write(zombie, times=12)
    zombie.snapshot()
    zombie.store.checkpoint({})
    zombie.run()
    owner = fleet.member(tmp_path / "b")
    expected = image(owner.store)
    for _ in range(2):  # as if it had snapshots that its successor has not seen
        for path in (tmp_path / "a").glob("streams/*/*.data"):
            path.write_bytes(path.read_bytes() + b"\0")
        zombie.uploads._upload()
    write(owner, 5)
    expected |= {5: image(owner.store)[5]}
    owner.snapshot()
    owner.die()
    assert image(fleet.member(tmp_path / "c").store) == expected


def test_rule_10_many_small_writes_make_a_snapshot_due(fleet: SmallFleet, tmp_path: Path) -> None:
    bench = fleet.member(tmp_path / "a")
    log = bench.store.create_log(1, Durability.FSYNC)
    for _ in range(1001):
        bench.append(log, [b"x"])
        bench.run()
    assert bench.store.checkpoint_due
    bench.snapshot()
    assert not bench.store.checkpoint_due


def test_rule_16_writes_are_refused_by_name_while_the_store_is_away(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    bench = fleet.member(tmp_path / "a")
    write(bench)
    bench.store.say_away("the fleet's object store has not answered for 1.2 s")
    with pytest.raises(StoreAway, match="has not answered"):
        bench.append(bench.store.logs[1], [b"x"])
    assert bench.store.health()
    bench.store.say_away("")
    write(bench)
    assert bench.store.health() == []


def test_sealed_entries_are_read_by_the_next_member(fleet: SmallFleet, tmp_path: Path) -> None:
    bench = fleet.member(tmp_path / "a", SEALED)
    write(bench, times=20)
    bench.snapshot()
    write(bench)
    expected = image(bench.store)
    bench.die()
    assert image(fleet.member(tmp_path / "b", SEALED).store) == expected


def test_a_fleet_s_terms_are_made_once_and_kept() -> None:
    store, probed = FakeStore(), list[str]()
    first = agree(store, 1, "s3", lambda: probed.append("once"))
    assert agree(store, 1, "s3", lambda: probed.append("twice")) == first
    assert probed == ["once"]
    with pytest.raises(ObjectsFailed, match="one shard for now"):
        agree(store, 3, "s3", lambda: None)
    store.objects[NAME] = store.objects[NAME].replace(b'"level":1', b'"level":9')
    with pytest.raises(StorageUnusable, match="format level 9"):
        agree(store, 1, "s3", lambda: None)


def test_a_damaged_file_object_is_named(fleet: SmallFleet, tmp_path: Path) -> None:
    bench = fleet.member(tmp_path / "a")
    write(bench, times=20)
    bench.snapshot()
    bench.die()
    assert isinstance(fleet.place, FakeStore)
    name = fleet.place.names("shards/0/files/")[0]
    fleet.place.objects[name] += b"?"
    with pytest.raises(StorageUnusable, match=name):
        fleet.member(tmp_path / "b")


# --- histories


class FleetHistory:
    """Members that write, snapshot, die and come back with or without a disk; a seed decides."""

    def __init__(self, seed: int, path: Path) -> None:
        self.random = Random(seed)
        self.path = path
        self.fleet = SmallFleet(FakeStore(), ManualClock())
        self.options = self.random.choice([SMALL, SEALED, replace(SMALL, shards=1)])
        self.disk = 0
        self.bench = self.fleet.member(self._directory(), self.options)
        self.fired: Counter[str] = Counter()

    def _directory(self) -> Path:
        return self.path / f"disk-{self.disk}"

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice(
                [self.append] * 6 + [self.remove] * 2 + [self.tick, self.snapshot, self.local]
                + [self.die, self.stop]
            )  # fmt: skip
            self.fired[step.__name__] += 1
            step()
        self.die()
        self.fleet.close()

    def append(self) -> None:
        log_id = self.random.randint(1, 3)
        log = self.bench.store.create_log(log_id, self.random.choice(FILE_CLASSES))
        size = self.random.choice([10, 100, 700])
        _, answer = self.bench.append(
            log, [self.random.randbytes(size)] * self.random.randint(1, 4)
        )
        self.bench.run()
        assert answer == [None]

    def remove(self) -> None:
        logs = [log for log in self.bench.store.logs.values() if log.committed_seq]
        if not logs:
            return
        log = self.random.choice(logs)
        seq = self.random.randint(1, log.committed_seq)
        if self.random.random() < 0.5:
            log.trim(seq, "purged")
        else:
            log.delete([seq], lambda error: None)
        self.bench.run()

    def tick(self) -> None:
        self.fleet.clock.advance(self.random.choice([1.0, 5.0]))
        self.bench.store.tick()
        self.bench.run()

    def local(self) -> None:
        """Take a snapshot that does not reach the store before something else happens."""
        self.bench.store.checkpoint({})
        self.bench.run()

    def snapshot(self) -> None:
        self.bench.snapshot(self.append if self.random.random() < 0.5 else lambda: None)

    def die(self) -> None:
        expected = image(self.bench.store)
        self.bench.die()
        self._again(expected)

    def stop(self) -> None:
        expected = image(self.bench.store)
        self.bench.store.close({})
        self.bench.uploads.bring()
        self._again(expected)

    def _again(self, expected: dict[int, Any]) -> None:
        if self.random.random() < 0.6:
            shutil.rmtree(self._directory())
            self.fired["disk lost"] += 1
        elif self.random.random() < 0.5:
            self.disk = 1 - self.disk  # another member, with the disk that it had long ago
        self.bench = self.fleet.member(self._directory(), self.options)
        assert image(self.bench.store) == expected
        assert not any(gaps(log) for log in self.bench.store.logs.values())


def gaps(log: Any) -> list[Any]:
    return [gap for gap in log.gaps if gap.reason not in ("deleted", "trimmed", "expired")]


def test_whoever_takes_over_has_what_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fired: Counter[str] = Counter()
    histories = count(25, 2_000)
    for seed in range(histories):
        history = FleetHistory(seed, tmp_path / str(seed))
        history.run(25)
        fired.update(history.fired)
        shutil.rmtree(tmp_path / str(seed))
    with capsys.disabled():
        print(f"\nstores over objects: {histories} histories, {dict(fired)}")
    assert min(fired[what] for what in ("die", "stop", "snapshot", "disk lost")) > histories / 3


RAISED = SnapshotUploads._raise_head


def _without_files(uploads: SnapshotUploads, chain: Any, files: Any) -> None:
    """Raise the head over a manifest that names the snapshot alone."""
    RAISED(uploads, chain, files[:1])


def _before_the_put(engine: ObjectEngine, position: int, data: bytes, done: Any) -> None:
    done(position, engine._outcome(position, STORED))


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (SnapshotUploads, "_raise_head", _without_files),
        (ObjectEngine, "_send", _before_the_put),
    ],
    ids=["a head before its files", "ack before the put"],
)
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, bug: Any
) -> None:
    monkeypatch.setattr(place, name, bug)
    found = 0
    for seed in range(12):
        history = FleetHistory(seed, tmp_path / str(seed))
        try:
            history.run(25)
        except Exception:
            found += 1
        history.fleet.close()
    assert found
