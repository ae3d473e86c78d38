"""Batch limits: how many batches may be open, how large and how long.

One value for all streams of a server, since some bounds count them together.
"""

import msgspec

from millstream.streams.writing.preconditions import PublishRefused

IDLE = 10.0
MOST_MESSAGES = 1000  # of one atomic batch


class Openings(msgspec.Struct):
    """Room for the open batches of one kind; counts those of all streams."""

    per_stream: int
    in_total: int
    refusal: tuple[int, int, str]
    taken: int = 0

    def take(self, of_this_stream: int) -> None:
        """Count one more batch; raises where there are too many."""
        if of_this_stream >= self.per_stream or self.taken >= self.in_total:
            raise PublishRefused(*self.refusal)
        self.taken += 1

    def give_back(self, count: int = 1) -> None:
        """Count closed batches out."""
        self.taken -= count


def _atomic() -> Openings:
    return Openings(50, 1000, (429, 10210, "atomic publish too many inflight"))


def _fast() -> Openings:
    return Openings(1000, 50_000, (429, 10211, "batch publish too many inflight"))


class BatchLimits(msgspec.Struct):
    """What a server allows batches of publishers."""

    idle: float = IDLE
    most_messages: int = MOST_MESSAGES
    atomic: Openings = msgspec.field(default_factory=_atomic)
    fast: Openings = msgspec.field(default_factory=_fast)

    @classmethod
    def of(
        cls, per_stream: int = 0, in_total: int = 0, most_messages: int = 0, idle: float = 0.0
    ) -> "BatchLimits":
        """Return limits as configured; 0 leaves one as it is."""
        made = cls(idle or IDLE, most_messages or MOST_MESSAGES)
        for openings in (made.atomic, made.fast):
            openings.per_stream = per_stream or openings.per_stream
            openings.in_total = in_total or openings.in_total
        return made
