"""Clients that follow go on after a server's restart; how long they wait is theirs to say."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from client_site import Site

from millstream.client import topic_calls as calls
from millstream.client.async_topics import AsyncTopics
from millstream.client.errors import ApiError, ClientError, ConnectFailed
from millstream.client.patience import LONGEST_PAUSE, Patience
from millstream.client.topic_values import CaughtUp, Job, Record, TopicDeleted
from millstream.client.topics import Topics
from millstream.client.watch_position import WatchPosition
from millstream.clock import ManualClock

AWAY = ConnectFailed("nobody there")
NOT_READY = ApiError(503, "not_ready", "starting")


class Restarts:
    """A server that can be away."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running = contextlib.ExitStack()
        self._timer: threading.Timer | None = None
        self.site = self._running.enter_context(Site(directory))
        self.url = self.site.url

    def leave(self) -> None:
        """Stop the server, as an operator does."""
        self._running.close()

    def come_back(self, busy: int = 0) -> None:
        """Start it again where it was; ``busy`` requests find it not ready."""
        site = Site(self._directory, self.site.port)
        site.busy, site.refusal = busy, (503, "not_ready")
        self.site = self._running.enter_context(site)

    def come_back_later(self, busy: int = 0) -> None:
        """Start it again when its clients have noticed that it is away."""
        self._timer = threading.Timer(0.3, self.come_back, args=(busy,))
        self._timer.start()

    def close(self) -> None:
        """End for good."""
        if self._timer is not None:
            self._timer.join()
        self._running.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Restarts]:
    with contextlib.closing(Restarts(tmp_path / "data")) as running:
        yield running


def test_pauses_grow_up_to_a_bound_and_end_with_the_patience() -> None:
    clock = ManualClock()
    patience = Patience(60, clock, chance=lambda: 1.0)
    pauses = []
    while sum(pauses) < 60:
        pauses.append(patience.pause(AWAY))
        clock.advance(pauses[-1])
    with pytest.raises(ConnectFailed, match="nobody there"):
        patience.pause(AWAY)
    assert [round(pause, 3) for pause in pauses[:7]] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert max(pauses) == LONGEST_PAUSE
    assert sum(pauses) == pytest.approx(60)


def test_an_answer_gives_the_whole_patience_back() -> None:
    clock = ManualClock()
    patience = Patience(1, clock, chance=lambda: 0.0)
    patience.pause(AWAY)
    clock.advance(0.9)
    patience.answered()
    clock.advance(0.9)
    assert patience.pause(NOT_READY) == 0.05  # a chance of the shortest pause
    clock.advance(1)
    with pytest.raises(ApiError, match="not_ready"):
        patience.pause(NOT_READY)


def test_there_is_no_patience_for_what_waiting_does_not_mend() -> None:
    with pytest.raises(ApiError, match="forbidden"):
        Patience(60, ManualClock()).pause(ApiError(403, "forbidden", "no"))


def test_a_watch_goes_on_after_a_restart_where_it_stood(server: Restarts) -> None:
    with Topics(server.url, retries=0) as topics:
        for name in ("a", "b"):
            topics.topic(name).append("old", "seen")
        events = topics.watch({"a": 1, "b": None})
        first = next(events)
        assert isinstance(first, Record)
        assert (first.topic, first.seq) == ("a", 2)
        assert [next(events), next(events)] == [CaughtUp("a", 2), CaughtUp("b", 2)]
        server.leave()
        server.come_back_later(busy=2)
        assert [next(events), next(events)] == [CaughtUp("a", 2), CaughtUp("b", 2)]
        topics.topic("b").append("new")
        last = next(events)
        assert isinstance(last, Record)
        assert (last.topic, last.seq) == ("b", 3)
        events.close()


def test_a_watch_tells_of_topics_that_went_while_nobody_listened(server: Restarts) -> None:
    with Topics(server.url, retries=0) as topics:
        topics.topic("kept").append(1)
        topics.topic("gone").append(1)
        events = topics.watch({"kept": None, "gone": None})
        assert [next(events), next(events)] == [CaughtUp("gone", 1), CaughtUp("kept", 1)]
        server.leave()
        server.come_back()
        topics.topic("gone").delete()
        assert [next(events), next(events)] == [TopicDeleted("gone"), CaughtUp("kept", 1)]
        server.leave()
        server.come_back()
        topics.topic("kept").delete()
        assert list(events) == [TopicDeleted("kept")]


@pytest.mark.parametrize(
    ("gap_from", "gap_to", "earliest_seq", "position"),
    [(1, 4, 5, 4), (3, 6, 7, 6), (3, 6, 1, 6), (1, 9, 1, 0)],
    ids=["lost at the front", "lost later", "lost within", "made anew"],
)
def test_a_watch_goes_on_behind_a_loss_but_at_the_beginning_of_a_topic_made_anew(
    gap_from: int, gap_to: int, earliest_seq: int, position: int
) -> None:
    watched = WatchPosition({"t": 2}, {})
    told = {"gap_from": gap_from, "gap_to": gap_to, "earliest_seq": earliest_seq}
    gap = {"topic": "t", "reason": "from_seq_too_old", "head_seq": 9, **told}
    assert list(watched.read("tombstone", msgspec.json.encode(gap)))
    body = msgspec.json.decode(watched.call().body)
    assert body["topics"] == {"t": {"from_seq": position}}


def test_a_follower_goes_on_after_a_restart(server: Restarts) -> None:
    with Topics(server.url, retries=0) as topics:
        live = topics.topic("live")
        live.append(1)
        following = live.diff(follow=True)
        assert next(following).data == 1
        server.leave()
        server.come_back_later(busy=2)
        writer = threading.Thread(target=write_when_there, args=(server.url,))
        writer.start()
        assert next(following).data == 2
        writer.join()


def write_when_there(url: str) -> None:
    with Topics(url, retries=10) as topics:
        patience = Patience(30)
        while True:
            try:
                topics.topic("live").append(2)
                return
            except ConnectFailed as error:
                time.sleep(patience.pause(error))


def test_pushed_jobs_go_on_after_a_restart(server: Restarts) -> None:
    with Topics(server.url, retries=0) as topics:
        jobs = topics.topic("jobs")
        jobs.put(type="queue")
        jobs.append("one")
        pushed = jobs.jobs("w")
        assert next(pushed).data == "one"
        server.leave()
        server.come_back_later()
        assert next(pushed).data == "one"
        pushed.close()


def test_a_worker_outlasts_a_restart_and_does_not_take_it_for_an_empty_queue(
    server: Restarts,
) -> None:
    with Topics(server.url, retries=0) as topics:
        jobs = topics.topic("jobs")
        jobs.put(type="queue", leases_durable=True)
        jobs.append(1, 2)
        seen: list[int] = []

        @jobs.worker(node="w")
        def handle(job: Job) -> None:
            seen.append(job.data)
            if job.data == 1:
                server.leave()
                server.come_back_later(busy=2)

        handle.run(until_empty=True)
        assert seen == [1, 2]
        assert (handle.done, handle.lost) == (2, 0)


def test_patience_has_an_end_that_can_be_set(server: Restarts) -> None:
    with Topics(server.url, patience=0.2) as topics:
        topics.topic("a").append(1)
        events, following = topics.watch({"a": None}), topics.topic("a").diff(follow=True)
        assert next(events) == CaughtUp("a", 1)
        assert next(following).data == 1
        server.leave()
        for ended in (events, following):
            with pytest.raises(ConnectFailed, match="is `millstream serve` running"):
                next(ended)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_finds_no_server_is_waited_for_like_the_server(status: int) -> None:
    told = calls.Told(status, b"<html>Bad Gateway</html>")
    with pytest.raises(ConnectFailed, match=f"answered {status}: no millstream answers") as caught:
        calls.read(calls.state("t"), told, "http://proxy")
    assert Patience(10, ManualClock(), lambda: 1.0).pause(caught.value) > 0


def test_somebody_who_does_not_speak_as_millstream_is_not_waited_for() -> None:
    with pytest.raises(ClientError, match="but not as millstream") as caught:
        calls.read(calls.state("t"), calls.Told(500, b"<html>"), "http://other")
    assert not isinstance(caught.value, ConnectFailed)


def test_who_never_reached_the_server_is_told_at_once() -> None:
    with Topics("http://127.0.0.1:1") as topics:
        for first in (
            topics.watch({"a": 0}),
            topics.topic("a").diff(follow=True),
            topics.topic("a").jobs("w"),
        ):
            with pytest.raises(ConnectFailed, match="is `millstream serve` running"):
                next(first)  # type: ignore[call-overload]
        with pytest.raises(ConnectFailed):
            topics.topic("a").worker()(print).run()


def test_a_topic_that_is_paused_under_load_does_not_end_the_watch() -> None:
    paused = b'{"code":"throttled","message":"later","topic":"a","retry_after_ms":1000}'
    assert list(calls.events_of("error", paused)) == []


async def test_an_asynchronous_watch_goes_on_after_a_restart(server: Restarts) -> None:
    async with AsyncTopics(server.url, retries=0) as topics:
        topic = topics.topic("a")
        await topic.append("first")
        events, following = topics.watch({"a": None}), topic.diff(follow=True)
        assert await anext(events) == CaughtUp("a", 1)
        assert (await anext(following)).seq == 1
        await asyncio.to_thread(server.leave)
        server.come_back_later(busy=2)
        assert await anext(events) == CaughtUp("a", 1)
        await topic.append("second")
        assert (await anext(events)).seq == 2  # type: ignore[union-attr]
        assert (await anext(following)).seq == 2
        await events.aclose()
        await following.aclose()


async def test_an_asynchronous_worker_outlasts_a_restart(server: Restarts) -> None:
    async with AsyncTopics(server.url, retries=0) as topics:
        jobs = topics.topic("jobs")
        await jobs.put(type="queue", leases_durable=True)
        await jobs.append(1, 2)
        seen: list[int] = []

        @jobs.worker(node="w")
        async def handle(job: Job) -> None:
            seen.append(job.data)
            if job.data == 1:
                await asyncio.to_thread(server.leave)
                server.come_back_later(busy=2)

        await handle.run(until_empty=True)
        assert seen == [1, 2]
        assert (handle.done, handle.lost) == (2, 0)


async def test_asynchronous_patience_has_an_end(server: Restarts) -> None:
    async with AsyncTopics(server.url, patience=0.2) as topics:
        await topics.topic("a").append(1)
        events = topics.watch({"a": None})
        assert await anext(events) == CaughtUp("a", 1)
        await asyncio.to_thread(server.leave)
        with pytest.raises(ConnectFailed, match="is `millstream serve` running"):
            await anext(events)
    async with AsyncTopics("http://127.0.0.1:1") as nowhere:
        with pytest.raises(ConnectFailed):
            await anext(nowhere.watch({"a": 0}))
