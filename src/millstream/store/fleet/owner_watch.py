"""OwnerWatch: who owns the log, when it is our turn, and what a take-over begins with."""

import logging
import threading

import msgspec

from millstream.clock import BootClock
from millstream.errors import ObjectsFailed
from millstream.store.fleet.cache import DirectoryCache, Superseded
from millstream.store.fleet.leases import LeaseWatch, MemberCard
from millstream.store.fleet.manifest import FileManifest
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.object_log.entry import EPOCH, LogObject
from millstream.store.object_log.requests import Absent, FoundObject, Get
from millstream.store.object_log.take_over import Read

log = logging.getLogger(__name__)

LOOK = 0.25  # seconds between two looks at the owner's lease
WARM_EVERY = 20  # looks between two looks for files to fetch ahead
NOBODY = MemberCard("", "")


class OwnerWatch:
    """Looks at the owner's lease; every call may wait for the store, until ``ended`` is set."""

    def __init__(
        self, shared: SharedLog, cache: DirectoryCache, clock: BootClock, ended: threading.Event
    ) -> None:
        self._shared = shared
        self._cache = cache
        self._clock = clock
        self._ended = ended
        self.owner = NOBODY

    def await_turn(self) -> Read | None:
        """Return the log once its owner is gone, or there is none; None at the end."""
        watch = LeaseWatch()
        epoch, self.owner = newest_owner(self._shared, self._shared.read())
        looks = 0
        while not self._ended.is_set():
            asked = self._clock.boot_time()
            lease = self._lease_of(self.owner) if epoch else None
            if watch.looked(epoch, lease, asked, self._clock.boot_time()):
                now = self._shared.read()
                newest, owner = newest_owner(self._shared, now)
                if newest == epoch:
                    return now
                epoch, self.owner = newest, owner  # somebody was faster
                continue
            if looks % WARM_EVERY == 0:
                self._warm()
            looks += 1
            self._ended.wait(LOOK)
        return None

    def _lease_of(self, owner: MemberCard) -> bytes | None:
        while True:
            answer = self._shared.place.carry_out(Get(owner.lease_name))
            if isinstance(answer, FoundObject):
                return answer.data
            if isinstance(answer, Absent):
                return None

    def _warm(self) -> None:
        try:
            self._cache.warm(self._cache.manifest(self._shared.head().head.snapshot))
        except Superseded:
            pass  # newer ones are there; they are fetched with the next look
        except OSError as error:
            log.warning("nothing fetched ahead error=%s", error)

    def fill(self, read: Read) -> FileManifest | None:
        """Make the directory what the log says; None where its head rose meanwhile."""
        try:
            manifest = self._cache.manifest(read.head.snapshot)
            self._cache.fill(read, manifest)
        except Superseded:
            return None
        return manifest


def newest_owner(shared: SharedLog, read: Read) -> tuple[int, MemberCard]:
    """Return the epoch in which a log ends, and who began it; epoch 0 where nobody did."""
    epochs = [entry for entry in read.entries if entry.kind == EPOCH]
    if epochs:
        return epochs[-1].epoch, _card(epochs[-1])
    at = read.head.chain.epoch
    if not at:
        return 0, NOBODY
    while True:
        found = shared.place.carry_out(Get(shared.codec.name(at)))
        if isinstance(found, FoundObject):
            entry = shared.codec.decode(found.data, at)
            return at, _card(entry) if isinstance(entry, LogObject) else MemberCard("?", "?")
        if isinstance(found, Absent):
            raise ObjectsFailed(
                f"the epoch entry {shared.codec.name(at)} is gone: nobody may remove "
                "entries of a log, by hand or by a lifecycle rule of the bucket"
            )


def _card(entry: LogObject) -> MemberCard:
    """Return who put an epoch entry."""
    try:
        return msgspec.json.decode(entry.body, type=MemberCard)
    except msgspec.MsgspecError:
        return MemberCard("?", "?")
