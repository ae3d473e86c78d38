"""Whether two servers did the same, and the shortest session that shows it when they did not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from compat.replay import Delivery, Line, Outcome
from compat.sessions import Session, group_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SHRINK_TRIES = 120


def differences(ours: Outcome, theirs: Outcome) -> list[str]:
    """Name everything that a client could tell the two servers apart by.

    Order counts within a subscription, not between subscriptions. A queue group is one receiver:
    each of its messages must reach one member, whichever. Headers depend on the member's CONNECT
    and are compared for plain subscriptions only. A no-responders status goes to any one of the
    publisher's subscriptions that match the reply, so it belongs to the connection.
    """
    found = []
    for conn, (our_state, their_state) in enumerate(zip(ours.states, theirs.states, strict=True)):
        if our_state != their_state:
            found.append(f"connection {conn} is {our_state}, not {their_state}")
        our_lines, their_lines = _lines(ours, conn), _lines(theirs, conn)
        if our_lines != their_lines:
            found.append(f"connection {conn} was told {our_lines}, not {their_lines}")
    our_received, their_received = _received(ours), _received(theirs)
    for receiver in sorted(our_received.keys() | their_received.keys()):
        mine, other = our_received[receiver], their_received[receiver]
        if mine != other:
            found.append(f"{receiver} received {_brief(mine)}, not {_brief(other)}")
    return found


async def shrink(session: Session, differ: Callable[[Session], Awaitable[bool]]) -> Session:
    """Leave out steps, last first, for as long as the servers still differ."""
    tries = 0
    size = max(len(session.steps) // 2, 1)
    while size and tries < SHRINK_TRIES:
        start, shrunk = len(session.steps) - size, False
        while start >= 0 and tries < SHRINK_TRIES:
            steps = session.steps[:start] + session.steps[start + size :]
            shorter = replace(session, steps=steps)
            tries += 1
            if await differ(shorter):
                session, shrunk = shorter, True
            start -= size
        if not shrunk:
            size //= 2
        size = min(size, len(session.steps))
    return session


def _lines(outcome: Outcome, conn: int) -> list[str]:
    """What came besides messages; where a +OK stood among the errors does not count.

    nats-server repeats an -ERR when a line and its payload come in two reads, so runs count once.
    """
    texts = [event.text for event in outcome.events[conn] if isinstance(event, Line)]
    errors = [text for text, _ in groupby(text for text in texts if text.startswith("-ERR"))]
    strange = [text for text in texts if text not in ("+OK", "PONG") and text not in errors]
    return [*errors, *strange, f"{texts.count('+OK')} x +OK", f"{texts.count('PONG')} x PONG"]


def _received(outcome: Outcome) -> dict[str, list[Delivery]]:
    received: dict[str, list[Delivery]] = defaultdict(list)
    for conn, events in enumerate(outcome.events):
        for event in events:
            if not isinstance(event, Delivery):
                continue
            if event.headers.startswith(b"NATS/1.0 503\r\nNats-Subject: "):
                received[f"connection {conn} status"].append(replace(event, sid=""))
            elif group := group_of(event.sid):
                received[f"group {group}"].append(replace(event, sid=group, headers=b""))
            else:
                received[f"connection {conn} sid {event.sid}"].append(event)
    for receiver, deliveries in received.items():
        if receiver.startswith("group"):
            deliveries.sort(key=lambda d: (d.payload, d.subject, d.reply))
    return received


def _brief(deliveries: list[Delivery]) -> list[tuple[bytes, bytes, bytes, bytes]]:
    return [(d.subject, d.reply, d.headers, d.payload[:12]) for d in deliveries]
