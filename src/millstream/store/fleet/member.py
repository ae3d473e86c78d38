"""FleetMember: one process of a fleet; it stands by, takes the log over, and lets go of it.

Two threads: one renews the member's own lease, the other watches the owner's, and fetches ahead
what a take-over would need. Once the directory is filled, ``engines`` is there, and the loop opens
a store over it; the epoch entry is the last step of that.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from millstream.clock import BootClock, Clock
from millstream.errors import ObjectsFailed
from millstream.store.disk.keys import KeyRing
from millstream.store.fleet.cache import DirectoryCache, Superseded
from millstream.store.fleet.engines import FleetEngines
from millstream.store.fleet.fleet_file import FleetFile, agree
from millstream.store.fleet.leases import (
    RENEWAL,
    Lease,
    LeaseTerm,
    LeaseWatch,
    MemberCard,
)
from millstream.store.fleet.manifest import Manifest
from millstream.store.fleet.places import LeftAlone, PatientPlace, open_place
from millstream.store.fleet.put_threads import PutThreads
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.fleet.uploads import SnapshotUploads
from millstream.store.object_log.entry import EPOCH, LogObject
from millstream.store.object_log.probe import ROUNDS, WRITERS, probe
from millstream.store.object_log.requests import (
    Absent,
    Accepted,
    FoundObject,
    Get,
    Put,
    Remove,
)
from millstream.store.object_log.take_over import Read
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)

LOOK = 0.25  # seconds between two looks at the owner's lease
WARM_EVERY = 20  # looks between two looks for files to fetch ahead
FOLDER_ROUNDS = 4  # of the probe: a directory that links wrongly does so at once
BOUND = 1.0  # seconds that writes wait for a store that is away, before others are refused
LEASE_TIMEOUT = "2s"
LEAVING_TRIES = 20


class MemberClock(Clock, BootClock, Protocol):
    """The clocks that a member needs."""


class Renewals:
    """A member's own lease: what it says, and until when we may believe it ourselves."""

    def __init__(self, place: PatientPlace, card: MemberCard, clock: BootClock) -> None:
        self._place = place
        self._clock = clock
        self._said = Lease(card, 0)
        self._lock = threading.Lock()
        self._term = LeaseTerm(clock.boot_time())
        self._answered = clock.boot_time()
        self.epoch = 0

    def renew(self) -> None:
        """Say that we are here."""
        sent = self._clock.boot_time()
        if self._say(left=False):
            self._answered = self._clock.boot_time()
            if self.epoch and not self._term.renewed(sent, self._answered):
                log.error("lease renewed too late seconds=%.1f", self._answered - sent)

    def own(self, epoch: int) -> None:
        """Say that the log is ours; from when that was sent on we may answer."""
        self.epoch = epoch
        while True:
            sent = self._clock.boot_time()
            if self._say(left=False):
                self._term.begin(sent)
                return

    def leave(self) -> None:
        """Say that we have let go of everything."""
        self.epoch = 0
        for _ in range(LEAVING_TRIES):
            if self._say(left=True):
                return

    @property
    def holds(self) -> bool:
        """Say whether nobody else can own the log by what leases say."""
        return self._term.holds(self._clock.boot_time())

    @property
    def silence(self) -> float:
        """Return for how long the store has not answered."""
        return self._clock.boot_time() - self._answered

    def _say(self, left: bool) -> bool:
        with self._lock:
            beat = self._said.beat + 1
            self._said = Lease(self._said.card, beat, self.epoch, left)
            body = msgspec.json.encode(self._said)
            answer = self._place.carry_out(Put(self._said.card.lease_name, body))
        return isinstance(answer, Accepted)


class FleetMember:
    """Made by the server; ``start`` joins, ``close`` lets go."""

    def __init__(
        self,
        url: str,
        shards: int,
        card: MemberCard,
        directory: Path,
        ring: KeyRing,
        clock: MemberClock,
        supervisor: Supervisor,
        fenced: Callable[[str], None],
    ) -> None:
        """``fenced`` hears, on any thread, that nothing may be answered any more."""
        self._url = url
        self._shards = shards
        self._card = card
        self._directory = directory
        self._ring = ring
        self._clock = clock
        self._supervisor = supervisor
        self._fenced = fenced
        self._place = PatientPlace(open_place(url))
        lease_place = PatientPlace(open_place(url, LEASE_TIMEOUT))
        self._renewals = Renewals(lease_place, card, clock)
        self._ended = threading.Event()
        self._parts: tuple[SnapshotUploads, PutThreads] | None = None
        self._stuck = (0, 0.0)  # the position that is not confirmed, since when
        self.watched = MemberCard("", "")  # whom we take for the owner
        self.engines: FleetEngines | None = None  # once the log may be taken over
        self.failure: Exception | None = None  # why that will not come

    def start(self) -> None:
        """Join the fleet, and stand by."""
        self._supervisor.thread("millstream-fleet", self._stand_by, self._failed)

    def _failed(self, error: BaseException) -> None:
        self.failure = error if isinstance(error, Exception) else RuntimeError(repr(error))

    # --- standing by, on a thread

    def _stand_by(self) -> None:
        try:
            terms = self._agreed()
            self._supervisor.thread("millstream-lease", self._renew, lambda error: None)
            shared = SharedLog(self._place, terms)
            cache = DirectoryCache(self._place, self._directory)
            while not self._ended.is_set():
                self._await_turn(shared, cache)
                found = self._fill(shared, cache)
                if found is not None:
                    self.engines = self._over(shared, found)
                    return
        except LeftAlone:
            pass  # the process ends
        except Exception as error:
            self.failure = error

    def _agreed(self) -> FleetFile:
        rounds = FOLDER_ROUNDS if self._url.startswith("file:") else ROUNDS

        def probed() -> None:
            log.info("probing the store, once for this fleet url=%s", self._url)
            probe([open_place(self._url) for _ in range(WRITERS)], rounds=rounds)

        return agree(self._place, self._shards, self._url.partition(":")[0], probed)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL):
            try:
                self._renewals.renew()
            except LeftAlone:
                return

    def _await_turn(self, shared: SharedLog, cache: DirectoryCache) -> None:
        """Return once the owner is gone, or there is none."""
        watch = LeaseWatch()
        epoch, self.watched = self._newest_owner(shared, shared.read())
        looks = 0
        while not self._ended.is_set():
            lease = self._lease_of(self.watched) if epoch else None
            if watch.looked(epoch, lease, self._clock.boot_time()):
                now = shared.read()
                newest, owner = self._newest_owner(shared, now)
                if newest == epoch:
                    return
                epoch, self.watched = newest, owner  # somebody was faster
                continue
            if looks % WARM_EVERY == 0:
                self._warm(shared, cache)
            looks += 1
            self._ended.wait(LOOK)

    def _newest_owner(self, shared: SharedLog, read: Read) -> tuple[int, MemberCard]:
        """Return the epoch in which a log ends, and who began it; epoch 0 where nobody did."""
        epochs = [entry for entry in read.entries if entry.kind == EPOCH]
        if epochs:
            return epochs[-1].epoch, _card(epochs[-1])
        at = read.head.chain.epoch
        if not at:
            return 0, MemberCard("", "")
        while True:
            found = self._place.carry_out(Get(shared.codec.name(at)))
            if isinstance(found, FoundObject):
                entry = shared.codec.decode(found.data, at)
                return at, _card(entry) if isinstance(entry, LogObject) else MemberCard("?", "?")
            if isinstance(found, Absent):
                raise ObjectsFailed(
                    f"the epoch entry {shared.codec.name(at)} is gone: entries of a log are never "
                    "removed by hand, nor by a lifecycle rule of the bucket"
                )

    def _lease_of(self, owner: MemberCard) -> bytes | None:
        while True:
            answer = self._place.carry_out(Get(owner.lease_name))
            if isinstance(answer, FoundObject):
                return answer.data
            if isinstance(answer, Absent):
                return None

    def _warm(self, shared: SharedLog, cache: DirectoryCache) -> None:
        try:
            cache.warm(cache.manifest(shared.head().head.snapshot))
        except Superseded:
            pass  # newer ones are there; they are fetched with the next look
        except OSError as error:
            log.warning("nothing fetched ahead error=%s", error)

    def _fill(self, shared: SharedLog, cache: DirectoryCache) -> tuple[Read, Manifest] | None:
        """Make the directory what the log says; None where its head rose meanwhile."""
        read = shared.read()
        try:
            manifest = cache.manifest(read.head.snapshot)
            cache.fill(read, manifest)
        except Superseded:
            return None
        return read, manifest

    def _over(self, shared: SharedLog, found: tuple[Read, Manifest]) -> FleetEngines:
        uploads = SnapshotUploads(
            shared, self._directory, self._ring, self._clock.time_ns, self._supervisor
        )
        threads = PutThreads(shared.window, self._supervisor)
        self._parts = uploads, threads
        return FleetEngines(
            shared, open_place(self._url), found, msgspec.json.encode(self._card), uploads,
            threads, self._own, self._fenced,
        )  # fmt: skip

    # --- owning, on the loop

    def _own(self, epoch: int) -> None:
        """Register as the owner, behind the epoch entry; the one before needs its lease no more."""
        before = self.watched
        self._renewals.own(epoch)
        self.watched = self._card
        if before.run and before.run != self._card.run:
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


def _card(entry: LogObject) -> MemberCard:
    """Return who put an epoch entry."""
    try:
        return msgspec.json.decode(entry.body, type=MemberCard)
    except msgspec.MsgspecError:
        return MemberCard("?", "?")
