"""Generated JSON bodies: millstream reads them as nats-server does, and refuses in its words."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from compat.jetstream_replay import Caller
from compat.json_bodies import Ask, Case, generate, sample
from compat.json_excuses import excuse, may_be_asked
from compat.test_differential_jetstream import Pair, pair
from support.scale import count

if TYPE_CHECKING:
    from compat.replay import Delivery
    from support.peers import Peer

__all__ = ["pair"]  # a fixture

LANES = 8
PATIENCE, UNANSWERED, QUIET = 60.0, 3.0, 0.06
ENDED = re.compile(rb"NATS/1.0 (404|408|409|400|204|503)")
BODIES = int(os.environ.get("MILLSTREAM_JSON_BODIES", count(400, 6000)))
CHANGING = {"created", "ts", "time", "timestamp", "last_active", "first_ts", "last_ts", "api"}
CHANGING |= {"cluster", "pause_remaining"}
SHARED = {"memory", "storage", "reserved_memory", "reserved_storage", "streams", "consumers"}


class Lane:
    """One client of one server, whose names begin with a prefix of its own."""

    def __init__(self, caller: Caller, prefix: str) -> None:
        self._caller = caller
        self._prefix = prefix

    async def answers(self, case: Case) -> list[Any]:
        """Ask everything in turn."""
        return [await self._ask(ask) for ask in case.asks]

    async def _ask(self, ask: Ask) -> Any:
        inbox, sid = self._caller.inbox()
        body = ask.body.replace(b"@", self._prefix.encode())
        self._caller.publish(ask.subject.replace("@", self._prefix), body, inbox)
        seen: list[Any] = []
        patience = UNANSWERED if ask.is_many or ".RESET." in ask.subject else PATIENCE
        while (got := await self._caller.take(sid, patience)) is not None:
            seen.append(self._own(shown(got)))
            if not ask.is_many or ENDED.match(got.headers):
                break
            patience = QUIET
        self._caller.unsubscribe(sid)
        return seen

    def _own(self, answer: Any) -> Any:
        """Leave out of a list what other lanes have made."""
        body = answer[1]
        if isinstance(body, dict) and body.get("type", "").endswith("account_info_response"):
            return [answer[0], {key: one for key, one in body.items() if key not in SHARED}]
        if isinstance(body, dict) and isinstance(body.get("streams"), list):
            body["streams"] = [
                one for one in body["streams"] if f'"{self._prefix}S"' in json.dumps(one)
            ]
            body["total"] = 0
        elif isinstance(body, dict) and "streams" in body:
            body["total"], body["streams"] = 0, []
        return answer


def shown(message: Delivery) -> Any:
    """Return an answer without what is random or of the moment."""
    block = re.sub(rb"Nats-(Time-Stamp|Stream-Identity): [^\r]*", b"", message.headers)
    body: Any = message.payload.decode(errors="replace")
    if body.startswith("{"):
        body = plain(json.loads(body))
    return [block.decode(errors="replace").replace("NATS/1.0\r\n\r\n\r\n", ""), body]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in CHANGING}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str):
        return re.sub(r"(\$JS\.SNAPSHOT\.[A-Z]+\.[^.]+)\..*", r"\1.X", value)
    return value


async def play(peer: Peer, cases: list[Case]) -> list[list[Any]]:
    """Ask one server everything, in lanes side by side."""
    seen: list[list[Any]] = [[] for _ in cases]

    async def run(number: int) -> None:
        caller = await Caller.open(peer)
        try:
            lane = Lane(caller, f"j{number}")
            for at in range(number, len(cases), LANES):
                seen[at] = await lane.answers(cases[at])
        finally:
            await caller.close()

    async with asyncio.TaskGroup() as group:
        for number in range(LANES):
            group.create_task(run(number))
    return seen


@pytest.mark.timeout(3600)
async def test_generated_bodies_are_read_as_nats_server_reads_them(pair: Pair) -> None:
    cases = sample([case for case in generate() if may_be_asked(case)], BODIES)
    ours, theirs = await asyncio.gather(*(play(peer, cases) for peer in pair.peers))
    excused: dict[str, int] = {}
    found = []
    for case, mine, other in zip(cases, ours, theirs, strict=True):
        if mine == other:
            continue
        if reason := excuse(case, mine, other):
            excused[reason] = excused.get(reason, 0) + 1
        else:
            found.append(f"{case.name}\n  {case.asked.body[:300]!r}\n  {mine}\n  not {other}")
    print(f"JSON bodies tried: {len(cases)}, differences: {len(found)}, excused: {excused}")
    assert not found, f"{len(found)} of {len(cases)} differ\n" + "\n".join(found[:40])
    assert "Traceback" not in pair.peers[0].output()
