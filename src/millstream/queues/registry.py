"""Queues: the queue of every topic that is one, made when needed, kept by control frames."""

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.queues import lease_events
from millstream.queues.dead_letters import DeadLetters, Reserved
from millstream.queues.lease_events import DeadLettered, Event, Projection
from millstream.queues.queue import Queue
from millstream.queues.settings import is_queue
from millstream.store.log.log import Committed, Durability
from millstream.store.recovery.recovery import Recovery
from millstream.streams.catalog import Catalog
from millstream.streams.config.topic_defaults import TopicDefaults
from millstream.streams.state import StreamState
from millstream.streams.stream import Stream

log = logging.getLogger(__name__)

LEASE_EVENT = 25
SECTION = "queues"


class QueueStore(Protocol):
    """What the registry asks of the store."""

    def control(
        self, kind: int, log_id: int, body: bytes, done: Committed, sync: bool = True
    ) -> None:
        """Write a control frame."""
        ...


class _SavedQueue(msgspec.Struct, frozen=True):
    stream: int
    state: Projection


class Queues:
    """All queues of all accounts; one goes with its topic."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        timers: Timers,
        settled: Callable[[Stream, int], StreamState],
        reserved: Reserved,
        store: QueueStore | None = None,
        defaults: TopicDefaults | None = None,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._timers = timers
        self._settled = settled
        self._dead_letters = DeadLetters(catalog, reserved, defaults)
        self._store = store
        self._queues: dict[int, Queue] = {}
        self._recovered: dict[int, int] = {}  # incarnation → first lease id after a restart
        catalog.listen(self._stream_changed)

    def of(self, stream: Stream) -> Queue:
        """Return the queue over a stream, which must be one."""
        queue = self._queues.get(stream.incarnation)
        if queue is None:
            queue = self._queues[stream.incarnation] = Queue(
                stream,
                clock=self._clock,
                timers=self._timers,
                settled=self._settled,
                dead_letters=self._dead_letters,
                journal=None if self._store is None else self,
                first_lease_id=self._recovered.pop(stream.incarnation, 1),
            )
        return queue

    def hurry(self) -> None:
        """Answer whoever waits for jobs now, since the server is about to stop."""
        for queue in self._queues.values():
            queue.hurry()

    def _stream_changed(self, stream: Stream, alive: bool) -> None:
        if not alive:
            self._recovered.pop(stream.incarnation, None)
            queue = self._queues.pop(stream.incarnation, None)
            if queue is not None:
                queue.close()

    # -- persistence -------------------------------------------------------------------------

    def write(self, stream: Stream, event: Event, done: Committed) -> None:
        """Log an event with the durability of the queue's own records."""
        assert self._store is not None
        sync = stream.log.durability is Durability.FSYNC
        body = msgspec.json.encode(event)
        self._store.control(LEASE_EVENT, stream.incarnation, body, done, sync)

    def recover(self, found: Recovery) -> None:
        """Bring back what the queues kept, once the catalog knows its streams again.

        Leases of the last process are never taken for new ones: their ids are not given out again,
        whether or not the queue keeps its leases.
        """
        queues = {s.incarnation: s for s in self._catalog.everything() if is_queue(s.config)}
        self._recovered = dict.fromkeys(queues, self._clock.time_ns() // 1_000_000)
        if section := found.sections.get(SECTION):
            for saved in msgspec.json.decode(section, type=list[_SavedQueue]):
                if saved.stream in queues:
                    self._restore(self.of(queues[saved.stream]), saved.state)
        for control in found.controls:
            if control.kind == LEASE_EVENT and control.log_id in queues:
                self._replay(self.of(queues[control.log_id]), control.body)
        for queue in self._queues.values():
            queue.leases.end_replay()

    def _restore(self, queue: Queue, state: Projection) -> None:
        if not queue.journal.keeps_leases:
            state = Projection(state.next_lease_id, state.dead_lettered)
        queue.leases.restore(state)

    def _replay(self, queue: Queue, body: bytes) -> None:
        event = lease_events.decode(body)
        if queue.journal.keeps_leases or isinstance(event, DeadLettered):
            queue.leases.apply(event)

    def section(self) -> bytes:
        """Return the snapshot's section."""
        return msgspec.json.encode(
            [
                _SavedQueue(incarnation, self._kept(queue))
                for incarnation, queue in self._queues.items()
                if queue.journal.is_persisted
            ]
        )

    def _kept(self, queue: Queue) -> Projection:
        state = queue.leases.projection()
        if queue.journal.keeps_leases:
            return state
        return Projection(state.next_lease_id, state.dead_lettered)

    async def finish(self) -> None:
        """Wait for deletions and moves that are under way."""
        for queue in list(self._queues.values()):
            await queue.work.finish()
