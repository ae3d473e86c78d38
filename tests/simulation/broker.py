"""One life of a broker: every part of a real server over a disk in memory, driven by hand."""

import asyncio
import warnings
from contextlib import suppress
from dataclasses import replace

import msgspec

from millstream.clock import ManualClock
from millstream.server.build import Footing, build
from millstream.server.options.options import (
    JetStreamOptions,
    MonitorOptions,
    Options,
    SegmentOptions,
)
from millstream.server.server import Server
from millstream.store.options import StoreOptions
from millstream.supervisor import Supervisor
from simulation.loop import SimulatedLoop
from support.fake_disk import FakeDisk
from support.store_bench import SMALL

DIRECTORY = "/data"
FOR_EVER_NS = 1 << 62  # the machine's clock ends no connection's turn

STORED = JetStreamOptions(store_dir=DIRECTORY, segments=SegmentOptions(8, 4096, 60.0))
OPTIONS = Options(
    host="127.0.0.1",
    server_name="simulated",
    jetstream=STORED,
    monitor=MonitorOptions(port=0, topics=True),
)
SIZES: StoreOptions = replace(
    SMALL,
    wal_file_bytes=16_384,
    checkpoint_bytes=32_768,
    log=replace(SMALL.log, reserve_records=16, flush_bytes=1024),
)


class Broker:
    """Started by its constructor; ended by its server's ``stop``, or by ``drop``."""

    def __init__(self, disk: FakeDisk, clock: ManualClock, shards: int = 1) -> None:
        self.loop = SimulatedLoop(clock)
        self.supervisor = Supervisor()
        options = msgspec.structs.replace(
            OPTIONS, jetstream=msgspec.structs.replace(STORED, wal_shards=shards)
        )
        try:
            with self.loop.running():
                self._begin(options, clock, Footing(disk, SIZES, FOR_EVER_NS))
        except BaseException:
            self.drop()
            raise

    def _begin(self, options: Options, clock: ManualClock, footing: Footing) -> None:
        self.parts = build(options, self.loop, clock, supervisor=self.supervisor, footing=footing)
        self.server = Server(options, self.parts)
        self.server.begin()
        self.parts.nats.serve()
        assert self.parts.http is not None
        self.parts.http.door.serve()

    def commit_step(self) -> None:
        """Do what each committer's thread would do next."""
        assert self.parts.kept is not None
        with self.loop.running():
            for committer in self.parts.kept.store.shards.committers:
                if not committer.step():
                    committer.tick()

    def drop(self) -> None:
        """Forget everything, as the end of a process does."""
        self.loop.abandon()
        with warnings.catch_warnings():  # nobody will await what was under way
            warnings.simplefilter("ignore")
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
        self.loop.close()
