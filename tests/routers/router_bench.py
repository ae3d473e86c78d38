"""Routers over a store on a fake disk, driven by hand."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from millstream.clock import ManualClock
from millstream.delivery.timers import Timers
from millstream.message import NewRecord
from millstream.routers.registry import RouterRequest, Routers
from millstream.routers.router import Router
from millstream.routers.saved_routers import SECTION as ROUTERS
from millstream.routers.tag_filter import TagFilter
from millstream.store.options import StoreOptions
from millstream.streams.catalog import SECTION as STREAMS
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import StreamConfig
from millstream.streams.stream import Stream
from support.fake_disk import FakeDisk
from support.store_bench import SMALL, Bench
from support.waiting import driven

_T = TypeVar("_T")

Seen = list[tuple[int, bytes]]


class RouterBench:
    """One process: its store, catalog and routers, recovered from whatever the disk holds."""

    def __init__(
        self, disk: FakeDisk, clock: ManualClock | None = None, options: StoreOptions = SMALL
    ) -> None:
        self.bench = Bench(disk, options, clock)
        self.store, self.clock = self.bench.store, self.bench.clock
        self.timers = Timers(self.clock)
        self.catalog = Catalog(self.store, self.clock, self.timers)
        self.routers = Routers(self.catalog, self.clock, self.timers, self.store)
        found = self.store.recovery
        self.catalog.replay(found.sections.get(STREAMS), found.controls)
        self.routers.recover(found)

    def stream(self, name: str) -> Stream:
        return self.catalog.get(name)

    def router(self, name: str = "r") -> Router:
        return self.routers.get(name, "$G")

    async def topic(self, name: str, **config: Any) -> Stream:
        wish = StreamConfig.from_topic(name, {"durability": "fsync", **config})
        stream, _ = await self.drive(self.catalog.create(wish))
        return stream

    async def route(
        self, source: str, dest: str, name: str = "r", tags: str = "", **more: Any
    ) -> Router:
        """Put a router between two topics that exist."""

        async def streams() -> tuple[Stream, Stream]:
            return self.stream(source), self.stream(dest)

        wanted = TagFilter.read(tags) if tags else None
        wish = RouterRequest("$G", name, source, dest, filter=wanted, **more)
        router, _ = await self.drive(self.routers.put(wish, streams))
        return router

    async def write(self, topic: str, *payloads: bytes, tag: bytes = b"", node: bytes = b"") -> int:
        """Write records; returns the first one's sequence."""
        records = [NewRecord(b"", payload, tag=tag, node=node) for payload in payloads]
        first, _ = await self.drive(self.stream(topic).append(records))
        return first

    async def read(self, topic: str) -> Seen:
        """Return what a reader gets, after the copies that are due."""
        await self.drive(self.routers.catch_up(self.stream(topic)))
        return self.seen(topic)

    def seen(self, topic: str) -> Seen:
        """Return what is there now."""
        return [(record[0], record[3]) for record in self.records(topic)]

    def records(self, topic: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        seq = 1
        while len(frames := self.stream(topic).read(seq, 1000, 1 << 20)):
            found += list(frames)
            seq = frames.last_seq + 1
        return found

    async def drive(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Turn the loop and the disk until the work is done."""
        return await driven(work, self.bench.run)

    def turn(self) -> None:
        """Let the routers run in the background until nothing is left to do."""
        for _ in range(50):
            self.timers.run_due()
            self.bench.run()

    def checkpoint(self) -> None:
        self.store.checkpoint({STREAMS: self.catalog.section(), ROUTERS: self.routers.section()})
        self.bench.run()

    def close(self) -> None:
        self.catalog.close()
        self.bench.close()
