"""JetStream sessions played on millstream and on a real nats-server must end the same."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from compat.differences import shrink
from compat.jetstream_excuses import Occasions, differences
from compat.jetstream_replay import Player, Server
from compat.jetstream_sessions import Session, generate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PROOF = bool(os.environ.get("MILLSTREAM_PROOF"))
SESSIONS = int(os.environ.get("MILLSTREAM_JS_SESSIONS", "2000" if PROOF else "40"))
FIRST = int(os.environ.get("MILLSTREAM_JS_FIRST", "0"))
AT_ONCE = 40
# The reference tells consumers of new records, and streams of acks, a moment later than it
# answers: what differs is played again with pauses, and must still differ.
PACES = (0.0, 0.02, 0.08)
# Each showed a difference once: a removed record's deliveries, requests without the pin, consumers
# of mirrors in counts, a -NAK of the last delivery, a purge of one pending record, an ack that
# makes no room, the floor after a purge, what was given up once more is allowed, the answer to
# who makes a push consumer, a floor that a filtered purge has moved.
ONCE_DIFFERED = (3046, 3091, 694, 1090, 2005, 47793, 50548, 51117, 50898, 61263, 75280)
SHOWN = int(os.environ.get("MILLSTREAM_JS_SHOWN", "5"))


class Pair:
    """Both servers, restarted together."""

    def __init__(self, directory: Path, names: tuple[str, str] = ("millstream", "nats-server")):
        self._directory, self._names = directory, names
        self._prefixes = (f"s{number}" for number in itertools.count())
        self._rounds = itertools.count()
        self.begin()

    def begin(self) -> None:
        """Start both over directories of their own."""
        directory = self._directory / f"round-{next(self._rounds)}"
        directory.mkdir()
        self._servers = [
            Server(directory / f"{at}-{name}", name) for at, name in enumerate(self._names)
        ]
        self.peers = [server.start() for server in self._servers]

    def renew(self) -> None:
        """Forget everything that was played: a start reads what all sessions left."""
        assert "Traceback" not in self.peers[0].output()
        self.stop()
        for made in self._directory.glob("round-*"):
            shutil.rmtree(made)
        self.begin()

    def stop(self) -> None:
        for server in self._servers:
            server.stop()

    def restart(self) -> None:
        self.stop()
        self.peers = [server.start() for server in self._servers]

    async def differences(self, sessions: list[Session], pace: float) -> list[list[str]]:
        """Play the sessions together; returns what differs in each."""
        prefixes = [next(self._prefixes) for _ in sessions]
        players = [
            [Player(session, prefix, pace) for _ in self._servers]
            for session, prefix in zip(sessions, prefixes, strict=True)
        ]
        more = True
        while more:
            playing = [
                one.play(peer)
                for both in players
                for one, peer in zip(both, self.peers, strict=True)
            ]
            more = any(await asyncio.gather(*playing))
            if more:
                await asyncio.to_thread(self.restart)
        return [
            differences(ours.seen, theirs.seen, Occasions.of(session))
            for session, (ours, theirs) in zip(sessions, players, strict=True)
        ]


async def disagreeing(pair: Pair, seeds: Sequence[int]) -> list[Session]:
    found: list[Session] = []
    for start in range(0, len(seeds), AT_ONCE):
        if start:
            await asyncio.to_thread(pair.renew)
        group = [generate(seed) for seed in seeds[start : start + AT_ONCE]]
        for pace in PACES:
            named = await pair.differences(group, pace)
            group = [session for session, diffs in zip(group, named, strict=True) if diffs]
            if not group:
                break
        found += group
    return found


async def report(pair: Pair, found: list[Session]) -> str:
    async def differ(session: Session) -> bool:
        return all([(await pair.differences([session], pace))[0] for pace in PACES])

    parts = []
    for session in found[:SHOWN]:
        small = await shrink(session, differ)  # type: ignore[arg-type]
        named = (await pair.differences([small], PACES[1]))[0]
        parts.append(f"seed {session.seed}:\n{small.transcript()}\n  = " + "\n  = ".join(named))
    return "\n".join(parts)


@pytest.fixture
def pair(tmp_path: Path):
    made = Pair(tmp_path)
    yield made
    made.stop()


@pytest.mark.timeout(3600)
async def test_jetstream_sessions_end_as_they_do_on_nats_server(pair: Pair) -> None:
    found = await disagreeing(pair, range(FIRST, FIRST + SESSIONS))
    print(f"JetStream sessions tried: {SESSIONS}, differences: {[s.seed for s in found]}")
    assert "Traceback" not in pair.peers[0].output()
    assert not found, f"{len(found)} of {SESSIONS} differ\n" + await report(pair, found)


@pytest.mark.timeout(300)
async def test_sessions_that_once_differed_end_the_same(pair: Pair) -> None:
    found = await disagreeing(pair, ONCE_DIFFERED)
    assert not found, await report(pair, found)
