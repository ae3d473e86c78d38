"""For each disk call of routers at work: crash there, start again, compare with what was seen."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from router_bench import RouterBench, Seen

from millstream.clock import ManualClock
from support.fake_disk import Crashed, FakeDisk, Mode
from support.scale import count

Step = Callable[[RouterBench], Awaitable[object]]


@dataclass
class Story:
    """What was acknowledged, and what readers of the destinations saw."""

    written: list[bytes] = field(default_factory=list)  # acknowledged at the source, in order
    tagged: list[bytes] = field(default_factory=list)
    direct: dict[int, bytes] = field(default_factory=dict)  # acknowledged at b, by sequence
    seen: dict[str, dict[int, bytes]] = field(default_factory=lambda: {"b": {}, "c": {}})
    deleted: set[int] = field(default_factory=set)  # from b

    def note(self, topic: str, found: Seen) -> None:
        self.seen[topic].update(dict(found))


async def live(bench: RouterBench, story: Story, durability: str) -> None:
    """Two routers, direct writes between the copies, deletes, a cap, snapshots, a lost source."""
    await bench.topic("a", durability=durability, cap_records=12)
    await bench.topic("b", durability=durability)
    await bench.topic("c", durability=durability)
    await bench.route("a", "b", "all")
    await bench.route("a", "c", "some", tags="x", guarantee="exactly_once")
    for part in range(9):
        names = [b"a%d.%d" % (part, n) for n in range(3)]
        await bench.write("a", *names, tag=b"x" if part % 2 else b"")
        story.written += names
        story.tagged += names if part % 2 else []
        if part in (1, 4, 5):
            story.note("b", await bench.read("b"))
            payload = b"direct %d" % part
            seq = await bench.write("b", payload)
            story.direct[seq] = payload
        if part in (2, 6):
            story.note("c", await bench.read("c"))
            bench.checkpoint()
        if part == 3:  # copied by now, and gone from the source
            story.note("b", await bench.read("b"))
            await bench.drive(bench.stream("a").delete([7, 8]))
            story.deleted.add(2)  # asked for, answered or not
            await bench.drive(bench.stream("b").delete([2]))
        bench.turn()
        bench.clock.advance(0.06)
        bench.turn()
        bench.store.tick()
        bench.bench.run()
    story.note("b", await bench.read("b"))
    story.note("c", await bench.read("c"))
    await bench.drive(bench.catalog.delete("a"))  # its files may be all that the copies are made of
    bench.turn()
    story.note("b", bench.seen("b"))
    bench.checkpoint()
    await bench.write("b", b"last")


async def calls_of_a_life(durability: str) -> int:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await live(bench, Story(), durability)
    calls = disk.calls
    bench.close()
    return calls


def check(bench: RouterBench, story: Story, where: str) -> None:
    """Compare a start with what was seen before: the same records under the same sequences."""
    streams = {stream.name for stream in bench.catalog.streams()}
    for topic in ("b", "c"):
        if topic not in streams:
            assert not story.seen[topic], where
            continue
        found = dict(bench.seen(topic))
        wanted = {s: p for s, p in story.seen[topic].items() if s not in story.deleted}
        lost = {s: p for s, p in wanted.items() if found.get(s) != p}
        assert not lost, (where, topic, lost, found, bench.stream(topic).state().gaps)
        assert bench.stream(topic).state().messages == len(found), where
        rotten = [g for g in bench.stream(topic).state().gaps if g.reason == "corruption"]
        assert not rotten, (where, rotten)
    if "b" in streams:
        found = dict(bench.seen("b"))
        gone = {s: p for s, p in story.direct.items() if found.get(s) != p}
        assert not gone, (where, gone)


async def check_caught_up(bench: RouterBench, story: Story, where: str) -> None:
    """Let the routers go on: everything acknowledged arrives, in order, exactly_once just once."""
    bench.turn()
    if "a" not in {stream.name for stream in bench.catalog.streams()} or len(bench.routers) < 2:
        return
    copies = [p for _, p in await bench.read("b") if p.startswith(b"a")]
    assert copies == sorted(set(copies)), (where, copies)
    missing = set(story.written) - set(copies) - {b"a0.1"}
    assert not missing, (where, missing, bench.stream("b").state().gaps)
    copies = [p for _, p in await bench.read("c")]
    assert copies == sorted(set(copies)), (where, copies)
    assert set(story.tagged) <= set(copies), (where, copies)


@pytest.mark.parametrize(
    ("durability", "mode"),
    [("disk", Mode.KEEP)] + [("fsync", mode) for mode in Mode],
    ids=lambda value: getattr(value, "value", value),
)
async def test_copies_keep_their_place_wherever_the_process_ends(
    durability: str, mode: Mode
) -> None:
    calls = await calls_of_a_life(durability)
    step = max(1, calls // count(90, calls))
    for crash_at in range(1, calls + 1, step):
        disk = FakeDisk()
        disk.crash_at = crash_at
        story, clock = Story(), ManualClock()
        with pytest.raises(Crashed):
            await live(RouterBench(disk, clock), story, durability)
        after = disk.after_crash(mode, seed=crash_at)
        where = f"crash at call {crash_at}: {disk.trace[-1]}"
        seen: list[Seen] = []
        for _ in range(2):  # a second start finds the same
            bench = RouterBench(after.copy(), clock)
            check(bench, story, where)
            seen.append([*bench.records("b")] if _has(bench, "b") else [])
        assert seen[0] == seen[1], where
        bench = RouterBench(after, clock)
        await check_caught_up(bench, story, where)
        bench.close()


def _has(bench: RouterBench, topic: str) -> bool:
    return topic in {stream.name for stream in bench.catalog.streams()}


async def test_a_crash_inside_recovery_changes_nothing() -> None:
    calls = await calls_of_a_life("fsync")
    for crash_at in range(1, calls + 1, max(1, calls // count(12, calls))):
        disk = FakeDisk()
        disk.crash_at = crash_at
        story, clock = Story(), ManualClock()
        with pytest.raises(Crashed):
            await live(RouterBench(disk, clock), story, "fsync")
        left = disk.after_crash(Mode.DROP, crash_at)
        clean = left.copy()
        RouterBench(clean, clock)
        for inner in range(1, clean.calls + 1):
            again = left.copy()
            again.crash_at = inner
            with pytest.raises(Crashed):
                RouterBench(again, clock)
            after = again.after_crash(Mode.DROP, inner)
            check(RouterBench(after, clock), story, f"crash at {crash_at}, then {inner}")


async def test_trimmed_files_of_a_source_stay_until_a_snapshot_has_the_copies() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await bench.topic("a", cap_records=8)
    await bench.topic("b")
    await bench.route("a", "b")
    for n in range(30):
        await bench.write("a", b"%d" % n)
    bench.checkpoint()  # the source is in its files, and nothing of it is copied yet
    await bench.read("b")
    for n in range(30, 60):
        await bench.write("a", b"%d" % n)
    bench.turn()
    source = f"/data/streams/{bench.stream('a').incarnation:016x}/"
    held = [path for path in disk.content() if path.startswith(source) and path.endswith(".data")]
    again = RouterBench(disk.after_crash(Mode.KEEP, 0))
    assert again.seen("b") == bench.seen("b")
    bench.checkpoint()
    bench.checkpoint()
    left = [path for path in disk.content() if path.startswith(source) and path.endswith(".data")]
    assert len(left) < len(held)
    assert RouterBench(disk.after_crash(Mode.KEEP, 0)).seen("b") == bench.seen("b")
