"""ConsumedOrigin: a stream that a consumer there delivers, in this server or in another one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.streams.config import source as sources
from millstream.streams.sourcing.deliveries import Deliveries
from millstream.streams.sourcing.near_origin import place_in
from millstream.streams.sourcing.origin import OriginFollower, OriginStart, Stored

if TYPE_CHECKING:
    from millstream.streams.stream import Stream

_NEAR_AFTER = 0.1  # the consumer may be about to come, at a start


class ConsumedOrigin:
    """Takes records from the deliveries of a consumer."""

    def __init__(self, deliveries: Deliveries, near: "Stream | None") -> None:
        """``near`` is the stream, where it is in this server."""
        self._deliveries = deliveries
        self._near = near

    @property
    def identity(self) -> str:
        """Return the word for this incarnation, as the origin's answer told it."""
        if self._near is not None:
            return sources.identity_of(self._near)
        return self._deliveries.identity

    @property
    def error(self) -> dict[str, Any] | None:
        """Return what keeps records from coming."""
        return self._deliveries.error

    @property
    def is_near(self) -> bool:
        """Whether it is in this server."""
        return self._near is not None

    def begin(self, start: OriginStart, follower: OriginFollower) -> None:
        """Have records from a place on delivered."""
        if self._near is None:
            self._deliveries.follow(start, follower, 0.0)
            return
        position, is_same = place_in(self._near, start)
        follower.begun(position, is_same=is_same)
        self._deliveries.follow(OriginStart(position), follower, _NEAR_AFTER)

    def page(self, position: int, most: int) -> list[Stored]:
        """Return the next records; they stay in line."""
        return self._deliveries.page(most)

    def left(self, position: int) -> int:
        """Return how many records are left to take."""
        return self._deliveries.line.lag

    def taken(self, seqs: Sequence[int]) -> None:
        """Let records leave the line."""
        self._deliveries.taken(seqs[-1])

    def leave(self) -> None:
        """Let go of the consumer."""
        self._deliveries.stop()
