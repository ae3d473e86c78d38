"""Sections 4 and 5 of the contract: sentences about topics that stand for themselves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_topics_queues import Process
from topics_api import Api

from millstream.errors import StorageFull

TOPIC = "/v0/topics/t"


async def state(api: Api, query: str = "?touch=false") -> Any:
    return (await api.call("GET", TOPIC + query))[1]


async def write(api: Api, *records: dict[str, Any], **fields: Any) -> Any:
    return await api.call("POST", TOPIC, {"records": list(records), **fields})


# -- 4 ---------------------------------------------------------------------------------------


async def test_s4_priority_is_echoed_raw_and_clamped_only_where_it_counts(api: Api) -> None:
    for given, counts in ((5000, 1000), (-5000, -1000), (7, 7)):
        _, answer = await api.call("PUT", TOPIC, {"priority": given})
        assert answer["config"]["priority"] == given
        assert (await state(api))["effective_priority"] == counts


async def test_s4_auto_create_counts_only_in_the_config_of_a_creating_write(api: Api) -> None:
    _, answer = await write(api, {"data": 1}, config={"auto_create": False})
    assert answer["error"]["code"] == "topic_not_found"
    await api.call("PUT", TOPIC, {"auto_create": False})
    assert (await write(api, {"data": 1}))[0] == 200


async def test_s4_dedupe_node_false_shows_a_reader_its_own_records(api: Api) -> None:
    await write(api, {"data": 1, "node": "me"})
    assert (await api.diff("t", node="me"))["records"] == []
    await api.call("PUT", TOPIC, {"dedupe_node": False})
    assert len((await api.diff("t", node="me"))["records"]) == 1


async def test_s4_durability_changes_in_place(api: Api) -> None:
    await api.write("t", 1)
    for durability in ("fsync", "memory", "disk"):
        _, answer = await api.call("PUT", TOPIC, {"durability": durability})
        assert answer["config"]["durability"] == durability
        assert answer["config"]["durable"] == (durability == "fsync")
    assert (await api.write("t", 2))["first_seq"] == 2


# -- 5.1 to 5.4 ------------------------------------------------------------------------------


async def test_s5_1_put_is_201_once_and_200_after_that(api: Api) -> None:
    found = [await api.call("PUT", TOPIC, {}) for _ in range(2)]
    assert [(status, answer["created"]) for status, answer in found] == [(201, True), (200, False)]
    assert list(found[0][1]) == ["topic", "created", "config", "performance"]


async def test_s5_1_another_type_is_409_with_both_types(api: Api) -> None:
    await api.call("PUT", TOPIC, {"type": "queue"})
    status, answer = await api.call("PUT", TOPIC, {})
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
    assert answer["error"]["detail"] == {
        "topic": "t", "existing_type": "queue", "requested_type": "log",
    }  # fmt: skip


async def test_s5_2_touch_sets_last_read_ts_before_answering(api: Api) -> None:
    await api.write("t", 1)
    assert (await state(api))["last_read_ts"] is None
    assert (await state(api, ""))["last_read_ts"] == api.topics.now_ms()
    api.clock.advance(1)
    assert (await state(api))["last_read_ts"] == api.topics.now_ms() - 1000


async def test_s5_2_get_never_creates(api: Api) -> None:
    assert await api.error("GET", TOPIC) == (404, "topic_not_found")
    assert api.catalog.find("t") is None


async def test_s5_2_get_runs_the_routers_that_feed_the_topic(api: Api) -> None:
    await api.call("PUT", "/v0/routers/r", {"source": "a", "dest": "t"})
    await api.write("a", 1)
    assert (await state(api))["count"] == 1


async def test_s5_4_if_empty_refuses_with_the_count(api: Api) -> None:
    await api.write("t", 1, 2)
    status, answer = await api.call("DELETE", TOPIC + "?if_empty=true")
    assert (status, answer["error"]["code"]) == (409, "topic_not_empty")
    assert answer["error"]["detail"] == {"topic": "t", "count": 2}


async def test_s5_4_a_delete_takes_the_routers_of_the_topic_along_by_name(api: Api) -> None:
    for name, source, dest in (("z", "t", "x"), ("a", "y", "t"), ("other", "x", "v")):
        await api.call("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    _, answer = await api.call("DELETE", TOPIC)
    assert (answer["deleted"], answer["routers_removed"]) == (True, ["a", "z"])
    assert (await api.call("GET", "/v0/routers"))[1]["routers"][0]["router"] == "other"


async def test_s5_4_a_recreated_topic_begins_at_one(api: Api) -> None:
    await api.write("t", 1, 2)
    await api.call("DELETE", TOPIC)
    assert (await api.write("t", 3))["first_seq"] == 1


# -- 5.5 -------------------------------------------------------------------------------------


async def test_s5_5_a_record_without_a_node_has_that_of_the_write(api: Api) -> None:
    await write(api, {"data": 1}, {"data": 2, "node": "own"}, node="all")
    shown = (await api.diff("t"))["records"]
    assert [record["$node"] for record in shown] == ["all", "own"]


async def test_s5_5_seqs_are_left_out_by_the_query_alone(api: Api) -> None:
    body = {"records": [{"data": 1}], "return_seqs": False}
    assert (await api.call("POST", TOPIC, body))[1]["seqs"] == [1]
    assert "seqs" not in (await api.call("POST", TOPIC + "?return_seqs=false", body))[1]


async def test_s5_5_a_config_counts_only_where_the_write_creates(api: Api) -> None:
    await write(api, {"data": 1}, config={"ttl_ms": 5000})
    await write(api, {"data": 2}, config={"ttl_ms": 9000})
    assert (await state(api))["config"]["ttl_ms"] == 5000


async def test_s5_5_a_full_topic_is_422_and_nothing_is_appended(api: Api) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 2, "discard": "reject"})
    await api.write("t", 1)
    status, answer = await write(api, {"data": 2}, {"data": 3})
    assert (status, answer["error"]["code"]) == (422, "topic_full")
    assert answer["error"]["detail"] == {
        "topic": "t", "cap_records": 2, "cap_bytes": 0, "head_seq": 1, "earliest_seq": 1,
    }  # fmt: skip
    assert (await write(api, *[{"data": n} for n in range(3)]))[1]["error"]["code"] == (
        "record_too_large"
    )
    assert (await state(api))["head_seq"] == 1


async def test_s5_5_the_key_may_come_by_header_and_the_body_wins(api: Api) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "header"}
    body: dict[str, Any] = {"records": [{"data": 1}]}
    first = await api.call("POST", TOPIC, body, headers=headers)
    again = await api.call("POST", TOPIC, body, headers=headers)
    other = await api.call("POST", TOPIC, {**body, "idempotency_key": "body"}, headers=headers)
    assert [answer["deduped"] for _, answer in (first, again, other)] == [False, True, False]


async def test_s5_5_concurrent_writes_of_one_key_are_one_append(api: Api) -> None:
    wish = {"idempotency_key": "k"}
    found = await asyncio.gather(*[write(api, {"data": n}, **wish) for n in range(8)])
    assert sorted(answer["deduped"] for _, answer in found) == [False] + [True] * 7
    assert {answer["first_seq"] for _, answer in found} == {1}
    assert (await state(api))["count"] == 1


async def test_s5_5_a_key_is_forgotten_after_the_window_of_its_topic(api: Api) -> None:
    await api.call("PUT", TOPIC, {"idempotency_window_ms": 1000})
    for wait, deduped in ((0, False), (1.0, True), (0.001, False)):
        api.clock.advance(wait)
        assert (await write(api, {"data": 1}, idempotency_key="k"))[1]["deduped"] is deduped


async def test_s5_5_a_failed_write_stores_no_key(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.call("PUT", TOPIC, {})

    def full(*_: object, **__: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(api.stream("t")), "begin_append", full)
        assert (await write(api, {"data": 1}, idempotency_key="k"))[0] == 507
    assert (await write(api, {"data": 1}, idempotency_key="k"))[1]["deduped"] is False


# -- 5.6 -------------------------------------------------------------------------------------


async def test_s5_6_nothing_examined_leaves_the_position(api: Api) -> None:
    await api.write("t", 1, 2)
    answer = await api.diff("t", from_seq=2)
    assert (answer["next_from_seq"], answer["caught_up"], answer["lag"]) == (2, True, 0)
    assert answer["tombstone"] is None


async def test_s5_6_the_limit_leaves_a_lag(api: Api) -> None:
    await api.write("t", *range(5))
    answer = await api.diff("t", limit=2)
    assert (answer["next_from_seq"], answer["caught_up"], answer["lag"]) == (2, False, 3)


async def test_s5_6_what_was_deleted_is_silent(api: Api) -> None:
    await api.write("t", *range(5))
    await api.call("POST", TOPIC + "/delete", {"before_seq": 4})
    answer = await api.diff("t")
    assert answer["tombstone"] is None
    assert [record["$seq"] for record in answer["records"]] == [4, 5]


async def test_s5_6_cap_and_ttl_together_are_mixed(api: Api) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 3})
    await api.write("t", *range(5))
    await api.call("PUT", TOPIC, {"ttl_ms": 1000})
    api.clock.advance(2)
    await api.write("t", 6)
    lost = (await api.diff("t"))["tombstone"]
    assert (lost["gap_from"], lost["gap_to"], lost["reason"]) == (1, 5, "mixed")
    assert lost["missed_estimate"] == 5


async def test_s5_6_a_long_poll_wakes_by_an_append_and_ends_at_its_deadline(api: Api) -> None:
    await api.write("t", 1)
    waiting = asyncio.create_task(api.diff("t", from_seq=1, wait_ms=30_000))
    await asyncio.sleep(0)
    assert not waiting.done()
    await api.write("t", 2)
    async with asyncio.timeout(20):
        assert [record["$seq"] for record in (await waiting)["records"]] == [2]
    assert (await api.diff("t", from_seq=2, wait_ms=20))["records"] == []


# -- 5.7 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "match",
    [
        ["tag", "Eq"], ["node", "Eq", "x"], ["tag", "Like", "x"], ["tag", "Glob", "x"],
        ["tag", "Eq", "x", "y"],
    ],
)  # fmt: skip
async def test_s5_7_a_tuple_that_is_not_one_is_400(api: Api, match: list[str]) -> None:
    await api.write("t", 1)
    assert (await api.error("POST", TOPIC + "/delete", {"match": match}))[0] == 400


async def test_s5_7_no_selector_is_400_before_404_and_get_is_405(api: Api) -> None:
    assert (await api.error("POST", TOPIC + "/delete", {}))[0] == 400
    assert await api.error("GET", TOPIC + "/delete") == (405, "method_not_allowed")


async def test_s5_7_both_selectors_mean_and(api: Api) -> None:
    await write(api, *[{"data": n, "tag": "a"} for n in range(3)], {"data": 3})
    body = {"match": "a", "before_seq": 3}
    assert (await api.call("POST", TOPIC + "/delete", body))[1]["deleted"] == 2
    assert [record["$seq"] for record in (await api.diff("t"))["records"]] == [3, 4]


async def test_s5_7_a_glob_is_a_plain_prefix_and_untagged_records_never_match(api: Api) -> None:
    tags = ("chat-42:a", "chat-420:a", "chat-42:", None)
    await write(api, *[{"data": 1} | ({"tag": tag} if tag else {}) for tag in tags])
    _, answer = await api.call("POST", TOPIC + "/delete", {"match": "chat-42:*"})
    assert answer["deleted"] == 2
    _, answer = await api.call("POST", TOPIC + "/delete", {"match": ["tag", "Glob", "*"]})
    assert answer["deleted"] == 1
    assert [record["$seq"] for record in (await api.diff("t"))["records"]] == [4]


async def test_s5_7_a_front_record_removed_by_match_moves_earliest(api: Api) -> None:
    await write(api, {"data": 1, "tag": "x"}, {"data": 2})
    _, answer = await api.call("POST", TOPIC + "/delete", {"match": "x"})
    assert (answer["earliest_seq"], answer["head_seq"], answer["count"]) == (2, 2, 1)
    assert (await state(api))["earliest_seq"] == 2


@pytest.mark.parametrize("snapshot", [False, True])
async def test_s5_7_what_was_deleted_stays_deleted_after_a_restart(
    tmp_path: Path, snapshot: bool
) -> None:
    process = Process(tmp_path / "data")
    try:
        records = [{"data": n, "tag": tag} for n, tag in enumerate(["a", "b", "a", "b", "c"], 1)]
        await write(process.api, *records)
        await process.api.call("POST", TOPIC + "/delete", {"before_seq": 2})
        await process.api.call("POST", TOPIC + "/delete", {"match": "b"})
        before = await process.api.diff("t")
        after = await (await process.again(snapshot=snapshot)).diff("t")
        assert [record["$seq"] for record in after["records"]] == [3, 5]
        assert after["tombstone"] is None
        assert (after["earliest_seq"], after["head_seq"]) == (3, 5)
        assert after["records"] == before["records"]
    finally:
        process.end()
