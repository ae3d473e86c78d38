"""A source that keeps only what somebody needs keeps it until its routers have copied it."""

from router_bench import RouterBench

from millstream.streams.config.config import StreamConfig
from support.fake_disk import FakeDisk, Mode


async def source(bench: RouterBench) -> None:
    config = StreamConfig(name="a", subjects=("a",), retention="interest")
    await bench.drive(bench.catalog.create(config))


async def test_records_go_once_all_routers_have_copied_them() -> None:
    bench = RouterBench(FakeDisk())
    await source(bench)
    await bench.topic("b")
    await bench.topic("c", discard="reject", cap_records=1)
    await bench.route("a", "b", "all")
    await bench.route("a", "c", "full")
    await bench.write("a", b"one", b"two")
    bench.turn()
    assert await bench.read("b") == [(1, b"one"), (2, b"two")]
    assert bench.seen("c") == [(1, b"one")]
    assert bench.seen("a") == [(2, b"two")]  # which the full destination has still to take
    await bench.drive(bench.stream("c").delete([1]))
    bench.turn()
    assert bench.seen("c") == [(2, b"two")]
    assert bench.seen("a") == []


async def test_a_router_that_goes_needs_nothing_any_more() -> None:
    bench = RouterBench(FakeDisk())
    await source(bench)
    await bench.topic("b", discard="reject", cap_records=1)
    await bench.route("a", "b")
    await bench.write("a", b"one", b"two")
    bench.turn()
    assert bench.seen("a") == [(2, b"two")]
    await bench.drive(bench.routers.delete("r", "$G"))
    bench.turn()
    assert bench.seen("a") == []


async def test_what_was_not_copied_is_still_there_after_a_start() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await source(bench)
    await bench.topic("b", discard="reject", cap_records=1)
    await bench.route("a", "b")
    await bench.write("a", b"one", b"two")
    bench.turn()
    again = RouterBench(disk.after_crash(Mode.KEEP, 0))
    again.turn()
    assert again.seen("a") == [(2, b"two")]
    await again.drive(again.stream("b").delete([1]))
    again.turn()
    assert again.seen("b") == [(2, b"two")]
