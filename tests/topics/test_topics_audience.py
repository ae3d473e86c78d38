"""Watchers that one commit wakes send the same bytes, rendered once, and never stale ones."""

import asyncio
import base64
from asyncio import Task
from collections.abc import Callable
from typing import Any

from topics_api import Api, Events

from millstream.http.request import ANYONE, Caller
from millstream.http.response import StreamedResponse
from millstream.http.response import chunk as chunked
from millstream.topics.audience.follower import Follower
from millstream.topics.audience.read_position import ReadPosition
from millstream.topics.audience.wakeup import Wakeup
from millstream.topics.page.page import Query
from millstream.topics.watch.socket_renderer import SocketRenderer


def plain(piece: bytes) -> bytes:
    """Return what a chunk of HTTP/1.1 holds."""
    return piece.partition(b"\r\n")[2].removesuffix(b"\r\n")


async def tails(api: Api, count: int, query: str = "") -> list[Events]:
    found = [Events(await api.send("GET", f"/v0/topics/t/tail{query}")) for _ in range(count)]
    for each in found:
        assert (await each.named())[0] == "caught-up"
    return found


async def chunk(events: Events) -> bytes:
    assert isinstance(events.answer, StreamedResponse)
    async with asyncio.timeout(5):
        return await anext(events.answer.chunks)


async def test_watchers_in_the_same_place_get_the_very_same_bytes(api: Api) -> None:
    await api.write("t", 0)
    watchers = await tails(api, 5)
    waiting = [asyncio.create_task(chunk(each)) for each in watchers]
    await asyncio.sleep(0)
    await api.write("t", {"n": 1})
    sent = [await each for each in waiting]
    assert b'"data":{"n":1}' in sent[0]
    assert all(each is sent[0] for each in sent)
    for each in watchers:
        await each.close()


async def test_each_watcher_goes_on_from_where_it_stands(api: Api) -> None:
    await api.write("t", 0)
    first, second = await tails(api, 2)
    await api.write("t", 1)
    assert (await first.named())[1]["records"][0]["data"] == 1
    await api.write("t", 2)  # the second watcher has seen neither
    assert [r["data"] for r in (await second.named())[1]["records"]] == [1, 2]
    assert (await first.named())[0] == "caught-up"
    assert [r["data"] for r in (await first.named())[1]["records"]] == [2]
    await first.close()
    await second.close()


async def test_a_record_deleted_before_a_watcher_looks_is_not_sent(api: Api) -> None:
    await api.write("t", 0)
    first, second = await tails(api, 2)
    await api.write("t", 1, 2)
    assert len((await first.named())[1]["records"]) == 2
    await api.stream("t").delete([2])
    assert [r["$seq"] for r in (await second.named())[1]["records"]] == [3]
    await first.close()
    await second.close()


async def test_watchers_who_wish_to_see_different_things_do_not_share(api: Api) -> None:
    await api.write("t", 0)
    with_tags, without = (
        (await tails(api, 1, "?include_tags=true"))[0],
        (await tails(api, 1, "?include_tags=false"))[0],
    )
    await api.call("POST", "/v0/topics/t", {"records": [{"data": 1, "tag": "x"}]})
    assert (await with_tags.named())[1]["records"][0]["$tag"] == "x"
    assert "$tag" not in (await without.named())[1]["records"][0]
    await with_tags.close()
    await without.close()


async def test_a_topic_made_anew_is_followed(api: Api) -> None:
    await api.write("t", 0, 1, 2)
    (watcher,) = await tails(api, 1)
    await api.call("DELETE", "/v0/topics/t")
    await api.write("t", "again")
    event, told = await watcher.named()
    assert (event, told["reason"]) == ("tombstone", "recreated")
    event, told = await watcher.named()
    assert (event, told["records"][0]["data"]) == ("record", "again")
    await api.write("t", "and again")
    assert (await watcher.named())[0] == "caught-up"
    assert (await watcher.named())[1]["records"][0]["data"] == "and again"
    await watcher.close()


async def test_nobody_is_listened_for_once_all_watchers_have_left(api: Api) -> None:
    await api.write("t", 0)
    watchers = await tails(api, 3)
    assert len(api.topics.audiences) == 1
    for each in watchers:
        await each.close()
        await each.close()
    assert len(api.topics.audiences) == 0
    assert api.topics.sse_connections == 0


async def test_a_wakeup_that_rang_before_the_wait_ends_it_at_once() -> None:
    wakeup = Wakeup()
    wakeup.ring()
    assert await wakeup.wait(60) is True
    wakeup.clear()
    assert await wakeup.wait(0) is False


async def test_a_wakeup_wakes_its_waiter() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait(60))
    await asyncio.sleep(0)
    wakeup.ring()
    wakeup.ring()
    assert await waiting is True


class Taking:
    """A connection that takes pieces while ``is_open``, and is in no group with others."""

    def __init__(self, taken: list[bytes], is_open: bool = True) -> None:
        self._taken = taken
        self._is_open = is_open

    def push(self, piece: bytes) -> bool:
        if self._is_open:
            self._taken.append(piece)
        return self._is_open

    def writer(self, on_behind: Callable[[], None]) -> None:
        return None


async def pushed(api: Api, target: str, **more: Any) -> tuple[Events, list[bytes], Task[bytes]]:
    """Return a caught-up stream whose connection takes pieces, and what it was pushed."""
    events = Events(await api.send("GET", target, **more))
    taken: list[bytes] = []
    assert (await events.named())[0] == "caught-up"
    assert isinstance(events.answer, StreamedResponse)
    assert events.answer.attach is not None

    events.answer.attach(Taking(taken))
    waiting = asyncio.create_task(chunk(events))
    await asyncio.sleep(0)
    return events, taken, waiting


async def leave(events: Events, waiting: Task[bytes]) -> None:
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await events.close()


async def test_an_update_goes_to_all_connections_as_one_piece_and_wakes_nobody(api: Api) -> None:
    await api.write("t", 0)
    watchers = [await pushed(api, "/v0/topics/t/tail") for _ in range(3)]
    await api.write("t", {"n": 1})
    sent = [taken[0] for _, taken, _ in watchers]
    assert b'"data":{"n":1}' in sent[0]
    assert sent[0] == chunked(plain(sent[0]))
    assert all(piece is sent[0] for piece in sent)
    assert not any(waiting.done() for _, _, waiting in watchers)
    for events, _, waiting in watchers:
        await leave(events, waiting)


async def test_what_a_connection_does_not_take_comes_as_a_chunk_once(api: Api) -> None:
    await api.write("t", 0)
    events, taken, waiting = await pushed(api, "/v0/topics/t/tail")
    assert isinstance(events.answer, StreamedResponse)
    assert events.answer.attach is not None
    events.answer.attach(Taking([], is_open=False))
    await api.write("t", 1)
    assert b'"from_seq":1,"head_seq":2,"records":[{"$seq":2,' in await waiting
    events.answer.attach(Taking(taken))
    waiting = asyncio.create_task(chunk(events))
    await asyncio.sleep(0)
    await api.write("t", 2)
    assert b'"from_seq":2,"head_seq":3,"records":[{"$seq":3,' in taken[0]
    await leave(events, waiting)


async def test_pushed_events_name_all_topics_of_a_session(api: Api) -> None:
    await api.write("a", 0)
    await api.write("b", 0)
    made = (await api.call("POST", "/v0/watch", {"topics": {"a": {"tail": True}, "b": {}}}))[1]
    events = Events(await api.send("GET", made["stream_url"]))
    for expected in ("caught-up", "record", "caught-up"):
        assert (await events.named())[0] == expected
    taken: list[bytes] = []
    assert isinstance(events.answer, StreamedResponse)
    assert events.answer.attach is not None
    events.answer.attach(Taking(taken))
    waiting = asyncio.create_task(chunk(events))
    await asyncio.sleep(0)
    await api.write("a", 1)
    first, last, _ = plain(taken[0]).split(b"\n\n")
    event_id = b"id: " + base64.urlsafe_b64encode(b'{"a":2,"b":1}').rstrip(b"=")
    assert first.startswith(event_id + b'\nevent: record\ndata: {"topic":"a"')
    assert last == event_id + b'\nevent: caught-up\ndata: {"topic":"a","head_seq":2}'
    await leave(events, waiting)


async def test_a_revoked_caller_is_pushed_nothing_more(api: Api) -> None:
    await api.write("t", 0)
    caller = Caller(key="k")
    events, taken, waiting = await pushed(api, "/v0/topics/t/tail", caller=caller)
    caller.standing.revoked = True
    await api.write("t", 1)
    assert b"unauthorized" in await waiting
    assert taken == []
    await events.close()


async def test_a_loss_is_never_pushed_past(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 2})
    await api.write("t", 0)
    events, taken, waiting = await pushed(api, "/v0/topics/t/tail")
    await api.write("t", 1, 2, 3, 4, 5)
    assert b"event: tombstone" in await waiting
    assert taken == []
    await events.close()


async def test_records_that_a_watcher_does_not_want_are_passed_over_without_a_push(
    api: Api,
) -> None:
    await api.write("t", 0)
    wish = {"topics": {"t": {"tail": True}}, "node": "me"}
    made = (await api.call("POST", "/v0/watch", wish))[1]
    events, taken, waiting = await pushed(api, made["stream_url"])
    for data, node in ((1, "me"), (2, "you")):
        await api.write("t", data, node=node)
        await asyncio.sleep(0)  # for what a write sets in motion
    assert len(taken) == 1
    assert b'"from_seq":2,"head_seq":3,"records":[{"$seq":3,' in taken[0]
    assert not waiting.done()
    await leave(events, waiting)


async def test_updates_of_a_topic_with_a_time_to_live_are_shared_too(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"ttl_ms": 1000})
    watchers = [await pushed(api, "/v0/topics/t/tail") for _ in range(2)]
    await api.write("t", 1)
    assert watchers[0][1][0] is watchers[1][1][0]
    for events, _, waiting in watchers:
        await leave(events, waiting)


async def test_updates_that_can_expire_are_forgotten_once_everybody_was_told(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"ttl_ms": 1000})
    audience, told = api.topics.audiences.of(api.stream("t")), []

    class Looking:
        is_waiting = False
        push = None

        def ring(self) -> None:
            view = follower.view
            assert view is not None
            told.append((audience.may_share, view.update(0) is view.update(0)))

    renderer = SocketRenderer(compressed=False)
    follower = Follower("t", ReadPosition(0), Query(), ANYONE, renderer, Looking())
    follower.join(audience)
    await api.write("t", 1)
    assert told == [(True, True)]
    assert not audience.may_share
    assert follower.view is not None
    assert follower.view._updates == {}
    follower.leave()


async def test_what_is_pushed_puts_the_heartbeat_off() -> None:
    loop = asyncio.get_running_loop()
    sent_at = [0.0]
    wakeup = Wakeup(lambda: sent_at[0])
    waiting = asyncio.create_task(wakeup.wait(0.02))
    await asyncio.sleep(0)
    sent_at[0] = began = loop.time() + 0.05
    assert await waiting is False
    assert loop.time() >= began + 0.02


async def test_whoever_waits_is_told_of_the_end_of_the_wait() -> None:
    stirred: list[bool] = []
    wakeup = Wakeup(on_stir=lambda: stirred.append(wakeup.is_waiting))
    assert await wakeup.wait(0) is False
    assert stirred
    assert not any(stirred)
