"""Section 11 of the contract: sentences about caps that stand for themselves."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from topics_api import Api, Events
from topics_server import asked
from topics_socket import Site

from millstream.delivery.governor import Measures
from millstream.http.response import Answer, Response, StreamedResponse

RECORDS = {"records": [{"data": 1}]}


def told(answer: Answer) -> Any:
    """Return the detail of a refusal, whose every other part is checked."""
    assert isinstance(answer, Response), answer
    assert answer.status == 429
    assert (b"Retry-After", b"1") in answer.headers
    error = msgspec.json.decode(answer.body)["error"]
    assert error["code"] == "throttled"
    return error["detail"]


async def statuses(*answers: Awaitable[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in await asyncio.gather(*answers))


# -- nothing goes above a cap, whoever races -------------------------------------------------------


async def test_s11_racing_puts_make_as_many_topics_as_there_may_be(api: Api) -> None:
    api.topics.topic_limit.most = 3
    found = await statuses(*(api.send("PUT", f"/v0/topics/t{n}") for n in range(10)))
    assert found == {201: 3, 429: 7}
    assert len(api.catalog.everything()) == 3


async def test_s11_racing_writes_make_as_many_topics_as_there_may_be(api: Api) -> None:
    api.topics.topic_limit.most = 3
    found = await statuses(*(api.send("POST", f"/v0/topics/t{n}", RECORDS) for n in range(10)))
    assert found == {201: 3, 429: 7}


async def test_s11_racing_writes_to_one_new_topic_take_one_place(api: Api) -> None:
    api.topics.topic_limit.most = 1
    found = await statuses(*(api.send("POST", "/v0/topics/t", RECORDS) for n in range(10)))
    assert found == {201: 1, 200: 9}


async def test_s11_racing_routers_leave_no_topic_of_one_that_was_refused(api: Api) -> None:
    api.topics.topic_limit.most = 5
    bodies = [{"source": f"s{n}", "dest": f"d{n}"} for n in range(6)]
    writes = [api.send("PUT", f"/v0/topics/w{n}") for n in range(3)]
    puts = [api.send("PUT", f"/v0/routers/r{n}", body) for n, body in enumerate(bodies)]
    await statuses(*puts, *writes)
    _, listed = await api.call("GET", "/v0/routers")
    routed = {end for each in listed["routers"] for end in (each["source"], each["dest"])}
    topics = {stream.name for stream in api.catalog.everything()}
    assert len(topics) <= 5
    assert {name for name in topics if name[0] in "sd"} == routed


async def test_s11_racing_routers_do_not_overshoot(api: Api) -> None:
    api.topics.routers.most = 2
    bodies = [{"source": "a", "dest": f"d{n}"} for n in range(6)]
    puts = [api.send("PUT", f"/v0/routers/r{n}", body) for n, body in enumerate(bodies)]
    assert await statuses(*puts) == {201: 2, 429: 4}


async def test_s11_racing_watches_do_not_overshoot(api: Api) -> None:
    await api.write("a", 1)
    api.topics.max_watch_sessions = 2
    body: dict[str, Any] = {"topics": {"a": {}}}
    found = await statuses(*(api.send("POST", "/v0/watch", body) for _ in range(6)))
    assert found == {200: 2, 429: 4}


async def test_s11_room_that_a_failed_creation_held_is_free_again(api: Api) -> None:
    api.topics.topic_limit.most = 1
    for _ in range(3):
        assert (await api.send("PUT", "/v0/topics/-bad")).status == 400
        assert (await api.send("PUT", "/v0/topics/t", {"type": "pile"})).status == 400
    assert (await api.send("PUT", "/v0/topics/t")).status == 201
    await api.call("DELETE", "/v0/topics/t")
    assert (await api.send("PUT", "/v0/topics/u")).status == 201


async def test_s11_each_cap_tells_its_name_and_its_size(api: Api) -> None:
    await api.write("a", 1)
    api.topics.topic_limit.most = 1
    assert told(await api.send("PUT", "/v0/topics/b")) == {"limit": "max_topics", "max": 1}
    body = {"source": "a", "dest": "b"}
    found = told(await api.send("PUT", "/v0/routers/r", body))
    assert found == {"limit": "max_topics", "max": 1}


async def test_s11_a_cap_of_zero_is_none(api: Api) -> None:
    topics = api.topics
    topics.topic_limit.most = topics.routers.most = topics.max_watch_sessions = 0
    topics.live.most = topics.live.per_key = topics.quota.most = 0
    for n in range(3):
        await api.write(f"t{n}", "x" * 1000)
        body = {"source": f"t{n}", "dest": f"d{n}"}
        assert (await api.call("PUT", f"/v0/routers/r{n}", body))[0] == 201
        assert (await api.call("POST", "/v0/watch", {"topics": {"t0": {}}}))[0] == 200


# -- max_total_bytes -------------------------------------------------------------------------------


async def test_s11_bytes_are_those_of_data_and_meta_and_the_last_one_fits(api: Api) -> None:
    api.topics.quota.most = 20
    record = {"data": "x" * 8, "meta": {"k": 12}}  # 10 and 8
    await api.call("POST", "/v0/topics/a", {"records": [record]})
    assert (await api.send("POST", "/v0/topics/a", {"records": [{"data": 123}]})).status == 429
    assert (await api.send("POST", "/v0/topics/a", {"records": [{"data": 12}]})).status == 200


async def test_s11_eviction_by_a_cap_gives_bytes_back(api: Api) -> None:
    api.topics.quota.most = 40
    await api.call("PUT", "/v0/topics/a", {"cap_records": 1})
    for _ in range(5):
        await api.write("a", "x" * 18)


# -- slots of requests and streams -----------------------------------------------------------------


async def test_s11_a_long_stream_gives_its_request_slot_back_at_once(tmp_path: Path) -> None:
    async with asked(tmp_path, "full", max_inflight_per_key=1) as door:
        await door.status("POST", "/v0/topics/a", "full", body=RECORDS)
        stream = await door.send("GET", "/v0/topics/a/tail", "full")
        assert isinstance(stream, StreamedResponse)
        assert await door.status("GET", "/v0/topics", "full") == 200
        await stream.chunks.aclose()  # type: ignore[attr-defined]


async def test_s11_a_request_holds_its_slot_until_it_is_answered(tmp_path: Path) -> None:
    async with asked(tmp_path, "full,other", max_inflight_per_key=1) as door:
        await door.status("POST", "/v0/topics/a", "full", body=RECORDS)
        body = {"from_seq": 1, "wait_ms": 5000}
        polling = asyncio.ensure_future(door.send("POST", "/v0/topics/a/diff", "full", body=body))
        await asyncio.sleep(0)
        refused = told(await door.send("GET", "/v0/topics", "full"))
        assert refused == {"limit": "max_inflight_per_key", "max": 1}
        assert await door.status("GET", "/v0/topics", "other") == 200  # a slot of its own
        assert await door.status("POST", "/v0/topics/a", "other", body=RECORDS) == 200
        assert (await polling).status == 200
        assert await door.status("GET", "/v0/topics", "full") == 200


async def opened(site: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open an event stream through a real socket and read its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"GET /v0/topics/a/tail HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"caught-up")
    return reader, writer


async def closed(site: Site, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def reset(site: Site, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def half_closed(site: Site, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


async def deleted(site: Site, writer: asyncio.StreamWriter) -> None:
    await site.api.call("DELETE", "/v0/topics/a")
    await site.api.write("a", 1)


@pytest.mark.parametrize("end", [closed, reset, half_closed, deleted])
async def test_s11_a_slot_is_free_after_any_kind_of_end(
    site: Site, end: Callable[[Site, asyncio.StreamWriter], Awaitable[None]]
) -> None:
    await site.api.write("a", 1)
    site.api.topics.live.most = 1
    _, writer = await opened(site)
    told(await site.api.send("GET", "/v0/topics/a/tail"))
    await end(site, writer)
    async with asyncio.timeout(5):
        while site.api.topics.live.open:  # noqa: ASYNC110 - the server's end closes by itself
            await asyncio.sleep(0)
    await Events(await site.api.send("GET", "/v0/topics/a/tail")).close()
    writer.close()


async def test_s11_a_slot_is_free_after_a_stream_of_http2_has_ended(site: Site) -> None:
    await site.api.write("a", 1)
    site.api.topics.live.most = 1
    client = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "--http2-prior-knowledge"),
        f"http://127.0.0.1:{site.port}/v0/topics/a/tail",
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdout is not None
    async with asyncio.timeout(5):
        await client.stdout.readuntil(b"caught-up")
    assert told(await site.api.send("GET", "/v0/topics/a/tail")) == {
        "limit": "max_sse_connections",
        "max": 1,
    }
    client.terminate()
    await client.communicate()
    async with asyncio.timeout(5):
        while site.api.topics.live.open:  # noqa: ASYNC110 - the server's end closes by itself
            await asyncio.sleep(0)
    await Events(await site.api.send("GET", "/v0/topics/a/tail")).close()


async def test_s11_a_socket_is_refused_with_429_like_any_other_stream(site: Site) -> None:
    await site.api.write("a", 1)
    site.api.topics.live.most = 1
    _, writer = await opened(site)
    upgrade = {
        "host": "localhost", "upgrade": "websocket", "connection": "Upgrade",
        "sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    refused = await site.api.send("GET", "/v0/ws", headers=upgrade)
    assert told(refused) == {"limit": "max_sse_connections", "max": 1}
    writer.close()
    async with asyncio.timeout(5):
        while site.api.topics.live.open:  # noqa: ASYNC110 - the server's end closes by itself
            await asyncio.sleep(0)


# -- a full log (W9) -------------------------------------------------------------------------------

CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/v0/topics/a", RECORDS),
    ("PUT", "/v0/topics/b", {}),
    ("DELETE", "/v0/topics/a", None),
    ("POST", "/v0/topics/a/delete", {"before_seq": 1}),
    ("PUT", "/v0/routers/s", {"source": "a", "dest": "b"}),
    ("DELETE", "/v0/routers/r", None),
    ("POST", "/v0/topics/q/claim", {"node": "w"}),
    ("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]}),
    ("POST", "/v0/topics/q/nack", {"node": "w", "seqs": [1]}),
    ("POST", "/v0/topics/q/extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_s11_whatever_would_go_into_a_full_log_is_429(
    api: Api, method: str, path: str, body: Any
) -> None:
    await api.write("a", 1)
    await api.call("PUT", "/v0/topics/q", {"type": "queue"})
    await api.write("q", 1)
    await api.call("PUT", "/v0/routers/r", {"source": "a", "dest": "copy"})
    api.topics.scheduler._governor.measures = Measures(1.0, refuses=True)
    assert told(await api.send(method, path, body)) == {"retry_after_ms": 1000}
    for read in ("/v0/topics", "/v0/topics/a", "/v0/routers/r", "/v0/health"):
        assert (await api.send("GET", read)).status == 200
    assert (await api.diff("a"))["head_seq"] == 1
    api.topics.scheduler._governor.measures = Measures()
    assert (await api.send(method, path, body)).status in (200, 201)
