"""AsyncTopics: the HTTP API from asyncio; the same words as ``Topics``, awaited.

async with AsyncTopics() as topics:
    orders = topics.topic("orders")
    await orders.append({"id": 1})
    async for record in orders.diff(follow=True):
        print(record.seq, record.data)
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Self

import msgspec

from millstream.client import topic_calls as calls
from millstream.client.async_http import AsyncLink
from millstream.client.async_worker import AsyncHandler, AsyncWorker
from millstream.client.errors import ApiError, ConnectFailed
from millstream.client.http_link import DEFAULT_TIMEOUT, Place
from millstream.client.patience import FOLLOWERS_PATIENCE, Patience
from millstream.client.topic_values import (
    Appended,
    Event,
    Gap,
    Job,
    Page,
    Record,
    Redriven,
    TopicState,
)
from millstream.client.watch_position import EVENTS, WatchPosition
from millstream.client.worker import WorkTerms


class AsyncTopics:
    """A server's topics. ``token`` is an API key; a url may carry one too: http://key@host:port."""

    def __init__(
        self,
        url: str | None = None,
        token: str = "",
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = 3,
        tls: ssl.SSLContext | None = None,
        patience: float = FOLLOWERS_PATIENCE,
    ) -> None:
        self._link = AsyncLink(Place(url, token, timeout, retries, tls, patience))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the idle connections; a later call opens others."""
        await self._link.close()

    def topic(self, name: str) -> "AsyncTopic":
        """Return one topic to work with; nothing is asked or created yet."""
        return AsyncTopic(self._link, name)

    async def list(self, prefix: str = "") -> AsyncGenerator[dict[str, Any], None]:
        """Return the topics by name, each with its head, count and size."""
        cursor: str | None = None
        while True:
            page: calls.Listed = await self._link.call(calls.listing(prefix, cursor))
            for topic in page.topics:
                yield topic
            cursor = page.next_cursor
            if cursor is None:
                return

    async def consumers(self) -> AsyncGenerator[dict[str, Any], None]:
        """Return the consumers of all topics, each as JetStream shows it."""
        cursor: str | None = None
        while True:
            page: calls.ListedConsumers = await self._link.call(calls.consumers(cursor))
            for consumer in page.consumers:
                yield consumer
            cursor = page.next_cursor
            if cursor is None:
                return

    async def watch(
        self, positions: Mapping[str, int | None], **options: Any
    ) -> AsyncGenerator[Event, None]:
        """Return what happens in topics as it happens; see ``Topics.watch``."""
        watched, patience = WatchPosition(positions, options), Patience(self._link.place.patience)
        while True:
            try:
                watch: calls.Watch = await self._link.call(watched.call())
                for each in watched.opened(watch):
                    yield each
                if not watched.is_over:
                    async with aclosing(self._link.events(watch.stream_url, EVENTS)) as events:
                        async for event in events:
                            patience.answered()
                            for each in watched.read(event.name, event.data):
                                yield each
                if watched.is_over:
                    return
                raise self._link.place.unreachable(EOFError("the stream ended"))
            except (ApiError, ConnectFailed) as error:
                if not watched.was_open:
                    raise
                pause = patience.pause(watched.lost(error))
            await asyncio.sleep(pause)


class AsyncTopic:
    """One topic."""

    def __init__(self, link: AsyncLink, name: str) -> None:
        self._link = link
        self.name = name

    def patience(self) -> Patience:
        """Return how long somebody who follows waits for the server."""
        return Patience(self._link.place.patience)

    async def put(self, **config: Any) -> dict[str, Any]:
        """Create the topic, or replace its whole configuration; returns it as it is now."""
        answer: dict[str, Any] = await self._link.call(calls.put(self.name, config))
        shown: dict[str, Any] = answer["config"]
        return shown

    async def state(self) -> TopicState:
        """Return the topic's state and configuration."""
        state: TopicState = await self._link.call(calls.state(self.name))
        return state

    async def delete(self, *, if_empty: bool = False) -> bool:
        """Delete the topic; returns whether there was one."""
        return bool((await self._link.call(calls.drop(self.name, if_empty)))["deleted"])

    async def append(self, *data: Any, **fields: Any) -> Appended:
        """Write records, all or none; see ``Topic.append``."""
        appended: Appended = await self._link.call(calls.append(self.name, data, **fields))
        return appended

    async def page(self, from_seq: int = 0, **wishes: Any) -> Page:
        """Read one page after a position: ``limit``, ``wait_ms``, ``node``, ``filter``."""
        page: Page = await self._link.call(calls.diff(self.name, from_seq, **wishes))
        return page

    async def diff(
        self,
        from_seq: int = 0,
        *,
        follow: bool = False,
        on_gap: Callable[[Gap], None] | None = None,
        **wishes: Any,
    ) -> AsyncGenerator[Record, None]:
        """Return the records after a position; see ``Topic.diff``."""
        patience, was_there = self.patience(), False
        wait_ms = self._link.place.wait_ms * follow
        while True:
            try:
                page = await self.page(from_seq, wait_ms=wait_ms, **wishes)
            except (ApiError, ConnectFailed) as error:
                if not (follow and was_there):
                    raise
                await asyncio.sleep(patience.pause(error))
                continue
            patience.answered()
            was_there = True
            if page.tombstone is not None:
                if on_gap is None:
                    raise calls.lost(self.name, page.tombstone)
                on_gap(page.tombstone)
            for record in page.records:
                yield record
            from_seq = page.next_from_seq
            if page.caught_up and not follow:
                return

    async def delete_records(
        self, *, before_seq: int | None = None, match: str | Sequence[str] | None = None
    ) -> int:
        """Delete records below a sequence, or by tag (``"tag"``, ``"tag*"``), for good."""
        call = calls.delete_records(self.name, before_seq, match)
        return int((await self._link.call(call))["deleted"])

    async def claim(self, node: str, most: int = 1, *, lease_ms: int | None = None) -> list[Job]:
        """Lease jobs of a queue."""
        call = calls.claim(self.name, node, most, lease_ms)
        claimed: calls.Claimed = await self._link.call(call)
        return claimed.claimed

    async def ack(self, node: str, *jobs: Job) -> int:
        """Finish jobs; returns of how many the lease was still ours."""
        return int((await self._link.call(calls.settle("ack", self.name, node, jobs)))["acked"])

    async def nack(self, node: str, *jobs: Job, delay_ms: int = 0) -> int:
        """Give jobs back; returns of how many the lease was still ours."""
        call = calls.settle("nack", self.name, node, jobs, delay_ms=delay_ms)
        return int((await self._link.call(call))["nacked"])

    async def extend(self, node: str, *jobs: Job, lease_ms: int) -> int:
        """Keep jobs for longer; returns of how many the lease was still ours."""
        call = calls.settle("extend", self.name, node, jobs, lease_ms=lease_ms)
        return int((await self._link.call(call))["extended"])

    async def jobs(
        self, node: str, most: int = 1, *, lease_ms: int | None = None
    ) -> AsyncGenerator[Job, None]:
        """Return jobs as the server pushes them; see ``Topic.jobs``."""
        path = calls.work_path(self.name, node, most, lease_ms)
        patience, was_there = self.patience(), False
        while True:
            try:
                async with aclosing(self._link.events(path, EVENTS)) as events:
                    async for event in events:
                        patience.answered()
                        was_there = True
                        if event.name == "error":
                            raise calls.stream_error(event.data)
                        if event.name == "job":
                            yield msgspec.json.decode(event.data, type=Job)
                return  # the queue is gone
            except (ApiError, ConnectFailed) as error:
                if not was_there:
                    raise
                pause = patience.pause(error)
            await asyncio.sleep(pause)

    async def redrive(self, *seqs: int, **wishes: Any) -> Redriven:
        """Send dead letters back to the queues that they came from.

        ``most`` at a time, ``to`` another queue, only those that are from ``origin``, and only
        those behind ``from_seq``.
        """
        redriven: Redriven = await self._link.call(calls.redrive(self.name, seqs, **wishes))
        return redriven

    def worker(
        self,
        *,
        concurrency: int = 1,
        node: str | None = None,
        lease_ms: int | None = None,
        retry_ms: int = 0,
    ) -> Callable[[AsyncHandler], AsyncWorker]:
        """Make a coroutine function this queue's worker; see ``Topic.worker``."""
        return partial(AsyncWorker, self, WorkTerms.of(node, concurrency, lease_ms, retry_ms))
