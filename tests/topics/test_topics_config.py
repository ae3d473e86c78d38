"""Topics are created, shown, listed and deleted as the contract says."""

from typing import Any

import pytest

from millstream.http.request import Caller
from support.topic_defaults import DEFAULTS


async def test_an_empty_put_creates_a_topic_with_defaults(api: Any) -> None:
    status, answer = await api.call("PUT", "/v0/topics/orders")
    assert status == 201
    assert answer["topic"] == "orders"
    assert answer["created"] is True
    assert answer["config"] == DEFAULTS
    assert isinstance(answer["performance"]["server_total_ms"], float)


async def test_a_second_put_replaces_the_whole_configuration(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 5, "ttl_ms": 1000})
    status, answer = await api.call("PUT", "/v0/topics/t", {"cap_records": 7})
    assert (status, answer["created"]) == (200, False)
    assert answer["config"] == DEFAULTS | {"cap_records": 7}


async def test_unknown_fields_are_ignored_and_null_means_absent(api: Any) -> None:
    status, answer = await api.call("PUT", "/v0/topics/t", {"colour": "red", "ttl_ms": None})
    assert (status, answer["config"]) == (201, DEFAULTS)


@pytest.mark.parametrize(
    "config",
    [
        {"ttl_ms": -1},
        {"ttl_ms": "5"},
        {"cap_records": 2**64},
        {"discard": "newest"},
        {"durability": "paper"},
        {"type": "tree"},
        {"auto_create": 1},
        {"dead_letter": "-no"},
        [],
        5,
    ],
)
async def test_a_bad_value_is_refused(api: Any, config: object) -> None:
    assert await api.error("PUT", "/v0/topics/t", config) == (400, "invalid_request")
    assert (await api.call("GET", "/v0/topics"))[1]["topics"] == []


@pytest.mark.parametrize("name", ["-a", ".a", "a b", "a%2Fb", "%00", "a" * 256, "%C3%A9", "a>"])
async def test_a_bad_name_is_refused(api: Any, name: str) -> None:
    target = "/v0/topics/" + name.replace(" ", "%20")
    assert await api.error("PUT", target) == (400, "invalid_request")


async def test_malformed_percent_encoding_is_refused(api: Any) -> None:
    assert await api.error("GET", "/v0/topics/a%zz") == (400, "invalid_request")
    assert await api.error("GET", "/v0/topics/a%ff") == (400, "invalid_request")


async def test_a_type_never_changes(api: Any) -> None:
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})
    status, answer = await api.call("PUT", "/v0/topics/q", {})
    assert (status, answer["error"]["code"]) == (409, "topic_exists_incompatible")
    assert answer["error"]["detail"] == {
        "topic": "q",
        "existing_type": "queue",
        "requested_type": "log",
    }


async def test_a_body_that_is_not_json_is_refused_by_its_type_first(api: Any) -> None:
    plain = {"content-type": "text/plain"}
    assert await api.error("PUT", "/v0/topics/t", b"{", headers=plain) == (
        415,
        "unsupported_media_type",
    )
    assert await api.error("PUT", "/v0/topics/t", b"{") == (400, "invalid_request")


async def test_a_fresh_topic_shows_its_state(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t")
    status, answer = await api.call("GET", "/v0/topics/t?touch=false")
    answer.pop("performance")
    assert status == 200
    assert answer == {
        "topic": "t",
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


async def test_showing_a_topic_touches_it_unless_told_not_to(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t")
    shown = (await api.call("GET", "/v0/topics/t"))[1]
    assert shown["last_read_ts"] == api.clock.time_ns() // 1_000_000
    assert shown["effective_priority"] == 500
    api.pass_time(30)
    shown = (await api.call("GET", "/v0/topics/t?touch=false"))[1]
    assert shown["effective_priority"] == 250


async def test_a_manual_priority_is_echoed_raw_and_clamped_in_effect(api: Any) -> None:
    answer = (await api.call("PUT", "/v0/topics/t", {"priority": 5000}))[1]
    assert answer["config"]["priority"] == 5000
    assert (await api.call("GET", "/v0/topics/t"))[1]["effective_priority"] == 1000


async def test_bytes_count_data_and_meta_as_compact_json(api: Any) -> None:
    body = (
        b'{"records": [{"data": {"a" : 1, "b": "\\u00e9"}, "meta": {"m": [1, 2]}}, {"data": "x"}]}'
    )
    await api.call("POST", "/v0/topics/t", body)
    size = len('{"a":1,"b":"é"}'.encode()) + len(b'{"m":[1,2]}') + len(b'"x"')
    assert (await api.call("GET", "/v0/topics/t"))[1]["bytes"] == size


async def test_bytes_leave_out_tags_nodes_subjects_and_what_is_deleted(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"subjects": ["s.>"], "cap_records": 4})
    for n in range(6):
        record = {"data": n, "tag": "x" * n, "node": "n" * n, "subject": "s." + "a" * (n + 1)}
        await api.call("POST", "/v0/topics/t", {"records": [record | {"meta": [n]}]})
    shown = (await api.call("GET", "/v0/topics/t"))[1]
    assert (shown["count"], shown["bytes"]) == (4, 4 * (1 + 3))
    await api.stream("t").delete([4])
    assert (await api.call("GET", "/v0/topics/t"))[1]["bytes"] == 3 * (1 + 3)
    assert (await api.call("GET", "/v0/topics"))[1]["topics"][0]["bytes"] == 3 * (1 + 3)


async def test_a_missing_topic_names_the_closest_one(api: Any) -> None:
    await api.call("PUT", "/v0/topics/ORDERS")
    status, answer = await api.call("GET", "/v0/topics/ORDER")
    assert status == 404
    assert answer["error"]["code"] == "topic_not_found"
    assert answer["error"]["message"] == "no topic named ORDER"
    assert answer["error"]["detail"] == {"topic": "ORDER", "did_you_mean": "ORDERS"}


async def test_a_suggestion_never_names_what_the_key_may_not_see(api: Any) -> None:
    await api.call("PUT", "/v0/topics/ORDERS")
    caller = Caller(prefixes=("ORDER_", "ORDERX"))
    status, answer = await api.call("GET", "/v0/topics/ORDERX", caller=caller)
    assert (status, answer["error"]["detail"]) == (404, {"topic": "ORDERX"})


async def test_a_write_that_must_not_create_names_the_closest_topic(api: Any) -> None:
    await api.call("PUT", "/v0/topics/ORDERS")
    body = {"records": [{"data": 1}], "create": False}
    status, answer = await api.call("POST", "/v0/topics/ORDER", body)
    assert (status, answer["error"]["code"]) == (404, "topic_not_found")
    assert answer["error"]["detail"] == {"topic": "ORDER", "did_you_mean": "ORDERS"}
    for caller in (
        Caller(prefixes=("ORDER_", "ORDERX")),
        Caller(key="w", scopes=frozenset(("write",))),
    ):
        status, answer = await api.call("POST", "/v0/topics/ORDERX", body, caller=caller)
        assert (status, answer["error"]["detail"]) == (404, {"topic": "ORDERX"})


async def test_names_outside_the_allow_list_are_forbidden_and_not_listed(api: Any) -> None:
    await api.call("PUT", "/v0/topics/mine.a")
    await api.call("PUT", "/v0/topics/other")
    caller = Caller(prefixes=("mine.",))
    assert await api.error("GET", "/v0/topics/other", caller=caller) == (403, "forbidden")
    listed = (await api.call("GET", "/v0/topics", caller=caller))[1]["topics"]
    assert [topic["topic"] for topic in listed] == ["mine.a"]


async def test_topics_are_listed_by_name_page_by_page(api: Any) -> None:
    for name in ("b", "a", "B", "c"):
        await api.call("PUT", f"/v0/topics/{name}")
    status, page = await api.call("GET", "/v0/topics?page_size=3")
    assert status == 200
    assert [topic["topic"] for topic in page["topics"]] == ["B", "a", "b"]
    assert set(page["topics"][0]) == {
        "topic",
        "head_seq",
        "earliest_seq",
        "count",
        "bytes",
        "durable",
        "effective_priority",
    }
    rest = (await api.call("GET", f"/v0/topics?page_size=3&cursor={page['next_cursor']}"))[1]
    assert [topic["topic"] for topic in rest["topics"]] == ["c"]
    assert "next_cursor" not in rest


@pytest.mark.parametrize(("size", "count"), [("0", 1), ("junk", 3), ("-1", 3), ("99999", 3)])
async def test_a_page_size_is_clamped_and_garbage_ignored(api: Any, size: str, count: int) -> None:
    for name in "abc":
        await api.call("PUT", f"/v0/topics/{name}")
    page = (await api.call("GET", f"/v0/topics?page_size={size}"))[1]
    assert len(page["topics"]) == count


async def test_a_list_is_narrowed_by_prefix_and_refuses_a_foreign_cursor(api: Any) -> None:
    for name in ("app.a", "app.b", "x"):
        await api.call("PUT", f"/v0/topics/{name}")
    page = (await api.call("GET", "/v0/topics?prefix=app."))[1]
    assert [topic["topic"] for topic in page["topics"]] == ["app.a", "app.b"]
    assert await api.error("GET", "/v0/topics?cursor=%21%21") == (400, "invalid_request")
    assert len((await api.call("GET", "/v0/topics?cursor="))[1]["topics"]) == 3


async def test_deleting_a_topic_twice_is_no_error(api: Any) -> None:
    await api.write("t", 1)
    status, answer = await api.call("DELETE", "/v0/topics/t")
    answer.pop("performance")
    assert (status, answer) == (200, {"topic": "t", "deleted": True, "routers_removed": []})
    assert (await api.call("DELETE", "/v0/topics/t"))[1]["deleted"] is False


async def test_a_recreated_topic_starts_over(api: Any) -> None:
    await api.write("t", 1, 2)
    await api.call("DELETE", "/v0/topics/t")
    assert (await api.write("t", 3))["first_seq"] == 1


async def test_a_topic_with_records_survives_delete_if_empty(api: Any) -> None:
    await api.write("t", 1, 2)
    status, answer = await api.call("DELETE", "/v0/topics/t?if_empty=true")
    assert (status, answer["error"]["code"]) == (409, "topic_not_empty")
    assert answer["error"]["detail"] == {"topic": "t", "count": 2}


async def test_the_topic_cap_refuses_new_topics_only(api: Any) -> None:
    api.topics.topic_limit.most = 1
    await api.call("PUT", "/v0/topics/a")
    status, answer = await api.call("PUT", "/v0/topics/b")
    assert (status, answer["error"]["code"]) == (429, "throttled")
    assert answer["error"]["detail"] == {"limit": "max_topics", "max": 1}
    assert await api.error("POST", "/v0/topics/b", {"records": [{"data": 1}]}) == (429, "throttled")
    assert (await api.call("PUT", "/v0/topics/a"))[0] == 200


async def test_routes_and_methods_that_do_not_exist_say_so(api: Any) -> None:
    assert await api.error("GET", "/v0/nothing") == (404, "not_found")
    assert await api.error("GET", "/v0/topics/t/diff") == (405, "method_not_allowed")
    assert await api.error("GET", "/v0/topics/t/delete") == (405, "method_not_allowed")
    assert await api.error("GET", "/v0/topics//diff") == (404, "not_found")


async def test_health_and_readiness(api: Any) -> None:
    api.pass_time(2)
    assert await api.call("GET", "/v0/health") == (
        200,
        {"status": "ok", "version": "0.1.0", "uptime_ms": 2000},
    )
    assert await api.call("GET", "/v0/ready") == (
        200,
        {"status": "ready", "wal_replay_complete": True, "topics": 0},
    )
    api.topics.ready, api.topics.replay_progress = False, 0.375
    status, answer = await api.call("GET", "/v0/ready")
    assert (status, answer["error"]["detail"]) == (503, {"replay_progress": 0.375})


async def test_a_stream_made_over_jetstream_is_a_topic_of_the_same_name(api: Any) -> None:
    from millstream.streams.config.config import StreamConfig

    config = StreamConfig.from_request({"name": "ORDERS", "subjects": ["orders.>"]})
    await api.catalog.create(config)
    shown = (await api.call("GET", "/v0/topics/ORDERS"))[1]
    assert shown["config"]["subjects"] == ["orders.>"]
    assert shown["config"]["durability"] == "fsync"
    answer = (await api.call("PUT", "/v0/topics/ORDERS", {"cap_records": 9}))[1]
    assert answer["config"]["durability"] == "fsync"
    assert answer["config"]["subjects"] == ["orders.>"]


async def test_a_read_plan_is_shown(api: Any) -> None:
    await api.write("t", 1, 2)
    status, plan = await api.call("GET", "/v0/topics/t/plan")
    assert status == 200
    assert (plan["stream"], plan["first_seq"], plan["last_seq"]) == ("t", 1, 2)
    assert plan["tail"] == {"from_seq": 1, "to_seq": 2}
