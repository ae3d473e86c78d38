"""Watchers who wait in one place are served by one decision, and each misses nothing by it."""

import asyncio
import random
import re
from asyncio import Task
from collections.abc import Callable

import pytest
from topics_api import Api, Events

from millstream.http.request import ANYONE, Caller
from millstream.http.response import Parcel, StreamedResponse
from millstream.http.way import Way
from millstream.topics.audience.alarm import Alarm
from millstream.topics.audience.row import FEW
from millstream.topics.watch.events import EventStream

MANY = FEW + 4


class Line:
    """A watcher's connection: ``asked`` counts pieces that it was asked about."""

    def __init__(self) -> None:
        self.heard = b""
        self.asked = 0
        self.is_behind = False
        self.falls_behind = False  # with the next piece
        self._stirred: Callable[[], None] | None = None

    def push(self, parcel: Parcel) -> bool:
        self.asked += 1
        if self.is_behind:
            return False
        self._write(parcel.chunked)
        return True

    def join(self, stirred: Callable[[], None]) -> Way | None:
        self._stirred = stirred
        return None if self.is_behind else Way(self)  # type: ignore[arg-type]

    def get_extra_info(self, name: str) -> None:
        """Tell nothing of a socket: pieces come by ``write``."""

    def write(self, data: bytes) -> None:
        self._write(data)

    def stir(self) -> None:
        stirred, self._stirred = self._stirred, None
        if stirred is not None:
            stirred()

    def _write(self, data: bytes) -> None:
        self.heard += data
        if self.falls_behind:
            self.is_behind, self.falls_behind = True, False
            self.stir()


class Watcher:
    """A tail of ``t`` and its connection; whatever comes either way is noted in its order."""

    def __init__(self, events: Events) -> None:
        assert isinstance(events.answer, StreamedResponse)
        self.line = Line()
        self.events = events
        self.chunks = events.answer.chunks
        self._task: Task[None] | None = None
        assert events.answer.attach is not None
        events.answer.attach(self.line)

    @classmethod
    async def opened(cls, api: Api, caller: Caller = ANYONE) -> "Watcher":
        made = cls(Events(await api.send("GET", "/v0/topics/t/tail", caller=caller)))
        assert (await made.events.named())[0] == "caught-up"
        made.read()
        await asyncio.sleep(0)
        return made

    def read(self) -> None:
        """Go on reading, as a connection does whose client has room."""
        self.line.is_behind = False
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self.chunks:
            self.line.heard += chunk
            if self.line.is_behind:  # as a connection waits for room behind each chunk
                return

    def seqs(self) -> list[int]:
        """Return the records that it was sent."""
        return [int(found) for found in re.findall(rb'"\$seq":(\d+)', self.line.heard)]

    async def close(self) -> None:
        self.line.stir()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.events.close()


async def write(api: Api, *data: object) -> int:
    """Write, and let happen what that sets in motion; returns the last sequence."""
    last: int = (await api.write("t", *data))["last_seq"]
    for _ in range(4):
        await asyncio.sleep(0)
    return last


async def seated(api: Api, count: int = MANY) -> list[Watcher]:
    """Return watchers who have made a row: nobody came or left for two commits."""
    await write(api, "first")
    watchers = [await Watcher.opened(api) for _ in range(count)]
    for n in range(2):
        await write(api, n)
    return watchers


async def closed(watchers: list[Watcher]) -> None:
    for each in watchers:
        await each.close()


async def test_who_waits_in_one_place_is_no_longer_asked_one_by_one(api: Api) -> None:
    watchers = await seated(api)
    asked = [each.line.asked for each in watchers]
    for n in range(3):
        await write(api, n)
    assert [each.line.asked for each in watchers] == asked
    assert all(each.seqs() == [2, 3, 4, 5, 6] for each in watchers)
    await closed(watchers)


async def test_a_few_watchers_make_no_row(api: Api) -> None:
    watchers = await seated(api, FEW)
    asked = watchers[0].line.asked
    await write(api, 0)
    assert watchers[0].line.asked == asked + 1
    await closed(watchers)


async def test_who_comes_later_is_sent_to_as_well(api: Api) -> None:
    watchers = await seated(api)
    await write(api, 0)
    watchers.append(await Watcher.opened(api))
    for n in range(4):
        await write(api, n)
    assert watchers[-1].seqs() == [5, 6, 7, 8]
    assert all(each.seqs() == [2, 3, 4, 5, 6, 7, 8] for each in watchers[:-1])
    await closed(watchers)


async def test_one_who_falls_behind_costs_the_others_nothing_and_goes_on_where_it_was(
    api: Api,
) -> None:
    watchers = await seated(api)
    slow = watchers[2]
    slow.line.falls_behind = True
    for n in range(3):
        await write(api, n)  # it takes one of them whole, and a chunk that waits for room
    assert slow.seqs() == [2, 3, 4, 5]
    assert all(each.seqs() == [2, 3, 4, 5, 6] for each in watchers if each is not slow)
    slow.read()
    await asyncio.sleep(0.01)
    await write(api, 3)
    await asyncio.sleep(0.01)
    assert all(each.seqs() == [2, 3, 4, 5, 6, 7] for each in watchers)
    await closed(watchers)


async def test_a_revoked_caller_in_a_row_is_sent_nothing_more(api: Api) -> None:
    await write(api, "first")
    caller = Caller(key="k")
    revoked = await Watcher.opened(api, caller)
    watchers = [await Watcher.opened(api) for _ in range(MANY)]
    for n in range(3):
        await write(api, n)
    assert revoked.seqs() == [2, 3, 4]
    caller.standing.revoked = True
    await write(api, "secret")
    await asyncio.sleep(0.01)
    assert revoked.seqs() == [2, 3, 4]
    assert b"unauthorized" in revoked.line.heard
    assert all(each.seqs() == [2, 3, 4, 5] for each in watchers)
    await closed([revoked, *watchers])


async def test_a_loss_ends_a_row_and_is_told_to_each(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 3})
    watchers = await seated(api)
    await write(api, *range(5))
    await asyncio.sleep(0.01)
    assert all(b"event: tombstone" in each.line.heard for each in watchers)
    assert all(each.seqs() == [2, 3, 6, 7, 8] for each in watchers)
    await closed(watchers)


async def test_watchers_who_see_a_topic_in_another_way_keep_their_own(api: Api) -> None:
    watchers = await seated(api)
    without = Watcher(Events(await api.send("GET", "/v0/topics/t/tail?include_tags=false")))
    assert (await without.events.named())[0] == "caught-up"
    without.read()
    await asyncio.sleep(0)
    for n in range(4):
        body = {"records": [{"data": n, "tag": "x"}]}
        await api.call("POST", "/v0/topics/t", body)
        await asyncio.sleep(0.001)
    assert b'"$tag"' not in without.line.heard
    assert all(each.line.heard.count(b'"$tag"') == 4 for each in watchers)
    assert without.seqs() == [4, 5, 6, 7]
    await closed([*watchers, without])


async def test_who_leaves_a_row_has_waited_since_the_row_was_sent_something(api: Api) -> None:
    watchers = await seated(api)
    assert isinstance(watchers[1].chunks, EventStream)
    alarm = watchers[1].chunks._alarm
    told_alone = alarm.patient_since
    await asyncio.sleep(0.002)
    await write(api, 0)
    assert alarm.patient_since == told_alone
    watchers[0].line.stir()
    assert alarm.patient_since > told_alone
    await closed(watchers)


async def test_what_a_row_is_sent_puts_the_heartbeat_off() -> None:
    class Bond:
        told_at = 0.0

        def end(self) -> None:
            alarm.bond = None

    alarm, loop = Alarm(), asyncio.get_running_loop()
    waiting = asyncio.create_task(alarm.wait(0.02))
    await asyncio.sleep(0)
    alarm.bond = bond = Bond()
    bond.told_at = told_at = loop.time() + 0.05
    assert await waiting is False
    assert loop.time() >= told_at + 0.02
    assert alarm.bond is None


@pytest.mark.parametrize("seed", range(8))
async def test_nobody_misses_a_record_or_gets_one_twice_whatever_happens(
    api: Api, seed: int
) -> None:
    dice = random.Random(seed)
    watchers, began = await seated(api, 12), {}
    for each in watchers:
        began[each] = 2
    last = 3
    for _ in range(120):
        event = dice.choice(("write",) * 6 + ("slow", "read", "ring", "come", "leave"))
        one = dice.choice(watchers)
        if event == "write":
            last = await write(api, *range(dice.randint(1, 3)))
        elif event == "slow":
            one.line.falls_behind = not one.line.is_behind
        elif event == "read":
            one.read()
        elif event == "ring":
            api.topics.wake()
        elif event == "come":
            came = await Watcher.opened(api)
            began[came] = last + 1
            watchers.append(came)
        elif len(watchers) > 2:
            watchers.remove(one)
            await one.close()
        if dice.random() < 0.3:
            await asyncio.sleep(0)
    for each in watchers:
        each.line.falls_behind = False
        each.read()
    last = await write(api, "last")
    await asyncio.sleep(0.05)
    for each in watchers:
        assert each.seqs() == list(range(began[each], last + 1))
    await closed(watchers)
