"""The one step that makes a record durable, whatever stands behind it."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec


class Ok(msgspec.Struct, frozen=True):
    """The entry holds this position, and is on stable storage if that was asked for."""


class Taken(msgspec.Struct, frozen=True):
    """Another writer's entry already holds the position."""

    by_nonce: int


class Unknown(msgspec.Struct, frozen=True):
    """The engine cannot tell whether the entry arrived: ask again with the same position."""


Outcome: TypeAlias = Ok | Taken | Unknown


class CommitEngine(Protocol):
    """A log of entries in which each position is given away once.

    An engine that knows that the entry was not stored raises ``StorageFull`` (the position stays
    free) or ``ShardReadOnly`` (it takes nothing any more).
    """

    def append_at(self, position: int, entry: Sequence[bytes], sync: bool) -> Outcome:
        """Store ``entry``, the parts of which belong together, at ``position``.

        With ``sync`` everything up to it is then stable.
        """
        ...

    def sync(self) -> None:
        """Make everything stored so far stable."""
        ...
