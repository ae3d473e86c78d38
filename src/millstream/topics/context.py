"""Topics: the parts that the handlers share, put together once for a server."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.clock import Clock
from millstream.delivery import priority
from millstream.delivery.scheduler import Scheduler
from millstream.delivery.timers import Timers
from millstream.http.unread import UnreadBudget
from millstream.queues import registry as queue_registry
from millstream.queues.registry import Queues
from millstream.routers import saved_routers
from millstream.routers.registry import Routers, RouterStore
from millstream.streams.config.data_size import data_bytes
from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.streams.topic_limit import TopicLimit
from millstream.supervisor import Supervisor
from millstream.topics.audience.audience import Audiences
from millstream.topics.directory import TopicDirectory
from millstream.topics.errors import Pressed
from millstream.topics.limits.idempotency import Idempotency
from millstream.topics.limits.priorities import Priorities
from millstream.topics.limits.quota import Quota
from millstream.topics.limits.slots import Slots
from millstream.topics.limits.turns import RequestTurns
from millstream.topics.limits.write_depth import WriteDepth
from millstream.topics.page.current_state import current_state
from millstream.topics.page.page import PageMemo
from millstream.topics.stop_signal import StopSignal
from millstream.topics.unbroken import UnbrokenWork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.readers import Readers
    from millstream.delivery.governor import Measures
    from millstream.kernel._batch import Batch
    from millstream.store.recovery.recovery import Recovery
    from millstream.streams.catalog import Catalog
    from millstream.streams.deposits.deposits import Deposits
    from millstream.streams.reading.read_plan import Cold, SealedSegment
    from millstream.streams.stream import Stream


class TopicStore(queue_registry.QueueStore, RouterStore, Protocol):
    """What the door asks of the store."""

    def plan(self, log_id: int) -> "Sequence[SealedSegment]":
        """Return the sealed segments of a log, in order."""
        ...

    def cold_plan(self, log_id: int) -> "Cold":
        """Return a log's cold files, and what of them is deleted."""
        ...

    @property
    def is_full(self) -> bool:
        """Say whether more waits for its commit than should."""
        ...

    def gather(self, seconds: float) -> None:
        """Have commits wait so long for more to join them."""
        ...

    def hurry(self, log_id: int) -> None:
        """Commit what waits with a log's writes now."""
        ...

    def health(self) -> list[str]:
        """Return what is wrong, in words; empty means healthy."""
        ...


class Topics:
    """The state behind the routes; one per server."""

    def __init__(
        self,
        catalog: "Catalog",
        clock: Clock,
        store: TopicStore | None = None,
        timers: Timers | None = None,
        deposits: "Deposits | None" = None,
        readers: "Readers | None" = None,
        *,
        max_topics: int = 100_000,
        max_routers: int = 10_000,
        max_watch_sessions: int = 10_000,
        max_sse_connections: int = 10_000,
        max_sse_per_key: int = 1000,
        shortest_heartbeat_ms: int = 1000,
        supervisor: Supervisor | None = None,
        defaults: TopicDefaults | None = None,
        topic_limit: TopicLimit | None = None,
    ) -> None:
        self.defaults = defaults or TopicDefaults()
        self.catalog = catalog
        self.clock = clock
        self.store = store
        self.deposits = deposits
        self.readers = readers
        self.directory = TopicDirectory(catalog)
        self.priorities = Priorities(clock)
        self.stop_signal = StopSignal()
        self.unbroken = UnbrokenWork()
        self.topic_limit = topic_limit or TopicLimit(catalog, max_topics)
        self.max_watch_sessions = max_watch_sessions
        self.live = Slots("max_sse_connections", max_sse_connections, max_sse_per_key)
        self.shortest_heartbeat_ms = shortest_heartbeat_ms
        self.quota = Quota(0, self._total_bytes, clock.monotonic)
        self.commits = WriteDepth()
        self.idempotency = Idempotency()
        self.scheduler = Scheduler(
            clock,
            ingest_full=self._is_full,
            measured=self._take_measures,
            supervisor=supervisor,
        )
        self.turns = RequestTurns(clock, self._rank)
        self.unread = UnreadBudget()
        self.audiences = Audiences(clock, PageMemo(), self._wake_watchers, self._may_push)
        self.queues = Queues(
            *(catalog, clock, timers or Timers(clock), current_state),
            *(self.topic_limit.reserved, store, self.defaults),
        )
        self.routers = Routers(
            *(catalog, clock, timers or Timers(clock), store),
            most=max_routers,
            later=self._route_later,
        )
        self.started_ns = clock.time_ns()
        self.ready = True
        self.replay_progress = 0.0
        catalog.listen(self._stream_changed)

    def cap(
        self,
        *,
        max_topics: int,
        max_routers: int,
        max_watch_sessions: int,
        max_sse_connections: int,
        max_sse_per_key: int,
        max_total_bytes: int,
        shortest_heartbeat_ms: int,
        max_unread_bytes: int,
        max_unread_per_key: int,
        max_unread_per_connection: int,
    ) -> None:
        """Keep to other caps from now on."""
        self.topic_limit.most = max_topics
        self.routers.most = max_routers
        self.max_watch_sessions = max_watch_sessions
        self.live.most, self.live.per_key = max_sse_connections, max_sse_per_key
        self.quota.most = max_total_bytes
        self.unread.most, self.unread.per_key = max_unread_bytes, max_unread_per_key
        self.unread.per_connection = max_unread_per_connection
        self.shortest_heartbeat_ms = shortest_heartbeat_ms

    def _total_bytes(self) -> int:
        """Return the data and meta that all topics of all accounts hold."""
        now = self.clock.time_ns()
        return sum(
            data_bytes(stream.log, stream.name, current_state(stream, now).first_seq)
            for stream in self.catalog.everything()
        )

    @property
    def sse_connections(self) -> int:
        """Return how many event streams and sockets are open."""
        return self.live.open

    def recover(self, found: "Recovery") -> None:
        """Bring back what the store kept for us; the catalog has its streams already."""
        self.queues.recover(found)
        self.routers.recover(found)

    def sections(self) -> dict[str, bytes]:
        """Return what the store's snapshots keep for us."""
        return {
            queue_registry.SECTION: self.queues.section(),
            saved_routers.SECTION: self.routers.section(),
        }

    async def finish(self) -> None:
        """Wait for what is under way, before the last snapshot is made."""
        await self.unbroken.finish()
        await self.queues.finish()
        await self.routers.finish()

    def stop(self) -> None:
        """Tell long polls and event streams to end."""
        self.stop_signal.is_set = True
        self.wake()

    def wake(self) -> None:
        """Let everything that waits look around: the server stops, or a key was revoked."""
        self.queues.hurry()
        self.stop_signal.wake()

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return self.clock.time_ns() // 1_000_000

    def _stream_changed(self, stream: "Stream", alive: bool) -> None:
        """Drop what was remembered about a topic that is gone, whoever deleted it."""
        if alive:
            return
        self.priorities.forget(stream)
        self.idempotency.forget(stream.incarnation)

    # -- pace --------------------------------------------------------------------------------

    def _rank(self, name: str) -> int:
        """Return the priority of a request: its topic's, else that of one which is being read."""
        stream = self.directory.find_for_anyone(name)
        return priority.RECENCY if stream is None else self.priorities.of(stream)

    def is_deferred(self, stream: "Stream") -> bool:
        """Say whether the topic is not pushed now, because of the load and its priority."""
        return self.scheduler.measures.defers and self.priorities.of(stream) < 0

    def commit_wait_ms(self, stream: "Stream") -> float:
        """Return how long a write waits for others; those of a high priority wait for nobody."""
        window = self.scheduler.measures.commit_window_ms
        return window if window and not self.priorities.is_top(stream) else 0.0

    def begin_append(
        self, stream: "Stream", batch: "Batch", *, shares: bool = False
    ) -> asyncio.Future[tuple[int, int]]:
        """Hand a batch over to the log, which commits it at once unless it ``shares`` a commit.

        A request that is answered as it is read has nobody to share with: committed within the call
        it needs neither a task to wait nor another look at every socket.
        """
        begun = stream.begin_append(batch, at_once=not shares)
        window = self.scheduler.measures.commit_window_ms
        if (
            window
            and self.store is not None
            and not begun.done()
            and self.priorities.is_top(stream)
        ):
            self.store.hurry(stream.incarnation)
        return begun

    def check_pace(self) -> None:
        """Refuse a write while the server is pressed and its log has all that it takes."""
        if self.scheduler.measures.refuses:
            self.commits.refused += 1
            raise Pressed()

    def _wake_watchers(self, stream: "Stream", tell: Callable[[], int]) -> None:
        rank = partial(self.priorities.of, stream)
        self.scheduler.ready(stream.incarnation, tell, rank)

    def _may_push(self, stream: "Stream") -> bool:
        """Say whether a topic's watchers may be sent its news as they are told; counts as read."""
        if self.stop_signal.is_set or not self.directory.is_current(stream):
            return False
        if self.is_deferred(stream):
            return False
        self.priorities.touch(stream)
        return True

    def _route_later(self, stream: "Stream", run: Callable[[], int]) -> None:
        rank = partial(self.priorities.of, stream)
        self.scheduler.ready(("copies", stream.incarnation), run, rank, is_copying=True)

    def _is_full(self) -> bool:
        return self.store is not None and self.store.is_full

    def _take_measures(self, measures: "Measures") -> None:
        if self.store is not None:
            self.store.gather(measures.commit_window_ms / 1000)
