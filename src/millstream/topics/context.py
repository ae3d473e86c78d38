"""Topics: what the handlers share, which is the catalog, the clock and a little memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from millstream.accounts.account import GLOBAL_ACCOUNT
from millstream.clock import Clock
from millstream.delivery import priority
from millstream.delivery.scheduler import Scheduler
from millstream.delivery.timers import Timers
from millstream.errors import Forbidden, Unauthorized
from millstream.http.request import Caller, Request
from millstream.queues import registry as queue_registry
from millstream.queues.registry import Queues
from millstream.routers import registry as router_registry
from millstream.routers.registry import Routers
from millstream.streams.config.data_size import data_bytes
from millstream.supervisor import Supervisor
from millstream.topics.audience.audience import Audiences
from millstream.topics.errors import Pressed, TopicNotFound
from millstream.topics.limits.commit_queue import CommitQueue
from millstream.topics.limits.haste import Haste
from millstream.topics.limits.idempotency import Idempotency
from millstream.topics.limits.quota import Quota
from millstream.topics.limits.slots import Slots
from millstream.topics.limits.topic_limit import TopicLimit
from millstream.topics.limits.turns import RequestTurns
from millstream.topics.page.current_state import settled
from millstream.topics.page.page import PageMemo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.readers import Readers
    from millstream.delivery.governor import Measures
    from millstream.kernel._batch import Batch
    from millstream.routers.router import Router
    from millstream.store.recovery.recovery import Recovery
    from millstream.streams.catalog import Catalog
    from millstream.streams.config.config import StreamConfig
    from millstream.streams.deposits.deposits import Deposits
    from millstream.streams.reading.read_plan import Cold, SealedSegment
    from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

T = TypeVar("T")


class TopicStore(queue_registry.QueueStore, router_registry.RouterStore, Protocol):
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

    soon: Callable[[Callable[[], None]], object]  # where it posts its calls to the loop

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
        *,
        max_topics: int = 100_000,
        max_routers: int = 10_000,
        max_watch_sessions: int = 10_000,
        max_sse_connections: int = 10_000,
        max_sse_per_key: int = 1000,
        shortest_heartbeat_ms: int = 1000,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.catalog = catalog
        self.clock = clock
        self.store = store
        self.sinks: Deposits | None = None
        self.readers: Readers | None = None
        self.max_topics = max_topics
        self.room = TopicLimit(catalog, lambda: self.max_topics)
        self.max_watch_sessions = max_watch_sessions
        self.live = Slots("max_sse_connections", max_sse_connections, max_sse_per_key)
        self.shortest_heartbeat_ms = shortest_heartbeat_ms
        self.quota = Quota(0, self._total_bytes, clock.monotonic)
        self.commits = CommitQueue()
        self.idempotency = Idempotency()
        self.scheduler = Scheduler(
            clock,
            ingest_full=self._is_full,
            measured=self._take_measures,
            supervisor=supervisor,
        )
        self.turns = RequestTurns(clock, self._rank)
        self._haste: Haste | None = None
        if store is not None:
            self._haste = Haste(store.soon)
            store.soon = self._haste.soon
        self.audiences = Audiences(clock, PageMemo(), self._wake_watchers, self._may_push)
        self.queues = Queues(
            catalog, clock, timers or Timers(clock), settled, self.room.reserved, store
        )
        self.routers = Routers(
            *(catalog, clock, timers or Timers(clock), store),
            most=max_routers,
            later=self._route_later,
        )
        self.started_ns = clock.time_ns()
        self.stopping = False
        self.ready = True
        self.replay_progress = 0.0
        self._read_ms: dict[int, int] = {}  # incarnation → when it was last consumed
        # incarnation → its priority, and whether it has one of its own, as that config says
        self._wishes: dict[int, tuple[StreamConfig, int | None, bool]] = {}
        self._waiting: set[Callable[[], None]] = set()
        self._unbroken: set[asyncio.Future[Any]] = set()
        self._elsewhere: WeakValueDictionary[str, Stream] = WeakValueDictionary()
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
    ) -> None:
        """Keep to other caps from now on."""
        self.max_topics = max_topics
        self.routers.most = max_routers
        self.max_watch_sessions = max_watch_sessions
        self.live.most, self.live.per_key = max_sse_connections, max_sse_per_key
        self.quota.most = max_total_bytes
        self.shortest_heartbeat_ms = shortest_heartbeat_ms

    def _total_bytes(self) -> int:
        """Return the data and meta that all topics of all accounts hold."""
        now = self.clock.time_ns()
        return sum(
            data_bytes(stream.log, stream.name, settled(stream, now).first_seq)
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
            router_registry.SECTION: self.routers.section(),
        }

    async def unbroken(self, work: Awaitable[T]) -> T:
        """Wait for work that goes on to its end also when the client leaves meanwhile."""
        task = asyncio.ensure_future(work)
        self._unbroken.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    def _ended(self, task: "asyncio.Future[Any]") -> None:
        self._unbroken.discard(task)

    async def finish(self) -> None:
        """Wait for what is under way, before the last snapshot is made."""
        while self._unbroken:
            await asyncio.wait(self._unbroken)
        await self.queues.finish()
        await self.routers.finish()

    def stop(self) -> None:
        """Tell long polls and event streams to end."""
        self.stopping = True
        self.wake()

    def wake(self) -> None:
        """Let everything that waits look around: the server stops, or a key was revoked."""
        self.queues.hurry()
        for wake in list(self._waiting):
            wake()

    def on_stop(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when the server stops or a key was revoked; returns the undo."""
        self._waiting.add(wake)
        return lambda: self._waiting.discard(wake)

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return self.clock.time_ns() // 1_000_000

    def find(self, name: str, caller: Caller) -> "Stream":
        """Return the topic's stream; raises with the closest name that the caller may see."""
        check_name(name, caller)
        found = self.find_or_none(name, caller)
        if found is None:
            raise self.absent(name, caller)
        return found

    def find_or_none(self, name: str, caller: Caller) -> "Stream | None":
        """Return the topic's stream if there is one."""
        found = self.catalog.find(name, caller.account)
        if found is not None and caller.account != GLOBAL_ACCOUNT:
            self._elsewhere[name] = found
        return found

    def visible(self, caller: Caller) -> "Iterator[Stream]":
        """Return the topics that the caller may see, by name."""
        return (s for s in self.catalog.streams(caller.account) if caller.may_touch(s.name))

    def touch(self, stream: "Stream") -> None:
        """Remember that somebody consumed the topic now."""
        self._read_ms[stream.incarnation] = self.now_ms()

    def last_read_ms(self, stream: "Stream") -> int | None:
        """Return when the topic was last consumed."""
        return self._read_ms.get(stream.incarnation)

    def _stream_changed(self, stream: "Stream", alive: bool) -> None:
        """Drop what was remembered about a topic that is gone, whoever deleted it."""
        if alive:
            return
        self._read_ms.pop(stream.incarnation, None)
        self._wishes.pop(stream.incarnation, None)
        self.idempotency.forget(stream.incarnation)

    def effective_priority(self, stream: "Stream") -> int:
        """Return the manual priority in its range, else one that halves every idle 30 s."""
        config, read = stream.config, self.last_read_ms(stream)
        known = self._wishes.get(stream.incarnation)
        if known is None or known[0] is not config:
            shown = config.to_topic()
            known = config, shown["priority"], shown["auto_priority"]
            self._wishes[stream.incarnation] = known
        idle = None if read is None else self.now_ms() - read
        return priority.effective(known[1], known[2], idle)

    # -- pace --------------------------------------------------------------------------------

    def _rank(self, name: str) -> int:
        """Return the priority of a request: its topic's, else that of one which is being read.

        Who asks is not known yet; of another account's topics the one of this name that was asked
        for last is meant.
        """
        stream = self.catalog.find(name) or self._elsewhere.get(name)
        return priority.RECENCY if stream is None else self.effective_priority(stream)

    def is_deferred(self, stream: "Stream") -> bool:
        """Say whether the topic is not pushed now, because of the load and its priority."""
        return self.scheduler.measures.defers and self.effective_priority(stream) < 0

    def commit_wait_ms(self, stream: "Stream") -> float:
        """Return how long a write waits for others; those of a high priority wait for nobody."""
        window = self.scheduler.measures.commit_window_ms
        return window if window and not self._is_urgent(stream) else 0.0

    def begin_append(
        self, stream: "Stream", batch: "Batch", *, shares: bool = False
    ) -> asyncio.Future[tuple[int, int]]:
        """Hand a batch over to the log, which commits it at once if it can and shall."""
        if self._haste is None or self.store is None:
            return stream.begin_append(batch)
        if shares:
            begun = stream.begin_append(batch)
        else:
            with self._haste:
                begun = stream.begin_append(batch)
        window = self.scheduler.measures.commit_window_ms
        if window and not begun.done() and self._is_urgent(stream):
            self.store.hurry(stream.incarnation)
        return begun

    def _is_urgent(self, stream: "Stream") -> bool:
        return priority.band_of(self.effective_priority(stream)) == priority.TOP

    def check_pace(self) -> None:
        """Refuse a write while the server is pressed and its log has all that it takes."""
        if self.scheduler.measures.refuses:
            self.commits.refused += 1
            raise Pressed()

    def _wake_watchers(self, stream: "Stream", tell: Callable[[], int]) -> None:
        rank = partial(self.effective_priority, stream)
        self.scheduler.ready(stream.incarnation, tell, rank)

    def _may_push(self, stream: "Stream") -> bool:
        """Say whether a topic's watchers may be sent its news as they are told; counts as read."""
        is_gone = self.catalog.find(stream.name, stream.account) is not stream
        if is_gone or self.stopping or self.is_deferred(stream):
            return False
        self.touch(stream)
        return True

    def _route_later(self, stream: "Stream", run: Callable[[], int]) -> None:
        rank = partial(self.effective_priority, stream)
        self.scheduler.ready(("copies", stream.incarnation), run, rank, is_copying=True)

    def _is_full(self) -> bool:
        return self.store is not None and self.store.is_full

    def _take_measures(self, measures: "Measures") -> None:
        if self.store is not None:
            self.store.gather(measures.commit_window_ms / 1000)

    async def wait_for(
        self, streams: "list[Stream]", seconds: float, ready: Callable[[], bool] | None = None
    ) -> bool:
        """Return True after a change of a stream (that makes ``ready`` hold) or on shutdown.

        False means that the time is over. The caller looks once more before it waits.
        """
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bool] = loop.create_future()

        def look() -> None:
            if not arrived.done() and (self.stopping or ready is None or ready()):
                arrived.set_result(True)

        undo = [stream.watch(look) for stream in streams]
        self._waiting.add(look)
        timer = loop.call_later(seconds, _expire, arrived)
        try:
            return await arrived
        finally:
            timer.cancel()
            self._waiting.discard(look)
            for forget in undo:
                forget()

    def absent(self, name: str, caller: Caller) -> TopicNotFound:
        """Return that there is no such topic, with the closest name that the caller may read."""
        reader = caller if "read" in caller.scopes else caller.asking_for("read", name)
        if "read" not in reader.scopes:
            return TopicNotFound(name)
        names = [stream.name for stream in self.visible(reader)]
        return TopicNotFound(
            name, next(iter(get_close_matches(name, names, n=1, cutoff=0.7)), None)
        )


def check_name(name: str, caller: Caller) -> None:
    """Refuse a name outside the caller's allow-list, before anything is said about it."""
    if caller.revoked:
        raise Unauthorized("the credential was revoked")
    if not caller.may_touch(name):
        raise Forbidden(f"this key may not touch {name}", {"topic": name})


def check_capture(config: "StreamConfig", caller: Caller, kept: Iterable[str] = ()) -> None:
    """Refuse to take what the caller may not hear; what the topic takes already stays."""
    known = frozenset(kept)
    for subject in config.subjects:
        if subject not in known and not caller.may_capture(subject):
            raise Forbidden(f"this key may not take the subject {subject}", {"subject": subject})


def may_see(router: "Router", caller: Caller) -> bool:
    """Say whether the caller may know of a router: of its name and of both its topics."""
    one = router.definition
    named = not caller.prefixes or one.name.startswith(caller.prefixes)
    return named and caller.may_touch(one.source) and caller.may_touch(one.dest)


def _log_failure(task: "asyncio.Future[Any]") -> None:
    """Log what nobody hears: who asked for it has left."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.info("failed after its client left error=%s", error)


def _expire(arrived: asyncio.Future[bool]) -> None:
    if not arrived.done():
        arrived.set_result(False)


def topic_of(request: Request) -> str:
    """Return the topic that the path names."""
    return request.params["topic"]
