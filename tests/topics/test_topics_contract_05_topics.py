"""Sections 4 and 5 of the contract: topics, writing, reading and deleting."""

import asyncio
from typing import Any

import pytest
from topics_api import Api

from support.topic_defaults import DEFAULTS


async def put(api: Api, name: str, config: object = None) -> Any:
    return await api.call("PUT", f"/v0/topics/{name}", config)


async def test_s4_the_echo_has_all_seventeen_keys(api: Api) -> None:
    status, answer = await put(api, "a")
    assert (status, set(answer)) == (201, {"topic", "created", "config", "performance"})
    assert answer["config"] == DEFAULTS
    assert len(DEFAULTS) == 17


@pytest.mark.parametrize(
    ("config", "durable", "durability"),
    [
        ({"durable": True}, True, "fsync"),
        ({"durable": True, "durability": "memory"}, False, "memory"),
        ({"durability": "fsync"}, True, "fsync"),
        ({"durability": "ephemeral"}, False, "ephemeral"),
    ],
)
async def test_s4_durability_wins_over_durable_and_is_echoed_resolved(
    api: Api, config: dict[str, Any], durable: bool, durability: str
) -> None:
    _, answer = await put(api, "a", config)
    assert answer["config"] == DEFAULTS | {"durable": durable, "durability": durability}


async def test_s4_an_omitted_type_counts_as_log(api: Api) -> None:
    await put(api, "q", {"type": "queue"})
    status, answer = await put(api, "q", {})
    assert status == 409
    assert answer["error"]["code"] == "topic_exists_incompatible"
    assert answer["error"]["detail"] == {
        "topic": "q",
        "existing_type": "queue",
        "requested_type": "log",
    }


async def test_s4_a_dead_letter_is_a_valid_name_other_than_its_own(api: Api) -> None:
    for config in ({"dead_letter": "-bad"}, {"type": "queue", "dead_letter": "a"}):
        assert (await put(api, "a", config))[0] == 400
    assert (await put(api, "a", {"type": "queue", "dead_letter": "b"}))[0] == 201


async def test_s5_1_put_replaces_and_acts_at_once(api: Api) -> None:
    await put(api, "a", {"cap_records": 9, "ttl_ms": 5000})
    await api.write("a", *range(8))
    status, answer = await put(api, "a", {"cap_records": 3})
    assert (status, answer["created"]) == (200, False)
    assert answer["config"] == DEFAULTS | {"cap_records": 3}
    assert (await api.call("GET", "/v0/topics/a"))[1]["count"] == 3


async def test_s5_2_a_fresh_topic(api: Api) -> None:
    await put(api, "a")
    _, state = await api.call("GET", "/v0/topics/a?touch=false")
    state.pop("performance")
    assert state == {
        "topic": "a",
        "type": "log",
        "head_seq": 0,
        "earliest_seq": 1,
        "next_seq": 1,
        "count": 0,
        "bytes": 0,
        "config": DEFAULTS,
        "effective_priority": 0,
        "last_write_ts": None,
        "last_read_ts": None,
    }


async def test_s5_2_only_queues_have_counters(api: Api) -> None:
    await put(api, "q", {"type": "queue"})
    await api.write("q", 1, 2)
    await api.call("POST", "/v0/topics/q/claim", {"node": "w"})
    _, state = await api.call("GET", "/v0/topics/q")
    assert state["queue"] == {"ready": 1, "in_flight": 1, "dead_lettered": 0}


async def test_s5_3_a_list_entry(api: Api) -> None:
    await api.write("a", 1)
    _, answer = await api.call("GET", "/v0/topics")
    assert set(answer) == {"topics", "performance"}
    (entry,) = answer["topics"]
    assert entry == {
        "topic": "a",
        "head_seq": 1,
        "earliest_seq": 1,
        "count": 1,
        "bytes": 1,
        "durable": False,
        "effective_priority": 0,
    }


async def test_s5_4_delete(api: Api) -> None:
    _, answer = await api.call("DELETE", "/v0/topics/a")
    answer.pop("performance")
    assert answer == {"topic": "a", "deleted": False, "routers_removed": []}
    await api.write("a", 1)
    status, answer = await api.call("DELETE", "/v0/topics/a?if_empty=true")
    assert status == 409
    assert answer["error"]["detail"] == {"topic": "a", "count": 1}
    for router, source, dest in (("z", "a", "x"), ("b", "y", "a"), ("other", "y", "w")):
        body = {"source": source, "dest": dest}
        assert (await api.call("PUT", f"/v0/routers/{router}", body))[0] == 201
    _, answer = await api.call("DELETE", "/v0/topics/a")
    assert (answer["deleted"], answer["routers_removed"]) == (True, ["b", "z"])
    assert (await api.write("a", 1))["first_seq"] == 1


@pytest.mark.parametrize(
    ("create", "config", "status"),
    [
        (False, None, 404),
        (True, {"auto_create": False}, 201),
        (None, {"auto_create": False}, 404),
        (None, {"auto_create": True}, 201),
        (None, None, 201),
    ],
)
async def test_s5_5_whether_a_write_creates(
    api: Api, create: bool | None, config: object, status: int
) -> None:
    body = {"records": [{"data": 1}], "create": create, "config": config}
    assert (await api.call("POST", "/v0/topics/a", body))[0] == status


async def test_s5_5_the_answer_of_a_write(api: Api) -> None:
    answer = await api.write("a", 1, 2)
    answer.pop("performance")
    assert answer == {
        "topic": "a",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    body = {"records": [{"data": 1}], "return_seqs": False}
    assert "seqs" in (await api.call("POST", "/v0/topics/a", body))[1]
    assert "seqs" not in (await api.call("POST", "/v0/topics/a?return_seqs=false", body))[1]


async def test_s5_5_idempotency_answers_as_the_first_time(api: Api) -> None:
    first = await api.write("a", 1, 2, idempotency_key="k")
    await api.write("a", 3)
    again = await api.write("a", "other", idempotency_key="k")
    for key in ("first_seq", "last_seq", "seqs", "head_seq", "count"):
        assert again[key] == first[key]
    assert (again["created"], again["deduped"]) == (False, True)
    assert (await api.write("b", 1, idempotency_key="k"))["deduped"] is False
    answers = await asyncio.gather(*(api.write("c", n, idempotency_key="x") for n in range(9)))
    assert sorted(answer["deduped"] for answer in answers) == [False] + [True] * 8


async def test_s5_6_the_answer_of_a_diff(api: Api) -> None:
    await api.write("a", *range(5))
    page = await api.diff("a", limit=2)
    assert set(page) == {
        *("topic", "records", "next_from_seq", "head_seq", "earliest_seq", "caught_up"),
        *("tombstone", "lag", "performance"),
    }
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (2, False, 3)
    assert page["tombstone"] is None
    at_head = await api.diff("a", from_seq=5)
    assert (at_head["next_from_seq"], at_head["caught_up"], at_head["lag"]) == (5, True, 0)


async def test_s5_6_skipped_records_count_as_examined_and_never_end_the_scan(api: Api) -> None:
    records = [{"data": n, "node": "me" if n % 2 else "you"} for n in range(2000)]
    await api.call("POST", "/v0/topics/a", {"records": records})
    page = await api.diff("a", node="me", limit=700)
    assert len(page["records"]) == 700
    assert page["next_from_seq"] == 1399
    assert (await api.diff("a", node=["me", "you"]))["next_from_seq"] == 2000
    await put(api, "a", {"dedupe_node": False})
    assert len((await api.diff("a", node="me", limit=1000))["records"]) == 1000


async def test_s5_6_worked_values(api: Api) -> None:
    await put(api, "cap", {"cap_records": 3})
    await api.write("cap", *range(5))
    page = await api.diff("cap")
    assert page["tombstone"] == {
        "gap_from": 1,
        "gap_to": 2,
        "reason": "cap",
        "missed_estimate": 2,
        "earliest_seq": 3,
        "head_seq": 5,
    }
    assert [record["$seq"] for record in page["records"]] == [3, 4, 5]
    assert (page["earliest_seq"], page["caught_up"]) == (3, True)
    await put(api, "ttl", {"ttl_ms": 150})
    await api.write("ttl", 1, 2, 3)
    api.pass_time(0.2)
    await api.write("ttl", 4)
    page = await api.diff("ttl")
    assert page["earliest_seq"] == 4
    lost = page["tombstone"]
    assert (lost["gap_from"], lost["gap_to"], lost["reason"]) == (1, 3, "ttl")


async def test_s5_6_a_reader_of_a_former_topic_is_told_that_it_was_recreated(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    await api.call("DELETE", "/v0/topics/a")
    await api.write("a", 1)
    page = await api.diff("a", from_seq=3)
    lost = page["tombstone"]
    assert (lost["reason"], lost["gap_from"], lost["gap_to"]) == ("recreated", 1, 1)
    assert [record["$seq"] for record in page["records"]] == [1]


@pytest.mark.parametrize(
    ("match", "status", "left"),
    [
        (["tag", "Eq", "x:1"], 200, [2, 3, 4]),
        (["tag", "Glob", "x:*"], 200, [3, 4]),
        ("x:*", 200, [3, 4]),
        ("x:1", 200, [2, 3, 4]),
        (["tag", "Glob", "x:"], 400, []),
        (["tag", "Like", "x"], 400, []),
        (["node", "Eq", "x"], 400, []),
        (["tag", "Eq"], 400, []),
        (["tag", "Eq", 1], 400, []),
        (7, 400, []),
    ],
)
async def test_s5_7_delete_by_match(api: Api, match: object, status: int, left: list[int]) -> None:
    tags = ["x:1", "x:2", "x", None]
    records = [{"data": 1, "tag": tag} for tag in tags]
    await api.call("POST", "/v0/topics/a", {"records": records})
    got, answer = await api.call("POST", "/v0/topics/a/delete", {"match": match})
    assert got == status
    if status == 200:
        assert set(answer) == {
            *("topic", "deleted", "earliest_seq", "head_seq", "count", "bytes", "performance")
        }
        page = await api.diff("a")
        assert [record["$seq"] for record in page["records"]] == left
        assert page["tombstone"] is None
        assert answer["earliest_seq"] == left[0]


async def test_s5_7_after_deleting_everything(api: Api) -> None:
    await api.write("a", 1, 2)
    _, answer = await api.call("POST", "/v0/topics/a/delete", {"before_seq": 3})
    assert (answer["deleted"], answer["earliest_seq"], answer["bytes"]) == (2, 3, 0)
    assert await api.error("POST", "/v0/topics/a/delete", {}) == (400, "invalid_request")
