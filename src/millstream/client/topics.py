"""Topics: the HTTP API, one blocking call at a time.

with Topics() as topics:
    orders = topics.topic("orders")
    orders.append({"id": 1}, {"id": 2}, tag="new")
    for record in orders.diff():
        print(record.seq, record.data)
"""

import ssl
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import msgspec

from millstream.client import topic_calls as calls
from millstream.client.errors import ApiError, ConnectFailed
from millstream.client.http_link import DEFAULT_TIMEOUT, HttpLink, Place
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
from millstream.client.worker import Handler, Worker, WorkTerms


class Topics:
    """A server's topics. ``token`` is an API key; a url may carry one too: http://key@host:port.

    Every thread may use one object. ``retries`` is how often a server that is busy (429, 503) is
    asked again, after the time that it says. ``patience`` is for how many seconds whoever follows
    (``watch``, ``diff(follow=True)``, ``jobs``, a worker) waits for a server that went away.
    """

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
        self._link = HttpLink(Place(url, token, timeout, retries, tls, patience))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections; a later call opens others."""
        self._link.close()

    def topic(self, name: str) -> "Topic":
        """Return one topic to work with; nothing is asked or created yet."""
        return Topic(self._link, name)

    def list(self, prefix: str = "") -> Generator[dict[str, Any], None, None]:
        """Return the topics by name, each with its head, count and size."""
        cursor: str | None = None
        while True:
            page: calls.Listed = self._link.call(calls.listing(prefix, cursor))
            yield from page.topics
            cursor = page.next_cursor
            if cursor is None:
                return

    def consumers(self) -> Generator[dict[str, Any], None, None]:
        """Return the consumers of all topics, each as JetStream shows it."""
        cursor: str | None = None
        while True:
            page: calls.ListedConsumers = self._link.call(calls.consumers(cursor))
            yield from page.consumers
            cursor = page.next_cursor
            if cursor is None:
                return

    def watch(
        self, positions: Mapping[str, int | None], **options: Any
    ) -> Generator[Event, None, None]:
        """Return what happens in topics as it happens, for as long as it is iterated.

        ``positions`` maps each topic to the sequence after which to begin, None meaning now. A
        lost connection, also to a server that restarts, is opened again where it stood.
        """
        watched, patience = WatchPosition(positions, options), Patience(self._link.place.patience)
        while True:
            try:
                watch: calls.Watch = self._link.call(watched.call())
                yield from watched.opened(watch)
                if not watched.is_over:
                    for event in self._link.events(watch.stream_url, EVENTS):
                        patience.answered()
                        yield from watched.read(event.name, event.data)
                if watched.is_over:
                    return
                raise self._link.place.unreachable(EOFError("the stream ended"))
            except (ApiError, ConnectFailed) as error:
                if not watched.was_open:
                    raise
                time.sleep(patience.pause(watched.lost(error)))


class Topic:
    """One topic."""

    def __init__(self, link: HttpLink, name: str) -> None:
        self._link = link
        self.name = name

    def patience(self) -> Patience:
        """Return how long somebody who follows waits for the server."""
        return Patience(self._link.place.patience)

    def put(self, **config: Any) -> dict[str, Any]:
        """Create the topic, or replace its whole configuration; returns it as it is now."""
        answer: dict[str, Any] = self._link.call(calls.put(self.name, config))
        shown: dict[str, Any] = answer["config"]
        return shown

    def state(self) -> TopicState:
        """Return the topic's state and configuration."""
        state: TopicState = self._link.call(calls.state(self.name))
        return state

    def delete(self, *, if_empty: bool = False) -> bool:
        """Delete the topic; returns whether there was one."""
        return bool(self._link.call(calls.drop(self.name, if_empty))["deleted"])

    def append(self, *data: Any, **fields: Any) -> Appended:
        """Write records, all or none: ``tag``, ``meta``, ``node``, ``key``, ``create``, ``config``.

        Without a ``key`` one is made up, so that a write whose answer was lost is not done twice.
        """
        appended: Appended = self._link.call(calls.append(self.name, data, **fields))
        return appended

    def page(self, from_seq: int = 0, **wishes: Any) -> Page:
        """Read one page after a position: ``limit``, ``wait_ms``, ``node``, ``filter``."""
        page: Page = self._link.call(calls.diff(self.name, from_seq, **wishes))
        return page

    def diff(
        self,
        from_seq: int = 0,
        *,
        follow: bool = False,
        on_gap: Callable[[Gap], None] | None = None,
        **wishes: Any,
    ) -> Generator[Record, None, None]:
        """Return the records after a position; with ``follow`` wait for more for ever.

        Who follows survives a server that restarts; a first look that fails is told at once.
        Records that are gone are never passed over in silence: ``on_gap`` is told, or else
        RecordsLost is raised.
        """
        patience, was_there = self.patience(), False
        while True:
            try:
                page = self.page(from_seq, wait_ms=self._link.place.wait_ms * follow, **wishes)
            except (ApiError, ConnectFailed) as error:
                if not (follow and was_there):
                    raise
                time.sleep(patience.pause(error))
                continue
            patience.answered()
            was_there = True
            if page.tombstone is not None:
                if on_gap is None:
                    raise calls.lost(self.name, page.tombstone)
                on_gap(page.tombstone)
            yield from page.records
            from_seq = page.next_from_seq
            if page.caught_up and not follow:
                return

    def delete_records(
        self, *, before_seq: int | None = None, match: str | Sequence[str] | None = None
    ) -> int:
        """Delete records below a sequence, or by tag (``"tag"``, ``"tag*"``), for good."""
        call = calls.delete_records(self.name, before_seq, match)
        return int(self._link.call(call)["deleted"])

    def claim(self, node: str, most: int = 1, *, lease_ms: int | None = None) -> list[Job]:
        """Lease jobs of a queue."""
        claimed: calls.Claimed = self._link.call(calls.claim(self.name, node, most, lease_ms))
        return claimed.claimed

    def ack(self, node: str, *jobs: Job) -> int:
        """Finish jobs; returns of how many the lease was still ours."""
        return int(self._link.call(calls.settle("ack", self.name, node, jobs))["acked"])

    def nack(self, node: str, *jobs: Job, delay_ms: int = 0) -> int:
        """Give jobs back; returns of how many the lease was still ours."""
        call = calls.settle("nack", self.name, node, jobs, delay_ms=delay_ms)
        return int(self._link.call(call)["nacked"])

    def extend(self, node: str, *jobs: Job, lease_ms: int) -> int:
        """Keep jobs for longer; returns of how many the lease was still ours."""
        call = calls.settle("extend", self.name, node, jobs, lease_ms=lease_ms)
        return int(self._link.call(call)["extended"])

    def jobs(
        self, node: str, most: int = 1, *, lease_ms: int | None = None
    ) -> Generator[Job, None, None]:
        """Return jobs as the server pushes them, never more than ``most`` unfinished at a time.

        Leaving the loop gives back at once what was not finished. So does a lost connection, but
        that is opened again: what was not finished comes again.
        """
        path = calls.work_path(self.name, node, most, lease_ms)
        patience, was_there = self.patience(), False
        while True:
            try:
                for event in self._link.events(path, EVENTS):
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
                time.sleep(patience.pause(error))

    def redrive(self, *seqs: int, **wishes: Any) -> Redriven:
        """Send dead letters back to the queues that they came from.

        ``most`` at a time, ``to`` another queue, only those that are from ``origin``, and only
        those behind ``from_seq``.
        """
        redriven: Redriven = self._link.call(calls.redrive(self.name, seqs, **wishes))
        return redriven

    def worker(
        self,
        *,
        concurrency: int = 1,
        node: str | None = None,
        lease_ms: int | None = None,
        retry_ms: int = 0,
    ) -> Callable[[Handler], Worker]:
        """Make a function this queue's worker; ``run()`` of it takes jobs until it is stopped.

        A job is finished when the function returns, and given back for ``retry_ms`` when it
        raises. Its lease is kept alive meanwhile.
        """
        return partial(Worker, self, WorkTerms.of(node, concurrency, lease_ms, retry_ms))


__all__ = ["ApiError", "Event", "Gap", "Job", "Record", "Topic", "Topics", "Worker"]
