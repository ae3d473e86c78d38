"""Section 2 of the contract: sentences about bodies, records, answers and refusals, one by one."""

import json
from typing import Any

import msgspec
import pytest
from topics_api import JSON, Api, Events

RECORDS = {"records": [{"data": 1}]}
SEQS = {"node": "w", "seqs": [1]}
BODIES: dict[tuple[str, str], dict[str, Any]] = {  # the least that each operation takes
    ("PUT", "/v0/topics/a"): {},
    ("POST", "/v0/topics/a"): RECORDS,
    ("POST", "/v0/topics/a/diff"): {},
    ("POST", "/v0/topics/a/delete"): {"before_seq": 1},
    ("PUT", "/v0/routers/r"): {"source": "a", "dest": "b"},
    ("POST", "/v0/topics/q/claim"): {"node": "w"},
    ("POST", "/v0/topics/q/ack"): SEQS,
    ("POST", "/v0/topics/q/nack"): SEQS,
    ("POST", "/v0/topics/q/extend"): {**SEQS, "lease_ms": 1000},
    ("POST", "/v0/watch"): {"topics": {"a": {}}},
}
OPERATIONS = list(BODIES)


@pytest.fixture(autouse=True)
async def furnished(api: Api) -> None:
    await api.write("a", 1)
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})
    await api.write("q", 1)


def refused(answer: Any) -> dict[str, Any]:
    """Return the error of an answer, whose every member is one that the contract names."""
    assert list(answer) == ["error"]
    error: dict[str, Any] = answer["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}
    assert error["code"] == error["code"].lower().replace("-", "_").replace(" ", "_")
    assert error["message"]
    return error


# -- bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_s2_the_content_type_may_begin_with_blanks_and_go_on_behind_json(
    api: Api, operation: tuple[str, str]
) -> None:
    raw = json.dumps(BODIES[operation]).encode()
    for given in (" application/json", "\tapplication/json;charset=utf-8", "application/json5"):
        status, answer = await api.call(*operation, raw, headers={"content-type": given})
        assert status in (200, 201), answer
    for given in ("text/json", "application/jso", "Application/json x", "x; application/json"):
        answer = await api.error(*operation, raw, headers={"content-type": given})
        assert answer == (415, "unsupported_media_type"), given


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_s2_unknown_fields_are_ignored(api: Api, operation: tuple[str, str]) -> None:
    status, answer = await api.call(*operation, {**BODIES[operation], "mystery": {"x": [None]}})
    assert status in (200, 201), answer


OPTIONAL: dict[tuple[str, str], tuple[str, ...]] = {
    ("PUT", "/v0/topics/a"): (
        *("type", "ttl_ms", "cap_records", "cap_bytes", "discard", "durable", "durability"),
        *("priority", "auto_priority", "auto_create", "idempotency_window_ms", "dedupe_node"),
        *("lease_ms", "claim_jitter_ms", "max_deliveries", "dead_letter", "leases_durable"),
    ),
    ("POST", "/v0/topics/a"): (
        *("node", "idempotency_key", "create", "config", "disable_backpressure"),
    ),
    ("POST", "/v0/topics/a/diff"): (
        *("from_seq", "limit", "node", "include_tags", "include_meta", "wait_ms"),
        "max_batch_bytes",
    ),
    ("POST", "/v0/topics/a/delete"): ("match",),
    ("PUT", "/v0/routers/r"): (
        *("preserve_node", "preserve_tag", "create_dest", "filter", "allow_cycle", "guarantee"),
    ),
    ("POST", "/v0/topics/q/claim"): ("max", "lease_ms"),
    ("POST", "/v0/topics/q/ack"): ("lease_ids",),
    ("POST", "/v0/topics/q/nack"): ("lease_ids", "delay_ms"),
    ("POST", "/v0/topics/q/extend"): ("lease_ids",),
    ("POST", "/v0/watch"): (
        *("node", "limit", "max_batch_bytes", "heartbeat_ms", "include_meta", "include_tags"),
        *("include_data", "consistency"),
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_s2_null_for_an_optional_field_means_that_it_is_absent(
    api: Api, operation: tuple[str, str]
) -> None:
    nulls = dict.fromkeys(OPTIONAL[operation])
    status, answer = await api.call(*operation, {**BODIES[operation], **nulls})
    assert status in (200, 201), answer
    if operation[0] == "PUT":
        _, plain = await api.call(*operation, BODIES[operation])
        for each in (answer, plain):
            each.pop("performance")
            each.pop("created")
        assert answer == plain


U32, U64 = 2**32, 2**64
WRONG: list[tuple[str, str, str, list[Any]]] = [
    *(
        ("PUT", "/v0/topics/n", field, [-1, U64, "1", 1.5, True, []])
        for field in (
            *("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "lease_ms"),
            *("claim_jitter_ms", "max_deliveries"),
        )
    ),
    *(
        ("PUT", "/v0/topics/n", field, [1, "true", []])
        for field in ("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable")
    ),
    ("PUT", "/v0/topics/n", "priority", [2**31, -(2**31) - 1, "high", 1.5]),
    ("PUT", "/v0/topics/n", "type", ["pile", "LOG", 1, ""]),
    ("PUT", "/v0/topics/n", "discard", ["new", 1, ""]),
    ("PUT", "/v0/topics/n", "durability", ["safe", 1, ""]),
    ("PUT", "/v0/topics/n", "dead_letter", [1, "no name", ""]),
    ("POST", "/v0/topics/a", "records", [1, {}, [1], [{"tag": "x"}], [{"data": 1, "tag": 1}]]),
    ("POST", "/v0/topics/a", "records", [[{"data": 1, "node": []}], None]),
    ("POST", "/v0/topics/a", "node", [1, ["n"]]),
    ("POST", "/v0/topics/a", "idempotency_key", [1, {}]),
    ("POST", "/v0/topics/a", "create", ["yes", 1]),
    ("POST", "/v0/topics/a", "config", [1, []]),
    ("POST", "/v0/topics/a/diff", "from_seq", [-1, U64, "1", 1.5]),
    ("POST", "/v0/topics/a/diff", "limit", [-1, U32, "1", 1.5]),
    ("POST", "/v0/topics/a/diff", "wait_ms", [-1, U64, "1"]),
    ("POST", "/v0/topics/a/diff", "max_batch_bytes", [-1, U64, "1"]),
    ("POST", "/v0/topics/a/diff", "node", [1, [1], {}]),
    ("POST", "/v0/topics/a/diff", "include_tags", [1, "yes"]),
    ("POST", "/v0/topics/a/delete", "before_seq", [-1, U64, "1", 1.5]),
    ("POST", "/v0/topics/q/claim", "node", [1, None, "", "n" * 129]),
    ("POST", "/v0/topics/q/claim", "max", [-1, U32, "1"]),
    ("POST", "/v0/topics/q/claim", "lease_ms", [-1, U64, "1"]),
    *(
        ("POST", f"/v0/topics/q/{verb}", "seqs", [[-1], [U64], ["1"], 1, None, [1.5]])
        for verb in ("ack", "nack", "extend")
    ),
    *(
        ("POST", f"/v0/topics/q/{verb}", "node", [1, None, "", "n" * 129])
        for verb in ("ack", "nack", "extend")
    ),
    ("POST", "/v0/topics/q/nack", "delay_ms", [-1, U64, "1"]),
    ("POST", "/v0/topics/q/extend", "lease_ms", [-1, U64, "1", None]),
    ("POST", "/v0/watch", "topics", [1, [], {"a": 1}, {"a": {"from_seq": -1}}, None]),
    ("POST", "/v0/watch", "topics", [{"a": {"from_seq": U64}}, {"a": {"tail": 1}}]),
    ("POST", "/v0/watch", "limit", [-1, U32, "1"]),
    ("POST", "/v0/watch", "heartbeat_ms", [-1, U64, "1"]),
    ("POST", "/v0/watch", "max_batch_bytes", [-1, U64]),
    ("POST", "/v0/watch", "include_data", [1, "no"]),
    ("POST", "/v0/watch", "consistency", ["weak", 1]),
    ("PUT", "/v0/routers/r", "source", [1, None]),
    ("PUT", "/v0/routers/r", "guarantee", ["twice", 1]),
    ("PUT", "/v0/routers/r", "preserve_tag", [1, "no"]),
]


@pytest.mark.parametrize(("method", "path", "field", "values"), WRONG)
async def test_s2_a_wrong_value_of_a_field_is_400(
    api: Api, method: str, path: str, field: str, values: list[Any]
) -> None:
    least = BODIES.get((method, path), {})
    for value in values:
        answer = await api.error(method, path, {**least, field: value})
        assert answer == (400, "invalid_request"), (field, value)
    assert (await api.call("GET", "/v0/topics/a"))[1]["head_seq"] == 1
    assert (await api.call("GET", "/v0/topics/n"))[0] == 404


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_s2_a_missing_required_field_is_400(api: Api, operation: tuple[str, str]) -> None:
    for field in BODIES[operation]:
        body = {key: value for key, value in BODIES[operation].items() if key != field}
        assert await api.error(*operation, body) == (400, "invalid_request"), field


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"', b"{]", b"{}{}", b"\xff"])
async def test_s2_a_body_that_is_no_object_is_400(
    api: Api, operation: tuple[str, str], body: bytes
) -> None:
    assert await api.error(*operation, body) == (400, "invalid_request")


# -- numbers and records -----------------------------------------------------------------------


async def test_s2_times_are_whole_milliseconds_since_the_epoch(api: Api) -> None:
    now = api.clock.time_ns() // 1_000_000
    _, state = await api.call("GET", "/v0/topics/a")
    _, claimed = await api.call("POST", "/v0/topics/q/claim", {"node": "w", "lease_ms": 5000})
    (record,) = (await api.diff("a"))["records"]
    for value in (state["last_write_ts"], state["last_read_ts"], record["$ts"]):
        assert (type(value), value) == (int, now)
    assert claimed["claimed"][0]["deadline"] == now + 5000
    _, extended = await api.call(
        "POST", "/v0/topics/q/extend", {"node": "w", "seqs": [1], "lease_ms": 7000}
    )
    assert extended["deadlines"] == {"1": now + 7000}


async def test_s2_a_seq_is_a_number_up_to_u64(api: Api) -> None:
    page = await api.diff("a", from_seq=U64 - 1)
    assert page["tombstone"]["reason"] == "recreated"
    assert type(page["head_seq"]) is int


@pytest.mark.parametrize("data", [None, True, 0, -1.5, "", "x", [], {}, [[{"a": None}]]])
async def test_s2_data_is_any_json_and_always_shown_in_a_diff(api: Api, data: object) -> None:
    await api.write("d", data)
    (record,) = (await api.diff("d"))["records"]
    assert record["data"] == data
    assert list(record) == ["$seq", "$ts", "data"]


@pytest.mark.parametrize("meta", [{}, {"a": None}, [1], "text", 5, False])
async def test_s2_any_meta_is_kept_and_null_is_none(api: Api, meta: object) -> None:
    records = [{"data": 1, "meta": meta}, {"data": 1, "meta": None}]
    await api.call("POST", "/v0/topics/d", {"records": records})
    first, second = (await api.diff("d"))["records"]
    assert first["meta"] == meta
    assert "meta" not in second


async def test_s2_no_type_key_ever_appears(api: Api) -> None:
    await api.call("PUT", "/v0/topics/c", {"cap_records": 1})
    await api.write("c", 1, 2)
    events = Events(await api.send("GET", "/v0/topics/c/tail?from_seq=0"))
    shown = [(await events.named())[1] for _ in range(3)]
    await events.close()
    _, claimed = await api.call("POST", "/v0/topics/q/claim", {"node": "w"})
    page = await api.diff("c")
    assert page["tombstone"] is not None
    assert b"$type" not in msgspec.json.encode([shown, claimed, page])


# -- answers -----------------------------------------------------------------------------------


async def test_s2_every_data_answer_has_a_numeric_server_total_ms(api: Api) -> None:
    asked_for: list[tuple[str, str, Any]] = [
        *((*operation, body) for operation, body in BODIES.items()),
        *(("GET", path, None) for path in ("/v0/topics", "/v0/topics/a", "/v0/routers")),
        ("GET", "/v0/routers/r", None),
        ("DELETE", "/v0/routers/r", None),
        ("DELETE", "/v0/topics/b", None),
    ]
    for method, path, body in asked_for:
        status, answer = await api.call(method, path, body)
        assert status in (200, 201), (path, answer)
        assert not {"error", "ok", "status"} & set(answer)
        assert isinstance(answer["performance"]["server_total_ms"], float), path


async def test_s2_only_writes_diffs_and_synced_acks_say_more(api: Api) -> None:
    base = {"server_total_ms"}
    writes = base | {"wal_append_ms", "fsync_ms", "throttle_wait_ms"}
    assert set((await api.write("a", 2))["performance"]) == writes
    assert set((await api.diff("a"))["performance"]) == base | {"records_scanned"}
    for durability, more in (("disk", set()), ("fsync", {"fsync_ms"})):
        config = {"type": "queue", "durability": durability}
        await api.call("PUT", "/v0/topics/jobs", config)
        await api.write("jobs", 1)
        _, claimed = await api.call("POST", "/v0/topics/jobs/claim", {"node": "w"})
        seqs = [job["$seq"] for job in claimed["claimed"]]
        _, acked = await api.call("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": seqs})
        assert acked["acked"] == 1
        assert set(acked["performance"]) == base | more
        assert all(value >= 0 for value in acked["performance"].values())
        _, none = await api.call("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": []})
        assert set(none["performance"]) == base


async def test_s2_a_diff_counts_the_records_that_it_looked_at(api: Api) -> None:
    await api.call("POST", "/v0/topics/d", {"records": [{"data": n, "node": "n"} for n in (1, 2)]})
    await api.write("d", 3)
    page = await api.diff("d", node="n")
    assert [record["data"] for record in page["records"]] == [3]
    assert page["performance"]["records_scanned"] == 3


async def test_s2_health_readiness_and_metrics_have_no_performance(api: Api) -> None:
    accept = {"accept": "application/json"}
    for path in ("/v0/health", "/v0/ready", "/readyz", "/v0/metrics"):
        _, answer = await api.call("GET", path, headers=accept)
        assert "performance" not in answer, path


async def test_s2_frames_hold_the_literal_texts_that_clients_search_for(api: Api) -> None:
    await api.write("boxA", 1, {"deep": [1, {"x": None}]})
    events = Events(await api.send("GET", "/v0/topics/boxA/tail?from_seq=0"))
    assert await events.next() == {"retry": "2000"}
    record = (await events.next())["data"]
    for literal in ('"$seq":2', '"topic":"boxA"', '{"deep":[1,{"x":null}]}'):
        assert literal in record
    assert (await events.next())["event"] == "caught-up"
    await api.call("DELETE", "/v0/topics/boxA")
    assert '"reason":"deleted"' in (await events.next())["data"]
    await events.close()


@pytest.mark.parametrize(
    ("record", "size"),
    [
        ('{"data": {"a" : [1, 2]}}', len('{"a":[1,2]}')),
        ('{"data": "\\u00fc\\u20ac"}', len('"ü€"'.encode())),
        ('{"data": 1, "meta": {"k" : "é"}}', 1 + len('{"k":"é"}'.encode())),
        ('{"data": "\\ud83d\\ude00"}', 6),
        ('{"data": null, "meta": null}', 4),
        ('{"data": "a/b\\/c"}', len('"a/b/c"')),
    ],
)
async def test_s2_a_record_counts_its_compact_data_and_meta(
    api: Api, record: str, size: int
) -> None:
    await api.call("POST", "/v0/topics/d", f'{{"records":[{record}]}}'.encode(), headers=JSON)
    assert (await api.call("GET", "/v0/topics/d"))[1]["bytes"] == size
