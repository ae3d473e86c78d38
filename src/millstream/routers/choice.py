"""What one step of a router copies: decided on values alone, carried out by the forwarder."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

import msgspec

from millstream.routers.hops import MOST_HOPS
from millstream.routers.tag_filter import TagFilter
from millstream.store.log.derived import Fields
from millstream.store.log.log import Gap

VOID = "void"  # sequences of a failed commit: nobody was promised them


class Fit(Enum):
    """Whether a destination takes a record."""

    YES = auto()
    NOT_NOW = auto()
    NEVER = auto()


class Choice(msgspec.Struct):
    """The records to copy, and how far the router is once they are."""

    passed: int
    records: list[Fields] = msgspec.field(default_factory=list)
    ranges: list[tuple[int, int]] = msgspec.field(default_factory=list)  # their sequences
    hops: int = 0  # of the copies
    known: int = 0  # records that the destination holds already
    is_blocked: bool = False


def choose(
    records: Iterable[Fields],
    cursor: int,
    tags: TagFilter | None,
    hops_of: Callable[[int], int],
    is_held: Callable[[int], bool],
    fits: Callable[[Fields], Fit],
) -> Choice:
    """Choose what to copy of the records that follow the cursor.

    Copies of one step share their hops; a step copies, or passes over what is held, never both.
    """
    made = Choice(cursor)
    for record in records:
        seq = record[0]
        hops = hops_of(seq)
        if hops < MOST_HOPS and (tags is None or tags.takes(record[5])):
            if is_held(seq):
                if made.records:
                    return made
                made.known += 1
            else:
                if made.known or (made.records and hops + 1 != made.hops):
                    return made
                fit = fits(record)
                if fit is Fit.NOT_NOW:
                    made.is_blocked = True
                    return made
                if fit is Fit.YES:
                    made.records.append(record)
                    made.hops = hops + 1
        made.passed = seq
    return made


def lost_through(cursor: int, evict_floor: int, gaps: Sequence[Gap]) -> int:
    """Return the last of the sequences after the cursor that the source lost, 0 when none is."""
    if evict_floor > cursor:
        return evict_floor
    for gap in gaps:
        if gap.reason != VOID and gap.first <= cursor + 1 <= gap.last:
            return gap.last
    return 0


def next_loss(cursor: int, gaps: Sequence[Gap]) -> int | None:
    """Return where the next loss after the cursor begins, None when nothing more was lost."""
    return min((g.first for g in gaps if g.reason != VOID and g.first > cursor + 1), default=None)
