"""Watchers that one commit wakes send the same bytes, rendered once, and never stale ones."""

import asyncio

from topics_api import Api, Events

from millstream.http.response import StreamedResponse
from millstream.topics.alarm import Alarm


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
    assert len(api.topics.pulses) == 1
    for each in watchers:
        await each.close()
        await each.close()
    assert len(api.topics.pulses) == 0
    assert api.topics.sse_connections == 0


async def test_an_alarm_that_rang_before_the_wait_ends_it_at_once() -> None:
    alarm = Alarm()
    alarm.ring()
    assert await alarm.wait(60) is True
    alarm.clear()
    assert await alarm.wait(0) is False


async def test_an_alarm_wakes_its_waiter() -> None:
    alarm = Alarm()
    waiting = asyncio.create_task(alarm.wait(60))
    await asyncio.sleep(0)
    alarm.ring()
    alarm.ring()
    assert await waiting is True
