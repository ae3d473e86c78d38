"""Section 2 of the contract: what all endpoints have in common."""

import re
from typing import Any

import msgspec
import pytest
from topics_api import JSON, Api, Events

from millstream.http.response import Response

NUMBERS = {"server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms", "records_scanned"}
BODIES = [
    ("POST", "/v0/topics/a", False),
    ("POST", "/v0/topics/a/delete", False),
    ("POST", "/v0/topics/q/ack", False),
    ("POST", "/v0/topics/q/nack", False),
    ("POST", "/v0/topics/q/extend", False),
    ("POST", "/v0/watch", False),
    ("PUT", "/v0/topics/a", True),
    ("POST", "/v0/topics/a/diff", True),
]


@pytest.fixture(autouse=True)
async def furnished(api: Api) -> None:
    await api.write("a", 1)
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})


@pytest.mark.parametrize(("method", "path", "may_be_empty"), BODIES)
async def test_s2_json_bodies_need_their_content_type(
    api: Api, method: str, path: str, may_be_empty: bool
) -> None:
    for given in ("text/plain", "application/xml", "x application/json", ""):
        answer = await api.error(method, path, b"{}", headers={"content-type": given})
        assert answer == (415, "unsupported_media_type")
    for given in ("application/json", "  application/json", "application/json; charset=utf-8"):
        answer = await api.send(method, path, b"{", headers={"content-type": given})
        assert answer.status == 400
    empty = await api.send(method, path, headers={})
    assert empty.status == (200 if may_be_empty else 415)
    typed = await api.send(method, path, b"", headers=JSON)
    assert typed.status == (200 if may_be_empty else 400)


async def test_s2_an_empty_claim_is_400(api: Api) -> None:
    for headers in ({}, JSON):
        answer = await api.error("POST", "/v0/topics/q/claim", b"", headers=headers)
        assert answer == (400, "invalid_request")


@pytest.mark.parametrize(("method", "path", "_"), BODIES)
async def test_s2_media_type_then_parsing_then_topic(
    api: Api, method: str, path: str, _: bool
) -> None:
    absent = re.sub(r"/topics/\w", "/topics/absent", path)
    assert (await api.send(method, absent, b"{", headers={"content-type": "a/b"})).status == 415
    assert (await api.send(method, absent, b"{")).status == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v0/topics/a/diff", {"from_seq": "1"}),
        ("/v0/topics/a/diff", {"from_seq": -1}),
        ("/v0/topics/a/diff", {"from_seq": 2**64}),
        ("/v0/topics/a/diff", {"limit": 2**32}),
        ("/v0/topics/a/diff", {"from_seq": 1.5}),
        ("/v0/topics/a", {}),
        ("/v0/topics/a", {"records": [{}]}),
        ("/v0/topics/a", {"records": {}}),
        ("/v0/topics/q/claim", {"max": 1}),
        ("/v0/topics/q/extend", {"node": "w", "seqs": []}),
        ("/v0/watch", {"topics": []}),
        ("/v0/watch", {}),
    ],
)
async def test_s2_a_wrong_type_or_range_or_a_missing_field_is_400(
    api: Api, path: str, body: object
) -> None:
    assert await api.error("POST", path, body) == (400, "invalid_request")


async def test_s2_a_bad_enum_word_is_400_null_is_absent_and_unknown_fields_are_ignored(
    api: Api,
) -> None:
    for config in ({"type": "pile"}, {"discard": "new"}, {"durability": "safe"}):
        assert await api.error("PUT", "/v0/topics/n", config) == (400, "invalid_request")
    body = {"from_seq": None, "limit": None, "node": None, "mystery": {"a": 1}}
    assert (await api.call("POST", "/v0/topics/a/diff", body))[0] == 200
    watch = {"topics": {"a": {"from": "tail"}}, "consistency": "strong"}
    assert (await api.call("POST", "/v0/watch", watch))[0] == 200


async def test_s2_a_record_shows_only_what_it_has(api: Api) -> None:
    records = [
        {"data": None},
        {"data": {"b": 1, "a": 2}, "tag": "t", "node": "n", "meta": {"m": 1}},
        {"data": 3, "tag": None, "node": None, "meta": None},
    ]
    await api.call("POST", "/v0/topics/b", {"records": records})
    bare, full, nulls = (await api.diff("b", include_tags=True))["records"]
    assert list(bare) == ["$seq", "$ts", "data"]
    assert set(full) == {"$seq", "$ts", "$node", "$tag", "data", "meta"}
    assert list(full["data"]) == ["b", "a"]
    assert set(nulls) == {"$seq", "$ts", "data"}
    assert isinstance(bare["$ts"], int)


@pytest.mark.parametrize(
    ("method", "path", "body", "keys"),
    [
        ("POST", "/v0/topics/a", {"records": [{"data": 1}]}, {"wal_append_ms", "fsync_ms"}),
        ("POST", "/v0/topics/a/diff", {}, {"records_scanned"}),
        ("GET", "/v0/topics/a", None, set()),
        ("GET", "/v0/topics", None, set()),
        ("PUT", "/v0/topics/a", {}, set()),
        ("POST", "/v0/topics/a/delete", {"before_seq": 1}, set()),
        ("POST", "/v0/topics/q/claim", {"node": "w"}, set()),
        ("POST", "/v0/topics/q/ack", {"node": "w", "seqs": []}, set()),
        ("POST", "/v0/topics/q/nack", {"node": "w", "seqs": []}, set()),
        ("POST", "/v0/topics/q/extend", {"node": "w", "seqs": [], "lease_ms": 1}, set()),
        ("POST", "/v0/watch", {"topics": {"a": {}}}, set()),
        ("DELETE", "/v0/topics/zzz", None, set()),
        ("POST", "/v0/topics/a/redrive", {}, set()),
    ],
)
async def test_s2_success_is_a_bare_object_with_performance(
    api: Api, method: str, path: str, body: object, keys: set[str]
) -> None:
    status, answer = await api.call(method, path, body)
    assert status in (200, 201)
    assert not {"error", "ok", "status"} & set(answer)
    performance = answer["performance"]
    assert keys | {"server_total_ms"} <= set(performance) <= NUMBERS
    assert all(isinstance(value, int | float) for value in performance.values())


async def test_s2_fsync_is_reported_above_zero_only_for_its_class(api: Api) -> None:
    for durability in ("ephemeral", "memory", "disk", "fsync"):
        await api.call("PUT", f"/v0/topics/{durability}", {"durability": durability})
        took = (await api.write(durability, 1))["performance"]["fsync_ms"]
        assert (took > 0) == (durability == "fsync")


async def test_s2_event_data_is_compact_json(api: Api) -> None:
    await api.call(
        "POST", "/v0/topics/a", b'{"records": [ {"data": {"x": [1, 2]}} ]}', headers=JSON
    )
    events = Events(await api.send("GET", "/v0/topics/a/tail?from_seq=0"))
    fields = await events.next()
    while fields.get("event") != "record":
        fields = await events.next()
    assert '"$seq":2' in fields["data"]
    assert '"topic":"a"' in fields["data"]
    assert '"data":{"x":[1,2]}' in fields["data"]
    await events.close()


async def test_s2_size_is_that_of_compact_json_with_characters_unescaped(api: Api) -> None:
    await api.call(
        "POST", "/v0/topics/b", b'{"records":[{"data": {"k" : "\\u00e9"}}]}', headers=JSON
    )
    _, state = await api.call("GET", "/v0/topics/b")
    assert state["bytes"] == len('{"k":"é"}'.encode())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v0/nothing", 404, "not_found"),
        ("GET", "/v0/topics/a/nothing", 404, "not_found"),
        ("GET", "/v0/topics/a/diff", 405, "method_not_allowed"),
        ("GET", "/v0/topics/a/delete", 405, "method_not_allowed"),
        ("PATCH", "/v0/topics/a", 405, "method_not_allowed"),
        ("GET", "/v0/watch/wid_unknown", 404, "not_found"),
        ("GET", "/v0/topics/absent", 404, "topic_not_found"),
        ("GET", "/v0/routers/absent", 404, "router_not_found"),
    ],
)
async def test_s2_refusals_have_one_shape(
    api: Api, method: str, path: str, status: int, code: str
) -> None:
    assert await api.error(method, path) == (status, code)
    _, answer = await api.call(method, path)
    if code == "topic_not_found":
        assert answer["error"]["detail"]["topic"] == "absent"
    if code == "router_not_found":
        assert answer["error"]["detail"]["router"] == "absent"


@pytest.mark.parametrize("name", ["a" * 255, "A", "0", "a.b_c:d-e", "x" + "-" * 254])
async def test_s2_names_that_a_topic_may_have(api: Api, name: str) -> None:
    assert (await api.call("PUT", f"/v0/topics/{name}"))[0] == 201


@pytest.mark.parametrize(
    "name", ["a" * 256, ".a", "-a", "_a", ":a", "a%20b", "a>b", "%C3%A9", "a*"]
)
async def test_s2_names_that_no_topic_may_have(api: Api, name: str) -> None:
    assert await api.error("PUT", f"/v0/topics/{name}") == (400, "invalid_request")


async def test_s2_names_are_case_sensitive_and_percent_decoded(api: Api) -> None:
    await api.write("Case", 1)
    assert await api.error("GET", "/v0/topics/case") == (404, "topic_not_found")
    assert (await api.call("GET", "/v0/topics/%43ase"))[0] == 200


@pytest.mark.parametrize(
    ("text", "touched"), [("true", 1), ("1", 1), ("false", 0), ("0", 0), ("yes", 1), ("", 1)]
)
async def test_s2_query_booleans(api: Api, text: str, touched: int) -> None:
    _, state = await api.call("GET", f"/v0/topics/q?touch={text}")
    assert (state["last_read_ts"] is not None) == bool(touched)


async def test_s2_lists_are_paged_by_name_with_opaque_cursors(api: Api) -> None:
    for name in ("b", "B", "c"):
        await api.write(name, 1)
    names, cursor = [], ""
    while True:
        _, page = await api.call("GET", f"/v0/topics?page_size=2&cursor={cursor}")
        names += [each["topic"] for each in page["topics"]]
        if "next_cursor" not in page:
            break
        cursor = page["next_cursor"]
        assert not set(cursor) & set("+/=&?")
    assert names == sorted(names, key=str.encode) == ["B", "a", "b", "c", "q"]
    assert await api.error("GET", "/v0/topics?cursor=%21%21") == (400, "invalid_request")
    assert len((await api.call("GET", "/v0/topics?page_size=0"))[1]["topics"]) == 1
    assert len((await api.call("GET", "/v0/topics?page_size=x"))[1]["topics"]) == 5


LIMITS: list[tuple[Any, int, str]] = [
    ({"records": [{"data": 1}] * 10_001}, 400, "batch_too_large"),
    ({"records": [{"data": "x" * (1 << 20)}]}, 400, "record_too_large"),
    ({"records": [{"data": 1, "meta": {"k": "x" * 16_384}}]}, 400, "invalid_request"),
    ({"records": [{"data": 1, "meta": {str(n): n for n in range(65)}}]}, 400, "invalid_request"),
    ({"records": [{"data": 1, "tag": "é" * 129}]}, 400, "invalid_request"),
    ({"records": [{"data": 1, "node": "n" * 129}]}, 400, "invalid_request"),
    ({"records": [{"data": 1}], "node": "n" * 129}, 400, "invalid_request"),
    ({"records": [{"data": 1}], "idempotency_key": "k" * 257}, 400, "invalid_request"),
    ({"records": []}, 400, "invalid_request"),
]


@pytest.mark.parametrize(("body", "status", "code"), LIMITS)
async def test_s2_1_what_is_above_a_hard_limit_is_refused(
    api: Api, body: Any, status: int, code: str
) -> None:
    assert await api.error("POST", "/v0/topics/a", body) == (status, code)
    assert (await api.call("GET", "/v0/topics/a"))[1]["head_seq"] == 1


async def test_s2_1_stored_settings_are_clamped(api: Api) -> None:
    _, answer = await api.call(
        "PUT", "/v0/topics/c", {"type": "queue", "lease_ms": 1, "claim_jitter_ms": 9999}
    )
    assert answer["config"]["lease_ms"] == 100
    assert answer["config"]["claim_jitter_ms"] == 5000
    _, answer = await api.call("PUT", "/v0/topics/c", {"type": "queue", "lease_ms": 10**12})
    assert answer["config"]["lease_ms"] == 86_400_000


async def test_s2_1_at_least_one_record_is_delivered_whatever_the_budget(api: Api) -> None:
    await api.write("a", "x" * 5000, "y")
    for wish in ({}, {"node": "me"}, {"filter": {"since": 0}}):
        page = await api.diff("a", from_seq=1, max_batch_bytes=1, **wish)
        assert [record["$seq"] for record in page["records"]] == [2]
        assert page["next_from_seq"] == 2


async def test_s2_1_a_watch_of_257_topics_is_refused(api: Api) -> None:
    body = {"topics": {f"t{n}": {} for n in range(257)}}
    assert await api.error("POST", "/v0/watch", body) == (400, "invalid_request")


async def test_s2_order_of_checks_of_a_write(api: Api) -> None:
    """Batch size, key length, record sizes, existence, name, cap."""
    wrong = {"records": [{"data": 1, "tag": "t" * 999}], "idempotency_key": "k" * 257}
    _, answer = await api.call("POST", "/v0/topics/-bad", wrong | {"create": False})
    assert "idempotency" in answer["error"]["message"]
    tagged = {"records": [{"data": 1, "tag": "t" * 999}], "create": False}
    _, answer = await api.call("POST", "/v0/topics/-bad", tagged)
    assert "tag" in answer["error"]["message"]
    fine: dict[str, Any] = {"records": [{"data": 1}]}
    absent = await api.error("POST", "/v0/topics/-bad", fine | {"create": False})
    assert absent == (404, "topic_not_found")
    assert await api.error("POST", "/v0/topics/-bad", fine) == (400, "invalid_request")


async def test_s2_order_of_checks_of_a_queue(api: Api) -> None:
    claim = await api.error("POST", "/v0/topics/absent/claim", {"node": ""})
    assert claim == (404, "topic_not_found")
    assert await api.error("POST", "/v0/topics/a/claim", {"node": ""}) == (409, "not_a_queue")
    assert await api.error("POST", "/v0/topics/q/claim", {"node": ""}) == (400, "invalid_request")
    for verb in ("ack", "nack", "extend"):
        more = {"lease_ms": 1} if verb == "extend" else {}
        for body in (
            {"node": "w", "seqs": [1], "lease_ids": ["nope"], **more},
            {"node": "", "seqs": [], **more},
            {"node": "w", "seqs": [1, 2], "lease_ids": ["lease_1"], **more},
        ):
            assert (await api.error("POST", f"/v0/topics/absent/{verb}", body))[0] == 400
    accept = {"accept": "application/json"}
    assert await api.error("GET", "/v0/topics/absent/work", headers=accept) == (
        406,
        "not_acceptable",
    )
    assert await api.error("GET", "/v0/topics/absent/work") == (400, "invalid_request")
    assert await api.error("GET", "/v0/topics/absent/work?node=w") == (404, "topic_not_found")
    assert await api.error("GET", "/v0/topics/a/work?node=w") == (409, "not_a_queue")


async def test_s10_health_and_readiness_carry_no_performance(api: Api) -> None:
    for path in ("/v0/health", "/v0/ready", "/readyz"):
        status, answer = await api.call("GET", path)
        assert status == 200
        assert "performance" not in answer
    api.topics.ready, api.topics.replay_progress = False, 3 / 8
    answer = await api.send("GET", "/v0/ready")
    assert isinstance(answer, Response)
    assert answer.status == 503
    assert (b"Retry-After", b"1") in answer.headers
    error = msgspec.json.decode(answer.body)["error"]
    assert error["code"] == "not_ready"
    assert error["detail"] == {"replay_progress": 0.375}
    assert (await api.call("GET", "/v0/health"))[0] == 200
