"""The typed client of the HTTP API, blocking and asynchronous, against a server in a thread."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from client_site import Site

from millstream.client import topic_calls as calls
from millstream.client.async_topics import AsyncTopics
from millstream.client.errors import (
    ApiError,
    ClientError,
    ConnectFailed,
    InvalidUrl,
    RecordsLost,
)
from millstream.client.event_stream import EventReader
from millstream.client.topic_values import (
    CaughtUp,
    Gap,
    Job,
    Record,
    TopicDeleted,
    value_of,
    wrapped,
)
from millstream.client.topics import Topics
from support.waiting import until

LEASE_MS = 1500  # a worker that renews it at each third may stop for a second
LONGER = 2.2


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path / "data") as running:
        yield running


@pytest.fixture
def topics(site: Site) -> Iterator[Topics]:
    with Topics(site.url) as client:
        yield client


@pytest.fixture
async def later(site: Site) -> AsyncIterator[AsyncTopics]:
    async with AsyncTopics(site.url) as client:
        yield client


def test_records_are_appended_and_read_back(topics: Topics) -> None:
    orders = topics.topic("orders")
    done = orders.append({"id": 1}, "two", b"\xff\x00", None, tag="new", meta={"m": 1}, node="n")
    assert (done.first_seq, done.last_seq, done.count, done.created) == (1, 4, 4, True)
    records = list(orders.diff())
    assert [record.data for record in records] == [{"id": 1}, "two", b"\xff\x00", None]
    assert {(record.tag, record.node, record.meta["m"]) for record in records} == {("new", "n", 1)}
    assert [record.seq for record in orders.diff(2)] == [3, 4]
    assert [record.seq for record in orders.diff(filter={"tag": "old"})] == []


def test_many_records_go_one_a_line_and_come_in_pages(topics: Topics) -> None:
    numbers = topics.topic("numbers")
    assert numbers.append(*range(2500), node="n", create=True).count == 2500
    assert [record.data for record in numbers.diff(limit=1000)] == list(range(2500))


def test_an_answer_that_was_lost_does_not_write_twice(site: Site, topics: Topics) -> None:
    orders = topics.topic("orders")
    orders.append(1)
    site.drop_connections()
    orders.append(2, key="same")
    assert orders.append(2, key="same").deduped
    assert orders.state().head_seq == 2


def test_a_busy_server_is_asked_again_and_gives_up_in_the_end(site: Site, topics: Topics) -> None:
    site.busy = 3
    assert topics.topic("a").append(1).first_seq == 1
    site.busy = 10
    with pytest.raises(ApiError) as refused:
        topics.topic("a").append(1)
    assert (refused.value.status, refused.value.code) == (429, "throttled")
    assert site.busy == 6


def test_topics_are_configured_listed_and_deleted(topics: Topics) -> None:
    assert topics.topic("a").put(cap_records=5, type="log")["cap_records"] == 5
    topics.topic("b").put()
    assert [each["topic"] for each in topics.list()] == ["a", "b"]
    assert [each["topic"] for each in topics.list("b")] == ["b"]
    topics.topic("a").append(*range(3), tag="x:1")
    topics.topic("a").append(9, tag="y")
    assert topics.topic("a").delete_records(match="x:*") == 3
    assert topics.topic("a").delete_records(before_seq=5) == 1
    assert topics.topic("a").state().count == 0
    assert topics.topic("a").delete(if_empty=True)
    assert not topics.topic("a").delete()


def test_errors_say_what_the_server_said(topics: Topics) -> None:
    topics.topic("orders").put()
    with pytest.raises(ApiError, match="no topic named order") as refused:
        topics.topic("order").state()
    assert (refused.value.status, refused.value.code) == (404, "topic_not_found")
    assert refused.value.detail["did_you_mean"] == "orders"
    with pytest.raises(ConnectFailed, match="is `millstream serve` running"):
        Topics("http://127.0.0.1:1").topic("a").state()
    for url in ("nats://x", "http://", "http://a:b"):
        with pytest.raises(InvalidUrl):
            Topics(url)


def test_a_url_or_a_token_says_who_is_asking() -> None:
    for client in (Topics("http://key@host:1"), Topics("http://host:1", token="key")):
        assert client._link.place.headers == {"Authorization": "Bearer key"}
        assert client._link.place.url == "http://host:1"
    basic = Topics("https://u:p%20w@host")._link.place
    assert basic.headers == {"Authorization": "Basic dTpwIHc="}
    assert (basic.secure, basic.port) == (True, 443)


def test_a_loss_is_raised_unless_somebody_wants_to_know(topics: Topics) -> None:
    capped = topics.topic("capped")
    capped.put(cap_records=2)
    capped.append(*range(5))
    with pytest.raises(RecordsLost) as lost:
        list(capped.diff())
    assert (lost.value.gap_from, lost.value.gap_to, lost.value.reason) == (1, 3, "cap")
    gaps: list[Gap] = []
    assert [record.seq for record in capped.diff(on_gap=gaps.append)] == [4, 5]
    assert [(gap.gap_from, gap.gap_to) for gap in gaps] == [(1, 3)]


def test_following_waits_for_what_comes(topics: Topics) -> None:
    live = topics.topic("live")
    live.append(0)
    following = live.diff(follow=True)
    assert next(following).data == 0
    timer = threading.Timer(0.1, live.append, args=(1,))
    timer.start()
    assert next(following).data == 1
    timer.join()


def test_a_watch_tells_of_many_topics_and_survives_a_lost_connection(
    site: Site, topics: Topics
) -> None:
    for name in ("a", "b"):
        topics.topic(name).append(name)
    events = topics.watch({"a": 0, "b": None})
    first, second, third = next(events), next(events), next(events)
    assert isinstance(first, Record)
    assert (first.topic, first.data) == ("a", "a")
    assert second == CaughtUp("a", 1)
    assert third == CaughtUp("b", 1)
    site.drop_connections()
    topics.topic("b").append("more")
    while True:
        event = next(events)
        if isinstance(event, Record):
            break
    assert (event.topic, event.seq) == ("b", 2)
    topics.topic("a").delete()
    topics.topic("b").delete()
    gone = {event.topic for event in events if isinstance(event, TopicDeleted)}
    assert gone == {"a", "b"}


def test_jobs_are_claimed_and_answered(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue")
    jobs.append(*range(4))
    one, two, three = jobs.claim("w", 3)
    assert [one.data, two.data, three.data] == [0, 1, 2]
    assert jobs.ack("w", one) == 1
    assert jobs.ack("w", one) == 0
    assert jobs.nack("w", two) == 1
    assert jobs.extend("w", three, lease_ms=60_000) == 1
    counters = jobs.state().queue
    assert counters is not None
    assert (counters.ready, counters.in_flight) == (2, 1)


def test_pushed_jobs_go_back_when_their_worker_leaves(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue")
    jobs.append(*range(3))
    pushed = jobs.jobs("w", 2)
    assert [next(pushed).data, next(pushed).data] == [0, 1]
    pushed.close()
    for _ in range(500):
        counters = jobs.state().queue
        assert counters is not None
        if not counters.in_flight:
            break
    assert counters.ready == 3


def test_a_worker_finishes_each_job_and_gives_failures_back(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue", max_deliveries=2, dead_letter="dead")
    jobs.append(*range(20))
    seen: list[int] = []

    @jobs.worker(concurrency=4)
    def handle(job: Job) -> None:
        seen.append(job.data)
        if job.data == 7:
            raise ValueError("no sevens")

    handle.run(until_empty=True)
    assert sorted(seen) == sorted([*range(20), 7])
    assert (handle.done, handle.failed) == (19, 2)
    assert [record.data for record in topics.topic("dead").diff()] == [7]
    assert topics.topic("dead").redrive().to == {"jobs": 1}
    assert jobs.claim("w")[0].deliveries == 1


def test_a_worker_looks_again_when_a_job_comes_back_during_a_look(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue")
    jobs.append("fails once")
    looked, given_back, claim, nack = threading.Event(), threading.Event(), jobs.claim, jobs.nack
    seen: list[str] = []

    @jobs.worker(concurrency=2)
    def handle(job: Job) -> None:
        seen.append(job.data)
        if len(seen) == 1:
            looked.wait(5)
            raise ValueError("once")

    def claim_and_wait(*arguments: Any, **terms: Any) -> list[Job]:
        found = claim(*arguments, **terms)
        if not found and not looked.is_set():
            looked.set()
            given_back.wait(5)
            until(lambda: not handle._held)
        return found

    def nack_and_tell(*arguments: Any, **terms: Any) -> Any:
        answer = nack(*arguments, **terms)
        given_back.set()
        return answer

    monkeypatch.setattr(jobs, "claim", claim_and_wait)
    monkeypatch.setattr(jobs, "nack", nack_and_tell)
    handle.run(until_empty=True)
    assert seen == ["fails once", "fails once"]


def test_a_worker_keeps_the_lease_of_a_long_job(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue", lease_ms=LEASE_MS)
    jobs.append("long")
    released = threading.Event()

    @jobs.worker(lease_ms=LEASE_MS)
    def handle(job: Job) -> None:
        released.wait(LONGER)

    handle.run(until_empty=True)
    assert (handle.done, handle.failed) == (1, 0)
    assert jobs.state().count == 0


def test_a_worker_keeps_the_lease_that_the_queue_grants(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue", lease_ms=LEASE_MS)
    jobs.append("long")
    runs: list[int] = []

    @jobs.worker(concurrency=2)
    def handle(job: Job) -> None:
        runs.append(job.deliveries)
        threading.Event().wait(LONGER)

    handle.run(until_empty=True)
    assert runs == [1]
    assert (handle.done, handle.lost) == (1, 0)


def test_a_worker_that_was_told_to_stop_keeps_the_lease_of_its_last_job(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue", lease_ms=LEASE_MS)
    jobs.append("long")

    @jobs.worker()
    def handle(job: Job) -> None:
        handle.stop()
        threading.Event().wait(LONGER)

    handle.run()
    assert (handle.done, handle.lost) == (1, 0)


def test_a_worker_keeps_a_lease_that_another_claimer_has_shortened(
    site: Site, topics: Topics
) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue", claim_jitter_ms=400)
    jobs.append("his", "mine")

    def claim_shortly() -> None:
        with Topics(site.url) as another:
            another.topic("jobs").claim("other", lease_ms=LEASE_MS)

    @jobs.worker()
    def handle(job: Job) -> None:
        handle.stop()
        threading.Event().wait(LONGER)

    first = threading.Thread(target=claim_shortly)
    first.start()
    until(lambda: ("POST", "/v0/topics/jobs/claim") in site.seen)
    handle.run()
    first.join()
    assert (handle.done, handle.lost) == (1, 0)


def test_a_worker_does_not_count_a_job_as_done_that_is_no_longer_its_own(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue")
    jobs.append(1)

    @jobs.worker(node="w")
    def handle(job: Job) -> None:
        jobs.nack("w", job)
        handle.stop()

    handle.run()
    assert (handle.done, handle.lost) == (0, 1)


def test_a_worker_stops_when_it_is_told(topics: Topics) -> None:
    jobs = topics.topic("jobs")
    jobs.put(type="queue")
    jobs.append(1)
    finished = threading.Event()
    worker = jobs.worker()(lambda job: finished.set())
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert finished.wait(10)
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()


async def test_the_asynchronous_client_says_the_same_words(later: AsyncTopics) -> None:
    orders = later.topic("orders")
    await orders.put(cap_records=3)
    assert (await orders.append(1, 2, tag="t")).last_seq == 2
    assert [record.data async for record in orders.diff()] == [1, 2]
    assert [each["topic"] async for each in later.list()] == ["orders"]
    await orders.append(*range(100))
    with pytest.raises(RecordsLost):
        [record async for record in orders.diff()]
    gaps: list[Gap] = []
    assert len([record async for record in orders.diff(on_gap=gaps.append)]) == 3
    assert gaps[0].reason == "cap"
    assert await orders.delete_records(before_seq=103) == 3
    assert (await orders.state()).count == 0
    with pytest.raises(ApiError, match="topic_not_found"):
        await later.topic("none").state()
    assert await orders.delete()


async def test_many_asynchronous_calls_run_at_once(later: AsyncTopics) -> None:
    topic = later.topic("a")
    await asyncio.gather(*(topic.append(number) for number in range(50)))
    assert sorted([record.data async for record in topic.diff()]) == list(range(50))
    page, _ = await asyncio.gather(topic.page(50, wait_ms=5000), topic.append("woken"))
    assert [record.data for record in page.records] == ["woken"]


async def test_an_asynchronous_watch_goes_on_after_a_lost_connection(
    site: Site, later: AsyncTopics
) -> None:
    topic = later.topic("a")
    await topic.append("first")
    events = later.watch({"a": 0})
    assert (await anext(events)).data == "first"  # type: ignore[union-attr]
    assert await anext(events) == CaughtUp("a", 1)
    site.drop_connections()
    await topic.append("second")
    async for event in events:
        if isinstance(event, Record):
            assert event.seq == 2
            break
    await events.aclose()


async def test_an_asynchronous_worker_finishes_each_job(later: AsyncTopics) -> None:
    jobs = later.topic("jobs")
    await jobs.put(type="queue")
    await jobs.append(*range(10))
    seen: list[int] = []

    @jobs.worker(concurrency=3, node="w")
    async def handle(job: Job) -> None:
        seen.append(job.data)
        if job.data == 5 and job.deliveries == 1:
            raise ValueError("again")

    await handle.run(until_empty=True)
    assert sorted(seen) == sorted([*range(10), 5])
    assert (handle.done, handle.failed) == (10, 1)
    pushed = jobs.jobs("w", 2)
    await jobs.append("pushed")
    assert (await anext(pushed)).data == "pushed"
    await pushed.aclose()


async def test_an_asynchronous_worker_keeps_the_lease_that_the_queue_grants(
    later: AsyncTopics,
) -> None:
    jobs = later.topic("jobs")
    await jobs.put(type="queue", lease_ms=LEASE_MS)
    await jobs.append("long", "given back")
    runs: list[int] = []

    @jobs.worker(concurrency=2, node="w")
    async def handle(job: Job) -> None:
        runs.append(job.deliveries)
        if job.data == "long":
            await asyncio.sleep(LONGER)
        elif job.deliveries == 1:
            await jobs.nack("w", job)

    await handle.run(until_empty=True)
    assert sorted(runs) == [1, 1, 2]
    assert (handle.done, handle.failed, handle.lost) == (2, 0, 1)


async def test_the_asynchronous_client_says_who_is_not_there() -> None:
    async with AsyncTopics("http://127.0.0.1:1") as nowhere:
        with pytest.raises(ConnectFailed, match="is `millstream serve` running"):
            await nowhere.topic("a").state()


def test_events_are_read_however_they_are_cut() -> None:
    text = b"retry: 2000\n\n: hb 1\n\nid: x\nevent: job\ndata: {}\n\nevent: error\ndata: 1\n\n"
    whole = EventReader().feed(text)
    assert [(event.name, event.data, event.id) for event in whole] == [
        ("job", b"{}", "x"),
        ("error", b"1", "x"),
    ]
    for size in (1, 2, 3, 7):
        reader = EventReader()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [event for piece in pieces for event in reader.feed(piece)] == whole


@pytest.mark.parametrize("value", [b"", b"\xff", {"$base64": 1}, {"$$base64x": 2}, {"a": 1}, [], 1])
def test_values_survive_the_way_there_and_back(value: Any) -> None:
    shown = wrapped(value)
    if isinstance(value, bytes):
        assert value_of(msgspec.Raw(msgspec.json.encode(shown))) == value
    else:
        # The server shows such an object with its dollar doubled, exactly as it is sent.
        assert value_of(msgspec.Raw(msgspec.json.encode(shown))) == value


def test_an_answer_that_is_not_ours_is_told_as_such() -> None:
    with pytest.raises(ClientError, match="not as millstream"):
        calls.read(calls.state("a"), calls.Told(200, b"<html>"), "http://x")
    with contextlib.suppress(ApiError):
        calls.read(calls.state("a"), calls.Told(418, b'{"error":{"code":"x"}}'), "http://x")


def test_a_stream_that_ends_says_why() -> None:
    for data, status in (
        (b'{"code":"server_shutting_down","message":"later"}', 503),
        (b'{"code":"unauthorized","message":"revoked"}', 401),
        (b'{"code":409,"error":"the queue is gone","topic":"q"}', 409),
    ):
        assert calls.stream_error(data).status == status
