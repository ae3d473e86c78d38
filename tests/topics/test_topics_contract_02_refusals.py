"""Section 2 of the contract: refusals, the order of checks, names, lists and hard limits."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from topics_api import Api, Events
from topics_server import Asked, asked

from millstream.clock import SystemClock
from millstream.errors import StorageFull
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Caller, Request
from millstream.http.response import Answer, Response
from millstream.http.routes import Route

RECORDS = {"records": [{"data": 1}]}
ROUTER = {"source": "a", "dest": "b"}


@pytest.fixture(autouse=True)
async def furnished(api: Api) -> None:
    await api.write("a", 1)
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})


async def refused(api: Api, method: str, path: str, body: Any = None, **more: Any) -> Any:
    """Return (status, code, detail) of a refusal, whose every member is one that is documented."""
    status, answer = await api.call(method, path, body, **more)
    assert list(answer) == ["error"]
    error = answer["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}
    assert error["message"]
    assert error["code"] == error["code"].lower()
    return status, error["code"], error.get("detail")


# -- the table of refusals -----------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_s2_more_than_1000_seqs_are_batch_too_large_with_both_numbers(
    api: Api, verb: str
) -> None:
    body = {"node": "w", "seqs": list(range(1, 1002)), "lease_ms": 1000}
    assert await refused(api, "POST", f"/v0/topics/q/{verb}", body) == (
        400,
        "batch_too_large",
        {"seqs": 1001, "max": 1000},
    )
    body["seqs"] = list(range(1, 1001))
    assert (await api.call("POST", f"/v0/topics/q/{verb}", body))[0] == 200


@pytest.mark.parametrize("cap", [{"cap_records": 2}, {"cap_bytes": 4}])
async def test_s2_a_write_above_the_whole_cap_of_a_rejecting_topic_is_record_too_large(
    api: Api, cap: dict[str, int]
) -> None:
    await api.call("PUT", "/v0/topics/r", {"discard": "reject", **cap})
    records = [{"data": 11}, {"data": 22}, {"data": 33}]
    status, code, _ = await refused(api, "POST", "/v0/topics/r", {"records": records})
    assert (status, code) == (400, "record_too_large")
    assert (await api.call("GET", "/v0/topics/r"))[1]["head_seq"] == 0


async def test_s2_a_full_topic_is_422_with_its_caps_and_positions(api: Api) -> None:
    await api.call("PUT", "/v0/topics/r", {"discard": "reject", "cap_records": 1})
    await api.write("r", 1)
    assert await refused(api, "POST", "/v0/topics/r", RECORDS) == (
        422,
        "topic_full",
        {"topic": "r", "cap_records": 1, "cap_bytes": 0, "head_seq": 1, "earliest_seq": 1},
    )


async def test_s2_a_forbidden_name_in_a_body_is_named_in_the_detail(api: Api) -> None:
    mine = Caller(prefixes=("a",), key="k")
    for method, path, body, name in (
        ("POST", "/v0/watch", {"topics": {"a": {}, "zz": {}}}, "zz"),
        ("PUT", "/v0/routers/ar", {"source": "a", "dest": "zz"}, "zz"),
        ("PUT", "/v0/topics/aq", {"type": "queue", "dead_letter": "zz"}, "zz"),
    ):
        found = await refused(api, method, path, body, caller=mine)
        assert found == (403, "forbidden", {"topic": name})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "detail"),
    [
        ("GET", "/v0/topics/zebra", None, 404, "topic_not_found", {"topic": "zebra"}),
        ("GET", "/v0/routers/zebra", None, 404, "router_not_found", {"router": "zebra"}),
        ("GET", "/v0/zebra", None, 404, "not_found", None),
        ("GET", "/v0/watch/wid_0123456789012345678901", None, 404, "not_found", None),
        ("POST", "/v0/routers", {}, 405, "method_not_allowed", None),
        ("PUT", "/v0/routers/a->a", {"source": "a", "dest": "a"}, 400, "invalid_request", None),
        ("POST", "/v0/topics/a/claim", {"node": "w"}, 409, "not_a_queue", {"topic": "a"}),
        ("DELETE", "/v0/topics/a?if_empty=1", None, 409, "topic_not_empty",
         {"topic": "a", "count": 1}),
        ("PUT", "/v0/topics/q", {}, 409, "topic_exists_incompatible",
         {"topic": "q", "existing_type": "queue", "requested_type": "log"}),
    ],
)  # fmt: skip
async def test_s2_each_refusal_has_its_status_code_and_detail(
    api: Api, method: str, path: str, body: Any, status: int, code: str, detail: Any
) -> None:
    assert await refused(api, method, path, body) == (status, code, detail)


async def test_s2_an_event_stream_that_is_not_accepted_is_406(api: Api) -> None:
    _, opened = await api.call("POST", "/v0/watch", {"topics": {"a": {}}})
    accept = {"accept": "application/json"}
    for path in (opened["stream_url"], "/v0/topics/q/work?node=w", "/v0/topics/a/tail"):
        found = await refused(api, "GET", path, headers=accept)
        assert found == (406, "not_acceptable", None)


async def test_s2_a_body_above_the_limit_is_413_before_it_is_parsed(api: Api) -> None:
    limits = Limits(body_bytes=1000)
    door = HttpDoor(asyncio.get_running_loop(), api.routes, SystemClock(), limits)
    port = await door.start("127.0.0.1", 0)
    for body in (b"{" * 1001, json.dumps({"records": [{"data": "x" * 1000}]}).encode()):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body))
        async with asyncio.timeout(5):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == (
            "payload_too_large"
        )
    await door.stop()


async def test_s2_a_failure_is_500_internal_without_a_word_of_what_failed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret/path")

    monkeypatch.setattr(api.topics.directory, "find", fail)
    answer = await api.send("GET", "/v0/topics/a")
    assert isinstance(answer, Response)
    assert (answer.status, b"secret" in answer.body) == (500, False)
    assert msgspec.json.decode(answer.body)["error"]["code"] == "internal"


async def test_s2_a_full_disk_is_507_and_names_itself(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageFull("no space left")

    monkeypatch.setattr(type(api.stream("a")), "begin_append", full)
    status, code, _ = await refused(api, "POST", "/v0/topics/a", RECORDS)
    assert (status, code) == (507, "insufficient_storage")


# -- the order of checks -------------------------------------------------------------------------


async def test_s2_auth_then_slot_then_scope_then_prefix_then_media_type(tmp_path: Path) -> None:
    keys = "full,mine:read+write:mine.,reader:read:mine."
    async with asked(tmp_path / "served", keys, max_inflight_per_key=1) as door:
        path = "/v0/topics/other"

        async def status(key: str, **more: Any) -> int:
            return await door.status("POST", path, key, **more)

        assert await status("") == 401
        assert await status("wrong", body={}) == 401
        leave = await occupied(door, "reader")
        assert await status("reader") == 429  # it lacks the scope as well
        leave()
        assert await status("reader") == 403
        refusal = await door.json("POST", path, "reader", body={})
        assert refusal["error"]["detail"] == {"scope": "write"}
        refusal = await door.json("POST", path, "mine")  # nor has it a media type
        assert refusal["error"]["detail"] == {"topic": "other"}
        assert await door.status("POST", "/v0/topics/mine.a", "mine") == 415
        assert await door.status("POST", "/v0/topics/mine.a", "mine", body=[]) == 400
        assert await door.status("GET", "/v0/nowhere") == 401
        assert await door.status("GET", "/v0/nowhere", "full") == 404


async def occupied(door: Asked, key: str) -> Callable[[], None]:
    """Take a key's slot, as a request that is being answered does; returns what gives it back."""
    request = Request("GET", "/v0/topics", headers=[(b"authorization", f"Bearer {key}".encode())])
    assert door.parts.http.gate is not None
    leave = door.parts.http.gate.authorize(request, Route("GET", "/v0/topics", nothing, "read", ""))
    assert leave is not None
    return leave


async def nothing(request: Request) -> Answer:
    return Response()


async def test_s2_a_write_checks_dedupe_before_the_cap(api: Api) -> None:
    await api.call("PUT", "/v0/topics/r", {"discard": "reject", "cap_records": 1})
    await api.write("r", 1, idempotency_key="k")
    again = await api.write("r", 1, idempotency_key="k")
    assert (again["deduped"], again["seqs"]) == (True, [1])
    assert (await refused(api, "POST", "/v0/topics/r", RECORDS))[1] == "topic_full"


async def test_s2_a_write_checks_batch_then_key_then_records_then_topic_then_name(
    api: Api,
) -> None:
    wrong: dict[str, Any] = {
        "records": [{"data": 1, "tag": "t" * 257}] * 10_001,
        "idempotency_key": "k" * 257,
        "create": False,
    }
    path = "/v0/topics/-bad"
    assert (await refused(api, "POST", path, wrong))[1] == "batch_too_large"
    wrong["records"] = wrong["records"][:1]
    _, answer = await api.call("POST", path, wrong)
    assert "idempotency key" in answer["error"]["message"]
    del wrong["idempotency_key"]
    _, answer = await api.call("POST", path, wrong)
    assert "tag" in answer["error"]["message"]
    wrong["records"] = [{"data": 1}]
    assert (await refused(api, "POST", path, wrong))[:2] == (404, "topic_not_found")
    del wrong["create"]
    assert (await refused(api, "POST", path, wrong))[:2] == (400, "invalid_request")


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_s2_workers_are_told_of_token_node_seqs_lengths_404_409_in_this_order(
    api: Api, verb: str
) -> None:
    body: dict[str, Any] = {
        "node": "",
        "seqs": list(range(1001)),
        "lease_ids": ["wrong"],
        "lease_ms": 1000,
    }
    path = f"/v0/topics/absent/{verb}"

    async def told() -> str:
        status, answer = await api.call("POST", path, body)
        assert status == 400
        return str(answer["error"]["message"])

    assert "lease id" in await told()
    body["lease_ids"] = ["lease_1"]
    assert "node" in await told()
    body["node"] = "w"
    assert "1000" in await told()
    body["seqs"] = [1, 2]
    assert "lease_ids" in await told()
    del body["lease_ids"]
    assert (await refused(api, "POST", path, body))[:2] == (404, "topic_not_found")
    path = f"/v0/topics/a/{verb}"
    assert (await refused(api, "POST", path, body))[:2] == (409, "not_a_queue")


async def test_s2_a_claim_is_404_then_409_then_400_for_its_node(api: Api) -> None:
    body = {"node": "n" * 129}
    found = [
        (await refused(api, "POST", f"/v0/topics/{name}/claim", body))[0]
        for name in ("absent", "a", "q")
    ]
    assert found == [404, 409, 400]


async def test_s2_work_is_406_then_400_then_404_then_409_then_429(api: Api) -> None:
    api.topics.live.most = 1
    held = api.topics.live.take("")
    no = {"accept": "text/html"}
    steps: list[tuple[str, dict[str, str], int]] = [
        ("/v0/topics/absent/work", no, 406),
        ("/v0/topics/absent/work", {}, 400),
        ("/v0/topics/absent/work?node=w", {}, 404),
        ("/v0/topics/a/work?node=w", {}, 409),
        ("/v0/topics/q/work?node=w", {}, 429),
    ]
    for path, headers, status in steps:
        assert (await refused(api, "GET", path, headers=headers))[0] == status
    held()


async def test_s2_a_watch_is_406_then_404_then_401_then_429(api: Api) -> None:
    _, opened = await api.call("POST", "/v0/watch", {"topics": {"a": {}}}, caller=Caller(key="one"))
    api.topics.live.most = 1
    held = api.topics.live.take("")
    no, url = {"accept": "text/html"}, opened["stream_url"]
    one, two = Caller(key="one"), Caller(key="two")
    steps = [
        ("/v0/watch/wid_none", no, two, 406),
        ("/v0/watch/wid_none", {}, two, 404),
        (url, {}, two, 401),
        (url, {}, one, 429),
    ]
    for path, headers, caller, status in steps:
        assert (await refused(api, "GET", path, headers=headers, caller=caller))[0] == status
    held()
    await Events(await api.send("GET", url, caller=one)).close()


async def test_s2_delete_records_asks_for_a_selector_before_the_topic(api: Api) -> None:
    assert (await refused(api, "POST", "/v0/topics/absent/delete", {}))[0] == 400
    body = {"before_seq": 1}
    assert (await refused(api, "POST", "/v0/topics/absent/delete", body))[0] == 404


# -- names and queries -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a->b", "a-%3Eb", "A>", "x" * 255, "0.1_2:3-4>5"])
async def test_s2_names_that_a_router_may_have(api: Api, name: str) -> None:
    status, answer = await api.call("PUT", f"/v0/routers/{name}", ROUTER)
    assert (status, answer["router"]) == (201, name.replace("%3E", ">"))


@pytest.mark.parametrize("name", ["%3Ea", ".a", "a%20b", "a%2Fb", "x" * 256, "%C3%A9", "a*"])
async def test_s2_names_that_no_router_may_have(api: Api, name: str) -> None:
    status, code, _ = await refused(api, "PUT", f"/v0/routers/{name}", ROUTER)
    assert (status, code) == (400, "invalid_request")


async def test_s2_names_are_decoded_before_the_prefix_is_compared(api: Api) -> None:
    mine = Caller(prefixes=("tenant:",), key="k")
    assert (await api.call("PUT", "/v0/topics/tenant%3Aa", caller=mine))[0] == 201
    found = await refused(api, "PUT", "/v0/topics/%61", caller=mine)
    assert found[:2] == (403, "forbidden")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("true", True), ("1", True), ("false", False), ("0", False), ("TRUE", True), ("no", True)],
)
async def test_s2_a_query_boolean_is_one_of_four_words_or_the_default(
    api: Api, text: str, shown: bool
) -> None:
    _, answer = await api.call("POST", f"/v0/topics/a?return_seqs={text}", RECORDS)
    assert ("seqs" in answer) is shown
    _, answer = await api.call("DELETE", f"/v0/topics/a?if_empty={text}")
    assert ("error" in answer) is (text in ("true", "1"))  # whose default is false


async def test_s2_a_page_holds_100_unless_asked_and_1000_at_most(api: Api) -> None:
    for n in range(1001):
        await api.catalog.create(api_config(f"t{n:04}"))
    for asked_for, given in (
        ("", 100),
        ("page_size=", 100),
        ("page_size=abc", 100),
        ("page_size=-5", 100),
        ("page_size=1.5", 100),
        ("page_size=0", 1),
        ("page_size=1", 1),
        ("page_size=999", 999),
        ("page_size=1000", 1000),
        ("page_size=99999999999999999999999", 1000),
    ):
        _, answer = await api.call("GET", f"/v0/topics?{asked_for}")
        assert len(answer["topics"]) == given, asked_for


def api_config(name: str) -> Any:
    from millstream.streams.config.config import StreamConfig

    return StreamConfig.from_topic(name, {})


@pytest.mark.parametrize("kind", ["topics", "routers"])
async def test_s2_a_cursor_goes_on_by_bytes_and_an_undecodable_one_is_400(
    api: Api, kind: str
) -> None:
    for name in ("b", "B", "c.1", "c"):
        await api.write(name, 1)
        await api.call("PUT", f"/v0/routers/{name}", {"source": "a", "dest": f"to-{name}"})
    names, cursor = [], ""
    for _ in range(20):
        _, page = await api.call("GET", f"/v0/{kind}?page_size=1&cursor={cursor}")
        names += [each[kind[:-1]] for each in page[kind]]
        if "next_cursor" not in page:
            break
        cursor = page["next_cursor"]
        assert set(cursor) <= set(base64.urlsafe_b64encode(bytes(range(256))).decode()) | set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        )
    assert names == sorted(names, key=str.encode)
    assert set(names) >= {"b", "B", "c.1", "c"}
    standard = base64.b64encode(b'{"after":"b"}').decode().replace("=", "%3D")
    assert (await api.call("GET", f"/v0/{kind}?cursor={standard}"))[0] == 200
    for wrong in ("%21", "bm8", "e30", "bnVsbA", "eyJhZnRlciI6MX0"):
        found = await refused(api, "GET", f"/v0/{kind}?cursor={wrong}")
        assert found[:2] == (400, "invalid_request"), wrong


# -- 2.1: hard limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"records": [{"data": 1}] * 10_000},
        {"records": [{"data": "x" * (2**20 - 2)}]},
        {"records": [{"data": "x" * (2**20 - 12), "meta": {"k": 12}}]},
        {"records": [{"data": 1, "meta": {"k": "x" * (16_384 - 8)}}]},
        {"records": [{"data": 1, "meta": {str(n): n for n in range(64)}}]},
        {"records": [{"data": 1, "tag": "é" * 128, "node": "é" * 64}], "node": "n" * 128},
        {"records": [{"data": 1}], "idempotency_key": "é" * 128},
    ],
)
async def test_s2_1_what_is_just_within_a_hard_limit_is_written(api: Api, body: Any) -> None:
    status, answer = await api.call("POST", "/v0/topics/a", body)
    assert (status, answer["count"]) == (200, len(body["records"]))


async def test_s2_1_data_and_meta_count_together(api: Api) -> None:
    record = {"data": "x" * (2**20 - 2), "meta": {}}
    found = await refused(api, "POST", "/v0/topics/a", {"records": [record]})
    assert found[:2] == (400, "record_too_large")


async def test_s2_1_a_key_in_the_header_has_the_same_limit(api: Api) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "k" * 257}
    found = await refused(api, "POST", "/v0/topics/a", RECORDS, headers=headers)
    assert found[:2] == (400, "invalid_request")


@pytest.mark.parametrize(
    ("limit", "given"), [(None, 256), (0, 256), (1, 1), (1000, 1000), (1001, 1000), (2**31, 1000)]
)
async def test_s2_1_a_diff_holds_256_records_unless_asked_and_1000_at_most(
    api: Api, limit: int | None, given: int
) -> None:
    await api.write("many", *range(1001))
    page = await api.diff("many", limit=limit)
    assert (len(page["records"]), page["next_from_seq"]) == (given, given)


async def test_s2_1_wait_ms_is_clamped_to_thirty_seconds(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def wait_for(streams: Any, seconds: float, ready: Any = None) -> bool:
        waited.append(seconds)
        return False

    monkeypatch.setattr(api.topics.stop_signal, "wait_for", wait_for)
    for wait_ms in (1, 30_000, 30_001, 2**63):
        await api.diff("a", from_seq=1, wait_ms=wait_ms)
    assert waited == [0.001, 30, 30, 30]


async def test_s2_1_the_byte_budget_is_one_mebibyte_and_eight_at_most(api: Api) -> None:
    for _ in range(10):
        await api.write("big", "x" * (2**20 - 2))
    for asked_for, given in ((None, 1), (0, 1), (1, 1), (3 * 2**20, 3), (2**40, 8)):
        page = await api.diff("big", max_batch_bytes=asked_for)
        assert (len(page["records"]), page["next_from_seq"]) == (given, given), asked_for
        assert page["caught_up"] is False


@pytest.mark.parametrize(
    ("asked_for", "given"), [(None, 1), (0, 1), (1, 1), (1000, 1000), (5000, 1000)]
)
async def test_s2_1_a_claim_is_clamped_to_1_and_1000(
    api: Api, asked_for: int | None, given: int
) -> None:
    await api.write("q", *range(1001))
    _, answer = await api.call("POST", "/v0/topics/q/claim", {"node": "w", "max": asked_for})
    assert answer["count"] == given


@pytest.mark.parametrize(
    ("asked_for", "given"), [(0, 100), (1, 100), (100, 100), (10**12, 86_400_000)]
)
async def test_s2_1_leases_are_clamped_where_they_are_asked_for(
    api: Api, asked_for: int, given: int
) -> None:
    await api.write("q", 1)
    now = api.topics.now_ms()
    _, answer = await api.call("POST", "/v0/topics/q/claim", {"node": "w", "lease_ms": asked_for})
    assert answer["claimed"][0]["deadline"] == now + given
    body = {"node": "w", "seqs": [1], "lease_ms": asked_for}
    _, answer = await api.call("POST", "/v0/topics/q/extend", body)
    assert answer["deadlines"] == {"1": now + given}


async def test_s2_1_the_delay_of_a_nack_is_clamped_to_a_day(api: Api) -> None:
    await api.write("q", 1)
    await api.call("POST", "/v0/topics/q/claim", {"node": "w"})
    body = {"node": "w", "seqs": [1], "delay_ms": 10**15}
    assert (await api.call("POST", "/v0/topics/q/nack", body))[1]["nacked"] == 1
    api.pass_time(86_399)
    assert (await api.call("POST", "/v0/topics/q/claim", {"node": "w"}))[1]["count"] == 0
    api.pass_time(1)
    assert (await api.call("POST", "/v0/topics/q/claim", {"node": "w"}))[1]["count"] == 1


async def test_s2_1_a_session_lives_five_minutes_and_asks_for_retries_after_two_seconds(
    api: Api,
) -> None:
    _, opened = await api.call("POST", "/v0/watch", {"topics": {"a": {}}})
    assert opened["session_ttl_ms"] == 300_000
    events = Events(await api.send("GET", opened["stream_url"]))
    assert await events.next() == {"retry": "2000"}
    await events.close()
    api.pass_time(300)
    await Events(await api.send("GET", opened["stream_url"])).close()
    api.pass_time(300.001)
    assert (await refused(api, "GET", opened["stream_url"]))[0] == 404
