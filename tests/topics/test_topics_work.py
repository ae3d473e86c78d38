"""Jobs pushed to workers as server-sent events, through the table and through real sockets."""

import asyncio
import socket
import struct
from typing import Any

import pytest
from topics_api import Api, Events

from millstream.errors import StorageFull
from millstream.http.response import StreamedResponse

START_MS = 1_700_000_000_000


async def make(api: Api, *data: object, **config: Any) -> None:
    status, _ = await api.call("PUT", "/v0/topics/q", {"type": "queue", **config})
    assert status == 201
    if data:
        await api.write("q", *data)


async def open_work(api: Api, query: str = "node=w&max=2") -> Events:
    return Events(await api.send("GET", f"/v0/topics/q/work?{query}"))


async def counters(api: Api) -> tuple[int, int, int]:
    _, state = await api.call("GET", "/v0/topics/q")
    queue = state["queue"]
    return queue["ready"], queue["in_flight"], queue["dead_lettered"]


async def post(api: Api, verb: str, *seqs: int, **more: Any) -> Any:
    body = {"node": "w", "seqs": seqs, **more}
    status, answer = await api.call("POST", f"/v0/topics/q/{verb}", body)
    assert status == 200
    return answer


async def turn() -> None:
    """Let every task go as far as it can by itself."""
    for _ in range(5):
        await asyncio.sleep(0)


async def job(events: Events) -> int:
    """Return the sequence of the next event, which must be a job."""
    name, data = await events.named()
    assert name == "job", data
    return int(data["$seq"])


# -- refusals --------------------------------------------------------------------------------


async def test_what_is_checked_first_answers_first(api: Api) -> None:
    await make(api)
    await api.write("log", 1)
    json = {"accept": "application/json"}
    work = "/v0/topics/{}/work{}"
    assert await api.error("GET", work.format("none", ""), headers=json) == (406, "not_acceptable")
    for query in ("", "?node=", f"?node={'n' * 129}", "?node=w&max=x", "?node=w&lease_ms=-1"):
        refused = await api.error("GET", work.format("none", query))
        assert refused == (400, "invalid_request")
    assert await api.error("GET", work.format("none", "?node=w")) == (404, "topic_not_found")
    api.topics.live.most = api.topics.live.open = 1
    assert await api.error("GET", work.format("log", "?node=w")) == (409, "not_a_queue")
    status, answer = await api.call("GET", work.format("q", "?node=w"))
    assert (status, answer["error"]["code"]) == (429, "throttled")
    assert answer["error"]["detail"] == {"limit": "max_sse_connections", "max": 1}
    assert await api.error("POST", work.format("q", "?node=w"), {}) == (405, "method_not_allowed")


@pytest.mark.parametrize("accept", ["text/event-stream", "text/html, */*", ""])
async def test_a_worker_that_reads_events_is_served(api: Api, accept: str) -> None:
    await make(api)
    answer = await api.send("GET", "/v0/topics/q/work?node=w", headers={"accept": accept})
    assert isinstance(answer, StreamedResponse)
    assert answer.content_type == b"text/event-stream"
    assert dict(answer.headers) == {b"Cache-Control": b"no-store", b"X-Accel-Buffering": b"no"}
    await Events(answer).close()


# -- frames ----------------------------------------------------------------------------------


async def test_the_stream_begins_with_retry_and_sends_each_job_as_an_event(api: Api) -> None:
    await make(api)
    record = {"data": {"k": "v w"}, "tag": "t", "node": "p", "meta": {"m": 1}}
    await api.call("POST", "/v0/topics/q", {"records": [record]})
    answer = await api.send("GET", "/v0/topics/q/work?node=w")
    assert isinstance(answer, StreamedResponse)
    assert await anext(answer.chunks) == b"retry: 2000\n\n"
    assert await anext(answer.chunks) == (
        b"id: 1\nevent: job\n"
        b'data: {"topic":"q","$seq":1,"lease_id":"lease_1","deadline":%d,"$ts":%d,"$tag":"t",'
        b'"deliveries":1,"data":{"k":"v w"},"meta":{"m":1}}\n\n' % (START_MS + 30_000, START_MS)
    )
    await Events(answer).close()


async def test_no_more_than_max_jobs_are_out_at_a_time(api: Api) -> None:
    await make(api, 1, 2, 3, 4, 5)
    events = await open_work(api)
    assert [await job(events), await job(events)] == [1, 2]
    assert await counters(api) == (3, 2, 0)
    waiting = asyncio.create_task(job(events))
    await turn()
    assert not waiting.done()
    await post(api, "ack", 1)
    assert await waiting == 3
    assert await counters(api) == (2, 2, 0)
    await events.close()


async def test_an_ack_makes_room_at_once(api: Api) -> None:
    await make(api, 1, 2)
    events = await open_work(api, "node=w&max=1")
    assert await job(events) == 1
    waiting = asyncio.create_task(job(events))
    await turn()
    await post(api, "ack", 1)
    assert await waiting == 2
    await events.close()


async def test_what_one_worker_gives_back_reaches_the_next_at_once(api: Api) -> None:
    await make(api, 1)
    first, second = await open_work(api, "node=w"), await open_work(api, "node=v")
    assert await job(first) == 1
    waiting = asyncio.create_task(job(second))
    await turn()
    await first.close()
    assert await waiting == 1
    await second.close()


@pytest.mark.parametrize(
    ("query", "out"), [("node=w", 1), ("node=w&max=0", 1), ("node=w&max=3", 3)]
)
async def test_max_is_one_unless_told(api: Api, query: str, out: int) -> None:
    await make(api, 1, 2, 3, 4)
    events = await open_work(api, query)
    await job(events)
    assert await counters(api) == (4 - out, out, 0)
    await events.close()


async def test_the_lease_of_the_worker_counts(api: Api) -> None:
    await make(api, 1)
    events = await open_work(api, "node=w&lease_ms=1")
    _, data = await events.named()
    assert data["deadline"] == START_MS + 100
    await events.close()


async def test_a_job_that_is_given_back_is_pushed_again(api: Api) -> None:
    await make(api, 1)
    events = await open_work(api)
    assert await job(events) == 1
    waiting = asyncio.create_task(events.named())
    await turn()
    await post(api, "nack", 1)
    assert (await waiting)[1]["deliveries"] == 2
    await events.close()


async def test_a_new_job_reaches_a_waiting_worker_at_once(api: Api) -> None:
    await make(api)
    events = await open_work(api)
    waiting = asyncio.create_task(job(events))
    await turn()
    await api.write("q", 1)
    assert await waiting == 1
    await events.close()


async def test_leases_and_delays_that_run_out_are_noticed(api: Api) -> None:
    await make(api, 1, 2)
    await api.call("POST", "/v0/topics/q/claim", {"node": "other", "max": 2, "lease_ms": 1000})
    body = {"node": "other", "seqs": [2], "delay_ms": 2000}
    await api.call("POST", "/v0/topics/q/nack", body)
    events = await open_work(api)
    waiting = asyncio.create_task(job(events))
    await turn()
    api.pass_time(1.001)
    assert await waiting == 1
    waiting = asyncio.create_task(job(events))
    await turn()
    api.pass_time(1)
    assert await waiting == 2
    await events.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_worker_whose_leases_ran_out_gets_the_jobs_again(api: Api, waits: bool) -> None:
    await make(api, 1)
    events = await open_work(api, "node=w&lease_ms=100")
    assert await job(events) == 1
    waiting = asyncio.create_task(job(events))
    if waits:
        await turn()
    api.pass_time(0.101)
    assert await waiting == 1
    await events.close()


async def test_a_lease_cut_short_is_noticed_in_time(api: Api) -> None:
    await make(api, 1)
    await api.call("POST", "/v0/topics/q/claim", {"node": "w"})
    events = await open_work(api, "node=v")
    waiting = asyncio.create_task(job(events))
    await turn()
    await post(api, "extend", 1, lease_ms=100)
    api.pass_time(0.101)
    assert await waiting == 1
    await events.close()


async def test_a_job_removed_by_another_door_makes_room(api: Api) -> None:
    await make(api, 1, 2)
    events = await open_work(api, "node=w&max=1")
    assert await job(events) == 1
    waiting = asyncio.create_task(job(events))
    await turn()
    await api.stream("q").delete([1])
    assert await waiting == 2
    await events.close()


async def test_a_call_that_reaches_a_leaving_worker_is_passed_on(api: Api) -> None:
    await make(api)
    first, second = await open_work(api, "node=w"), await open_work(api, "node=v")
    leaving, staying = asyncio.create_task(job(first)), asyncio.create_task(job(second))
    await turn()
    await api.write("q", 1)  # wakes the first, which has no turn any more
    leaving.cancel()
    assert await staying == 1
    await first.close()
    await second.close()


async def test_an_idle_stream_carries_a_heartbeat_every_fifteen_seconds(api: Api) -> None:
    await make(api)
    events = await open_work(api)
    assert await events.next() == {"retry": "2000"}
    waiting = asyncio.create_task(events.next())
    await turn()
    api.pass_time(14)
    await turn()
    assert not waiting.done()
    api.pass_time(1)
    assert await waiting == {"comment": f": hb {START_MS + 15_000}"}
    await events.close()


async def test_one_new_job_wakes_one_worker(api: Api) -> None:
    await make(api)
    workers = [await open_work(api, f"node=w{n}&max=1") for n in range(3)]
    waiting = [asyncio.create_task(job(events)) for events in workers]
    await turn()
    for seq in (1, 2, 3):
        await api.write("q", seq)
    assert sorted(await asyncio.gather(*waiting)) == [1, 2, 3]
    for events in workers:
        await events.close()


async def test_workers_and_polls_share_a_window(api: Api) -> None:
    await make(api, *range(4), claim_jitter_ms=100)
    events = await open_work(api, "node=w&max=2")
    waiting = asyncio.create_task(job(events))
    poll = asyncio.create_task(api.call("POST", "/v0/topics/q/claim", {"node": "p", "max": 10}))
    await turn()
    assert not waiting.done()
    api.pass_time(0.1)
    assert len({await waiting, await job(events)}) == 2
    assert (await poll)[1]["count"] == 2
    await events.close()


async def test_a_job_delivered_too_often_is_not_pushed_but_moved(api: Api) -> None:
    await make(api, 1, 2, max_deliveries=1, dead_letter="dead")
    events = await open_work(api, "node=w&max=1")
    assert await job(events) == 1
    await post(api, "nack", 1)
    assert await job(events) == 2
    assert await counters(api) == (0, 1, 1)
    await events.close()


# -- the end ---------------------------------------------------------------------------------


async def test_closing_gives_back_what_was_pushed_and_only_that(api: Api) -> None:
    await make(api, *range(5))
    await api.call("POST", "/v0/topics/q/claim", {"node": "w", "max": 1})
    events = await open_work(api)
    await job(events)
    assert api.topics.sse_connections == 1
    assert await counters(api) == (2, 3, 0)
    await events.close()
    await events.close()
    assert api.topics.sse_connections == 0
    assert await counters(api) == (4, 1, 0)
    assert (await post(api, "ack", 1))["acked"] == 1


async def test_deleting_the_queue_ends_the_stream_with_an_error(api: Api) -> None:
    await make(api)
    events = await open_work(api)
    waiting = asyncio.create_task(events.named())
    await turn()
    await api.call("DELETE", "/v0/topics/q")
    name, data = await waiting
    assert (name, data["code"], data["topic"]) == ("error", 409, "q")
    assert sorted(data) == ["code", "error", "topic"]
    with pytest.raises(StopAsyncIteration):
        await events.next()
    await events.close()


async def test_stopping_ends_the_stream_with_a_word(api: Api) -> None:
    await make(api, 1)
    events = await open_work(api)
    await job(events)
    waiting = asyncio.create_task(events.named())
    await turn()
    api.topics.stop()
    name, data = await waiting
    assert (name, data["code"]) == ("error", "server_shutting_down")
    await events.close()
    assert await counters(api) == (1, 0, 0)


async def test_a_claim_that_fails_ends_the_stream_and_says_why(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(api, 1, leases_durable=True)

    def full(*args: object) -> None:
        raise StorageFull("no room")

    events = await open_work(api)
    with monkeypatch.context() as patch:
        patch.setattr(api.store, "control", full)
        name, data = await events.named()
    assert (name, data["code"]) == ("error", 507)
    await events.close()
    assert await counters(api) == (1, 0, 0)


# -- real sockets ----------------------------------------------------------------------------


WORK = b"GET /v0/topics/q/work?node=w&max=2 HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def nothing_in_flight(api: Api) -> None:
    """Wait until no job is leased; every removal of a client is one turn of the loop away."""
    for _ in range(500):
        if (await counters(api))[1] == 0:
            return
        await asyncio.sleep(0.01)
    pytest.fail("jobs are still leased")


async def test_a_worker_gets_two_of_five_jobs_and_its_leaving_frees_them(
    api: Api, port: int
) -> None:
    await make(api, *range(5))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(WORK)
    seen = await reader.readuntil(b'"data":1}\n\n')
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readuntil(b"event: job"), 0.4)
    assert seen.count(b"event: job") == 2
    assert b"Content-Type: text/event-stream" in seen
    assert await counters(api) == (3, 2, 0)
    writer.close()
    await nothing_in_flight(api)
    assert await counters(api) == (5, 0, 0)


async def test_a_broken_connection_frees_its_jobs(api: Api, port: int) -> None:
    await make(api, *range(5))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(WORK)
    await reader.readuntil(b"event: job")
    reset = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    writer.transport.abort()
    await nothing_in_flight(api)


async def test_a_worker_over_http2_is_served_and_released_too(api: Api, port: int) -> None:
    await make(api, *range(5))
    worker = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "--http2-prior-knowledge"),
        f"http://127.0.0.1:{port}/v0/topics/q/work?node=w&max=2",
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    seen = await worker.stdout.readuntil(b'"data":1}\n\n')
    assert seen.count(b"event: job") == 2
    assert await counters(api) == (3, 2, 0)
    worker.terminate()
    await worker.communicate()
    await nothing_in_flight(api)


async def test_a_pool_of_workers_finishes_every_job_once(api: Api, port: int) -> None:
    await make(api, *range(200))
    finished: list[int] = []
    all_finished = asyncio.Event()

    async def worker(name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"GET /v0/topics/q/work?node={name}&max=4 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(request.encode())
        try:
            while True:
                line = await reader.readline()
                if not line.startswith(b"id: "):
                    continue
                seq = int(line[4:])
                body = {"node": name, "seqs": [seq]}
                _, answer = await api.call("POST", "/v0/topics/q/ack", body)
                if answer["acked"]:
                    finished.append(seq)
                if len(finished) == 200:
                    all_finished.set()
        finally:
            writer.close()

    tasks = [asyncio.create_task(worker(f"w{n}")) for n in range(4)]
    async with asyncio.timeout(20):
        await all_finished.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(finished) == list(range(1, 201))
    await nothing_in_flight(api)
    assert await counters(api) == (0, 0, 0)
