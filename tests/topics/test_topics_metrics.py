"""/v0/metrics: the contract's names, as text and as JSON, for what a caller may see."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from topics_api import Api

from millstream.clock import SystemClock
from millstream.delivery.timers import Timers
from millstream.http.request import Caller, Request
from millstream.http.response import Response
from millstream.http.routes import Routes
from millstream.store.store import Store
from millstream.store.wal.meter import SYNC_BOUNDS_US, MeteredFiles, WalMeter, meter_of
from millstream.streams.catalog import Catalog
from millstream.topics import metrics
from millstream.topics.context import Topics
from millstream.topics.routes import topics_routes

ALWAYS = (
    "topics_topics",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_topics_by_class",
    "topics_topic_metrics_truncated",
    "topics_uptime_ms",
    "topics_wal_read_only",
)


async def show(api: Api, caller: Caller | None = None) -> dict[str, str]:
    answer = await api.send("GET", "/v0/metrics", caller=caller or Caller())
    assert isinstance(answer, Response)
    assert answer.status == 200
    assert answer.content_type.startswith(b"text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


async def test_every_name_of_the_contract_is_there_from_the_start(api: Api) -> None:
    names = {re.sub(r"\{.*", "", name) for name in await show(api)}
    assert set(ALWAYS) <= names


async def test_topics_are_counted_and_shown_by_name(api: Api) -> None:
    await api.write("a", "xx", 7)
    await api.call("PUT", "/v0/topics/q", {"type": "queue", "durability": "fsync"})
    await api.write("q", 1)
    await api.call("POST", "/v0/topics/q/claim", {"node": "n"})
    found = await show(api)
    assert found["topics_topics"] == "2"
    assert found["topics_records_live"] == "3"
    assert found["topics_bytes_live"] == "6"
    assert found["topics_queue_topics"] == "1"
    assert found["topics_queue_leases_in_flight"] == "1"
    assert found['topics_topics_by_class{class="fsync"}'] == "1"
    assert found['topics_topic_head_seq{topic="a"}'] == "2"
    assert found['topics_topic_bytes_live{topic="a"}'] == "5"
    assert found['topics_topic_queue_in_flight{topic="q"}'] == "1"
    assert 'topics_topic_queue_ready{topic="a"}' not in found


async def test_a_key_sees_only_the_topics_that_it_may_touch(api: Api) -> None:
    await api.write("mine.a", 1)
    await api.write("theirs", 1)
    for name, source, dest in (("mine.r", "mine.a", "mine.b"), ("mine.s", "theirs", "mine.c")):
        await api.call("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    found = await show(api, Caller(prefixes=("mine.",)))
    assert (found["topics_topics"], found["topics_routers"]) == ("3", "1")
    assert (await show(api))["topics_routers"] == "2"
    assert not any("theirs" in name for name in found)


async def test_labels_are_bounded(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.write(name, 1)
    before, metrics.MOST_TOPICS = metrics.MOST_TOPICS, 2
    try:
        found = await show(api)
    finally:
        metrics.MOST_TOPICS = before
    assert found["topics_topics"] == "3"
    assert found["topics_topic_metrics_truncated"] == "1"
    assert sum("topic_head_seq" in name for name in found) == 2


async def test_json_is_shown_to_those_who_ask_for_it(api: Api) -> None:
    await api.write("a", 1)
    headers = {"accept": "application/json"}
    status, shown = await api.call("GET", "/v0/metrics", headers=headers)
    assert status == 200
    assert (shown["topics"], shown["topics_disk"], shown["records_live"]) == (1, 1, 1)
    assert (shown["ready"], shown["replay_progress"]) == (True, 1.0)


async def test_watches_are_counted(api: Api) -> None:
    await api.write("a", 1)
    await api.call("POST", "/v0/watch", {"topics": {"a": {}}})
    assert (await show(api))["topics_watch_sessions"] == "1"


def test_the_meter_counts_what_goes_into_the_log(tmp_path: Path) -> None:
    files = MeteredFiles(SystemClock())
    log = files.open(str(tmp_path / "wal-0000000000000001.log"), create=True)
    log.pwritev((b"x" * 64,), 0)
    log.sync()
    log.close()
    other = files.open(str(tmp_path / "0001.data"), create=True)
    other.pwritev((b"x" * 64,), 0)
    other.sync()
    other.close()
    meter = files.meter
    assert (meter.bytes_written, meter.syncs, meter.rotations, meter.batches) == (64, 1, 1, 0)
    assert meter.sync_us >= 0


def test_a_sync_is_in_the_bucket_of_the_first_bound_that_is_not_below_it() -> None:
    meter = WalMeter()
    meter.synced(0.00005)
    meter.synced(0.000051)
    meter.synced(5)
    assert meter.sync_counts[:2] == [1, 1]
    assert meter.sync_counts[len(SYNC_BOUNDS_US)] == 1
    assert meter.syncs == 3


async def test_what_a_topic_writes_is_counted_and_syncs_agree(tmp_path: Path) -> None:
    clock, loop = SystemClock(), asyncio.get_running_loop()
    files = MeteredFiles(clock)
    store = Store.open(str(tmp_path / "data"), files, clock, loop.call_soon_threadsafe)
    catalog = Catalog(store, clock, Timers(clock))
    topics = Topics(catalog, clock, store)
    routes = Routes(topics_routes(topics))
    body = msgspec.json.encode({"records": [{"data": n} for n in range(3)]})
    headers = [(b"content-type", b"application/json")]
    written = await routes(Request("POST", "/v0/topics/t", "", headers, body))
    assert written.status == 201
    answer = await routes(Request("GET", "/v0/metrics"))
    catalog.close()
    store.close()
    assert isinstance(answer, Response)
    found = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines())
    assert int(found["topics_wal_frames_total"]) >= 3
    assert int(found["topics_wal_batches_total"]) >= 1
    assert found["topics_wal_fsyncs_total"] == found["topics_wal_fsync_latency_us_count"] != "0"


def test_a_store_without_a_meter_has_none() -> None:
    assert meter_of(None) is None


async def test_others_have_turns_while_many_topics_are_looked_at(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "TURN", 2)
    for name in range(10):
        await api.write(f"t{name}", "x")
    shown, turns = asyncio.ensure_future(show(api)), 0
    while not shown.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5
    assert (await shown)["topics_topics"] == "10"
    assert (await shown)["topics_records_live"] == "10"
