"""FleetFile: what all members of a fleet agree on, made once by the first of them.

    fleet.json   id, shards, window, level, key, probed

The key is for the MACs of rule 1. It lies in the store itself: it finds out what was damaged or
moved, and keeps out nobody who may write there.
"""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from millstream.errors import ObjectsFailed, StorageUnusable
from millstream.store.object_log.requests import (
    Absent,
    Accepted,
    Create,
    FoundObject,
    Get,
    ObjectPlace,
)

NAME = "fleet.json"
LEVEL = 1  # of the format; a fleet of a higher one belongs to a newer millstream
WINDOW = 8  # entries that a writer may have under way (rule 4)
MOST_SHARDS = 1


class FleetFile(msgspec.Struct, frozen=True):
    """The terms of a fleet."""

    id: str
    shards: int
    window: int
    level: int
    key: str
    probed: str  # which store has kept its conditions when the fleet was made (rule 7)

    @property
    def secret(self) -> bytes:
        """Return the key of the MACs."""
        return bytes.fromhex(self.key)


Probe = Callable[[Sequence[ObjectPlace]], None]


def agree(place: ObjectPlace, shards: int, probed: str, probe: Callable[[], None]) -> FleetFile:
    """Return the terms that hold; the first member makes them, once the store has been probed."""
    if shards > MOST_SHARDS:
        raise ObjectsFailed(
            f"a fleet has one shard for now, not {shards}: several shards need routing between "
            "members, which is not there yet. Leave `shards` out"
        )
    while True:
        found = place.carry_out(Get(NAME))
        if isinstance(found, FoundObject):
            return _checked(found.data, shards)
        if not isinstance(found, Absent):
            continue
        probe()
        made = FleetFile(secrets.token_hex(8), shards, WINDOW, LEVEL, secrets.token_hex(32), probed)
        answer = place.carry_out(Create(NAME, msgspec.json.encode(made)))
        if isinstance(answer, Accepted):
            return made


def _checked(data: bytes, shards: int) -> FleetFile:
    try:
        found = msgspec.json.decode(data, type=FleetFile)
    except msgspec.MsgspecError as error:
        raise StorageUnusable(f"{NAME} is not a fleet's: {error}") from error
    if found.level > LEVEL:
        raise StorageUnusable(
            f"{NAME} has format level {found.level}, this millstream knows levels up to {LEVEL}: "
            "start a newer millstream"
        )
    if found.shards != shards:
        raise StorageUnusable(f"the fleet has {found.shards} shards, not {shards}: see {NAME}")
    return found
