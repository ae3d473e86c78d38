"""A streaming query's position: how far into which incarnation of which stream.

Spark keeps it in its checkpoint as JSON: ``{"v": 1, "ORDERS": {"seq": 120, "incarnation": 7}}``.
``seq`` is the last sequence taken. The incarnation tells a stream from one of the same name that
replaced it: sequences of the old one mean nothing in the new.
"""

from dataclasses import dataclass, replace
from typing import Any

from millstream.spark.problems import SparkSourceError

VERSION = 1


class UnknownOffset(SparkSourceError):
    """A checkpoint that this source did not write, or that belongs to another stream."""


@dataclass(frozen=True, slots=True)
class Position:
    """Everything up to ``seq`` has been taken."""

    stream: str
    seq: int
    incarnation: int

    def at(self, seq: int) -> "Position":
        """Return the position moved on to ``seq``; never back."""
        return replace(self, seq=max(seq, self.seq))

    def as_offset(self) -> dict[str, Any]:
        """Return the offset that Spark stores."""
        return {"v": VERSION, self.stream: {"seq": self.seq, "incarnation": self.incarnation}}


def position_of(offset: dict[str, Any], stream: str) -> Position:
    """Return the position in a stored offset; raises ``UnknownOffset``."""
    try:
        if offset["v"] != VERSION:
            raise UnknownOffset(f"the checkpoint has offsets of version {offset['v']}")
        stored = offset[stream]
        return Position(stream, int(stored["seq"]), int(stored["incarnation"]))
    except (KeyError, TypeError, ValueError):
        raise UnknownOffset(
            f"the checkpoint was not written for stream {stream!r} (offset {offset}): "
            "give the query a checkpoint of its own"
        ) from None
