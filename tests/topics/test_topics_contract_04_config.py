"""Section 4 of the contract: sentences about the fields of a topic's configuration."""

from typing import Any

import pytest
from topics_api import Api, Events

TOPIC = "/v0/topics/t"


async def state(api: Api) -> Any:
    return (await api.call("GET", TOPIC + "?touch=false"))[1]


@pytest.mark.parametrize(
    ("caps", "kept"),
    [
        ({"cap_records": 2, "cap_bytes": 1000}, 2),
        ({"cap_records": 1000, "cap_bytes": 30}, 3),
        ({"cap_records": 3, "cap_bytes": 30}, 3),
    ],
)
async def test_s4_whichever_cap_is_hit_first_counts(
    api: Api, caps: dict[str, int], kept: int
) -> None:
    await api.call("PUT", TOPIC, caps)
    for _ in range(6):
        await api.write("t", "x" * 8)  # ten bytes
    found = await state(api)
    assert (found["count"], found["earliest_seq"]) == (kept, 7 - kept)


@pytest.mark.parametrize(
    ("caps", "taken"),
    [({"cap_records": 2, "cap_bytes": 1000}, 2), ({"cap_records": 9, "cap_bytes": 30}, 3)],
)
async def test_s4_whichever_cap_is_hit_first_refuses(
    api: Api, caps: dict[str, int], taken: int
) -> None:
    await api.call("PUT", TOPIC, {"discard": "reject", **caps})
    body = {"records": [{"data": "x" * 8}]}
    statuses = [(await api.send("POST", TOPIC, body)).status for _ in range(5)]
    assert statuses == [200] * taken + [422] * (5 - taken)


@pytest.mark.parametrize(("before", "after"), [("ephemeral", "disk"), ("fsync", "ephemeral")])
async def test_s4_what_is_ephemeral_stays_so_and_the_refusal_says_what_to_do(
    api: Api, before: str, after: str
) -> None:
    await api.call("PUT", TOPIC, {"durability": before})
    await api.write("t", "kept")
    status, answer = await api.call("PUT", TOPIC, {"durability": after})
    assert (status, answer["error"]["code"]) == (400, "invalid_request")
    where = "in memory only" if before == "ephemeral" else "in files"
    assert answer["error"]["message"] == (
        f"the durability of t cannot change from {before} to {after}: its records are {where} and "
        f"stay there; create another with {after}, copy what is to be kept, and delete t"
    )
    found = await state(api)
    assert (found["config"]["durability"], found["count"]) == (before, 1)


async def test_s4_a_log_may_name_itself_and_a_queue_may_not(api: Api) -> None:
    assert (await api.call("PUT", TOPIC, {"dead_letter": "t"}))[0] == 201
    wish = {"type": "queue", "dead_letter": "q"}
    assert await api.error("PUT", "/v0/topics/q", wish) == (400, "invalid_request")
    assert await api.error("PUT", "/v0/topics/x", {"dead_letter": "a b"}) == (
        400,
        "invalid_request",
    )


async def test_s4_without_auto_priority_reading_counts_for_nothing(api: Api) -> None:
    await api.write("t", 1)
    await api.diff("t")
    assert (await state(api))["effective_priority"] > 0
    await api.call("PUT", TOPIC, {"auto_priority": False})
    await api.diff("t")
    assert (await state(api))["effective_priority"] == 0


async def test_s4_dedupe_node_false_counts_in_a_watch_too(api: Api) -> None:
    await api.call("PUT", TOPIC, {"dedupe_node": False})
    await api.write("t", 1, node="me")
    _, opened = await api.call("POST", "/v0/watch", {"topics": {"t": {}}, "node": "me"})
    events = Events(await api.send("GET", opened["stream_url"]))
    name, data = await events.named()
    assert (name, [record["data"] for record in data["records"]]) == ("record", [1])
    await events.close()


@pytest.mark.parametrize(
    "config",
    [{"type": "pile"}, {"ttl_ms": -1}, {"dead_letter": "-x"}, {"priority": 2**31}, {"durable": 1}],
)
async def test_s4_the_config_of_a_creating_write_is_checked_like_that_of_a_put(
    api: Api, config: dict[str, Any]
) -> None:
    body = {"records": [{"data": 1}], "config": config}
    assert await api.error("POST", TOPIC, body) == (400, "invalid_request")
    assert await api.error("GET", TOPIC) == (404, "topic_not_found")


async def test_s4_the_config_of_a_creating_write_is_the_topics(api: Api) -> None:
    wish = {"type": "queue", "lease_ms": 5000, "durability": "fsync", "cap_records": 7}
    await api.write("t", 1, config=wish)
    config = (await state(api))["config"]
    assert {name: config[name] for name in wish} == wish
    assert len(config) == 17
