"""millstream and a real nats-server, told the same things, must do the same."""

from __future__ import annotations

import asyncio
import os

import pytest

from compat.differences import differences, shrink
from compat.replay import play
from compat.sessions import Session, generate
from support.peers import Peer, nats_server

PROOF = bool(os.environ.get("MILLSTREAM_PROOF"))
SESSIONS = int(os.environ.get("MILLSTREAM_SESSIONS", "5000" if PROOF else "200"))
AT_ONCE = 24
SHOWN = 10


async def disagreements(session: Session, candidate: Peer, reference: Peer) -> list[str]:
    ours, theirs = await asyncio.gather(play(session, candidate), play(session, reference))
    return differences(ours, theirs)


async def disagreeing(seeds: range, candidate: Peer, reference: Peer) -> list[Session]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def tried(session: Session) -> bool:
        async with gate:
            return bool(await disagreements(session, candidate, reference))

    sessions = [generate(seed) for seed in seeds]
    verdicts = await asyncio.gather(*(tried(session) for session in sessions))
    return [session for session, differs in zip(sessions, verdicts, strict=True) if differs]


async def report(found: list[Session], candidate: Peer, reference: Peer) -> str:
    async def differ(session: Session) -> bool:
        return bool(await disagreements(session, candidate, reference))

    parts = []
    for session in found[:SHOWN]:
        small = await shrink(session, differ)
        named = await disagreements(small, candidate, reference)
        parts.append(f"seed {session.seed}:\n{small.transcript()}\n  = " + "\n  = ".join(named))
    return "\n".join(parts)


async def test_nats_server_agrees_with_itself(reference: Peer) -> None:
    with nats_server() as other:
        found = await disagreeing(range(60), other, reference)
        assert not found, await report(found, other, reference)


@pytest.mark.timeout(1800)
async def test_generated_sessions_end_as_they_do_on_nats_server(
    candidate: Peer, reference: Peer
) -> None:
    found = await disagreeing(range(SESSIONS), candidate, reference)
    print(f"sessions tried: {SESSIONS}, differences: {len(found)}")
    assert "Traceback" not in candidate.output()
    assert not found, f"{len(found)} of {SESSIONS} differ\n" + await report(
        found, candidate, reference
    )
