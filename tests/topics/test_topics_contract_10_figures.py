"""Section 10 of the contract: what the figures say, as text and as JSON alike."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from topics_api import Api, Events
from topics_server import Asked, asked

from millstream.errors import StorageFull
from millstream.http.response import Response

JSON = {"accept": "application/json"}


async def text(api: Api) -> dict[str, float]:
    answer = await api.send("GET", "/v0/metrics")
    assert isinstance(answer, Response)
    lines = answer.body.decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


async def shown(api: Api) -> Any:
    return (await api.call("GET", "/v0/metrics", headers=JSON))[1]


async def furnished(api: Api) -> Events:
    """Have three topics of seven bytes, one of them a queue with a lease, and somebody watching."""
    await api.call("PUT", "/v0/topics/jobs", {"type": "queue", "durability": "fsync"})
    await api.write("jobs", 1, 22)
    await api.call("POST", "/v0/topics/jobs/claim", {"node": "w"})
    await api.call("PUT", "/v0/routers/r", {"source": "log", "dest": "copy"})
    await api.write("log", 4444)
    await api.call("POST", "/v0/topics/log/delete", {"before_seq": 1})
    _, opened = await api.call("POST", "/v0/watch", {"topics": {"log": {}}})
    await api.call("POST", "/v0/watch", {"topics": {"log": {}}})
    return Events(await api.send("GET", opened["stream_url"]))


async def test_s10_totals_are_those_of_what_there_is(api: Api) -> None:
    events = await furnished(api)
    await api.diff("copy")
    found = await text(api)
    totals = {
        "topics": 3, "routers": 1, "records_live": 4, "bytes_live": 11, "queue_topics": 1,
        "queue_leases_in_flight": 1, "sse_connections": 1, "watch_sessions": 2,
    }  # fmt: skip
    assert {name: found[f"topics_{name}"] for name in totals} == totals
    assert (found["topics_ready"], found["topics_recovery_progress"]) == (1, 1)
    json = await shown(api)
    assert {name: json[name] for name in totals} == totals
    assert (json["ready"], json["replay_progress"]) == (True, 1.0)
    classes = {f"topics_{each}": json[f"topics_{each}"] for each in ("memory", "disk", "fsync")}
    assert classes == {"topics_memory": 0, "topics_disk": 2, "topics_fsync": 1}
    await events.close()
    assert (await text(api))["topics_sse_connections"] == 0


async def test_s10_each_topic_has_its_positions(api: Api) -> None:
    await api.write("a", 1, 22, 333)
    await api.call("POST", "/v0/topics/a/delete", {"before_seq": 2})
    found = await text(api)
    names = ("head_seq", "earliest_seq", "records_live", "bytes_live")
    assert [found[f'topics_topic_{name}{{topic="a"}}'] for name in names] == [3, 2, 2, 5]


async def test_s10_while_the_log_is_replayed_ready_is_0_and_the_progress_a_share(api: Api) -> None:
    api.topics.ready, api.topics.replay_progress = False, 3 / 8
    found, json = await text(api), await shown(api)
    assert (found["topics_ready"], found["topics_recovery_progress"]) == (0, 0.375)
    assert (json["ready"], json["replay_progress"]) == (False, 0.375)


async def test_s10_the_log_is_read_only_once_something_is_wrong_with_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await text(api))["topics_wal_read_only"] == 0
    monkeypatch.setattr(api.store, "health", lambda: [str(StorageFull("a sync failed"))])
    assert (await text(api))["topics_wal_read_only"] == 1


async def metrics(door: Asked, **headers: str) -> bytes:
    answer = await door.send("GET", "/v0/metrics", **headers)
    assert isinstance(answer, Response)
    return answer.body


async def test_s10_the_figures_of_the_log_are_the_same_in_both_forms(tmp_path: Path) -> None:
    async with asked(tmp_path) as door:
        await door.status("PUT", "/v0/topics/t", body={"durability": "fsync"})
        for _ in range(3):
            await door.status("POST", "/v0/topics/t", body={"records": [{"data": 1}]})
        wal, again, plain = None, {}, ""
        async with asyncio.timeout(20):
            while wal != again:  # the log's own thread writes and syncs when it likes
                wal = msgspec.json.decode(await metrics(door, accept="application/json"))["wal"]
                plain = (await metrics(door)).decode()
                again = msgspec.json.decode(await metrics(door, accept="application/json"))["wal"]
                await asyncio.sleep(0)
    assert wal is not None
    assert set(wal) == {
        *("fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth"),
        *("queue_depth_peak", "submit_full_total", "read_only", "fsync_count"),
        "fsync_micros_total",
    }
    assert (wal["fsyncs"], wal["read_only"]) == (wal["fsync_count"], False)
    for name in ("fsyncs", "frames", "batches", "bytes_written", "rotations"):
        (found,) = re.findall(rf"^topics_wal_{name}_total (\d+)$", plain, re.MULTILINE)
        assert int(found) == wal[name] > 0
    (total,) = re.findall(r"^topics_wal_fsync_latency_us_sum (\d+)$", plain, re.MULTILINE)
    assert int(total) == wal["fsync_micros_total"]


async def test_s10_a_metric_is_asked_for_as_json_by_name_only(api: Api) -> None:
    for accept, is_json in (
        ("*/*", False), ("text/plain", False), ("", False), ("application/json", True),
        ("text/plain, application/json;q=0.1", True),
    ):  # fmt: skip
        answer = await api.send("GET", "/v0/metrics", headers={"accept": accept})
        assert isinstance(answer, Response)
        assert (answer.content_type == b"application/json") is is_json


async def test_s10_names_of_topics_are_escaped_where_they_are_labels(api: Api) -> None:
    await api.write("a.b:c-d_e", 1)
    assert (await text(api))['topics_topic_head_seq{topic="a.b:c-d_e"}'] == 1
