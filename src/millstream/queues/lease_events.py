"""Lease events: what a queue logs about its leases, so that they survive the process.

Every event states what is true after it, never a difference: replaying one on top of a state that
holds it already changes nothing. Expiry is not logged, since the deadline tells it, and an ack is
told by the deletion of the record itself.
"""

from typing import TypeAlias

import msgspec


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """One job that was handed out, and how often it has been by now."""

    seq: int
    lease_id: int
    deadline_ms: int
    deliveries: int


class Claimed(msgspec.Struct, tag="claimed", frozen=True):
    """Jobs went to a node; ``pushed`` ones go back by themselves when the process ends."""

    node: str
    jobs: list[Claim]
    pushed: bool = False


class Released(msgspec.Struct, tag="released", frozen=True):
    """Leases ended before their time; the jobs are claimable from ``ready_at_ms`` on."""

    leases: list[tuple[int, int]]  # (seq, lease id)
    ready_at_ms: int = 0


class Extended(msgspec.Struct, tag="extended", frozen=True):
    """Leases have a new deadline."""

    leases: list[tuple[int, int]]  # (seq, lease id)
    deadline_ms: int


class DeadLettered(msgspec.Struct, tag="dead_lettered", frozen=True):
    """So many jobs have been moved away in all; these no longer count deliveries."""

    total: int


Event: TypeAlias = Claimed | Released | Extended | DeadLettered


class Projection(msgspec.Struct, frozen=True):
    """All that the events so far amount to, as snapshots keep it."""

    next_lease_id: int = 1
    dead_lettered: int = 0
    claimed: list[Claimed] = []
    deliveries: list[tuple[int, int]] = []  # (seq, count) of jobs that are not leased now
    delayed: list[tuple[int, int]] = []  # (seq, ready at ms)


def decode(body: bytes) -> Event:
    """Return the event in a control frame."""
    event: Event = msgspec.json.decode(body, type=Event)
    return event
