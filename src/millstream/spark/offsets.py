"""A streaming query's position: how far into which incarnation of which streams.

Spark keeps it in its checkpoint as JSON:
``{"v": 1, "ORDERS": {"seq": 120, "incarnation": 7, "identity": "x7Qm2Lp0"}}``.
``seq`` is the last sequence taken. The incarnation tells a stream from one of the same name that
replaced it, the identity from one of another server: sequences of the one mean nothing in the
other. Checkpoints of earlier versions have no identity. A stream that the query found on its way
also has ``from``, the first sequence that it took of it. ``reader`` is the word by which the broker
knows a query that shows itself as a consumer, from one start to the next.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from millstream.spark.problems import SparkSourceError

VERSION = 1
_KEYS = {"v": "/v"}  # a stream of that name; none has a slash in it
_STREAMS = {key: stream for stream, key in _KEYS.items()}


class UnknownOffset(SparkSourceError):
    """A checkpoint that this source did not write, or that belongs to another stream."""


@dataclass(frozen=True, slots=True)
class Position:
    """Everything up to ``seq`` has been taken."""

    stream: str
    seq: int
    incarnation: int
    first: int = 0  # where the query met the stream, if that was on its way
    identity: str = ""  # empty where the checkpoint is older than this field
    reader: str = ""  # what tells this query from others that are shown under the same name

    def at(self, seq: int) -> "Position":
        """Return the position moved on to ``seq``; never back."""
        return replace(self, seq=max(seq, self.seq))

    def before(self) -> "Position":
        """Return where the query stood when it met the stream."""
        return replace(self, seq=max(self.first, 1) - 1)

    def is_of(self, incarnation: int, identity: str) -> bool:
        """Whether this is a position in that very stream, as far as both sides can tell."""
        unknown = not self.identity or not identity
        return self.incarnation == incarnation and (unknown or self.identity == identity)

    def stored(self) -> dict[str, int | str]:
        """Return the position as the checkpoint holds it."""
        plain: dict[str, int | str] = {"seq": self.seq, "incarnation": self.incarnation}
        if self.identity:
            plain["identity"] = self.identity
        if self.reader:
            plain["reader"] = self.reader
        return plain | ({"from": self.first} if self.first else {})


Positions = dict[str, Position]


def offset_of(positions: Iterable[Position]) -> dict[str, Any]:
    """Return the offset that Spark stores."""
    return {"v": VERSION} | {_KEYS.get(one.stream, one.stream): one.stored() for one in positions}


def positions_of(offset: dict[str, Any]) -> Positions:
    """Return the positions in a stored offset; raises ``UnknownOffset``."""
    try:
        if offset["v"] != VERSION:
            raise UnknownOffset(f"the checkpoint has offsets of version {offset['v']}")
        found = ((_STREAMS.get(key, key), stored) for key, stored in offset.items() if key != "v")
        return {
            stream: Position(
                stream,
                int(stored["seq"]),
                int(stored["incarnation"]),
                int(stored.get("from", 0)),
                str(stored.get("identity", "")),
                str(stored.get("reader", "")),
            )
            for stream, stored in found
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UnknownOffset(
            f"the checkpoint was not written by this source (offset {offset}): "
            "give the query a checkpoint of its own"
        ) from None
