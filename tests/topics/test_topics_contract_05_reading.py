"""Section 5 of the contract: sentences about states, lists, keys and losses, with exact values."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_topics_queues import Process
from topics_api import Api

TOPIC = "/v0/topics/t"


async def state(api: Api) -> Any:
    return (await api.call("GET", TOPIC + "?touch=false"))[1]


def seqs(page: Any) -> list[int]:
    return [record["$seq"] for record in page["records"]]


# -- 5.1 to 5.4 ----------------------------------------------------------------------------------


async def test_s5_1_a_shorter_time_to_live_acts_at_once(api: Api) -> None:
    await api.write("t", 1, 2)
    api.clock.advance(2)
    await api.write("t", 3)
    await api.call("PUT", TOPIC, {"ttl_ms": 1000})
    page = await api.diff("t")
    assert (seqs(page), page["earliest_seq"], page["tombstone"]["reason"]) == ([3], 3, "ttl")
    assert (await state(api))["count"] == 1


async def test_s5_1_the_answer_is_that_of_the_topic_that_was_asked_for(api: Api) -> None:
    _, answer = await api.call("PUT", TOPIC, {"cap_records": 5})
    assert (answer["topic"], answer["config"]["cap_records"]) == ("t", 5)
    assert (await state(api))["config"] == answer["config"]


async def test_s5_2_a_written_topic_shows_its_positions_and_the_time_of_its_last_write(
    api: Api,
) -> None:
    await api.write("t", "xx", 7)
    api.clock.advance(3)
    await api.write("t", 8)
    written = api.topics.now_ms()
    api.clock.advance(3)
    await api.call("POST", TOPIC + "/delete", {"before_seq": 2})
    found = await state(api)
    assert {name: found[name] for name in ("head_seq", "earliest_seq", "next_seq", "count")} == {
        "head_seq": 3, "earliest_seq": 2, "next_seq": 4, "count": 2,
    }  # fmt: skip
    assert (found["bytes"], found["last_write_ts"]) == (2, written)


async def test_s5_2_a_queue_says_its_type(api: Api) -> None:
    await api.call("PUT", TOPIC, {"type": "queue"})
    found = await state(api)
    assert (found["type"], found["config"]["type"]) == ("queue", "queue")
    assert found["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}


async def test_s5_3_a_list_touches_only_if_told_to(api: Api) -> None:
    await api.write("t", 1)
    await api.call("GET", "/v0/topics")
    assert (await state(api))["last_read_ts"] is None
    await api.call("GET", "/v0/topics?touch=true")
    assert (await state(api))["last_read_ts"] == api.topics.now_ms()


async def test_s5_3_a_list_holds_the_names_that_begin_with_the_prefix(api: Api) -> None:
    for name in ("ab", "b", "a", "abc", "aB"):
        await api.write(name, 1)
    for prefix, names in (("ab", ["ab", "abc"]), ("", ["a", "aB", "ab", "abc", "b"]), ("x", [])):
        _, answer = await api.call("GET", f"/v0/topics?prefix={prefix}")
        assert [each["topic"] for each in answer["topics"]] == names


async def test_s5_3_a_list_says_which_topics_are_durable(api: Api) -> None:
    await api.call("PUT", TOPIC, {"durability": "fsync", "priority": 3})
    _, answer = await api.call("GET", "/v0/topics")
    assert answer["topics"] == [
        {
            "topic": "t", "head_seq": 0, "earliest_seq": 1, "count": 0, "bytes": 0,
            "durable": True, "effective_priority": 3,
        }
    ]  # fmt: skip


@pytest.mark.parametrize("emptied", [False, True])
async def test_s5_4_if_empty_deletes_what_holds_nothing(api: Api, emptied: bool) -> None:
    await api.call("PUT", TOPIC, {})
    if emptied:
        await api.write("t", 1, 2)
        await api.call("POST", TOPIC + "/delete", {"before_seq": 9})
    _, answer = await api.call("DELETE", TOPIC + "?if_empty=true")
    assert (answer["topic"], answer["deleted"]) == ("t", True)
    assert await api.error("GET", TOPIC) == (404, "topic_not_found")


async def test_s5_4_a_recreated_topic_inherits_no_config_no_keys_and_no_times(api: Api) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 1})
    await api.write("t", 1, 2, idempotency_key="k")
    await api.diff("t")
    await api.call("DELETE", TOPIC)
    again = await api.write("t", 3, idempotency_key="k")
    assert (again["deduped"], again["created"], again["seqs"]) == (False, True, [1])
    found = await state(api)
    assert (found["config"]["cap_records"], found["last_read_ts"]) == (0, None)
    assert (await api.diff("t"))["tombstone"] is None


# -- 5.5 -----------------------------------------------------------------------------------------


async def test_s5_5_records_are_numbered_without_gaps_in_the_order_of_the_array(api: Api) -> None:
    answers = await asyncio.gather(
        *(api.write("t", *(f"{n}.{i}" for i in range(5))) for n in range(6))
    )
    shown = {record["$seq"]: record["data"] for record in (await api.diff("t"))["records"]}
    assert sorted(shown) == list(range(1, 31))
    for number, answer in enumerate(answers):
        assert answer["seqs"] == list(range(answer["first_seq"], answer["last_seq"] + 1))
        assert [shown[seq] for seq in answer["seqs"]] == [f"{number}.{i}" for i in range(5)]


async def test_s5_5_one_bad_record_and_none_is_written(api: Api) -> None:
    await api.write("t", 0)
    records = [{"data": 1}, {"data": 2, "tag": "t" * 257}, {"data": 3}]
    assert (await api.error("POST", TOPIC, {"records": records}))[0] == 400
    assert (await state(api))["head_seq"] == 1


async def test_s5_5_a_hit_is_200_and_leaves_the_topic_as_it_was(api: Api) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}
    assert (await api.call("POST", TOPIC, body))[0] == 201
    await api.write("t", 3)
    status, again = await api.call("POST", TOPIC, {**body, "records": [{"data": "other"}]})
    again.pop("performance")
    assert (status, again) == (
        200,
        {
            "topic": "t", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "count": 2,
            "created": False, "deduped": True,
        },
    )  # fmt: skip
    assert [record["data"] for record in (await api.diff("t"))["records"]] == [1, 2, 3]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_s5_5_a_retry_after_a_restart_appends_anew(tmp_path: Path, snapshot: bool) -> None:
    process = Process(tmp_path / "data")
    try:
        await process.api.write("t", 1, idempotency_key="k")
        again = await (await process.again(snapshot=snapshot)).write("t", 1, idempotency_key="k")
        assert (again["deduped"], again["seqs"]) == (False, [2])
    finally:
        process.end()


async def test_s5_5_a_write_that_a_cap_refused_stores_no_key(api: Api) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 1, "discard": "reject"})
    await api.write("t", 1)
    body = {"records": [{"data": 2}], "idempotency_key": "k"}
    assert await api.error("POST", TOPIC, body) == (422, "topic_full")
    await api.call("POST", TOPIC + "/delete", {"before_seq": 2})
    status, answer = await api.call("POST", TOPIC, body)
    assert (status, answer["deduped"], answer["seqs"]) == (200, False, [2])


async def test_s5_5_a_dropping_topic_takes_a_batch_above_its_cap_and_keeps_its_end(
    api: Api,
) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 2})
    answer = await api.write("t", 1, 2, 3, 4)
    assert (answer["first_seq"], answer["last_seq"], answer["count"]) == (1, 4, 4)
    assert seqs(await api.diff("t")) == [3, 4]


# -- 5.6 -----------------------------------------------------------------------------------------


async def test_s5_6_a_record_is_gone_only_once_it_is_older_than_its_time_to_live(api: Api) -> None:
    await api.call("PUT", TOPIC, {"ttl_ms": 1000})
    await api.write("t", 1)
    api.clock.advance(1.0)
    assert seqs(await api.diff("t")) == [1]
    api.clock.advance(0.001)
    page = await api.diff("t")
    assert (seqs(page), page["tombstone"]["gap_to"]) == ([], 1)


async def test_s5_6_what_is_skipped_at_the_end_is_examined_too(api: Api) -> None:
    records = [{"data": 1}, {"data": 2, "node": "me"}, {"data": 3, "node": "me"}]
    await api.call("POST", TOPIC, {"records": records})
    page = await api.diff("t", node="me")
    assert (seqs(page), page["next_from_seq"], page["caught_up"], page["lag"]) == ([1], 3, True, 0)


async def test_s5_6_a_page_that_is_full_stops_at_its_last_record(api: Api) -> None:
    records = [{"data": 1}, {"data": 2, "node": "me"}, {"data": 3}]
    await api.call("POST", TOPIC, {"records": records})
    page = await api.diff("t", node="me", limit=1)
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (1, False, 2)


@pytest.mark.parametrize(("written", "from_seq"), [(0, 1), (0, 2**64 - 1), (3, 4)])
async def test_s5_6_a_position_above_the_head_reads_from_the_earliest(
    api: Api, written: int, from_seq: int
) -> None:
    await api.call("PUT", TOPIC, {})
    if written:
        await api.write("t", *range(written))
        await api.call("POST", TOPIC + "/delete", {"before_seq": 2})
    page = await api.diff("t", from_seq=from_seq)
    earliest = 2 if written else 1
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": written,
        "reason": "recreated",
        "missed_estimate": written,
        "earliest_seq": earliest,
        "head_seq": written,
    }
    assert (seqs(page), page["next_from_seq"]) == (list(range(earliest, written + 1)), written)


async def test_s5_6_a_loss_ends_where_the_cap_took_the_last_and_not_where_a_delete_did(
    api: Api,
) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 3})
    await api.write("t", *range(5))
    await api.call("POST", TOPIC + "/delete", {"before_seq": 5})
    page = await api.diff("t")
    assert page["tombstone"] == {
        "gap_from": 1, "gap_to": 2, "reason": "cap", "missed_estimate": 2, "earliest_seq": 3,
        "head_seq": 5,
    }  # fmt: skip
    assert (page["earliest_seq"], seqs(page)) == (5, [5])
    assert (await api.diff("t", from_seq=2))["tombstone"] is None  # what is missing was deleted


async def test_s5_6_a_reason_counts_only_if_it_took_something_behind_the_reader(api: Api) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 3})
    await api.write("t", *range(5))
    await api.call("PUT", TOPIC, {"ttl_ms": 1000})
    api.clock.advance(2)
    await api.write("t", 6)
    found = {}
    for start in (0, 1, 2, 4):
        lost = (await api.diff("t", from_seq=start))["tombstone"]
        found[start] = (lost["gap_from"], lost["gap_to"], lost["reason"], lost["missed_estimate"])
    assert found == {
        0: (1, 5, "mixed", 5), 1: (2, 5, "mixed", 4), 2: (3, 5, "ttl", 3), 4: (5, 5, "ttl", 1),
    }  # fmt: skip
    assert (await api.diff("t", from_seq=5))["tombstone"] is None


async def test_s5_6_six_writes_into_a_cap_of_three(api: Api) -> None:
    await api.call("PUT", TOPIC, {"cap_records": 3})
    for number in range(6):
        await api.write("t", number)
    page = await api.diff("t")
    assert ((await state(api))["count"], page["tombstone"]["gap_from"]) == (3, 1)
    assert (seqs(page), page["tombstone"]["gap_to"]) == ([4, 5, 6], 3)


@pytest.mark.parametrize(
    ("config", "written", "wish"),
    [
        ({}, 1, {"from_seq": 0}),  # there is a record
        ({"cap_records": 1}, 3, {"from_seq": 1}),  # there is a loss to tell
        ({}, 1, {"from_seq": 7}),  # and another
        ({}, 0, {"from_seq": 7}),  # and that is all
    ],
)
async def test_s5_6_a_long_poll_waits_only_for_readers_that_have_seen_everything(
    api: Api, config: dict[str, int], written: int, wish: dict[str, int]
) -> None:
    await api.call("PUT", TOPIC, config)
    if written:
        await api.write("t", *range(written))
    async with asyncio.timeout(20):
        page = await api.diff("t", wait_ms=30_000, **wish)
    assert page["records"] or page["tombstone"]


async def test_s5_6_a_long_poll_looks_once_more_and_no_further(api: Api) -> None:
    """A record that the reader does not want ends its wait all the same."""
    await api.write("t", 1)
    waiting = asyncio.create_task(api.diff("t", from_seq=1, wait_ms=30_000, node="me"))
    await asyncio.sleep(0)
    await api.write("t", 2, node="me")
    async with asyncio.timeout(20):
        page = await waiting
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)


async def test_s5_6_tags_are_shown_if_asked_for_and_meta_unless_refused(api: Api) -> None:
    record = {"data": 1, "tag": "t", "meta": {"m": 1}, "node": "n"}
    await api.call("POST", TOPIC, {"records": [record]})
    for wish, shown in (
        ({}, {"meta"}),
        ({"include_tags": True}, {"meta", "$tag"}),
        ({"include_meta": False}, set()),
        ({"include_meta": False, "include_tags": True}, {"$tag"}),
    ):
        (found,) = (await api.diff("t", **wish))["records"]
        assert set(found) == {"$seq", "$ts", "$node", "data"} | shown


# -- 5.7 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [{"before_seq": 2**64 - 1}, {"match": "x*"}])
@pytest.mark.parametrize("is_first", [True, False])
async def test_s5_7_a_delete_takes_only_what_was_there_when_it_came(
    api: Api, body: dict[str, Any], is_first: bool
) -> None:
    """A write that waits for its sync is not there yet, nor is one that comes behind."""
    await api.call("PUT", TOPIC, {"durability": "fsync"})
    record = {"data": 1, "tag": "x"}
    await api.call("POST", TOPIC, {"records": [record]})
    calls = [
        api.call("POST", TOPIC + "/delete", body),
        api.call("POST", TOPIC, {"records": [{**record, "data": 2}]}),
    ]
    answers = await asyncio.gather(*(calls if is_first else reversed(calls)))
    deleted = answers[0 if is_first else 1][1]["deleted"]
    assert deleted == 1
    assert [record["data"] for record in (await api.diff("t"))["records"]] == [2]


async def test_s5_7_the_answer_counts_what_is_left(api: Api) -> None:
    await api.write("t", "aa", "bb", "cc")
    _, answer = await api.call("POST", TOPIC + "/delete", {"before_seq": 3})
    answer.pop("performance")
    assert answer == {
        "topic": "t", "deleted": 2, "earliest_seq": 3, "head_seq": 3, "count": 1, "bytes": 4,
    }  # fmt: skip


async def test_s5_7_a_watcher_is_not_told_of_a_delete(api: Api) -> None:
    await api.write("t", 1, 2, 3)
    before = await api.diff("t", from_seq=1)
    await api.call("POST", TOPIC + "/delete", {"before_seq": 3})
    after = await api.diff("t", from_seq=1)
    assert (seqs(before), seqs(after), after["tombstone"]) == ([2, 3], [3], None)
