"""Tombstone: what a reader is told about records that it can no longer get."""

from typing import Any

import msgspec

from millstream.store.log.log import in_doubt
from millstream.streams.state import StreamState

VOID = "void"  # sequences of a failed commit: nobody was promised them, so nobody misses them


class Tombstone(msgspec.Struct, frozen=True):
    """Sequences ``gap_from..gap_to`` are lost to this reader, and why."""

    gap_from: int
    gap_to: int
    reason: str
    earliest_seq: int
    head_seq: int
    in_doubt: int = 0  # of them held a record perhaps; the others did for sure, or were removed

    @property
    def doubt(self) -> dict[str, int]:
        """Return the field that says so, where there is something to say."""
        return {"in_doubt": self.in_doubt} if self.in_doubt else {}

    def shown(self) -> dict[str, Any]:
        """Return the object of a diff answer."""
        return {
            "gap_from": self.gap_from,
            "gap_to": self.gap_to,
            "reason": self.reason,
            "missed_estimate": self.gap_to - self.gap_from + 1,
            **self.doubt,
            "earliest_seq": self.earliest_seq,
            "head_seq": self.head_seq,
        }


class Start(msgspec.Struct, frozen=True):
    """Where a read begins, what must be said first, and before which sequence it must stop."""

    cursor: int
    tombstone: Tombstone | None
    stop_before: int | None


def start_reading(state: StreamState, from_seq: int) -> Start:
    """Decide how a read after ``from_seq`` begins."""
    head, earliest = state.last_seq, state.first_seq
    if from_seq > head:
        gone = Tombstone(1, head, "recreated", earliest, head)
        return Start(earliest - 1, gone, _next_gap(state, earliest - 1))
    front = _front_loss(state)
    if from_seq < front:
        reason = _reason(state, from_seq + 1, front)
        doubt = in_doubt(state.gaps, from_seq + 1, front)
        lost = Tombstone(from_seq + 1, front, reason, front + 1, head, doubt)
        cursor = max(front, earliest - 1)
        return Start(cursor, lost, _next_gap(state, cursor))
    for gap in state.gaps:
        # Damage within the log: the reader stands right before it, or inside.
        if gap.reason != VOID and gap.first <= from_seq + 1 <= gap.last and gap.last >= earliest:
            doubt = in_doubt([gap], from_seq + 1, gap.last)
            lost = Tombstone(from_seq + 1, gap.last, gap.reason, earliest, head, doubt)
            return Start(gap.last, lost, _next_gap(state, gap.last))
    cursor = max(from_seq, earliest - 1)
    return Start(cursor, None, _next_gap(state, cursor))


def _front_loss(state: StreamState) -> int:
    """Return the highest sequence before the first live record that was lost involuntarily."""
    lost = [gap.last for gap in state.gaps if gap.reason != VOID and gap.last < state.first_seq]
    if state.evict_floor < state.first_seq:
        lost.append(state.evict_floor)
    return max(lost, default=0)


def _next_gap(state: StreamState, cursor: int) -> int | None:
    """Return where the next loss above ``cursor`` begins: reading pauses there to report it."""
    firsts = [gap.first for gap in state.gaps if gap.reason != VOID and gap.first > cursor]
    return min(firsts, default=None)


def _reason(state: StreamState, gap_from: int, gap_to: int) -> str:
    """Name the loss: a reason counts when it took anything from ``gap_from`` on."""
    reasons = {
        gap.reason
        for gap in state.gaps
        if gap.reason != VOID and gap.last >= gap_from and gap.first <= gap_to
    }
    reasons |= {reason for reason, floor in state.floors.items() if floor >= gap_from}
    if {"cap", "ttl"} <= reasons:
        return "mixed"
    for reason in ("cap", "ttl", "source_trim"):
        if reason in reasons:
            return reason
    return next(iter(sorted(reasons - {"delete"})), "cap")
