"""FleetMember: one process of a fleet; it stands by, takes the log over, and lets go of it.

Two threads: one renews the member's own lease, the other watches the owner's, and fetches ahead
what a take-over would need. Once the directory is filled, ``engines`` is there, and the loop opens
a store over it; the epoch entry is the last step of that.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from millstream.clock import BootClock, Clock
from millstream.store.disk.keys import KeyRing
from millstream.store.fleet.cache import DirectoryCache
from millstream.store.fleet.engines import FleetEngines
from millstream.store.fleet.fleet_file import FleetFile, agree
from millstream.store.fleet.leases import RENEWAL, MemberCard
from millstream.store.fleet.manifest import FileManifest
from millstream.store.fleet.owner_watch import NOBODY, OwnerWatch
from millstream.store.fleet.places import LeftAlone, PatientPlace, open_place
from millstream.store.fleet.put_threads import PutThreads
from millstream.store.fleet.renewals import Renewals
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.fleet.uploads import SnapshotUploads
from millstream.store.object_log.probe import ROUNDS, WRITERS, probe
from millstream.store.object_log.requests import Remove
from millstream.store.object_log.take_over import Read
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)

FOLDER_ROUNDS = 4  # of the probe: a directory that links wrongly does so at once
BOUND = 1.0  # seconds that writes wait for a store that is away, before others are refused
LEASE_TIMEOUT = "2s"


class MemberClock(Clock, BootClock, Protocol):
    """The clocks that a member needs."""


@dataclass(frozen=True, slots=True)
class MemberTerms:
    """Which fleet, who we are in it, and where its files are cached."""

    url: str
    shards: int
    card: MemberCard
    directory: Path
    ring: KeyRing


class FleetMember:
    """Made by the server; ``start`` joins, ``close`` lets go."""

    def __init__(
        self,
        terms: MemberTerms,
        clock: MemberClock,
        supervisor: Supervisor,
        fenced: Callable[[str], None],
    ) -> None:
        """``fenced`` hears, on any thread, that nothing may be answered any more."""
        self._terms = terms
        self._clock = clock
        self._supervisor = supervisor
        self._fenced = fenced
        self._place = PatientPlace(open_place(terms.url))
        lease_place = PatientPlace(open_place(terms.url, LEASE_TIMEOUT))
        self._renewals = Renewals(lease_place, terms.card, clock)
        self._ended = threading.Event()
        self._parts: tuple[SnapshotUploads, PutThreads] | None = None
        self._stuck = (0, 0.0)  # the position that is not confirmed, since when
        self._watch: OwnerWatch | None = None
        self.engines: FleetEngines | None = None  # once the log may be taken over
        self.failure: Exception | None = None  # why that will not come

    def start(self) -> None:
        """Join the fleet, and stand by."""
        self._supervisor.thread("millstream-fleet", self._stand_by, self._failed)

    def _failed(self, error: BaseException) -> None:
        self.failure = error if isinstance(error, Exception) else RuntimeError(repr(error))

    @property
    def owner(self) -> MemberCard:
        """Return whom we take for the owner."""
        return NOBODY if self._watch is None else self._watch.owner

    # --- standing by, on a thread

    def _stand_by(self) -> None:
        try:
            agreed = self._agreed()
            self._supervisor.thread("millstream-lease", self._renew, lambda error: None)
            shared = SharedLog(self._place, agreed)
            cache = DirectoryCache(self._place, self._terms.directory)
            self._watch = watch = OwnerWatch(shared, cache, self._clock, self._ended)
            while not self._ended.is_set():
                read = watch.await_turn()
                manifest = watch.fill(read) if read is not None else None
                if read is not None and manifest is not None:
                    self.engines = self._over(shared, (read, manifest))
                    return
        except LeftAlone:
            pass  # the process ends
        except Exception as error:
            self.failure = error

    def _agreed(self) -> FleetFile:
        rounds = FOLDER_ROUNDS if self._terms.url.startswith("file:") else ROUNDS

        def probed() -> None:
            log.info("probing the store, once for this fleet url=%s", self._terms.url)
            probe([open_place(self._terms.url) for _ in range(WRITERS)], rounds=rounds)

        return agree(self._place, self._terms.shards, self._terms.url.partition(":")[0], probed)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL):
            try:
                self._renewals.renew()
            except LeftAlone:
                return

    def _over(self, shared: SharedLog, found: tuple[Read, FileManifest]) -> FleetEngines:
        uploads = SnapshotUploads(
            shared, self._terms.directory, self._terms.ring, self._clock.time_ns, self._supervisor
        )
        threads = PutThreads(shared.window, self._supervisor)
        self._parts = uploads, threads
        puts, card = open_place(self._terms.url), msgspec.json.encode(self._terms.card)
        return FleetEngines(
            shared, puts, found, card, uploads, threads.start, self._own, self._fenced
        )  # fmt: skip

    # --- owning, on the loop

    def _own(self, epoch: int) -> None:
        """Register as the owner, behind the epoch entry; the one before needs its lease no more."""
        before = self.owner
        self._renewals.own(epoch)
        if before.run and before.run != self._terms.card.run:
            self._place.carry_out(Remove(before.lease_name))
        log.info("took the log over epoch=%d before=%s", epoch, before.name or "nobody")

    def check(self) -> None:
        """Make sure that we may still answer: before each turn of the loop (rule 14)."""
        if self._renewals.epoch and not self._renewals.holds:
            self._fenced(f"the lease ended: the store was silent for {self._renewals.silence:.1f}s")

    def away(self) -> str:
        """Return why writes are to be refused, nothing while the store answers (rule 16)."""
        engine = self.engines.engine if self.engines is not None else None
        if engine is None:
            return ""
        now = self._clock.monotonic()
        if not engine.is_waiting or engine.position != self._stuck[0]:
            self._stuck = (engine.position, now)
        waited = max(now - self._stuck[1], self._renewals.silence - RENEWAL)
        if waited <= BOUND:
            return ""
        return f"the fleet's object store has not answered for {waited:.1f} s: try again"

    def close(self) -> None:
        """Bring the last snapshot to the store, then let go; the store over it is closed."""
        if self._parts is not None and self._renewals.epoch:
            self._parts[0].finish()
        if self._parts is not None:
            self._parts[1].close()
        self._renewals.leave()
        self._ended.set()
        self._place.leave()
