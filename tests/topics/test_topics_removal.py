"""Deleting records: by position, by tag, silent for readers and permanent."""

import asyncio
from typing import Any

import pytest

from millstream.store.segments.tags import STRETCH


async def tagged(api: Any, *tags: str | None) -> None:
    records = [{"data": n, "tag": tag} for n, tag in enumerate(tags, 1)]
    await api.call("POST", "/v0/topics/t", {"records": records})


async def left(api: Any) -> list[int]:
    return [record["$seq"] for record in (await api.diff("t"))["records"]]


async def test_records_before_a_sequence_are_deleted(api: Any) -> None:
    await api.write("t", *range(5))
    status, answer = await api.call("POST", "/v0/topics/t/delete", {"before_seq": 4})
    answer.pop("performance")
    assert status == 200
    assert answer == {
        "topic": "t",
        "deleted": 3,
        "earliest_seq": 4,
        "head_seq": 5,
        "count": 2,
        "bytes": 2,
    }
    page = await api.diff("t")
    assert (page["tombstone"], len(page["records"])) == (None, 2)


async def test_deleting_everything_leaves_an_empty_topic_that_goes_on(api: Any) -> None:
    await api.write("t", *range(5))
    answer = (await api.call("POST", "/v0/topics/t/delete", {"before_seq": 2**64 - 1}))[1]
    assert (answer["deleted"], answer["earliest_seq"], answer["bytes"]) == (5, 6, 0)
    assert (await api.write("t", 1))["first_seq"] == 6


@pytest.mark.parametrize(
    ("match", "kept"),
    [
        ("a", [2, 3, 4, 5]),
        ("chat-42:*", [1, 4, 5]),
        (["tag", "Eq", "chat-42:1"], [1, 3, 4, 5]),
        (["tag", "Glob", "chat-4*"], [1, 5]),
        (["tag", "Eq", "*"], [1, 2, 3, 4, 5]),
        ("*", [5]),
    ],
)
async def test_records_are_selected_by_tag(api: Any, match: object, kept: list[int]) -> None:
    await tagged(api, "a", "chat-42:1", "chat-42:2", "chat-420:1", None)
    status, answer = await api.call("POST", "/v0/topics/t/delete", {"match": match})
    assert (status, answer["deleted"]) == (200, 5 - len(kept))
    assert await left(api) == kept
    assert answer["earliest_seq"] == kept[0]


async def test_both_selectors_must_hold(api: Any) -> None:
    await tagged(api, "a", "a", "a")
    await api.call("POST", "/v0/topics/t/delete", {"match": "a", "before_seq": 3})
    assert await left(api) == [3]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"before_seq": -1},
        {"match": 5},
        {"match": ["tag", "Eq"]},
        {"match": ["node", "Eq", "a"]},
        {"match": ["tag", "Like", "a"]},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Eq", 5]},
    ],
)
async def test_a_bad_selector_is_refused_before_the_topic_is_looked_for(
    api: Any, body: object
) -> None:
    assert await api.error("POST", "/v0/topics/no/delete", body) == (400, "invalid_request")


async def test_a_missing_body_or_topic_is_refused(api: Any) -> None:
    assert await api.error("POST", "/v0/topics/no/delete") == (415, "unsupported_media_type")
    body = {"before_seq": 1}
    assert await api.error("POST", "/v0/topics/no/delete", body) == (404, "topic_not_found")


async def test_others_have_the_loop_while_the_first_search_reads_every_tag(api: Any) -> None:
    for start in range(0, 40_000, 10_000):
        records = [{"data": n, "tag": f"job:{n % 7}"} for n in range(start, start + 10_000)]
        await api.call("POST", "/v0/topics/t", {"records": records})
    turns, is_over = 0, False

    async def bystander() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await asyncio.sleep(0)

    standing_by = asyncio.ensure_future(bystander())
    answer = (await api.call("POST", "/v0/topics/t/delete", {"match": "job:3"}))[1]
    is_over = True
    await standing_by
    assert answer["deleted"] == len(range(3, 40_000, 7))
    assert turns >= 40_000 // STRETCH
