"""JetStream sessions played on millstream and on a real nats-server must end the same."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from compat.differences import shrink
from compat.jetstream_replay import Player, Server
from compat.jetstream_sessions import Session, generate
from millstream.consumers.answers import DROPPED
from support.broker import servable

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
EPHEMERAL_NS = 5 * 10**9
# Each showed a difference once: a removed record's deliveries, requests without the pin, consumers
# of mirrors in counts, a -NAK of the last delivery, a purge of one pending record, an ack that
# makes no room, the floor after a purge, what was given up once more is allowed, the answer to
# who makes a push consumer.
ONCE_DIFFERED = (3046, 3091, 694, 1090, 2005, 47793, 50548, 51117, 50898)
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
            differences(
                ours.seen,
                theirs.seen,
                cuts=purges_partly(session),
                purges=purges_by_filter(session),
                refiltered=refiltered(session),
                acks_all=any(b'"ack_policy": "all"' in step.body for step in session.steps),
                give_up=giving_up(session),
            )
            for session, (ours, theirs) in zip(sessions, players, strict=True)
        ]


def purges_by_filter(session: Session) -> bool:
    """Whether records of some subjects are purged; a roll-up of one is such a purge."""
    purges = any("PURGE" in step.subject and b"filter" in step.body for step in session.steps)
    return purges or rolls_up(session, "sub")


def purges_partly(session: Session) -> bool:
    """Whether a purge leaves records, as a roll-up does."""
    purges = any("PURGE" in step.subject and step.body for step in session.steps)
    return purges or rolls_up(session, "sub", "all")


def rolls_up(session: Session, *kinds: str) -> bool:
    """Whether a stream that allows roll-ups may get one of these kinds."""
    allow = (b'"allow_rollup_hdrs": true', b'"subject_delete_marker_ttl"')
    return any(word in step.body for step in session.steps for word in allow) and any(
        name == "Nats-Rollup" and kind.lower() in kinds
        for step in session.steps
        for name, kind in step.headers
    )


def refiltered(session: Session) -> frozenset[str]:
    """Return the consumers that are asked for with filters, and asked for again with others."""
    asked: dict[tuple[str, str], set[str]] = {}
    for stream, config in asked_consumers(session):
        filters = json.dumps([config.get("filter_subject"), config.get("filter_subjects")])
        asked.setdefault((stream, name_of(config)), set()).add(filters)
    return frozenset(name for (_, name), filters in asked.items() if len(filters) > 1)


def giving_up(session: Session) -> frozenset[str]:
    """Return the consumers that are asked to deliver only so often, at one time or another."""
    asked = [config for _, config in asked_consumers(session)]
    return frozenset(name_of(config) for config in asked if config.get("max_deliver", 0) > 0)


def name_of(config: dict[str, Any]) -> str:
    return str(config.get("name") or config.get("durable_name") or "GENERATED")


def asked_consumers(session: Session) -> list[tuple[str, dict[str, Any]]]:
    """Return the stream and the configuration of each consumer that is asked for."""
    makes = re.compile(r"\$JS\.API\.CONSUMER\.(?:DURABLE\.)?CREATE\.([^.]+)")
    return [
        (match[1], json.loads(step.body)["config"])
        for step in session.steps
        if (match := makes.match(step.subject))
    ]


def forgive(mine: Any, other: Any, give_up: frozenset[str]) -> None:
    """Take over the few answers of the reference that ours differ from for a written reason.

    docs/reference/compatibility.md names them. ``give_up``: consumers with a ``max_deliver``.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive(a, b, give_up)
    if not isinstance(mine, dict) or not isinstance(other, dict):
        return
    for key in mine.keys() & other.keys():
        forgive(mine[key], other[key], give_up)
    if "ack_floor" in mine and mine["name"] in give_up:
        # What was given up is below the floor; the reference moves its own and shows the old one.
        shown = other.get("ack_floor", mine["ack_floor"])
        if mine["ack_floor"]["stream_seq"] > shown["stream_seq"]:
            mine["ack_floor"] = shown
    ends = mine.get("durable_name") and mine.get("inactive_threshold") == EPHEMERAL_NS
    if ends and "inactive_threshold" not in other:
        # An update made it durable: at the next restart the reference forgets the threshold.
        del mine["inactive_threshold"]
    if "consumer_count" in mine and "consumer_count" in other:
        # Four bytes for each header block, and a hole at 0 in a store that was never used.
        if mine["bytes"] <= other["bytes"] <= mine["bytes"] + 4 * mine["messages"]:
            mine["bytes"] = other["bytes"]
        if other["last_seq"] == mine["last_seq"] == 0:
            mine["first_seq"] = other["first_seq"]  # a purge of nothing makes it 1
        if other.get("deleted") == [0] or (other["messages"] == 0 and "num_deleted" in other):
            mine |= {key: other[key] for key in ("deleted", "num_deleted") if key in other}


def forgive_pending(mine: Any, other: Any, whose: frozenset[str] | None) -> None:
    """Take over deliveries that the reference awaits acks of though their records are gone.

    After a purge it looks at them only where the floor is below the first record, and otherwise
    only where the record matches the filters that the consumer has by then. ``whose``: consumers
    that this may happen to, None for all.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive_pending(a, b, whose)
    elif isinstance(mine, dict) and isinstance(other, dict):
        is_meant = whose is None or mine.get("name") in whose
        if is_meant and mine.get("num_ack_pending", 0) < other.get("num_ack_pending", 0):
            mine |= {key: other[key] for key in ("num_ack_pending", "ack_floor")}
        if whose is None and "ack_floor" in mine and mine["config"]["ack_policy"] == "all":
            # Where all is acked, it shows a removed record as the floor of those that are pending.
            shown = other.get("ack_floor", mine["ack_floor"])
            if mine["ack_floor"]["stream_seq"] < shown["stream_seq"]:
                mine["ack_floor"] = shown
        for key in mine.keys() & other.keys():
            forgive_pending(mine[key], other[key], whose)


def forgive_floors(mine: Any, other: Any) -> None:
    """Take over the consumer sequence of the floor below deliveries that are still pending.

    Where a filtered purge removes one behind them, the reference moves it there, unless the end of
    that delivery, which it leaves to another thread, comes first.
    """
    if isinstance(mine, list) and isinstance(other, list):
        for a, b in zip(mine, other, strict=False):
            forgive_floors(a, b)
    elif isinstance(mine, dict) and isinstance(other, dict):
        floor, shown = mine.get("ack_floor"), other.get("ack_floor")
        is_pending = floor and shown and mine.get("num_ack_pending")
        if is_pending and floor["stream_seq"] == shown["stream_seq"]:
            floor["consumer_seq"] = shown["consumer_seq"]
        for key in mine.keys() & other.keys():
            forgive_floors(mine[key], other[key])


def forgive_events(
    ours: list[Any], theirs: list[Any], kind: str, whose: frozenset[str] | None = None
) -> None:
    """Take out events of ours that the reference does not tell of, of all or of these consumers.

    It looks at a consumer's new filters when a record goes that was delivered under the old ones,
    and takes no -NAK of a delivery below the floor that a filtered purge has moved. Where all is
    acked, what such a purge removes acks what was delivered before it.
    """
    for mine, other in zip(ours, theirs, strict=False):
        if mine[:1] == ["events"] == other[:1]:
            extra = Counter(mine) - Counter(other)
            for event in extra.elements():
                name = json.loads(event)[0].rpartition(".")[2]
                if kind in event and (whose is None or name in whose):
                    mine.remove(event)


def forgive_counts(mine: Any, other: Any) -> None:
    """Take over counts of pending records in ack subjects that the reference has yet to correct.

    It does so when it is next asked for the consumer's info.
    """
    if not isinstance(mine, list) or not isinstance(other, list):
        return
    for at, (a, b) in enumerate(zip(mine, other, strict=False)):
        if isinstance(a, str) and isinstance(b, str) and a.startswith("$JS.ACK."):
            subject, _, left = a.rpartition(".")
            counted = b.removeprefix(f"{subject}.")
            if counted.isdigit() and int(counted) > int(left):
                mine[at] = b
        forgive_counts(a, b)


def differences(
    ours: list[Any],
    theirs: list[Any],
    *,
    cuts: bool = False,
    purges: bool = False,
    refiltered: frozenset[str] = frozenset(),
    acks_all: bool = False,
    give_up: frozenset[str] = frozenset(),
) -> list[str]:
    forgive(ours, theirs, give_up)
    if cuts:
        forgive_counts(ours, theirs)
    if purges:
        forgive_floors(ours, theirs)
        forgive_events(ours, theirs, "CONSUMER.MSG_NAKED.")
    if purges or refiltered:
        forgive_pending(ours, theirs, None if purges else refiltered)
    if refiltered or (purges and acks_all):
        forgive_events(ours, theirs, DROPPED, None if purges and acks_all else refiltered)
    return [
        f"step {at}: {'; '.join(where(mine, other))}"
        for at, (mine, other) in enumerate(zip(ours, theirs, strict=True))
        if mine != other
    ]


def where(mine: object, other: object, path: str = "") -> list[str]:
    """Name the places in which two answers differ."""
    if isinstance(mine, list) and isinstance(other, list) and mine[:1] == ["events"]:
        extra, missing = Counter(mine) - Counter(other), Counter(other) - Counter(mine)
        return [f"events too many {list(extra)}, missing {list(missing)}"]
    if isinstance(mine, dict) and isinstance(other, dict):
        keys = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
        return [
            line for key in keys for line in where(mine.get(key), other.get(key), f"{path}.{key}")
        ]
    if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        pairs = [(at, a, b) for at, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b]
        return [line for at, a, b in pairs for line in where(a, b, f"{path}.{at}")]
    return [f"{path or '.'} is {json.dumps(mine)[:600]}, not {json.dumps(other)[:600]}"]


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
    if not servable():
        pytest.skip("this tree does not serve yet")
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
