"""Raw frames over HTTP: ranges, budgets and refusals, and Spark's own reader on the other end."""

import asyncio

from topics_api import Api

from millstream.client.streams import HttpStreams
from millstream.http.door import HttpDoor
from millstream.http.request import Caller
from millstream.http.response import Response
from millstream.kernel.reference.frames import scan


def seqs(body: bytes) -> list[int]:
    """Return the sequences of whole, sound frames."""
    found, damaged = scan(body)
    assert not damaged
    return [seq for _, _, _, seq, *_ in found]


async def read(api: Api, query: str = "") -> bytes:
    answer = await api.send("GET", f"/v0/topics/t/frames?{query}")
    assert isinstance(answer, Response)
    assert answer.status == 200, answer.body
    assert answer.content_type == b"application/octet-stream"
    return answer.body


async def test_a_range_comes_as_raw_frames_oldest_first(api: Api) -> None:
    await api.write("t", *range(5))
    assert seqs(await read(api)) == [1, 2, 3, 4, 5]
    assert seqs(await read(api, "from_seq=2&to_seq=4")) == [2, 3, 4]


async def test_a_range_that_holds_nothing_is_empty(api: Api) -> None:
    await api.write("t", 1)
    assert await read(api, "from_seq=2&to_seq=9") == b""
    assert await read(api, "from_seq=1&to_seq=0") == b""


async def test_the_budget_cuts_between_frames_but_gives_at_least_one(api: Api) -> None:
    await api.write("t", *("x" * 1000 for _ in range(4)))
    assert seqs(await read(api, "max_bytes=1")) == [1]
    whole = len(await read(api))
    assert seqs(await read(api, f"max_bytes={whole // 2}")) == [1, 2]


async def test_deleted_records_are_left_out(api: Api) -> None:
    await api.write("t", 1, 2, 3)
    await api.stream("t").delete([2])
    assert seqs(await read(api)) == [1, 3]


async def test_what_cannot_be_read_is_refused(api: Api) -> None:
    await api.write("t", 1)
    for query in ("from_seq=x", "from_seq=0", "to_seq=-1", "max_bytes=0", f"to_seq={2**64}"):
        assert await api.error("GET", f"/v0/topics/t/frames?{query}") == (400, "invalid_request")
    assert await api.error("GET", "/v0/topics/other/frames") == (404, "topic_not_found")
    fenced = Caller(prefixes=("mine",))
    assert await api.error("GET", "/v0/topics/t/frames", caller=fenced) == (403, "forbidden")


async def test_the_blocking_client_reads_a_topic_over_http(api: Api) -> None:
    await api.write("t", *range(3))
    loop = asyncio.get_running_loop()
    door = HttpDoor(loop, api.routes, api.clock)
    port = await door.start("127.0.0.1", 0)
    reader = HttpStreams(f"http://127.0.0.1:{port}")
    try:
        plan = await asyncio.to_thread(reader.plan, "t")
        body = await asyncio.to_thread(reader.read, "t", plan.tail.from_seq, plan.tail.to_seq)
    finally:
        reader.close()
        await door.stop()
    assert seqs(body) == [1, 2, 3]
