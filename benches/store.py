"""The store alone, in one process: how fast it appends, reads and comes back, at what cost.

    python benches/store.py [--seconds 2] [--match fsync] [--directory DIR]

Prints one line a case: rate, processor time of the whole process a record, and latency where one
record waits for the next. An asyncio loop carries the answers, as in the server.
"""

import argparse
import asyncio
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import uvloop
from memory import hold_memory

from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.kernel._batch import Batch
from millstream.store.disk.files import OsFiles
from millstream.store.disk.keys import KeyRing
from millstream.store.log.file_log import FileLog, LogOptions
from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from millstream.store.store import Store

PAYLOAD = b"x" * 128


@dataclass
class Tally:
    """What one case did."""

    records: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    waits: list[float] = field(default_factory=list)
    blocks: tuple[int, int] = (0, 0)  # that the allocator holds, before and after

    def line(self, name: str) -> str:
        """Return the case as one line."""
        rate = self.records / self.seconds
        text = f"{name:<34} {rate / 1000:>9.1f} k/s  {self.cpu / self.records * 1e6:>8.2f} us cpu"
        if self.waits:
            waits = sorted(self.waits)
            at = [waits[int(len(waits) * q)] * 1e6 for q in (0.5, 0.99, 0.999)]
            text += f"  p50 {at[0]:>7.0f}  p99 {at[1]:>7.0f}  p99.9 {at[2]:>7.0f} us"
        if any(self.blocks):
            text += f"  blocks {self.blocks[0]} -> {self.blocks[1]}"
        return text


def _last(log: FileLog, i: int) -> None:
    log.last_by_subject(b"bench.%d" % (i % 1000))


def _trim(log: FileLog, i: int) -> None:
    log.removal.apply_trim(log.first_kept + 1, "cap")


def _delete(log: FileLog, i: int) -> None:
    log.removal.apply_delete([log.committed_seq - 2 * i])


FLAT: dict[str, Callable[[FileLog, int], None]] = {
    "last by subject": _last,
    "trim": _trim,
    "delete": _delete,
}


async def flat(directory: str, act: Callable[[FileLog, int], None], size: int) -> Tally:
    """Do one thing a thousand times to a log of ``size`` records: the time must not follow it."""
    loop = asyncio.get_running_loop()
    store = Store.open(directory, OsFiles(), SystemClock(), loop.call_soon_threadsafe)
    log = store.create_log(1, Durability.DISK)
    done = asyncio.Event()
    for start in range(0, size, 1000):
        batch = Batch()
        for i in range(start, start + 1000):
            batch.add(b"bench.%d" % (i % 1000), b"", b"", PAYLOAD)
        done.clear()
        log.append(batch, 0, 1000, 1, lambda error: done.set())
        await done.wait()
    tally = Tally(1000)
    began, cpu = time.perf_counter(), cpu_seconds()
    for i in range(tally.records):
        act(log, i)
    tally.seconds, tally.cpu = time.perf_counter() - began, cpu_seconds() - cpu
    store.close()
    return tally


def cpu_seconds() -> float:
    """Return the processor time of the process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def batch_of(count: int) -> Batch:
    """Return ``count`` entries of 128 bytes."""
    batch = Batch()
    for _ in range(count):
        batch.add(b"orders.eu", b"", b"", PAYLOAD)
    return batch


class Appender:
    """Keeps a number of batches under way until the time is over."""

    def __init__(self, log: FileLog, size: int, window: int, seconds: float) -> None:
        self._log = log
        self._batch = batch_of(size)
        self._size = size
        self._window = window
        self._end = time.perf_counter() + seconds
        self._open = 0
        self._over = asyncio.get_running_loop().create_future()
        self.tally = Tally()

    async def run(self) -> Tally:
        """Append until the end; return what happened."""
        held = sys.getallocatedblocks()
        started, cpu = time.perf_counter(), cpu_seconds()
        for _ in range(self._window):
            self._append()
        await self._over
        self.tally.seconds = time.perf_counter() - started
        self.tally.cpu = cpu_seconds() - cpu
        measured = len(self.tally.waits)  # one number each, which is the bench's own
        self.tally.blocks = (held, sys.getallocatedblocks() - measured)
        return self.tally

    def _append(self) -> None:
        self._open += 1
        sent = time.perf_counter()
        self._log.append(self._batch, 0, self._size, time.time_ns(), lambda e: self._done(sent, e))

    def _done(self, sent: float, error: MillstreamError | None) -> None:
        if error is not None:
            raise error
        now = time.perf_counter()
        self._open -= 1
        self.tally.records += self._size
        self.tally.waits.append(now - sent)
        if now < self._end:
            self._append()
        elif not self._open:
            self._over.set_result(None)


def open_store(directory: str, options: StoreOptions | None = None) -> Store:
    """Open the store on the running loop."""
    loop = asyncio.get_running_loop()
    return Store.open(directory, OsFiles(), SystemClock(), loop.call_soon_threadsafe, options)


async def append(
    directory: str, durability: Durability, size: int, window: int, seconds: float
) -> Tally:
    """Measure appends of one class."""
    store = open_store(directory)
    try:
        log = store.create_log(1, durability)
        await Appender(log, 1, 1, 0.05).run()  # the first file and the reservation are made
        return await Appender(log, size, window, seconds).run()
    finally:
        store.close()


async def read(directory: str, seconds: float) -> Tally:
    """Measure reads by range over sealed and growing segments."""
    store = open_store(directory)
    try:
        log = store.create_log(1, Durability.DISK)
        await Appender(log, 1000, 4, max(seconds / 4, 0.3)).run()
        tally = Tally()
        started, cpu = time.perf_counter(), cpu_seconds()
        while time.perf_counter() - started < seconds:
            seq = 1
            while len(frames := log.read(seq, 4096, 1 << 20)):
                tally.records += len(frames)
                seq = frames.last_seq + 1
        tally.seconds, tally.cpu = time.perf_counter() - started, cpu_seconds() - cpu
        return tally
    finally:
        store.close()


async def read_sealed(directory: str, seconds: float, compressed: bool, sealed: bool) -> Tally:
    """Measure reads by range over sealed segments alone, as they are kept."""
    ring = KeyRing(b"a key for the bench") if sealed else KeyRing()
    options = StoreOptions(log=LogOptions(segment_records=20_000), ring=ring)
    store = open_store(directory, options)
    try:
        log = store.create_log(1, Durability.DISK, compressed)
        while len(log.segments) < 6:
            await Appender(log, 1000, 4, max(seconds / 4, 0.3)).run()
        while not all(segment.sealed for segment in log.segments[:-1]):
            store.tick()
            await asyncio.sleep(0.05)
        last = log.segments[-1].base_seq
        tally = Tally()
        started, cpu = time.perf_counter(), cpu_seconds()
        while time.perf_counter() - started < seconds:
            seq = 1
            while seq < last and len(frames := log.read(seq, 4096, 1 << 20)):
                tally.records += len(frames)
                seq = frames.last_seq + 1
        tally.seconds, tally.cpu = time.perf_counter() - started, cpu_seconds() - cpu
        return tally
    finally:
        store.close()


async def recover(directory: str, seconds: float) -> Tally:
    """Measure a start on what a killed process left."""
    store = open_store(directory)
    log = store.create_log(1, Durability.DISK)
    await Appender(log, 1000, 4, seconds / 2).run()
    records = log.state().count
    copy = f"{directory}-killed"
    await asyncio.to_thread(shutil.copytree, directory, copy)
    store.close()
    started, cpu = time.perf_counter(), cpu_seconds()
    again = open_store(copy)
    tally = Tally(records, time.perf_counter() - started, cpu_seconds() - cpu)
    again.close()
    shutil.rmtree(copy)
    return tally


def cases(seconds: float) -> dict[str, Callable[[str], "asyncio.Future[Tally] | object"]]:
    """Return the cases by name."""
    found: dict[str, Callable[[str], object]] = {}
    for durability in (Durability.DISK, Durability.FSYNC, Durability.MEMORY):
        for name, size, window in (("lone", 1, 1), ("1 x 256", 1, 256), ("100 x 4", 100, 4)):
            found[f"append {durability} {name}"] = (
                lambda directory, d=durability, s=size, w=window: append(
                    directory, d, s, w, seconds
                )
            )
    for durability in (Durability.DISK, Durability.FSYNC):
        found[f"append {durability} 100 x 256"] = lambda directory, d=durability: append(
            directory, d, 100, 256, seconds
        )
    for size in (10_000, 100_000, 400_000):
        for name, act in FLAT.items():
            found[f"{name} of {size}"] = lambda directory, a=act, n=size: flat(directory, a, n)
    found["read range"] = lambda directory: read(directory, seconds)
    for name, compressed, sealed in (
        ("plain", False, False),
        ("compressed", True, False),
        ("encrypted", False, True),
        ("compressed and encrypted", True, True),
    ):
        found[f"read sealed {name}"] = lambda directory, c=compressed, s=sealed: read_sealed(
            directory, seconds, c, s
        )
    found["recovery after kill -9"] = lambda directory: recover(directory, seconds)
    return found


def main() -> None:
    """Run the cases that match."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--match", default="")
    parser.add_argument("--directory", default=None, help="where the data goes; a temporary one")
    options = parser.parse_args()
    with hold_memory():
        for name, case in cases(options.seconds).items():
            if options.match in name:
                with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                    print(uvloop.run(case(f"{directory}/data")).line(name), flush=True)


if __name__ == "__main__":
    main()
