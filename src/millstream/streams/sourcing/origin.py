"""Origin: what an intake follows at present, wherever it is."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Stored = tuple[int, int, bytes, bytes, bytes, bytes, bytes, bytes]  # as frames give records


class OriginStart(NamedTuple):
    """Where to go on in an origin."""

    seq: int = 1
    time: str = ""  # where to begin instead, while nothing was taken yet
    identity: str = ""  # of the origin that the sequence is from; whichever, when it is empty


class OriginFollower(Protocol):
    """Who follows an origin, and hears of it."""

    def begun(self, seq: int, *, is_same: bool) -> None:
        """Hear which sequence comes next at the earliest, and whether it is the stream it was."""
        ...

    def pump(self) -> None:
        """Take what there is."""
        ...

    def heard(self) -> None:
        """Hear that the origin is alive."""
        ...


class Origin(Protocol):
    """One stream, from when it is found until the intake lets go of it."""

    @property
    def identity(self) -> str:
        """Return the word for this incarnation of it, nothing while that is not known."""
        ...

    @property
    def error(self) -> dict[str, Any] | None:
        """Return what keeps records from coming, as StreamInfo shows it."""
        ...

    @property
    def is_near(self) -> bool:
        """Whether it is in this server, so that nothing can come between."""
        ...

    def begin(self, start: OriginStart, follower: OriginFollower) -> None:
        """Bring records from a place on; the follower hears of them."""
        ...

    def page(self, position: int, most: int) -> list[Stored]:
        """Return the next records; they stay until they are taken."""
        ...

    def left(self, position: int) -> int:
        """Return how many records are left to take."""
        ...

    def taken(self, seqs: Sequence[int]) -> None:
        """Need these records no longer."""
        ...

    def leave(self) -> None:
        """Need nothing of it any more."""
        ...
