"""CommitEngine: the one step that makes a record durable, whatever stands behind it."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from millstream.errors import ShardReadOnly


class Ok(msgspec.Struct, frozen=True):
    """The entry holds this position."""


class Taken(msgspec.Struct, frozen=True):
    """Another writer's entry holds the position: whoever asked is no longer the writer."""

    by_nonce: int


class Unknown(msgspec.Struct, frozen=True):
    """The engine cannot tell whether the entry arrived: ask again with the same position."""


Outcome: TypeAlias = Ok | Taken | Unknown
Completed: TypeAlias = Callable[[int, Outcome], None]
"""Called with a position and what became of its entry; from any thread, in any order."""

OK = Ok()
UNKNOWN = Unknown()


class CommitEngine(Protocol):
    """A log of entries in which each position is given away once.

    Entries are submitted with ``append_at``. It returns what became of an entry where that is known
    already; otherwise a call completes it, which may come at any time, or twice. Positions are
    submitted in order, at most ``ahead`` of them beyond the last one that is completed together
    with all before it. One thread submits at a time; another may sync and prepare meanwhile.
    """

    @property
    def position(self) -> int:
        """Return the first position that was free at the start, or is now."""
        ...

    @property
    def ahead(self) -> int:
        """Return how many positions may be under way at once; 0: each is completed on return."""
        ...

    @property
    def synced_position(self) -> int:
        """Return up to where every entry is on stable storage."""
        ...

    @property
    def written(self) -> int:
        """Return how many bytes it has taken since the start."""
        ...

    @property
    def room(self) -> int:
        """Return how many bytes it takes now without keeping the caller waiting."""
        ...

    @property
    def wants_sync(self) -> bool:
        """Say whether a sync should come soon, because appends would wait for it before long."""
        ...

    @property
    def is_prepared(self) -> bool:
        """Say whether ``prepare`` has nothing to do now."""
        ...

    def append_at(self, position: int, entry: Sequence[bytes], done: Completed) -> Outcome | None:
        """Store ``entry``, the parts of which belong together, at ``position``.

        Returns the outcome, or None where ``done`` will be called with it.
        Asking again with the same bytes is harmless: the answer is Ok once they are there. An
        engine that knows within the call that the entry is not stored raises ``StorageFull`` (the
        position stays free) or ``ShardReadOnly`` (it takes nothing any more) and completes nothing.
        """
        ...

    def sync(self) -> None:
        """Make every completed entry stable; raises ``ShardReadOnly`` where it cannot tell."""
        ...

    def prepare(self, now: float) -> None:
        """Do ahead what an append would have to wait for; raises ``ShardReadOnly``."""
        ...

    def begin(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Put entries, stable, in place of what an earlier run left from ``position`` on."""
        ...

    def drop_below(self, position: int) -> None:
        """Let go of what stands up to ``position``: no start needs it any more."""
        ...

    def drop_before_begin(self) -> None:
        """Let go of all that stands before the last ``begin``, or of everything once retired."""
        ...

    def refuse(self, why: str) -> ShardReadOnly:
        """Take nothing more, for a reason of the caller's; returns what appends end in now."""
        ...

    def retire(self) -> None:
        """Take nothing any more; what is stored may go altogether once nobody needs it."""
        ...

    def come_to_rest(self) -> None:
        """Leave things tidy: everything is synced, and nothing more comes."""
        ...

    def close(self) -> None:
        """Take nothing any more; says nothing about what is under way."""
        ...
