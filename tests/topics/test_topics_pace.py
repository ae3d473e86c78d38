"""What clients notice of the governor: later, fewer, paused, refused; never lost."""

import asyncio
from typing import Any

from msgspec.structs import replace
from topics_api import Api, Events

from millstream.delivery.governor import Measures

CALM = Measures()
PRESSED = Measures(0.9, 17.5, 9.05, defers=True)


def impose(api: Api, measures: Measures) -> None:
    """Put the server under a pressure, as the governor would."""
    scheduler = api.topics.scheduler
    governor = scheduler._governor
    governor.measures = measures
    # Its own looks, every 100 ms, find no load here and would end the pressure.
    governor.sample = lambda seen: governor.measures  # type: ignore[method-assign]
    scheduler._ready.defers = measures.defers
    api.topics._take_measures(measures)


async def watch(api: Api, *names: str) -> Events:
    body = {"topics": {name: {"tail": True} for name in names}}
    _, opened = await api.call("POST", "/v0/watch", body)
    events = Events(await api.send("GET", opened["stream_url"]))
    for _ in names:
        assert (await events.named())[0] == "caught-up"
    return events


async def test_a_topic_of_negative_priority_is_paused_told_and_still_read(api: Api) -> None:
    await api.call("PUT", "/v0/topics/low", {"priority": -1})
    events = await watch(api, "low")
    impose(api, PRESSED)
    waiting = asyncio.ensure_future(events.named())
    api.topics.wake()
    name, told = await waiting
    assert (name, told["code"], told["topic"]) == ("error", "throttled", "low")
    assert told["retry_after_ms"] == 1000
    waiting = asyncio.ensure_future(events.named())
    await api.write("low", 1)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert (await api.diff("low"))["records"][0]["data"] == 1
    impose(api, CALM)
    api.topics.scheduler._turn_later()
    name, shown = await waiting
    assert (name, shown["records"][0]["data"]) == ("record", 1)
    await events.close()


async def test_who_comes_while_a_topic_is_paused_reads_on_as_soon_as_the_load_has_gone(
    api: Api,
) -> None:
    await api.call("PUT", "/v0/topics/low", {"priority": -1})
    await api.write("low", 1)
    impose(api, PRESSED)
    events = Events(await api.send("GET", "/v0/topics/low/tail?from_seq=0"))
    assert (await events.named())[1]["code"] == "throttled"
    waiting = asyncio.ensure_future(events.named())
    await asyncio.sleep(0)
    impose(api, CALM)
    api.topics.scheduler._turn_later()  # as the governor's next look has it
    async with asyncio.timeout(5):  # the heartbeat would wake it after fifteen seconds
        name, shown = await waiting
    assert (name, shown["records"][0]["data"]) == ("record", 1)
    await events.close()


async def test_other_topics_are_pushed_while_one_is_paused(api: Api) -> None:
    await api.call("PUT", "/v0/topics/low", {"priority": -1})
    await api.call("PUT", "/v0/topics/high", {"priority": 900})
    events = await watch(api, "high", "low")
    impose(api, PRESSED)
    await api.write("low", 1)
    await api.write("high", 2)
    found = [await events.named() for _ in range(3)]
    assert [(name, shown["topic"]) for name, shown in found] == [
        ("record", "high"),
        ("caught-up", "high"),
        ("error", "low"),
    ]
    await events.close()


async def test_records_of_one_window_come_in_one_event(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t")
    events = await watch(api, "t")
    waiting = asyncio.ensure_future(events.named())
    await asyncio.sleep(0)
    impose(api, Measures(0.3, 3_600_000.0))
    for n in range(3):
        await api.write("t", n)
    assert not waiting.done()
    api.topics.scheduler._turn()  # as when the window ends
    _, shown = await waiting
    assert [record["data"] for record in shown["records"]] == [0, 1, 2]
    assert (await events.named())[0] == "caught-up"
    impose(api, Measures(0.3, 20.0))  # a window that ends by itself
    await api.write("t", 3)
    assert [record["data"] for record in (await events.named())[1]["records"]] == [3]
    await events.close()


async def test_a_write_says_how_long_it_was_held_back(api: Api) -> None:
    assert (await api.write("t", 1))["performance"]["throttle_wait_ms"] == 0.0
    impose(api, Measures(0.5, 7.5, 5.25))
    assert (await api.write("t", 2))["performance"]["throttle_wait_ms"] == 5.25
    assert (await api.diff("t"))["head_seq"] == 2


async def test_a_write_is_refused_with_retry_after_unless_it_asks_not_to_be(api: Api) -> None:
    await api.write("t", 1)
    impose(api, replace(PRESSED, refuses=True))
    body = {"records": [{"data": 2}]}
    answer = await api.send("POST", "/v0/topics/t", body)
    assert (answer.status, dict(answer.headers)[b"Retry-After"]) == (429, b"1")
    assert b'"code":"throttled"' in answer.body
    assert b'"retry_after_ms":1000' in answer.body
    status, _ = await api.call("POST", "/v0/topics/t", {**body, "disable_backpressure": True})
    assert status == 200
    assert (await api.diff("t"))["head_seq"] == 2


async def test_a_write_of_lines_asks_by_its_query_not_to_be_refused(api: Api) -> None:
    await api.write("t", 1)
    impose(api, replace(PRESSED, refuses=True))
    line: dict[str, Any] = {"body": b'{"data":2}', "headers": {"content-type": "application/jsonl"}}
    assert (await api.call("POST", "/v0/topics/t", **line))[0] == 429
    assert (await api.call("POST", "/v0/topics/t?disable_backpressure=0", **line))[0] == 429
    assert (await api.call("POST", "/v0/topics/t?disable_backpressure=1", **line))[0] == 200
    assert (await api.diff("t"))["head_seq"] == 2


async def test_metrics_tell_the_pressure_and_what_is_given_up(api: Api) -> None:
    impose(api, PRESSED)
    body = (await api.send("GET", "/v0/metrics")).body
    for line in (
        b"topics_pressure 0.9\n",
        b"topics_coalesce_ms 17.5\n",
        b"topics_commit_window_ms 9.05\n",
        b"topics_deferring 1\n",
        b"topics_refusing 0\n",
        b"topics_delivery_ready 0\n",
    ):
        assert line in body


async def test_a_wider_commit_window_lets_writes_that_come_later_share_one_commit(api: Api) -> None:
    await api.call("PUT", "/v0/topics/t", {"durability": "fsync"})

    committer, commits = api.store.shards.committer(api.stream("t").incarnation), []
    write = committer._writer.write

    def noted(group: list[Any], now: float) -> Any:  # the log's own marks come when they like
        commits.append(len(group))
        return write(group, now)

    committer._writer.write = noted  # type: ignore[method-assign]
    impose(api, replace(CALM, commit_window_ms=3_600_000.0))
    first = asyncio.create_task(api.write("t", 1))
    await asyncio.sleep(0.05)  # long after a commit without a window would have begun
    second = asyncio.create_task(api.write("t", 2))
    while api.topics.commits.depth < 2:  # noqa: ASYNC110 - it is on its way by itself
        await asyncio.sleep(0)
    api.store.hurry(api.stream("t").incarnation)  # as when the window ends
    await asyncio.gather(first, second)
    assert commits == [2]
    impose(api, CALM)
    await api.write("t", 3)
    await api.write("t", 4)
    assert commits == [2, 1, 1]
    impose(api, replace(CALM, commit_window_ms=20.0))
    await api.write("t", 5)  # its window ends by itself
