"""A broker in this process with segments so small that a test can seal several."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from millstream.clock import SystemClock
from millstream.consumers.readers import Readers
from millstream.consumers.registry import Registry
from millstream.delivery.timers import Timers
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.message import NewRecord
from millstream.nats.door import NatsDoor
from millstream.nats.millstream_api import plan_endpoint, sink_endpoint
from millstream.store.disk.files import OsFiles
from millstream.store.log.file_log import LogOptions
from millstream.store.options import StoreOptions
from millstream.store.store import Store
from millstream.streams.catalog import Catalog
from millstream.streams.config.config import StreamConfig
from millstream.streams.deposits.deposits import Deposits
from millstream.streams.stream import Stream
from millstream.wire.info import server_info
from support.waiting import until

_Result = TypeVar("_Result")
WAIT_SECONDS = 20.0


class _Names:
    """Answers which streams there are, on one page."""

    def __init__(self, hub: Hub, interest: Interest, catalog: Catalog) -> None:
        self._hub = hub
        self._interest = interest
        self._catalog = catalog

    def deliver(self, batch: Batch) -> None:
        for at in range(len(batch)):
            names = [stream.name for stream in self._catalog.streams()]
            body = msgspec.json.encode({"total": len(names), "streams": names})
            self._hub.publish(self._interest, batch.message(at)[1], b"", b"", body)


class SmallBroker:
    """Store, catalog, NATS door and read plans on a loop of their own; call it from any thread."""

    def __init__(self, directory: Path, segment_records: int) -> None:
        self._directory = directory
        self._options = StoreOptions(log=LogOptions(segment_records=segment_records))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        self._run(self._start())

    def stop(self) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create(self, name: str, subjects: Sequence[str] = ()) -> Stream:
        config = StreamConfig(name=name, subjects=list(subjects))
        return self._run(self._catalog.create(config))[0]

    def delete_stream(self, name: str) -> None:
        self._run(self._catalog.delete(name))

    def append(self, name: str, records: Sequence[NewRecord]) -> tuple[int, int]:
        return self._run(self.stream(name).append(records))

    def delete(self, name: str, seqs: Sequence[int]) -> int:
        return self._run(self.stream(name).delete(seqs))

    def trim(self, name: str, first_kept: int, reason: str) -> None:
        """Remove what is below and wait until the log says so."""
        log = self.stream(name).log
        self.do(lambda: log.trim(first_kept, reason))
        until(lambda: self.do(lambda: log.state().first_seq) >= first_kept)

    def stream(self, name: str) -> Stream:
        return self._catalog.get(name)

    def seal(self, name: str, count: int) -> None:
        """Wait until so many segments are sealed; sealing happens behind the appends."""
        until(lambda: self.do(lambda: self._sealed(name)) >= count)

    def flushed(self, name: str) -> None:
        """Wait until the delete flags of sealed segments are in their files."""
        segments = self.stream(name).log.segments  # type: ignore[attr-defined]

        def done() -> bool:
            self._store.tick()
            return not any(segment.flags or segment.busy for segment in segments if segment.sealed)

        until(lambda: self.do(done))

    def files_done(self) -> None:
        """Wait until the file thread has done what it was given so far."""
        done = threading.Event()
        self.do(lambda: self._store.worker.run(done.set, lambda error: None))
        assert done.wait(WAIT_SECONDS)

    def occupy_files(self, until: threading.Event) -> None:
        """Keep the file thread busy from here on; to be called on the loop."""

        def wait() -> None:
            until.wait(WAIT_SECONDS)

        self._store.worker.run(wait, lambda error: None)

    def _sealed(self, name: str) -> int:
        self._store.tick()
        return len(self._store.plan(self.stream(name).incarnation))

    def do(self, call: Callable[[], _Result]) -> _Result:
        """Run a plain call on the loop."""

        async def called() -> _Result:
            return call()

        return self._run(called())

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine on the loop to its end."""
        return self._run(work)

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    async def _start(self) -> None:
        clock, interest = SystemClock(), Interest()
        info = server_info(b"s" * 32, host="127.0.0.1", port=0, jetstream=True)
        post = self._loop.call_soon_threadsafe
        self._timers = Timers(clock, self._loop)
        self._door = NatsDoor(self._loop, clock, interest, info)
        self._store = Store.open(str(self._directory), OsFiles(), clock, post, self._options)
        hub = self._door.hub
        self._catalog = Catalog(self._store, clock, self._timers, hub, {"$G": interest})
        plan_endpoint.register(
            hub, interest, self._catalog, lambda stream: self._store.plan(stream.incarnation)
        )
        self.sinks = Deposits(self._catalog, self._store, clock)
        self._catalog.replay(None, self._store.recovery.controls)
        self._catalog.capture()
        self.sinks.recover(self._store.recovery)
        self.consumers = Registry(
            self._catalog, self._store, clock, self._timers, hub, {"$G": interest}
        )
        readers = Readers(self.consumers)
        sink_endpoint.register(hub, interest, self._catalog, self.sinks, readers)
        interest.add_sink(b"$JS.API.STREAM.NAMES", _Names(hub, interest, self._catalog))
        host, port = self._door.start("127.0.0.1", 0)
        self.url = f"nats://{host}:{port}"

    async def _stop(self) -> None:
        self._door.stop()
        self._catalog.close()
        self._timers.close()
        self._store.close()


@contextmanager
def small_broker(directory: Path, segment_records: int = 100) -> Iterator[SmallBroker]:
    """Run a broker over ``directory`` until the block ends."""
    broker = SmallBroker(directory, segment_records)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
