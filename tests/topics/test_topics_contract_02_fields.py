"""Section 2 of the contract: fields before topics, envelopes through the door, edges of limits."""

import asyncio
from typing import Any

import msgspec
import pytest
from topics_api import JSON, Api
from topics_socket import Site, talk

from millstream.clock import SystemClock
from millstream.http.compression import pack
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Caller

U64 = 2**64
SEQS = {"node": "w", "seqs": [1]}


@pytest.fixture(autouse=True)
async def furnished(api: Api) -> None:
    await api.write("a", 1)
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})
    await api.write("q", 1)


# -- bodies ------------------------------------------------------------------------------------


async def test_s2_a_router_needs_a_body_and_its_content_type(api: Api) -> None:
    async def answer(body: bytes | None, headers: dict[str, str]) -> tuple[int, str]:
        found: tuple[int, str] = await api.error("PUT", "/v0/routers/r", body, headers=headers)
        return found

    assert await answer(None, {}) == (415, "unsupported_media_type")
    assert await answer(b"{}", {"content-type": "text/plain"}) == (415, "unsupported_media_type")
    assert await answer(b"", JSON) == (400, "invalid_request")
    assert await answer(b"{", JSON) == (400, "invalid_request")


BEFORE_THE_TOPIC: list[tuple[str, dict[str, Any]]] = [
    ("/v0/topics/absent", {"records": [{"data": 1, "tag": 5}], "create": False}),
    ("/v0/topics/absent/diff", {"from_seq": -1}),
    ("/v0/topics/absent/diff", {"limit": -1}),
    ("/v0/topics/absent/diff", {"wait_ms": U64}),
    ("/v0/topics/absent/diff", {"max_batch_bytes": -1}),
    ("/v0/topics/absent/delete", {"before_seq": -1}),
    ("/v0/topics/absent/delete", {"match": ["tag", "Glob", "x"]}),
    ("/v0/topics/absent/claim", {"node": "w", "max": -1}),
    ("/v0/topics/absent/claim", {"node": "w", "lease_ms": -1}),
    ("/v0/topics/absent/ack", {"node": "w", "seqs": [-1]}),
    ("/v0/topics/absent/nack", {**SEQS, "delay_ms": -1}),
    ("/v0/topics/absent/extend", {**SEQS, "lease_ms": -1}),
    ("/v0/watch", {"topics": {"absent": {"from_seq": -1}}}),
    ("/v0/watch", {"topics": {"absent": {"from_seq": U64, "tail": True}}}),
    ("/v0/watch", {"topics": {"absent": {}}, "limit": -1}),
    ("/v0/watch", {"topics": {"absent": {}}, "max_batch_bytes": U64}),
    ("/v0/watch", {"topics": {"absent": {}}, "heartbeat_ms": -1}),
    ("/v0/watch?lenient=1", {"topics": {"absent": {"from_seq": -1}, "a": {}}}),
]


@pytest.mark.parametrize(("path", "body"), BEFORE_THE_TOPIC)
async def test_s2_fields_are_checked_before_a_topic_is_looked_for(
    api: Api, path: str, body: dict[str, Any]
) -> None:
    assert await api.error("POST", path, body) == (400, "invalid_request")


async def test_s2_fields_of_a_watch_are_checked_before_its_names(api: Api) -> None:
    mine = Caller(prefixes=("a",), key="k")
    body = {"topics": {"theirs": {"from_seq": -1}}}
    assert await api.error("POST", "/v0/watch", body, caller=mine) == (400, "invalid_request")


@pytest.mark.parametrize(
    "wish",
    [
        {"topic": "absent", "from_seq": -1},
        {"topic": "absent", "limit": -1},
        {"topics": {"absent": {"from_seq": U64}}},
    ],
)
async def test_s2_fields_of_a_subscription_are_checked_before_its_topics(
    site: Site, wish: dict[str, Any]
) -> None:
    async with talk(site) as client:
        assert (await client.ask("subscribe", **wish))["code"] == "invalid_request"


WRONG: list[tuple[str, str, dict[str, Any], str, list[Any]]] = [
    ("POST", "/v0/topics/a/diff", {}, "include_meta", [1, "no"]),
    ("POST", "/v0/topics/a", {"records": [{"data": 1}]}, "disable_backpressure", [1, "no"]),
    ("POST", "/v0/topics/q/claim", {"node": "w"}, "max", [True, 1.5]),
    ("POST", "/v0/topics/q/ack", SEQS, "lease_ids", ["lease_1", [1], {}]),
    ("POST", "/v0/topics/a/delete", {}, "match", [1, {}, [1, 2, 3], ["tag", "Eq", None]]),
    ("POST", "/v0/watch", {"topics": {"a": {}}}, "include_meta", [1, "no"]),
    ("POST", "/v0/watch", {"topics": {"a": {}}}, "include_tags", [1, "no"]),
    ("POST", "/v0/watch", {"topics": {"a": {}}}, "node", [1, [1]]),
    ("POST", "/v0/watch", {"topics": {"a": {}}}, "topics", [{"a": None}, {"a": []}]),
    ("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, "dest", [1, None]),
    ("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, "filter", [1, {}, [1, 2, 3]]),
]


@pytest.mark.parametrize(("method", "path", "least", "field", "values"), WRONG)
async def test_s2_a_value_of_another_type_is_400_in_every_field(
    api: Api, method: str, path: str, least: dict[str, Any], field: str, values: list[Any]
) -> None:
    for value in values:
        answer = await api.error(method, path, {**least, field: value})
        assert answer == (400, "invalid_request"), value


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ({"priority": 2**31 - 1}, 201),
        ({"priority": -(2**31)}, 201),
        ({"cap_records": U64 - 1, "cap_bytes": U64 - 1, "max_deliveries": U64 - 1}, 201),
        ({"priority": 2**31}, 400),
        ({"cap_records": U64}, 400),
    ],
)
async def test_s2_numbers_may_be_as_large_as_their_type(
    api: Api, config: dict[str, int], status: int
) -> None:
    found, answer = await api.call("PUT", "/v0/topics/n", config)
    assert found == status
    if status == 201:
        assert {name: answer["config"][name] for name in config} == config


# -- refusals through the door -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "headers", "body", "status", "code"),
    [
        ("GET /v0/nowhere", "", b"", 404, "not_found"),
        ("PATCH /v0/topics/a", "", b"", 405, "method_not_allowed"),
        ("POST /v0/topics/a", "", b"{}", 415, "unsupported_media_type"),
        ("POST /v0/topics/a", "Content-Type: application/json\r\n", b"x" * 101, 413,
         "payload_too_large"),
        ("POST /v0/topics/a", "Content-Type: application/json\r\n", b"{", 400, "invalid_request"),
        ("GET /v0/topics/absent", "", b"", 404, "topic_not_found"),
    ],
)  # fmt: skip
async def test_s2_every_refusal_through_the_door_is_one_envelope(
    api: Api, request_line: str, headers: str, body: bytes, status: int, code: str
) -> None:
    loop = asyncio.get_running_loop()
    door = HttpDoor(loop, api.routes, SystemClock(), Limits(body_bytes=100))
    port = await door.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    async with asyncio.timeout(5):
        heard = await reader.read()
    writer.close()
    await door.stop()
    assert heard.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nContent-Type: application/json\r\n" in heard
    answer = msgspec.json.decode(heard.partition(b"\r\n\r\n")[2])
    assert list(answer) == ["error"]
    assert {"code", "message"} <= set(answer["error"]) <= {"code", "message", "detail"}
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_s2_a_body_that_unpacks_to_more_than_the_limit_is_413(
    api: Api, coding: str, version: str
) -> None:
    door = HttpDoor(
        asyncio.get_running_loop(), api.routes, SystemClock(), Limits(body_bytes=10_000)
    )
    port = await door.start("127.0.0.1", 0)
    flag = "--http2-prior-knowledge" if version == "2" else "--http1.1"
    for size, status in ((9_000, "200"), (10_000, "413")):
        raw = msgspec.json.encode({"records": [{"data": "x" * size}]})
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-s", "-m", "5", flag, "-w", "%{http_code}", "-o", "-"),
            *("-H", "content-type: application/json", "-H", f"content-encoding: {coding}"),
            *("--data-binary", "@-", f"http://127.0.0.1:{port}/v0/topics/a"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        heard, _ = await curl.communicate(pack(coding.encode(), raw))
        assert heard.decode()[-3:] == status, heard
        assert (b'"code":"payload_too_large"' in heard) == (status == "413")
    await door.stop()


# -- lists -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["topics", "routers"])
async def test_s2_the_last_page_has_no_cursor_also_when_it_is_full(api: Api, kind: str) -> None:
    for name in ("x1", "x2", "x3", "x4"):
        await api.write(name, 1)
        await api.call("PUT", f"/v0/routers/{name}", {"source": "a", "dest": name})
    _, first = await api.call("GET", f"/v0/{kind}?prefix=x&page_size=2")
    _, last = await api.call(
        "GET", f"/v0/{kind}?prefix=x&page_size=2&cursor={first['next_cursor']}"
    )
    assert [each[kind[:-1]] for each in last[kind]] == ["x3", "x4"]
    assert "next_cursor" not in last
    _, whole = await api.call("GET", f"/v0/{kind}?prefix=x&page_size=4&cursor=")
    assert len(whole[kind]) == 4
    assert "next_cursor" not in whole


# -- 2.1: the edges ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "batch", "is_taken"),
    [
        ({"tag": "t" * 256}, {}, True),
        ({"tag": "t" * 257}, {}, False),
        ({"node": "n" * 128}, {}, True),
        ({"node": "n" * 129}, {}, False),
        ({}, {"node": "n" * 129}, False),
        ({"meta": {"k": "x" * (16_384 - 8)}}, {}, True),
        ({"meta": {"k": "x" * (16_384 - 7)}}, {}, False),
        ({}, {"idempotency_key": "k" * 256}, True),
        ({}, {"idempotency_key": "k" * 257}, False),
    ],
)
async def test_s2_1_a_limit_of_a_write_is_where_it_is_said(
    api: Api, fields: dict[str, Any], batch: dict[str, Any], is_taken: bool
) -> None:
    body = {"records": [{"data": 1, **fields}], **batch}
    status, answer = await api.call("POST", "/v0/topics/a", body)
    if is_taken:
        assert status == 200
    else:
        assert (status, answer["error"]["code"]) == (400, "invalid_request")


async def test_s2_1_one_byte_above_a_mebibyte_is_record_too_large(api: Api) -> None:
    body = {"records": [{"data": "x" * (2**20 - 1)}]}
    assert await api.error("POST", "/v0/topics/a", body) == (400, "record_too_large")


async def test_s2_1_a_watch_of_256_topics_is_made(api: Api) -> None:
    names = [f"t{n:03}" for n in range(256)]
    for name in names:
        await api.call("PUT", f"/v0/topics/{name}", {"durability": "ephemeral"})
    status, answer = await api.call("POST", "/v0/watch", {"topics": {name: {} for name in names}})
    assert (status, list(answer["topics"])) == (200, names)
