"""How a server leaves without a stampede: clients are closed one after the other."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from millstream.server.options.options import LameDuckOptions

T = TypeVar("T")

_LONGEST_PAUSE = 1.0
_SHORTEST_PAUSE = 0.01


class Leave(msgspec.Struct, frozen=True):
    """Close ``count`` clients, then wait ``pause`` seconds."""

    count: int
    pause: float


def departures(clients: int, options: LameDuckOptions) -> list[Leave]:
    """Spread the closing of ``clients`` over what the grace period leaves of the duration.

    Few clients do not keep the server: they go a second apart at most.
    """
    if clients == 0:
        return []
    left = max(options.duration - options.grace_period, 0.0)
    pause = min(max(left / clients, _SHORTEST_PAUSE), _LONGEST_PAUSE)
    turns = max(1, min(clients, int(left / pause) or 1))
    each, more = divmod(clients, turns)
    return [Leave(each + (turn < more), pause) for turn in range(turns)]


def take(items: Sequence[T], leaves: Sequence[Leave]) -> list[tuple[Sequence[T], float]]:
    """Return which items leave at each turn, and the pause after it."""
    made, at = [], 0
    for leave in leaves:
        made.append((items[at : at + leave.count], leave.pause))
        at += leave.count
    return made
