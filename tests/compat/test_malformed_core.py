"""Whatever a client sends, and however it is cut, the end is one and is nats-server's."""

from __future__ import annotations

import asyncio
import os
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, TypeAlias

import pytest

from compat.malformed import corpus, ways_to_send
from compat.replay import Delivery, Event, Line, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.peers import Peer

PROOF = bool(os.environ.get("MILLSTREAM_PROOF"))
INPUTS = int(os.environ.get("MILLSTREAM_INPUTS", "2000" if PROOF else "260"))
AT_ONCE = 24
SHOWN = 20
GROWTH = 32 << 20

End: TypeAlias = tuple[str, tuple[Event, ...]]


def settled(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events without what nats-server leaves open.

    One publish may reach two subscriptions in any order, and an -ERR comes twice when a line and
    its payload arrive apart. Everything else keeps its place.
    """
    ordered: list[Event] = []
    for is_delivery, run in groupby(events, key=lambda event: isinstance(event, Delivery)):
        found = list(run)
        if is_delivery:
            found.sort(key=lambda event: event.sid if isinstance(event, Delivery) else "")
        ordered += found
    repeated = [a == b and _is_error(a) for a, b in pairwise([*ordered, Line("")])]
    return tuple(event for event, again in zip(ordered, repeated, strict=True) if not again)


def _is_error(event: Event) -> bool:
    return isinstance(event, Line) and event.text.startswith("-ERR")


async def end_of(pieces: Sequence[bytes], peer: Peer, pause: float = 0) -> End:
    """What a connection has seen when all is sent, followed by a PING that shows if it lives.

    A pause makes it likely that the server reads each piece, and the PING, alone.
    """
    wire = await Wire.open(peer)
    try:
        sent = [*pieces, b"PING\r\n"] if pause else [*pieces[:-1], pieces[-1] + b"PING\r\n"]
        for piece in sent:
            await wire.write(piece)
            await asyncio.sleep(pause)
        await wire.finish()
        return wire.state, settled(wire.events)
    finally:
        wire.close()


async def ends(number: int, data: bytes, peer: Peer) -> list[End]:
    return [await end_of(pieces, peer) for pieces in ways_to_send(data, number)]


async def verdict(number: int, data: bytes, candidate: Peer, reference: Peer) -> str:
    """Empty when all is well.

    Where nats-server itself depends on how the bytes are cut, any of its ends will do.
    """
    ours, theirs = await asyncio.gather(
        ends(number, data, candidate), ends(number, data, reference)
    )
    if len(set(ours)) > 1:
        return f"{data[:300]!r}\n  depends on the cut: {set(ours)}"
    if ours[0] not in theirs:
        halves = [[data[:at], data[at:]] for at in range(1, min(len(data), 200))]
        slowly = [*ways_to_send(data, number), *halves]
        theirs += [await end_of(pieces, reference, pause=0.002) for pieces in slowly]
    if ours[0] not in theirs:
        return f"{data[:300]!r}\n  ends as {ours[0]}\n  not as  {theirs[0]}"
    return ""


async def complaints(inputs: list[bytes], candidate: Peer, reference: Peer) -> list[str]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def tried(number: int, data: bytes) -> str:
        async with gate:
            return await verdict(number, data, candidate, reference)

    verdicts = await asyncio.gather(*(tried(n, data) for n, data in enumerate(inputs)))
    return [text for text in verdicts if text]


def test_the_corpus_is_the_same_every_time_and_has_no_repetitions() -> None:
    assert corpus(400) == corpus(400)
    assert len(set(corpus(2000))) == 2000


def test_every_way_to_send_adds_up_to_the_input() -> None:
    assert {b"".join(pieces) for pieces in ways_to_send(b"PUB a 1\r\nx\r\n", 7)} == {
        b"PUB a 1\r\nx\r\n"
    }


@pytest.mark.timeout(1800)
async def test_malformed_input_ends_as_on_nats_server_however_it_is_cut(
    candidate: Peer, reference: Peer
) -> None:
    inputs = corpus(INPUTS)
    await complaints(inputs[:20], candidate, reference)
    before = candidate.rss_bytes()
    found = await complaints(inputs, candidate, reference)
    print(f"inputs tried: {len(inputs)} in 5 ways, differences: {len(found)}")
    assert "Traceback" not in candidate.output()
    assert candidate.rss_bytes() - before <= GROWTH
    assert not found, f"{len(found)} of {len(inputs)} differ\n" + "\n".join(found[:SHOWN])
