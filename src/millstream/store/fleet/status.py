"""FleetStatus: what the objects of a fleet say about it, for whoever looks from outside."""

from collections.abc import Callable

import msgspec

from millstream.errors import ObjectsFailed
from millstream.store.fleet.fleet_file import NAME, FleetFile
from millstream.store.fleet.leases import FOLDER, RENEWAL, MemberLease, decode_lease
from millstream.store.fleet.owner_watch import newest_owner
from millstream.store.fleet.places import PatientPlace
from millstream.store.fleet.shared_log import SharedLog
from millstream.store.object_log.entry import RECORDS
from millstream.store.object_log.requests import FoundObject, Get, ListedPlace

PAUSE = 2 * RENEWAL  # seconds between two looks: whoever lives has said so meanwhile


class MemberStatus(msgspec.Struct, frozen=True):
    """One member, as its lease shows it."""

    name: str
    role: str  # owner, standby, left or silent
    nats: str
    http: str
    run: str


class FleetStatus(msgspec.Struct, frozen=True):
    """A fleet at a glance."""

    id: str
    level: int
    owner: str
    epoch: int
    position: int  # where the next entry goes
    uncovered: int  # entries that a take-over reads one by one
    snapshot: str
    members: list[MemberStatus]


def look(place: ListedPlace, pause: Callable[[float], None]) -> FleetStatus:
    """Look at a fleet twice, with a pause between; raises ``ObjectsFailed``."""
    found = place.carry_out(Get(NAME))
    if not isinstance(found, FoundObject):
        raise ObjectsFailed(f"there is no {NAME}: no member has made a fleet here ({found})")
    terms = msgspec.json.decode(found.data, type=FleetFile)
    shared = SharedLog(PatientPlace(place), terms)
    before = _leases(place)
    pause(PAUSE)
    read = shared.read()
    epoch, owner = newest_owner(shared, read)
    return FleetStatus(
        terms.id,
        terms.level,
        owner.name,
        epoch,
        read.chain.position,
        sum(entry.kind == RECORDS for entry in read.entries),
        read.head.snapshot,
        [_member(lease, before, owner.run) for lease in _leases(place).values()],
    )


def _leases(place: ListedPlace) -> dict[str, MemberLease]:
    found: dict[str, MemberLease] = {}
    for name in place.names(FOLDER):
        answer = place.carry_out(Get(f"{FOLDER}/{name}"))
        lease = decode_lease(answer.data) if isinstance(answer, FoundObject) else None
        if lease is not None:
            found[name] = lease
    return found


def _member(lease: MemberLease, before: dict[str, MemberLease], owner: str) -> MemberStatus:
    card = lease.card
    role = "owner" if card.run == owner else "standby"
    if lease.left:
        role = "left"
    elif before.get(card.run) == lease:
        role = "silent"
    return MemberStatus(card.name, role, card.nats, card.http, card.run)
