"""Erasing a record at the source leaves the copies that were made of it as they are."""

import asyncio

import pytest
from router_bench import RouterBench

from millstream.clock import ManualClock
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count

SECRET = b"a secret that must not stay"


async def live(bench: RouterBench) -> None:
    """Copy, erase the original, and go on; snapshots are made when the store asks for them."""
    await bench.topic("a")
    await bench.topic("b")
    await bench.route("a", "b")
    await bench.write("a", b"before", SECRET, b"after")
    await bench.read("b")
    await erase(bench, "a", 2)
    await bench.write("a", b"last")
    await bench.read("b")


async def erase(bench: RouterBench, topic: str, seq: int) -> None:
    async def until_erased() -> None:
        await bench.stream(topic).delete([seq], erase=True)

    async def with_snapshots() -> None:
        erasing = asyncio.ensure_future(until_erased())
        try:
            while not erasing.done():
                await asyncio.sleep(0)
                if bench.store.checkpoint_due:
                    bench.checkpoint()
            await erasing
        finally:
            erasing.cancel()
            await asyncio.gather(erasing, return_exceptions=True)

    await bench.drive(with_snapshots())


async def test_a_copy_outlives_the_erased_original_and_a_crash() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await live(bench)
    source = f"/data/streams/{bench.stream('a').incarnation:016x}/"
    held = [path for path, data in disk.content().items() if SECRET in data]
    assert not [path for path in held if path.startswith(source)]
    again = RouterBench(disk.after_crash(Mode.KEEP, 0))
    assert again.seen("a") == [(1, b"before"), (3, b"after"), (4, b"last")]
    assert again.seen("b") == [(1, b"before"), (2, SECRET), (3, b"after"), (4, b"last")]
    assert again.stream("b").state().gaps == ()


async def test_wherever_the_process_ends_no_copy_is_reported_as_damaged() -> None:
    calm = FakeDisk()
    await live(RouterBench(calm))
    for crash_at in range(1, calm.calls + 1, max(1, calm.calls // count(25, calm.calls))):
        disk, clock = FakeDisk(), ManualClock()
        disk.crash_at = crash_at
        with pytest.raises(Crashed):
            await live(RouterBench(disk, clock))
        again = RouterBench(disk.after_crash(Mode.DROP, crash_at), clock)
        if "b" not in {stream.name for stream in again.catalog.streams()}:
            continue
        assert not [g for g in again.stream("b").state().gaps if g.reason == "corruption"], crash_at
        copies = dict(again.seen("b"))
        assert copies.get(3) is None or copies.get(2) == SECRET, (crash_at, copies)
