"""Writes: limits, order of checks, atomicity, idempotency, NDJSON and what is stored."""

import asyncio
import gzip
from typing import Any
from urllib.parse import quote

import pytest

from millstream.errors import StorageFull
from millstream.http.request import Caller
from millstream.streams.config.config import StreamConfig

NDJSON = {"content-type": "application/x-ndjson"}


def records(*data: object) -> dict[str, object]:
    return {"records": [{"data": each} for each in data]}


async def test_a_write_creates_the_topic_and_answers_its_sequences(api: Any) -> None:
    status, answer = await api.call("POST", "/v0/topics/t", records("a", "b", "c"))
    performance = answer.pop("performance")
    assert status == 201
    assert answer == {
        "topic": "t",
        "first_seq": 1,
        "last_seq": 3,
        "seqs": [1, 2, 3],
        "head_seq": 3,
        "count": 3,
        "created": True,
        "deduped": False,
    }
    assert performance["fsync_ms"] == 0.0
    assert set(performance) == {
        "server_total_ms",
        "wal_append_ms",
        "fsync_ms",
        "throttle_wait_ms",
    }
    status, answer = await api.call("POST", "/v0/topics/t?return_seqs=false", records("d"))
    assert (status, answer["created"], answer["first_seq"]) == (200, False, 4)
    assert "seqs" not in answer


async def test_a_synced_write_reports_the_time_of_its_sync(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"durable": True})
    assert (await api.write("t", 1))["performance"]["fsync_ms"] > 0


async def test_creation_can_be_refused_or_configured_inline(api: Any) -> None:
    refused = {**records(1), "create": False}
    assert await api.error("POST", "/v0/topics/t", refused) == (404, "topic_not_found")
    refused = {**records(1), "config": {"auto_create": False}}
    assert await api.error("POST", "/v0/topics/t", refused) == (404, "topic_not_found")
    await api.write("t", 1, config={"cap_records": 3})
    assert (await api.call("GET", "/v0/topics/t"))[1]["config"]["cap_records"] == 3
    await api.write("t", 1, config={"cap_records": 9})
    assert (await api.call("GET", "/v0/topics/t"))[1]["config"]["cap_records"] == 3


async def test_a_config_on_a_creating_write_needs_the_admin_scope(api: Any) -> None:
    writer = Caller(scopes=frozenset(("write",)))
    body = {**records(1), "config": {}}
    assert await api.error("POST", "/v0/topics/t", body, caller=writer) == (403, "forbidden")
    status, _ = await api.call("POST", "/v0/topics/t", records(1), caller=writer)
    assert status == 201


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"records": []}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
        ({"records": [{}]}, 400, "invalid_request"),
        ({"records": [{"data": 1, "tag": 5}]}, 400, "invalid_request"),
        ({"records": {"data": 1}}, 400, "invalid_request"),
        ({"records": [{"data": 1}] * 10_001}, 400, "batch_too_large"),
        ({"records": [{"data": "x" * 1_048_575}]}, 400, "record_too_large"),
        ({"records": [{"data": 1, "tag": "x" * 257}]}, 400, "invalid_request"),
        ({"records": [{"data": 1, "node": "x" * 129}]}, 400, "invalid_request"),
        ({"records": [{"data": 1}], "node": "x" * 129}, 400, "invalid_request"),
        ({"records": [{"data": 1, "meta": {"k": "x" * 16_384}}]}, 400, "invalid_request"),
        (
            {"records": [{"data": 1, "meta": {str(n): 1 for n in range(65)}}]},
            400,
            "invalid_request",
        ),
        ({"records": [{"data": 1}], "idempotency_key": "x" * 257}, 400, "invalid_request"),
        ({"records": [{"data": 1}], "create": "yes"}, 400, "invalid_request"),
        ({"records": [{"data": 1, "subject": "other"}]}, 400, "invalid_request"),
    ],
)
async def test_what_is_above_a_limit_is_refused_and_nothing_is_written(
    api: Any, body: object, status: int, code: str
) -> None:
    await api.call("PUT", "/v0/topics/t")
    assert await api.error("POST", "/v0/topics/t", body) == (status, code)
    assert (await api.call("GET", "/v0/topics/t"))[1]["head_seq"] == 0


async def test_what_is_at_a_limit_is_taken(api: Any) -> None:
    meta = {str(n): 1 for n in range(64)}
    body = {
        "records": [
            {"data": "x" * 1_048_574},
            {"data": 1, "tag": "t" * 256, "node": "n" * 128, "meta": meta},
        ]
    }
    assert (await api.call("POST", "/v0/topics/t", body))[0] == 201
    assert (await api.call("POST", "/v0/topics/t", records(*range(10_000))))[0] == 200


async def test_the_media_type_is_checked_before_the_body_and_the_body_before_the_topic(
    api: Any,
) -> None:
    none: dict[str, str] = {}
    assert (await api.error("POST", "/v0/topics/-", b"{", headers=none))[0] == 415
    assert (await api.error("POST", "/v0/topics/-", b""))[0] == 400
    assert (await api.error("POST", "/v0/topics/-", b"{"))[0] == 400
    assert await api.error("POST", "/v0/topics/-", records(1)) == (400, "invalid_request")


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"true",
        b"-0.5",
        b"1e309",
        b"123456789012345678901234567890",
        b'{"z":1,"a":2}',
        b'{"a":{"b":[1,2,{"c":null}]}}',
        '"é\u2028\U0001f600"'.encode(),
        b'"tab\\t quote\\" back\\\\"',
        b'"\\u0000\\u001f"',
        b"[]",
        b'{"$base64":1,"x":2}',
        b'{"$$base64":"literal"}',
        b'{"$base64":"/wA="}',
        b'{"$base":"x"}',
    ],
)
async def test_data_comes_back_as_it_was_written(api: Any, data: bytes) -> None:
    await api.call("POST", "/v0/topics/t", b'{"records":[{"data":%b}]}' % data)
    answer = await api.send("POST", "/v0/topics/t/diff")
    assert b'"data":%b}' % data in answer.body


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b'{ "z" : 1,\n\t"a": [1, 2] }', b'{"z":1,"a":[1,2]}'),
        (b'"\\u00e9"', '"é"'.encode()),
        (b'"\\ud83d\\ude00"', '"😀"'.encode()),
        (b'"\\/"', b'"/"'),
        (b'"\\\\u0041"', b'"\\\\u0041"'),
        (b'"\\u0041\\u0022\\u005c"', b'"A\\"\\\\"'),
        (b'"a  b"', b'"a  b"'),
        (b'{"$base64":"aGkh"}', b"hi!"),
        (b'{"$$base64":1}', b'{"$base64":1}'),
    ],
)
async def test_data_is_stored_compact_with_its_key_order(
    api: Any, sent: bytes, stored: bytes
) -> None:
    await api.call("POST", "/v0/topics/t", b'{"records":[{"data":%b}]}' % sent)
    assert api.stream("t").get(1).payload == stored


@pytest.mark.parametrize(
    "data",
    [
        b'"\\ud800"',
        b'"\\ud800x"',
        b'"\\udc00"',
        b'"\\u00e9\\udc00"',
        b'"\xff"',
        b"NaN",
        b"01",
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"$base64":"not base64"}',
        b'{"$base64":5}',
    ],
)
async def test_what_is_no_sound_json_is_refused(api: Any, data: bytes) -> None:
    body = b'{"records":[{"data":%b}]}' % data
    assert await api.error("POST", "/v0/topics/t", body) == (400, "invalid_request")
    line = b'{"data":%b}\n' % data
    answer = await api.error("POST", "/v0/topics/t", line, headers=NDJSON)
    assert answer == (400, "invalid_request")


async def test_nesting_is_read_up_to_64_levels(api: Any) -> None:
    data = b"[" * 64 + b'"[[[["' + b"]" * 64
    status, _ = await api.call("POST", "/v0/topics/t", b'{"records":[{"data":%b}]}' % data)
    assert status == 201


async def test_ndjson_takes_one_record_a_line(api: Any) -> None:
    body = b'{"data":{"id": 1},"tag":"a"}\n\n{"data":"\\u00e9"}\r\n  {"data":3}'
    target = "/v0/topics/t?node=n1&idempotency_key=k&return_seqs=false"
    status, answer = await api.call("POST", target, body, headers=NDJSON)
    assert (status, answer["last_seq"], answer["deduped"]) == (201, 3, False)
    page = await api.diff("t", include_tags=True)
    assert [record["data"] for record in page["records"]] == [{"id": 1}, "é", 3]
    assert page["records"][0]["$tag"] == "a"
    assert page["records"][2]["$node"] == "n1"
    assert api.stream("t").get(1).payload == b'{"id":1}'
    assert (await api.call("POST", target, body, headers=NDJSON))[1]["deduped"] is True


async def test_an_ndjson_error_names_its_line(api: Any) -> None:
    body = b'{"data":1}\n{"data":1},{"data":2}\n'
    _, answer = await api.call("POST", "/v0/topics/t", body, headers=NDJSON)
    assert answer["error"]["message"].startswith("line 2:")


async def test_ndjson_obeys_create_in_the_query_and_the_batch_limit(api: Any) -> None:
    answer = await api.error("POST", "/v0/topics/t?create=false", b'{"data":1}', headers=NDJSON)
    assert answer == (404, "topic_not_found")
    many = b'{"data":1}\n' * 10_001
    assert await api.error("POST", "/v0/topics/t", many, headers=NDJSON) == (400, "batch_too_large")
    assert await api.error("POST", "/v0/topics/t", b"\n", headers=NDJSON) == (
        400,
        "invalid_request",
    )


@pytest.mark.parametrize(
    "media",
    [
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        " application/x-ndjson; charset=utf-8",
        "Application/JSONL",
    ],
)
async def test_lines_go_by_several_content_types(api: Any, media: str) -> None:
    headers = {"content-type": media}
    status, answer = await api.call(
        "POST", "/v0/topics/t", b'{"data":1}\n{"data":2}', headers=headers
    )
    assert (status, answer["count"]) == (201, 2)


async def test_ndjson_takes_the_config_of_a_new_topic_from_the_query(api: Any) -> None:
    config = quote('{"cap_records": 1, "subjects": ["a.>"]}')
    body, target = b'{"data":1}\n{"data":2}', f"/v0/topics/t?config={config}"
    status, _ = await api.call("POST", target, body, headers=NDJSON)
    assert status == 201
    _, shown = await api.call("GET", "/v0/topics/t")
    assert (shown["config"]["cap_records"], shown["config"]["subjects"]) == (1, ["a.>"])
    assert shown["count"] == 1
    closed = "/v0/topics/u?config=" + quote('{"auto_create": false}')
    assert await api.error("POST", closed, body, headers=NDJSON) == (404, "topic_not_found")
    writer = Caller(key="w", scopes=frozenset(("write",)))
    target = "/v0/topics/v?config=%7B%7D"
    refused = await api.error("POST", target, body, headers=NDJSON, caller=writer)
    assert refused == (403, "forbidden")


@pytest.mark.parametrize("config", ["", "x", "[]", "1", "%7B", '{"ttl_ms":-1}', "{}{}"])
async def test_a_config_in_the_query_that_is_none_is_400(api: Any, config: str) -> None:
    target = f"/v0/topics/t?config={quote(config)}"
    refused = await api.error("POST", target, b'{"data":1}', headers=NDJSON)
    assert refused == (400, "invalid_request")
    assert (await api.call("GET", "/v0/topics"))[1]["topics"] == []


async def test_a_gzip_body_is_unpacked_within_the_limit(api: Any) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    body = gzip.compress(b'{"records":[{"data":"zipped"}]}')
    assert (await api.call("POST", "/v0/topics/t", body, headers=headers))[0] == 201
    bomb = gzip.compress(b" " * (64 * 1024 * 1024 + 1))
    assert (await api.error("POST", "/v0/topics/t", bomb, headers=headers))[0] == 413
    assert (await api.error("POST", "/v0/topics/t", body[:-4], headers=headers))[0] == 400
    assert (await api.error("POST", "/v0/topics/t", b"junk", headers=headers))[0] == 400
    brotli = {**headers, "content-encoding": "br"}
    assert (await api.error("POST", "/v0/topics/t", body, headers=brotli))[0] == 415


async def test_the_same_key_writes_once(api: Any) -> None:
    first = await api.write("t", "a", "b", idempotency_key="k")
    await api.write("t", "c")
    again = await api.write("t", "something else", idempotency_key="k")
    for answer in (first, again):
        answer.pop("performance")
    assert again == first | {"created": False, "deduped": True}
    assert again["head_seq"] == 2
    assert (await api.call("GET", "/v0/topics/t"))[1]["head_seq"] == 3


async def test_the_key_may_come_in_a_header_and_the_body_wins(api: Any) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "h"}
    await api.call("POST", "/v0/topics/t", records(1), headers=headers)
    again = (await api.call("POST", "/v0/topics/t", records(1), headers=headers))[1]
    assert again["deduped"] is True
    body = {**records(1), "idempotency_key": "other"}
    assert (await api.call("POST", "/v0/topics/t", body, headers=headers))[1]["deduped"] is False


async def test_a_key_is_forgotten_after_its_window(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"idempotency_window_ms": 1000})
    await api.write("t", 1, idempotency_key="k")
    api.pass_time(1.0)
    assert (await api.write("t", 1, idempotency_key="k"))["deduped"] is True
    api.pass_time(0.001)
    assert (await api.write("t", 1, idempotency_key="k"))["first_seq"] == 2


async def test_keys_whose_window_is_over_go_although_nobody_writes_to_their_topic(
    api: Any,
) -> None:
    for n in range(250):
        await api.write("idle", n, idempotency_key=str(n))
    api.clock.advance(121)
    for n in range(20):
        await api.write("busy", n, idempotency_key=str(n))
    assert len(api.topics.idempotency) == 20
    again = await api.write("busy", 0, idempotency_key="0")
    assert again["deduped"] is True


async def test_a_key_that_is_used_again_after_its_window_counts_from_then_on(api: Any) -> None:
    for n in range(250):
        await api.write("t", n, idempotency_key=str(n))
    api.clock.advance(121)
    assert (await api.write("t", "new", idempotency_key="249"))["deduped"] is False
    api.clock.advance(60)
    assert (await api.write("t", "again", idempotency_key="249"))["deduped"] is True


async def test_nothing_is_remembered_of_a_topic_that_another_door_deleted(api: Any) -> None:
    await api.write("t", 1, idempotency_key="k")
    await api.diff("t")
    stream = api.stream("t")
    assert api.topics.priorities.last_read_ms(stream) is not None
    await api.catalog.delete("t")
    assert api.topics.priorities.last_read_ms(stream) is None
    assert len(api.topics.idempotency) == 0


async def test_concurrent_writes_of_one_key_append_once(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t")
    answers = await asyncio.gather(*(api.write("t", n, idempotency_key="k") for n in range(20)))
    assert {answer["first_seq"] for answer in answers} == {1}
    assert sorted(answer["deduped"] for answer in answers) == [False] + [True] * 19
    assert (await api.call("GET", "/v0/topics/t"))[1]["head_seq"] == 1


async def test_a_write_whose_client_left_is_known_to_its_retry(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"durable": True})
    task = asyncio.create_task(api.write("t", 1, idempotency_key="k"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.write("t", 1, idempotency_key="k")
    assert (await api.call("GET", "/v0/topics/t"))[1]["head_seq"] == 1


async def test_a_failed_write_stores_no_key_and_the_next_one_tries(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.call("PUT", "/v0/topics/t")

    def fails(*_: object, **__: object) -> asyncio.Future[tuple[int, int]]:
        raise StorageFull("the disk is full; free some space and writes resume")

    monkeypatch.setattr(type(api.stream("t")), "begin_append", fails)
    body = {**records(1), "idempotency_key": "k"}
    assert await api.error("POST", "/v0/topics/t", body) == (507, "insufficient_storage")
    monkeypatch.undo()
    assert (await api.write("t", 1, idempotency_key="k"))["deduped"] is False


async def test_a_write_that_waits_for_another_of_its_key_tries_itself_when_that_fails(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.call("PUT", "/v0/topics/t")
    begun: list[asyncio.Future[tuple[int, int]]] = []

    def fails_once(*_: object, **__: object) -> asyncio.Future[tuple[int, int]]:
        monkeypatch.undo()
        begun.append(asyncio.get_running_loop().create_future())
        return begun[0]

    monkeypatch.setattr(type(api.stream("t")), "begin_append", fails_once)
    body = {**records(1), "idempotency_key": "k"}
    first = asyncio.create_task(api.error("POST", "/v0/topics/t", body))
    second = asyncio.create_task(api.write("t", 1, idempotency_key="k"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    begun[0].set_exception(StorageFull("the disk is full; free some space and writes resume"))
    assert await first == (507, "insufficient_storage")
    answer = await second
    assert (answer["first_seq"], answer["deduped"]) == (1, False)


async def test_a_full_topic_that_rejects_takes_all_or_nothing(api: Any) -> None:
    await api.call("PUT", "/v0/topics/t", {"cap_records": 3, "discard": "reject"})
    await api.write("t", 1, 2)
    status, answer = await api.call("POST", "/v0/topics/t", records(3, 4))
    assert (status, answer["error"]["code"]) == (422, "topic_full")
    assert answer["error"]["detail"] == {
        "topic": "t",
        "cap_records": 3,
        "cap_bytes": 0,
        "head_seq": 2,
        "earliest_seq": 1,
    }
    assert (await api.write("t", 3))["first_seq"] == 3
    four = records(1, 2, 3, 4)
    assert await api.error("POST", "/v0/topics/t", four) == (400, "record_too_large")


async def test_a_record_may_name_a_subject_that_the_stream_captures(api: Any) -> None:
    config = StreamConfig.from_request({"name": "ORDERS", "subjects": ["orders.>"]})
    await api.catalog.create(config)
    body = {"records": [{"subject": "orders.new", "data": {"id": 3}}, {"data": 1}]}
    status, answer = await api.call("POST", "/v0/topics/ORDERS", body)
    assert (status, answer["seqs"]) == (200, [1, 2])
    page = await api.diff("ORDERS")
    assert page["records"][0]["$subject"] == "orders.new"
    assert "$subject" not in page["records"][1]
    assert api.stream("ORDERS").get(2).subject == b"ORDERS"
    for subject in ("billing.new", "orders.*", "orders.", "orders. x", "orders"):
        body = {"records": [{"subject": subject, "data": 1}]}
        assert await api.error("POST", "/v0/topics/ORDERS", body) == (400, "invalid_request")


async def make_stream(api: Any, **config: Any) -> None:
    wish = {"name": "S", "subjects": ["s.>"], **config}
    await api.catalog.create(StreamConfig.from_request(wish))


def of_subjects(*subjects: str) -> dict[str, object]:
    return {"records": [{"data": 1, "subject": subject} for subject in subjects]}


async def stored(api: Any) -> list[tuple[int, str]]:
    return [(one["$seq"], one["$subject"]) for one in (await api.diff("S"))["records"]]


async def test_a_stream_that_keeps_the_first_of_each_subject_does_so_over_http_too(
    api: Any,
) -> None:
    limits = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}
    await make_stream(api, **limits)
    target = "/v0/topics/S"
    assert (await api.call("POST", target, of_subjects("s.a")))[0] == 200
    for again in (of_subjects("s.a"), of_subjects("s.b", "s.a"), of_subjects("s.c", "s.c")):
        assert await api.error("POST", target, again) == (422, "topic_full")
    assert (await api.call("POST", target, of_subjects("s.b", "s.c")))[0] == 200
    assert await stored(api) == [(1, "s.a"), (2, "s.b"), (3, "s.c")]


async def test_a_full_stream_takes_records_that_replace_others_of_their_subject(api: Any) -> None:
    await make_stream(api, max_msgs_per_subject=1, discard="new", max_msgs=2)
    target = "/v0/topics/S"
    assert (await api.call("POST", target, of_subjects("s.a", "s.b")))[0] == 200
    assert await api.error("POST", target, of_subjects("s.a", "s.c")) == (422, "topic_full")
    assert (await api.call("POST", target, of_subjects("s.b", "s.a")))[0] == 200
    assert await stored(api) == [(3, "s.b"), (4, "s.a")]


async def test_a_streams_subject_transform_holds_for_records_written_over_http(api: Any) -> None:
    await make_stream(api, subject_transform={"src": "s.*", "dest": "s.new.{{wildcard(1)}}"})
    assert (await api.call("POST", "/v0/topics/S", of_subjects("s.a", "s.b.c")))[0] == 200
    assert await stored(api) == [(1, "s.new.a"), (2, "s.b.c")]


async def test_a_batch_is_one_commit_in_array_order_with_its_own_nodes_and_tags(api: Any) -> None:
    body = {
        "records": [{"data": 1, "node": "a"}, {"data": 2, "tag": "x", "meta": {"k": 1}}],
        "node": "n",
    }
    await api.call("POST", "/v0/topics/t", body)
    page = await api.diff("t", include_tags=True)
    ms = api.clock.time_ns() // 1_000_000
    assert page["records"] == [
        {"$seq": 1, "$ts": ms, "$node": "a", "data": 1},
        {"$seq": 2, "$ts": ms, "$node": "n", "$tag": "x", "data": 2, "meta": {"k": 1}},
    ]


async def test_ndjson_lines_that_make_sense_only_together_are_refused(api: Any) -> None:
    for lines, number in (
        ([b'{"data":[{}', b"{}]}", b'{"data":1} {"data":2}'], 1),
        ([b'{"data":1}', b'{"data":1}{"data":2}'], 2),
        ([b'{"data":1}', b'{"data": "a b"}', b'{"data":'], 3),
        ([b'{"data":1}', b"", b'{"tag": "a"}'], 3),
    ):
        answer = await api.call(
            "POST", "/v0/topics/a", b"\n".join(lines),
            headers={"content-type": "application/x-ndjson"},
        )  # fmt: skip
        assert answer[0] == 400
        assert f"line {number}:" in answer[1]["error"]["message"]
