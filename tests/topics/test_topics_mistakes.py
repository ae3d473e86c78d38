"""Fields and names that somebody mistyped are ignored as the contract says, but not in silence."""

from typing import Any

import pytest

from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.topics.directory import is_one_edit


async def test_an_unknown_field_of_a_topic_is_named_with_the_one_that_was_meant(api: Any) -> None:
    status, answer = await api.call("PUT", "/v0/topics/t", {"durabilty": "fsync"})
    assert (status, answer["config"]["durability"]) == (201, "disk")
    assert answer["warnings"] == [
        "unknown field 'durabilty' was ignored: did you mean 'durability'?"
    ]
    assert "warnings" not in (await api.call("PUT", "/v0/topics/t", {"durability": "fsync"}))[1]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "/v0/topics/t", {"durabilty": "fsync"}, "durabilty"),
        ("POST", "/v0/topics/t", {"records": [{"data": 1, "tags": "a"}]}, "records.tags"),
        ("POST", "/v0/topics/t", {"records": [{"data": 1}], "nod": "a"}, "nod"),
        ("POST", "/v0/topics/t", {"records": [{"data": 1}], "config": {"tt": 1}}, "config.tt"),
        ("POST", "/v0/topics/t/diff", {"from": 1}, "from"),
        ("POST", "/v0/topics/t/diff", {"filter": {"tags": "x"}}, "filter.tags"),
        ("PUT", "/v0/routers/r", {"source": "t", "dest": "u", "filters": "x"}, "filters"),
    ],
)
async def test_every_body_is_told_of_unknown_fields_and_refused_when_strict(
    api: Any, method: str, path: str, body: Any, field: str
) -> None:
    await api.call("PUT", "/v0/topics/t", {})
    status, answer = await api.call(method, path, body)
    assert status in (200, 201), answer
    assert answer["warnings"][0].startswith(f"unknown field '{field}' was ignored")
    status, answer = await api.call(method, f"{path}?strict=true", body)
    assert (status, answer["error"]["code"]) == (400, "unknown_field")
    assert answer["error"]["detail"]["field"] == field


async def test_lines_with_unknown_fields_are_stored_with_a_warning(api: Any) -> None:
    lines = b'{"data":1,"tag":"a"}\n{"data": 2, "tagg": "b"}\n'
    kind = {"content-type": "application/x-ndjson"}
    status, answer = await api.call("POST", "/v0/topics/t", lines, headers=kind)
    assert (status, answer["count"]) == (201, 2)
    assert answer["warnings"] == ["unknown field 'tagg' was ignored: did you mean 'tag'?"]
    status, answer = await api.call("POST", "/v0/topics/t?strict=true", lines, headers=kind)
    assert (status, answer["error"]["code"]) == (400, "unknown_field")


async def test_a_topic_made_one_character_away_from_another_is_noted(api: Any) -> None:
    body = {"records": [{"data": 1}]}
    assert "warnings" not in (await api.call("POST", "/v0/topics/orders", body))[1]
    (text,) = (await api.call("POST", "/v0/topics/order", body))[1]["warnings"]
    assert text.startswith("created the topic 'order', which is one character away from 'orders'")
    assert "warnings" not in (await api.call("POST", "/v0/topics/order", body))[1]


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("orders", "order", True),
        ("orders", "ordres", True),
        ("orders", "orderz", True),
        ("orders", "xorders", True),
        ("orders", "invoices", False),
        ("shard-1", "shard-2", False),
        ("orders", "orders2", False),
        ("abc", "abd", False),
    ],
)
def test_names_are_near_when_one_slip_makes_the_other(one: str, other: str, near: bool) -> None:
    assert is_one_edit(one, other) is is_one_edit(other, one) is near


async def test_delayed_jobs_are_claimed_when_they_are_due_and_not_before(api: Any) -> None:
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})
    await api.call("POST", "/v0/topics/q", {"records": [{"data": 1}], "delay_ms": 60_000})
    await api.call("POST", "/v0/topics/q", {"records": [{"data": 2, "meta": {"a": 1}}]})
    claim = {"node": "w", "max": 10}
    _, answer = await api.call("POST", "/v0/topics/q/claim", claim)
    assert [job["data"] for job in answer["claimed"]] == [2]
    await api.call("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [2]})
    api.pass_time(59.0)
    assert (await api.call("POST", "/v0/topics/q/claim", claim))[1]["claimed"] == []
    api.pass_time(2.0)
    _, answer = await api.call("POST", "/v0/topics/q/claim", claim)
    assert [job["data"] for job in answer["claimed"]] == [1]


async def test_only_jobs_can_be_put_off(api: Any) -> None:
    body = {"records": [{"data": 1}], "delay_ms": 1000}
    status, answer = await api.call("POST", "/v0/topics/log", body)
    assert (status, "is no queue" in answer["error"]["message"]) == (400, True)
    assert (await api.call("GET", "/v0/topics/log"))[0] == 404  # and it was not created


def test_the_server_s_default_counts_where_nobody_says_otherwise() -> None:
    defaults = TopicDefaults("fsync")
    assert defaults.config("t", {}).to_topic()["durability"] == "fsync"
    assert defaults.config("t", {"durability": "memory"}).to_topic()["durability"] == "memory"
    assert defaults.config("t", {"durable": False}).to_topic()["durability"] == "disk"
    made = TopicDefaults().config("t", {})
    assert made.to_topic()["durability"] == "disk"
    assert defaults.config("t", {}, made).to_topic()["durability"] == "fsync"
