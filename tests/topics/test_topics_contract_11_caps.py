"""Section 11 of the contract: caps are reserved before anything happens, and refused with 429."""

import asyncio
from typing import Any

import msgspec
import pytest
from topics_api import Api, Events

from millstream.errors import Throttled
from millstream.http.request import Caller
from millstream.http.response import Response
from millstream.topics.limits.quota import Quota
from millstream.topics.limits.slots import Slots


async def refused(api: Api, method: str, target: str, body: object = None, **more: Any) -> Any:
    """Return the detail of a refusal, whose every other part is checked."""
    answer = await api.send(method, target, body, **more)
    assert isinstance(answer, Response), answer
    assert answer.status == 429
    assert (b"Retry-After", b"1") in answer.headers
    error = msgspec.json.decode(answer.body)["error"]
    assert error["code"] == "throttled"
    return error["detail"]


async def test_s11_max_topics_counts_puts_and_creating_writes(api: Api) -> None:
    await api.write("a", 1)
    api.topics.topic_limit.most = 1
    told = {"limit": "max_topics", "max": 1}
    assert await refused(api, "PUT", "/v0/topics/b") == told
    assert await refused(api, "POST", "/v0/topics/b", {"records": [{"data": 1}]}) == told
    assert (await api.call("PUT", "/v0/topics/a"))[0] == 200
    api.topics.topic_limit.most = 0
    assert (await api.call("PUT", "/v0/topics/b"))[0] == 201


async def test_s11_dead_letters_obey_max_topics_and_the_job_stays(api: Api) -> None:
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"}
    await api.call("PUT", "/v0/topics/q", config)
    await api.write("q", 1)
    await api.call("POST", "/v0/topics/q/claim", {"node": "w"})
    await api.call("POST", "/v0/topics/q/nack", {"node": "w", "seqs": [1]})
    api.topics.topic_limit.most = 1
    await api.send("POST", "/v0/topics/q/claim", {"node": "w"})
    assert (await api.call("GET", "/v0/topics/q"))[1]["count"] == 1
    api.topics.topic_limit.most = 0
    await api.call("POST", "/v0/topics/q/claim", {"node": "w"})
    assert (await api.diff("dead"))["records"][0]["data"] == 1


async def test_s11_max_watch_sessions(api: Api) -> None:
    await api.write("a", 1)
    api.topics.max_watch_sessions = 1
    body: dict[str, Any] = {"topics": {"a": {}}}
    assert (await api.call("POST", "/v0/watch", body))[0] == 200
    told = {"limit": "max_watch_sessions", "max": 1}
    assert await refused(api, "POST", "/v0/watch", body) == told


async def test_s11_streams_are_capped_in_all_and_for_each_key(api: Api) -> None:
    await api.write("a", 1)
    api.topics.live.per_key = 1
    one, two = Caller(key="one"), Caller(key="two")
    first = Events(await api.send("GET", "/v0/topics/a/tail", caller=one))
    told = {"limit": "max_sse_connections_per_key", "max": 1}
    assert await refused(api, "GET", "/v0/topics/a/tail", caller=one) == told
    second = Events(await api.send("GET", "/v0/topics/a/tail", caller=two))
    api.topics.live.most = 2
    told = {"limit": "max_sse_connections", "max": 2}
    assert await refused(api, "GET", "/v0/topics/a/tail", caller=Caller(key="three")) == told
    await first.close()
    await Events(await api.send("GET", "/v0/topics/a/tail", caller=one)).close()
    await second.close()
    assert api.topics.live.open == 0


async def test_s11_per_key_caps_hold_only_where_there_are_keys(api: Api) -> None:
    await api.write("a", 1)
    api.topics.live.per_key = 1
    streams = [Events(await api.send("GET", "/v0/topics/a/tail")) for _ in range(3)]
    for stream in streams:
        await stream.close()


async def test_s11_max_total_bytes_refuses_what_would_exceed_it(api: Api) -> None:
    api.topics.quota.most = 100
    await api.write("a", "x" * 38)  # 40 bytes
    await api.write("b", "x" * 38)
    told = {"limit": "max_total_bytes", "max": 100}
    body = {"records": [{"data": "x" * 19}]}  # 21 bytes
    assert await refused(api, "POST", "/v0/topics/a", body) == told
    await api.write("a", "x" * 18)
    assert await refused(api, "POST", "/v0/topics/c", {"records": [{"data": 1}]}) == told


async def test_s11_deletes_and_evictions_give_bytes_back(api: Api) -> None:
    api.topics.quota.most = 100
    await api.write("a", "x" * 48)
    await api.write("b", "x" * 48)
    await api.call("POST", "/v0/topics/a/delete", {"before_seq": 2})
    await api.write("a", "x" * 48)
    await api.call("DELETE", "/v0/topics/b")
    await api.write("c", "x" * 40)
    await api.call("PUT", "/v0/topics/a", {"ttl_ms": 1000})
    api.pass_time(5)
    await api.write("c", "x" * 40)


async def test_s11_a_failed_write_gives_its_bytes_back(api: Api) -> None:
    api.topics.quota.most = 100
    await api.call("PUT", "/v0/topics/a", {"cap_records": 1, "discard": "reject"})
    await api.write("a", "x" * 38)
    for _ in range(5):
        status, _ = await api.call("POST", "/v0/topics/a", {"records": [{"data": "x" * 38}]})
        assert status == 422
    await api.write("b", "x" * 38)


async def test_s11_racing_writes_do_not_overshoot(api: Api) -> None:
    api.topics.quota.most = 100
    body = {"records": [{"data": "x" * 8}]}
    answers = await asyncio.gather(
        *(api.send("POST", f"/v0/topics/t{n % 3}", body) for n in range(40))
    )
    stored = sum(answer.status in (200, 201) for answer in answers)
    assert stored == 10
    assert all(answer.status == 429 for answer in answers if answer.status not in (200, 201))


def test_s11_what_other_doors_wrote_is_counted_within_a_second() -> None:
    held, now = [0], [0.0]
    quota = Quota(100, lambda: held[0], lambda: now[0])
    quota.take(10)(True)
    held[0] = 95
    quota.take(10)(True)  # not known yet
    now[0] = 1.1
    with pytest.raises(Throttled):
        quota.take(10)


def test_s11_a_slot_is_given_back_once() -> None:
    slots = Slots("max_inflight", most=2, per_key=1)
    leave = slots.take("a")
    with pytest.raises(Throttled) as refusal:
        slots.take("a")
    assert refusal.value.detail == {"limit": "max_inflight_per_key", "max": 1}
    leave()
    leave()
    assert slots.open == 0
    slots.take("a")
    slots.take("b")
    with pytest.raises(Throttled) as refusal:
        slots.take("c")
    assert refusal.value.detail == {"limit": "max_inflight", "max": 2}
