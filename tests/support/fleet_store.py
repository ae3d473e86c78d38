"""Stores over one place for objects, driven by hand: members one after the other, disks that go."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from millstream.clock import ManualClock
from millstream.store.disk.files import OsFiles
from millstream.store.fleet.cache import DirectoryCache
from millstream.store.fleet.engines import FleetEngines
from millstream.store.fleet.fleet_file import FleetFile, agree
from millstream.store.fleet.leases import MemberCard
from millstream.store.fleet.places import PatientPlace
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.fleet.uploads import SnapshotUploads
from millstream.store.object_log.requests import ListedPlace
from millstream.store.options import StoreOptions
from support.store_bench import SMALL, Bench


class SmallFleet:
    """A place, and the members that use it."""

    def __init__(self, place: ListedPlace, clock: ManualClock) -> None:
        self.place = place
        self.clock = clock
        self.terms: FleetFile = agree(place, 1, "test", lambda: None)
        self.fenced: list[str] = []
        self.epochs: list[int] = []
        self._benches: list[FleetBench] = []

    def shared(self) -> SharedLog:
        return SharedLog(PatientPlace(self.place), self.terms)

    def prepared(
        self, directory: Path, options: StoreOptions = SMALL, name: str = "m"
    ) -> tuple[FleetEngines, SnapshotUploads]:
        """Fill a directory from the objects; nothing is taken over yet."""
        shared = self.shared()
        cache = DirectoryCache(shared.place, directory)
        read = shared.read()
        manifest = cache.manifest(read.head.snapshot)
        cache.fill(read, manifest)
        uploads = SnapshotUploads(shared, directory, options.ring, self.clock.time_ns, None)
        engines = FleetEngines(
            shared, self.place, (read, manifest), msgspec.json.encode(MemberCard(name, name)),
            uploads, lambda call: call(), self.epochs.append, self.fenced.append,
        )  # fmt: skip
        return engines, uploads

    def member(
        self, directory: Path, options: StoreOptions = SMALL, name: str = "m"
    ) -> "FleetBench":
        """Take the log over with a directory, whatever is in it."""
        engines, uploads = self.prepared(directory, options, name)
        return self.opened(engines, uploads, directory, options)

    def opened(
        self,
        engines: FleetEngines,
        uploads: SnapshotUploads,
        directory: Path,
        options: StoreOptions = SMALL,
    ) -> "FleetBench":
        """Open the store over what was prepared."""
        self._benches.append(FleetBench(engines, uploads, directory, options, self.clock))
        return self._benches[-1]

    def close(self) -> None:
        """Close the files of all members."""
        for bench in self._benches:
            bench.die()


class FleetBench(Bench):
    """A member's store, and what brings its snapshots to the place."""

    def __init__(
        self,
        engines: FleetEngines,
        uploads: SnapshotUploads,
        directory: Path,
        options: StoreOptions,
        clock: ManualClock,
    ) -> None:
        self.engines = engines
        self.uploads = uploads
        super().__init__(OsFiles(), options, clock, str(directory), engines)

    def snapshot(self, between: Callable[[], None] = lambda: None) -> None:
        """Take a snapshot; something may happen before it is brought to the place."""
        self.store.checkpoint({})
        self.run()
        between()
        self.uploads.bring()

    def die(self) -> None:
        """End without a snapshot, and without a word to the place but what is under way."""
        self.store.close()
