"""Sections 2 and 4 of the contract: ``cap_bytes`` counts data and meta, and nothing else."""

from typing import Any

import msgspec
import pytest
from topics_api import Api

TEN = "x" * 8  # ten bytes of JSON with its quotes


async def put(api: Api, name: str, **config: Any) -> None:
    status, answer = await api.call("PUT", f"/v0/topics/{name}", config)
    assert status == 201, answer


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
async def test_s4_a_byte_cap_keeps_as_many_records_as_their_data_allows(
    api: Api, durability: str
) -> None:
    await put(api, "a-long-name-that-must-not-count", cap_bytes=50, durability=durability)
    for _ in range(8):
        await api.write("a-long-name-that-must-not-count", TEN)
    _, state = await api.call("GET", "/v0/topics/a-long-name-that-must-not-count")
    assert (state["count"], state["bytes"], state["earliest_seq"]) == (5, 50, 4)


async def test_s4_meta_counts_and_tags_and_nodes_do_not(api: Api) -> None:
    await put(api, "a", cap_bytes=60)
    body = {"records": [{"data": TEN, "meta": {"a": 1, "b": 2}, "tag": "t" * 99, "node": "n" * 99}]}
    each = 10 + len(msgspec.json.encode({"a": 1, "b": 2}))
    for _ in range(4):
        await api.call("POST", "/v0/topics/a", body)
    _, state = await api.call("GET", "/v0/topics/a")
    assert (state["count"], state["bytes"]) == (60 // each, 60 // each * each)


async def test_s5_5_a_full_topic_that_rejects_counts_data_to_the_byte(api: Api) -> None:
    await put(api, "a", cap_bytes=50, discard="reject")
    await api.write("a", *[TEN] * 4)
    assert await api.error("POST", "/v0/topics/a", {"records": [{"data": TEN + "x"}]}) == (
        422,
        "topic_full",
    )
    await api.write("a", TEN)
    _, refused = await api.call("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    assert refused["error"]["detail"] == {
        "topic": "a",
        "cap_records": 0,
        "cap_bytes": 50,
        "head_seq": 5,
        "earliest_seq": 1,
    }
    too_large = {"records": [{"data": TEN}] * 6}
    assert await api.error("POST", "/v0/topics/a", too_large) == (400, "record_too_large")


async def test_s5_1_a_tightened_byte_cap_acts_at_once(api: Api) -> None:
    await api.write("a", *[TEN] * 10)
    status, _ = await api.call("PUT", "/v0/topics/a", {"cap_bytes": 30})
    assert status == 200
    page = await api.diff("a")
    assert [record["$seq"] for record in page["records"]] == [8, 9, 10]
    assert page["tombstone"]["reason"] == "cap"


async def test_s4_bytes_stay_exact_through_appends_deletes_and_caps(api: Api) -> None:
    await put(api, "a", cap_bytes=1000)
    written = {}
    for number in range(200):
        data = "y" * (number % 37)
        answer = await api.write("a", data)
        written[answer["first_seq"]] = len(data) + 2
        if number % 11 == 0:
            await api.call("POST", "/v0/topics/a/delete", {"before_seq": answer["first_seq"] - 30})
        _, state = await api.call("GET", "/v0/topics/a")
        seqs = [each["$seq"] for each in (await api.diff("a", limit=1000))["records"]]
        assert state["bytes"] == sum(written[seq] for seq in seqs) <= 1000
