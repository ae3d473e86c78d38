"""Renewals: a member's own lease, and how long it may believe that nobody took its place."""

import logging
import threading

import msgspec

from millstream.clock import BootClock
from millstream.store.fleet.leases import LeaseTerm, MemberCard, MemberLease
from millstream.store.fleet.places import PatientPlace
from millstream.store.object_log.requests import Accepted, Put

log = logging.getLogger(__name__)

LEAVING_TRIES = 20


class Renewals:
    """A member's own lease: what it says, and until when we may believe it ourselves."""

    def __init__(self, place: PatientPlace, card: MemberCard, clock: BootClock) -> None:
        self._place = place
        self._clock = clock
        self._said = MemberLease(card, 0)
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
            self._said = MemberLease(self._said.card, beat, self.epoch, left)
            body = msgspec.json.encode(self._said)
            answer = self._place.carry_out(Put(self._said.card.lease_name, body))
        return isinstance(answer, Accepted)
