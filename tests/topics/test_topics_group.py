"""Watchers who wait in one place are served by one decision, and each misses nothing by it."""

import asyncio
import random
import re
from asyncio import Task
from collections.abc import Callable

import pytest
from topics_api import Api, Events

from millstream.http.request import ANYONE, Caller
from millstream.http.response import StreamedResponse
from millstream.http.socket_writer import SocketWriter
from millstream.topics.audience.group import FEW
from millstream.topics.watch.event_stream import EventStream

MANY = FEW + 4


class Line:
    """A watcher's connection: ``asked`` counts pieces that it was asked about."""

    def __init__(self) -> None:
        self.heard = b""
        self.asked = 0
        self.is_behind = False
        self.falls_behind = False  # with the next piece
        self._on_behind: Callable[[], None] | None = None

    def push(self, piece: bytes) -> bool:
        self.asked += 1
        if self.is_behind:
            return False
        self._write(piece)
        return True

    def writer(self, on_behind: Callable[[], None]) -> SocketWriter | None:
        self._on_behind = on_behind
        return None if self.is_behind else SocketWriter(self)  # type: ignore[arg-type]

    def get_extra_info(self, name: str) -> None:
        """Tell nothing of a socket: pieces come by ``write``."""

    def write(self, data: bytes) -> None:
        self._write(data)

    def tell_behind(self) -> None:
        on_behind, self._on_behind = self._on_behind, None
        if on_behind is not None:
            on_behind()

    def _write(self, data: bytes) -> None:
        self.heard += data
        if self.falls_behind:
            self.is_behind, self.falls_behind = True, False
            self.tell_behind()


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
        self.line.tell_behind()
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


async def grouped(api: Api, count: int = MANY) -> list[Watcher]:
    """Return watchers who are in one group: each was sent to and waits."""
    await write(api, "first")
    watchers = [await Watcher.opened(api) for _ in range(count)]
    for n in range(2):
        await write(api, n)
    return watchers


async def closed(watchers: list[Watcher]) -> None:
    for each in watchers:
        await each.close()


async def test_who_waits_in_one_place_is_no_longer_asked_one_by_one(api: Api) -> None:
    watchers = await grouped(api)
    asked = [each.line.asked for each in watchers]
    for n in range(3):
        await write(api, n)
    assert [each.line.asked for each in watchers] == asked
    assert all(each.seqs() == [2, 3, 4, 5, 6] for each in watchers)
    await closed(watchers)


async def test_who_comes_later_is_asked_once_and_the_others_not_again(api: Api) -> None:
    watchers = await grouped(api)
    asked = [each.line.asked for each in watchers]
    late = await Watcher.opened(api)
    for n in range(3):
        await write(api, n)
    assert [each.line.asked for each in watchers] == asked
    assert late.line.asked == 1
    await closed([*watchers, late])


async def test_who_comes_later_is_sent_to_as_well(api: Api) -> None:
    watchers = await grouped(api)
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
    watchers = await grouped(api)
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


async def test_a_revoked_caller_in_a_group_is_sent_nothing_more(api: Api) -> None:
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


async def test_a_loss_ends_a_group_and_is_told_to_each(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 3})
    watchers = await grouped(api)
    await write(api, *range(5))
    await asyncio.sleep(0.01)
    assert all(b"event: tombstone" in each.line.heard for each in watchers)
    assert all(each.seqs() == [2, 3, 6, 7, 8] for each in watchers)
    await closed(watchers)


async def test_watchers_who_see_a_topic_in_another_way_keep_their_own(api: Api) -> None:
    watchers = await grouped(api)
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


async def test_each_member_of_a_group_has_its_own_position_at_any_time(api: Api) -> None:
    watchers = await grouped(api)
    last = await write(api, 0)
    for each in watchers:
        assert isinstance(each.chunks, EventStream)
        assert each.chunks._session.positions["t"].cursor == last
    await closed(watchers)


async def test_what_a_group_is_sent_puts_the_heartbeat_of_each_off(api: Api) -> None:
    watchers = await grouped(api)
    stream = watchers[1].chunks
    assert isinstance(stream, EventStream)
    before = stream._last_sent()
    await asyncio.sleep(0.002)
    await write(api, 0)
    assert stream._last_sent() > before
    await closed(watchers)


async def test_one_who_leaves_a_group_leaves_the_others_together(api: Api) -> None:
    watchers = await grouped(api)
    asked = [each.line.asked for each in watchers[1:]]
    await watchers[0].close()
    await write(api, 0)
    assert [each.line.asked for each in watchers[1:]] == asked
    assert all(each.seqs() == [2, 3, 4] for each in watchers[1:])
    await closed(watchers[1:])


@pytest.mark.parametrize("seed", range(8))
async def test_nobody_misses_a_record_or_gets_one_twice_whatever_happens(
    api: Api, seed: int
) -> None:
    dice = random.Random(seed)
    watchers, began = await grouped(api, 12), {}
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
