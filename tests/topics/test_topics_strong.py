"""Strong watches: what they show is on stable storage."""

import asyncio
from typing import Any

import pytest
from topics_api import Api, Events


async def opened(api: Api, *topics: str, **fields: Any) -> Events:
    starts = {name: {"tail": True} for name in topics}
    status, answer = await api.call("POST", "/v0/watch", {"topics": starts, **fields})
    assert status == 200, answer
    return Events(await api.send("GET", answer["stream_url"]))


async def strong(api: Api, *topics: str) -> Events:
    return await opened(api, *topics, consistency="strong", heartbeat_ms=60_000)


async def synced(api: Api, name: str) -> None:
    """Let the timer that syncs come round."""
    log = api.stream(name).log
    async with asyncio.timeout(20):
        while log.state().synced_seq < log.state().last_seq:
            # What can wait is written when the log's thread looks by itself, and ages from then on.
            api.pass_time(0.1)
            await asyncio.sleep(0.001)


async def began(api: Api, name: str, durability: str) -> None:
    """Make a topic whose first record is stable, so that no reservation syncs the next."""
    await api.call("PUT", f"/v0/topics/{name}", {"durability": durability})
    await api.write(name, "first")
    await synced(api, name)


async def is_quiet(coming: "asyncio.Task[Any]") -> bool:
    """Say whether nothing comes although everybody had a turn."""
    for _ in range(50):
        await asyncio.sleep(0.001)
    return not coming.done()


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_records_come_when_the_sync_has_covered_them(api: Api, durability: str) -> None:
    await began(api, "t", durability)
    held, free = await strong(api, "t"), await opened(api, "t")
    for events in (held, free):
        assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 1})
    coming = asyncio.ensure_future(held.named())
    await asyncio.sleep(0)
    await api.write("t", "second")
    assert (await free.named())[1]["to_seq"] == 2
    assert await is_quiet(coming)
    await synced(api, "t")
    name, data = await coming
    assert (name, data["from_seq"], data["to_seq"], data["head_seq"]) == ("record", 1, 2, 2)
    assert await held.named() == ("caught-up", {"topic": "t", "head_seq": 2})
    for events in (held, free):
        await events.close()


async def test_a_strong_watch_opens_at_what_is_stable(api: Api) -> None:
    await began(api, "t", "disk")
    await api.write("t", "second")
    starts = {"t": {"from_seq": 0}}
    body = {"topics": starts, "consistency": "strong"}
    _, answer = await api.call("POST", "/v0/watch", body)
    events = Events(await api.send("GET", answer["stream_url"]))
    assert (await events.named())[1]["to_seq"] == 1
    assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 1})
    await synced(api, "t")
    assert (await events.named())[1]["to_seq"] == 2
    await events.close()


async def test_a_strong_watch_from_now_on_does_not_take_itself_for_one_of_another_topic(
    api: Api,
) -> None:
    await began(api, "t", "disk")
    await api.write("t", "not stable yet")
    events = await strong(api, "t")
    assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 2})
    await api.write("t", "third")
    await synced(api, "t")
    name, data = await events.named()
    assert (name, [each["$seq"] for each in data["records"]]) == ("record", [3])
    await events.close()


@pytest.mark.parametrize("durability", ["fsync", "ephemeral"])
async def test_what_no_later_sync_covers_comes_at_once(api: Api, durability: str) -> None:
    await api.call("PUT", "/v0/topics/t", {"durability": durability})
    await api.write("t", "first")
    events = await strong(api, "t")
    assert await events.named() == ("caught-up", {"topic": "t", "head_seq": 1})
    await api.write("t", "second")
    assert (await events.named())[1]["to_seq"] == 2
    await events.close()


async def test_topics_of_a_strong_watch_do_not_wait_for_each_other(api: Api) -> None:
    await began(api, "a", "disk")
    await api.call("PUT", "/v0/topics/b", {"durability": "ephemeral"})
    await api.write("b", 0)  # the first one waits until it is written how far b may count
    events = await strong(api, "a", "b")
    assert (await events.named(), await events.named()) == (
        ("caught-up", {"topic": "a", "head_seq": 1}),
        ("caught-up", {"topic": "b", "head_seq": 1}),
    )
    await api.write("a", 1)
    await api.write("b", 2)
    assert (await events.named())[1]["topic"] == "b"
    await events.named()
    await synced(api, "a")
    assert (await events.named())[1]["topic"] == "a"
    await events.close()


async def test_what_a_cap_took_before_it_was_stable_is_told_as_lost(api: Api) -> None:
    await began(api, "t", "disk")
    events = await strong(api, "t")
    await events.named()
    await api.call("PUT", "/v0/topics/t", {"durability": "disk", "cap_records": 1})
    await synced(api, "t")
    coming = asyncio.ensure_future(events.named())
    await api.write("t", 2, 3, 4)
    name, data = await coming
    assert (name, data["gap_from"], data["gap_to"]) == ("tombstone", 2, 3)
    await synced(api, "t")
    assert (await events.named())[0] in ("record", "caught-up")
    await events.close()


async def test_a_strong_watch_is_never_sent_what_a_commit_pushes(api: Api) -> None:
    await began(api, "t", "disk")
    events = await strong(api, "t")
    pushed: list[bytes] = []

    class Connection:
        def push(self, piece: bytes) -> bool:
            pushed.append(piece)
            return True

        def writer(self, on_behind: object) -> None:
            return None

    events.answer.attach(Connection())  # type: ignore[arg-type, misc]
    await events.named()
    coming = asyncio.ensure_future(events.named())
    await asyncio.sleep(0)
    await api.write("t", 2)
    assert await is_quiet(coming)
    await synced(api, "t")
    assert (await coming)[1]["to_seq"] == 2
    assert not pushed
    await events.close()


async def test_leaving_a_strong_watch_leaves_nothing_behind(api: Api) -> None:
    await began(api, "t", "disk")
    events = await strong(api, "t")
    await events.named()
    await events.close()
    assert not api.stream("t").log.marks._watching  # type: ignore[attr-defined]


async def test_other_words_than_the_two_are_refused(api: Api) -> None:
    await api.write("t", 1)
    body = {"topics": {"t": {}}, "consistency": "weak"}
    assert await api.error("POST", "/v0/watch", body) == (400, "invalid_request")
