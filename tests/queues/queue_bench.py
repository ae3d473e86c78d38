"""Queues over a store on a fake disk, driven by hand."""

from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar

from millstream.clock import ManualClock
from millstream.delivery.timers import Timers
from millstream.queues.queue import Queue
from millstream.queues.registry import SECTION as QUEUES
from millstream.queues.registry import Queues
from millstream.streams.catalog import SECTION as STREAMS
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import StreamConfig
from millstream.streams.state import StreamState
from millstream.streams.stream import Stream
from support.fake_disk import FakeDisk
from support.store_bench import Bench
from support.waiting import driven

_T = TypeVar("_T")


def as_it_is(stream: Stream, now_ns: int) -> StreamState:
    return stream.state()


class QueueBench:
    """One process: its store, catalog and queues, recovered from whatever the disk holds."""

    def __init__(self, disk: FakeDisk, clock: ManualClock | None = None) -> None:
        self.bench = Bench(disk, clock=clock)
        self.store, self.clock = self.bench.store, self.bench.clock
        self.timers = Timers(self.clock)
        self.catalog = Catalog(self.store, self.clock, self.timers)
        self.queues = Queues(
            self.catalog, self.clock, self.timers, as_it_is, lambda *_: nullcontext(), self.store
        )
        found = self.store.recovery
        self.catalog.replay(found.sections.get(STREAMS), found.controls)
        self.queues.recover(found)

    def queue(self, name: str = "q") -> Queue:
        return self.queues.of(self.catalog.get(name))

    async def make(self, name: str = "q", **config: Any) -> Queue:
        wish = StreamConfig.from_topic(name, {"type": "queue", **config})
        await self.drive(self.catalog.create(wish))
        return self.queue(name)

    async def drive(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Turn the loop and the disk until the work is done."""
        return await driven(work, self.bench.run)

    def checkpoint(self) -> None:
        self.store.checkpoint({STREAMS: self.catalog.section(), QUEUES: self.queues.section()})
        self.bench.run()

    def close(self) -> None:
        self.catalog.close()
        self.bench.close()
