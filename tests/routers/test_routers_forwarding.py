"""What routers copy, where to, and what it costs."""

import asyncio

import msgspec
import pytest
from router_bench import RouterBench

from millstream.errors import StreamNotFound
from millstream.kernel._frames import RECORD, scan
from millstream.routers.turns import MOST_ROUTERS
from millstream.store.log.derived import DERIVE
from millstream.store.log.log import Durability, Gap
from millstream.store.options import StoreOptions
from millstream.store.wal.entry import WalEntry, scan_entries
from millstream.store.wal.local_engine import HEADER
from support.fake_disk import FakeDisk, Mode

LARGE = StoreOptions(threads=False, nonce=7, wal_file_bytes=1 << 19)


def frames_of_wal(disk: FakeDisk) -> dict[int, int]:
    """Return how many frames of each kind the WAL holds; second copies are not counted."""
    found: dict[int, set[tuple[int, int]]] = {}
    for path, data in disk.content().items():
        if "/wal/" not in path:
            continue
        view = memoryview(data)
        for item in scan_entries(view, HEADER.size, 0):
            if isinstance(item, WalEntry):
                for kind, _, stream, number, *_ in scan(view, item.body, item.end)[0]:
                    found.setdefault(kind, set()).add((stream, number))
    return {kind: len(numbers) for kind, numbers in found.items()}


async def two_topics(**dest: object) -> RouterBench:
    bench = RouterBench(FakeDisk())
    await bench.topic("a")
    await bench.topic("b", **dest)
    return bench


async def test_a_copy_is_there_when_its_destination_is_read() -> None:
    bench = await two_topics()
    await bench.route("a", "b")
    await bench.write("a", b"1", b"2")
    assert await bench.read("b") == [(1, b"1"), (2, b"2")]


async def test_copies_come_by_themselves_too() -> None:
    bench = await two_topics()
    await bench.route("a", "b")
    await bench.write("a", b"1")
    bench.turn()
    assert bench.seen("b") == [(1, b"1")]


async def test_a_router_begins_at_the_head_of_its_source() -> None:
    bench = await two_topics()
    await bench.write("a", b"before")
    await bench.route("a", "b")
    await bench.write("a", b"after")
    assert await bench.read("b") == [(1, b"after")]


async def test_the_source_is_acknowledged_without_waiting_for_copies() -> None:
    bench = await two_topics()
    await bench.route("a", "b")
    await bench.write("a", b"1")
    assert bench.seen("b") == []


async def test_a_copy_carries_what_the_original_carries_under_its_own_topic() -> None:
    bench = await two_topics()
    await bench.route("a", "b")
    await bench.write("a", b"1", tag=b"t", node=b"n")
    await bench.read("b")
    _, _, subject, payload, _, tag, node, _ = bench.records("b")[0]
    assert (subject, payload, tag, node) == (b"b", b"1", b"t", b"n")


async def test_node_and_tag_are_left_out_where_they_are_not_to_be_kept() -> None:
    bench = await two_topics()
    await bench.route("a", "b", preserve_node=False, preserve_tag=False)
    await bench.write("a", b"1", tag=b"t", node=b"n")
    await bench.read("b")
    assert bench.records("b")[0][5:7] == (b"", b"")


async def test_only_tags_that_the_filter_takes_pass_and_untagged_records_never_do() -> None:
    bench = await two_topics()
    await bench.route("a", "b", tags="x*")
    await bench.write("a", b"1", tag=b"x1")
    await bench.write("a", b"2", tag=b"y")
    await bench.write("a", b"3")
    await bench.write("a", b"4", tag=b"x")
    assert await bench.read("b") == [(1, b"1"), (2, b"4")]
    assert bench.router().forwarded == 2


async def test_a_deleted_record_is_not_copied() -> None:
    bench = await two_topics()
    await bench.route("a", "b")
    await bench.write("a", b"1", b"2", b"3")
    await bench.drive(bench.stream("a").delete([2]))
    assert await bench.read("b") == [(1, b"1"), (2, b"3")]
    assert bench.router().cursor == 3


async def test_direct_writes_and_copies_share_one_order() -> None:
    bench = await two_topics()
    await bench.route("a", "b")
    await bench.write("a", b"1")
    await bench.read("b")
    assert await bench.write("b", b"direct") == 2
    await bench.write("a", b"2")
    assert await bench.read("b") == [(1, b"1"), (2, b"direct"), (3, b"2")]


async def test_a_full_destination_holds_its_router_up_until_it_has_room() -> None:
    bench = await two_topics(cap_records=2, discard="reject")
    await bench.route("a", "b")
    await bench.write("a", b"1", b"2", b"3", b"4")
    assert await bench.read("b") == [(1, b"1"), (2, b"2")]
    assert bench.router().cursor == 2
    await bench.drive(bench.stream("b").delete([1]))
    bench.turn()
    assert bench.seen("b") == [(2, b"2"), (3, b"3")]
    await bench.drive(bench.stream("b").delete([2, 3]))
    assert await bench.read("b") == [(4, b"4")]


async def test_a_full_destination_does_not_hold_up_another_one() -> None:
    bench = await two_topics(cap_records=1, discard="reject")
    await bench.topic("c")
    await bench.route("a", "b", "ab")
    await bench.route("a", "c", "ac")
    await bench.write("a", b"1", b"2", b"3")
    bench.turn()
    assert bench.seen("b") == [(1, b"1")]
    assert bench.seen("c") == [(1, b"1"), (2, b"2"), (3, b"3")]


async def test_what_the_source_lost_first_is_a_gap_in_the_destination() -> None:
    bench = RouterBench(FakeDisk())
    await bench.topic("a", cap_records=3)
    await bench.topic("b", cap_records=1, discard="reject")
    await bench.route("a", "b")
    await bench.write("a", b"1")
    await bench.read("b")
    for n in range(2, 8):
        await bench.write("a", b"%d" % n)
    bench.turn()
    assert bench.stream("a").state().first_seq == 5
    await bench.drive(bench.stream("b").delete([1]))
    bench.turn()
    state = bench.stream("b").state()
    assert Gap(2, 4, "source_trim") in state.gaps
    assert bench.seen("b") == [(5, b"5")]
    assert bench.router().forwarded == 5


async def test_a_chain_of_routers_carries_records_all_the_way() -> None:
    bench = await two_topics()
    await bench.topic("c")
    await bench.route("a", "b", "ab")
    await bench.route("b", "c", "bc")
    await bench.write("a", b"1", b"2")
    bench.turn()
    assert bench.seen("c") == [(1, b"1"), (2, b"2")]


async def test_records_go_round_an_allowed_cycle_for_eight_hops() -> None:
    bench = await two_topics()
    await bench.route("a", "b", "ab")
    await bench.route("b", "a", "ba", allow_cycle=True)
    await bench.write("a", b"1")
    bench.turn()
    assert (len(bench.seen("a")), len(bench.seen("b"))) == (5, 4)
    assert not bench.routers._turns.forwarder.hops[bench.stream("b").incarnation]


async def test_hops_count_on_after_a_restart() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await bench.topic("a")
    await bench.topic("b")
    await bench.route("a", "b", "ab")
    await bench.route("b", "a", "ba", allow_cycle=True)
    await bench.write("a", b"1")
    for _ in range(3):
        bench.timers.run_due()
        bench.bench.run()
    before = len(bench.seen("a")) + len(bench.seen("b"))
    assert 1 < before < 9
    again = RouterBench(disk.after_crash(Mode.KEEP, 0))
    again.turn()
    assert (len(again.seen("a")), len(again.seen("b"))) == (5, 4)


@pytest.mark.parametrize("fan_out", [1, 100, 1000])
async def test_a_source_append_is_one_record_frame_whatever_the_fan_out(fan_out: int) -> None:
    disk = FakeDisk()
    bench = RouterBench(disk, options=LARGE)
    await bench.topic("a", durability="disk")
    for n in range(fan_out):
        await bench.topic(f"d{n}", durability="disk")
        await bench.route("a", f"d{n}", f"r{n}")
    await bench.write("a", b"first")
    bench.turn()  # the destinations reserve their sequences once
    before = frames_of_wal(disk)
    await bench.write("a", b"second")
    bench.turn()
    after = frames_of_wal(disk)
    assert {kind: after[kind] - before.get(kind, 0) for kind in after} == {
        **dict.fromkeys(after, 0),
        RECORD: 1,
        DERIVE: -(-fan_out // MOST_ROUTERS),  # one for all routers of a turn
    }
    for n in range(fan_out):
        assert bench.seen(f"d{n}") == [(1, b"first"), (2, b"second")]


async def test_an_exactly_once_copy_says_where_it_comes_from() -> None:
    bench = await two_topics()
    await bench.route("a", "b", guarantee="exactly_once")
    await bench.write("a", b"1")
    await bench.read("b")
    source = bench.stream("a").incarnation
    assert msgspec.json.decode(bench.records("b")[0][7]) == {
        "_topics_router": {
            "idempotency_key": f"router:r:{source}:{source}:1",
            "router": "r",
            "source_topic": "a",
            "source_topic_id": source,
            "source_epoch": source,
            "source_seq": 1,
        }
    }


@pytest.mark.parametrize("source", ["ephemeral", "fsync"])
@pytest.mark.parametrize("dest", ["ephemeral", "memory", "disk"])
async def test_every_class_can_be_a_source_and_a_destination(source: str, dest: str) -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await bench.topic("a", durability=source)
    await bench.topic("b", durability=dest)
    await bench.route("a", "b")
    await bench.write("a", b"1")
    assert await bench.read("b") == [(1, b"1")]
    await bench.write("b", b"direct")
    await bench.write("a", b"2")
    assert await bench.read("b") == [(1, b"1"), (2, b"direct"), (3, b"2")]
    assert bench.router().forwarded == 2
    again = RouterBench(disk.after_crash(Mode.KEEP, 0))
    kept = dest != Durability.EPHEMERAL
    assert again.seen("b") == ([(1, b"1"), (2, b"direct"), (3, b"2")] if kept else [])
    await again.write("a", b"3")
    assert (await again.read("b"))[-1][1] == b"3"
    assert len(again.seen("b")) == (4 if kept else 1)


async def test_a_router_goes_with_either_of_its_topics() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    for name in ("a", "b", "c"):
        await bench.topic(name)
    await bench.route("a", "b", "ab")
    await bench.route("b", "c", "bc")
    await bench.write("a", b"1")
    bench.turn()
    await bench.drive(bench.catalog.delete("b"))
    assert len(bench.routers) == 0
    again = RouterBench(disk.after_crash(Mode.KEEP, 0))
    assert len(again.routers) == 0
    with pytest.raises(StreamNotFound):
        again.stream("b")
    assert again.seen("c") == [(1, b"1")]


async def test_a_change_keeps_the_place_and_the_total() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await bench.topic("a")
    await bench.topic("b")
    await bench.route("a", "b")
    await bench.write("a", b"1", tag=b"x")
    await bench.read("b")
    await bench.route("a", "b", tags="y")
    await bench.write("a", b"2", tag=b"x")
    await bench.write("a", b"3", tag=b"y")
    assert await bench.read("b") == [(1, b"1"), (2, b"3")]
    for started in (bench, RouterBench(disk.after_crash(Mode.KEEP, 0))):
        assert started.router().forwarded == 2
        assert started.router().definition.version == 2


async def test_copies_that_were_seen_while_their_source_was_deleted_outlive_a_crash() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await bench.topic("a")
    await bench.topic("b")
    await bench.route("a", "b")
    await bench.write("a", b"1", b"2")
    deleting = asyncio.ensure_future(bench.catalog.delete("a"))
    await asyncio.sleep(0)  # its frame is on its way to the disk
    seen = await bench.read("b")
    await bench.drive(asyncio.wait_for(deleting, 5))
    bench.turn()
    for started in (bench, RouterBench(disk.after_crash(Mode.KEEP, 0))):
        assert started.seen("b") == seen
        assert started.stream("b").state().gaps == ()


async def test_a_deleted_router_stays_deleted_and_its_copies_stay() -> None:
    disk = FakeDisk()
    bench = RouterBench(disk)
    await bench.topic("a")
    await bench.topic("b")
    await bench.route("a", "b")
    await bench.write("a", b"1")
    await bench.read("b")
    assert await bench.drive(bench.routers.delete("r", "$G"))
    assert not await bench.drive(bench.routers.delete("r", "$G"))
    await bench.write("a", b"2")
    for started in (bench, RouterBench(disk.after_crash(Mode.KEEP, 0))):
        started.turn()
        assert started.seen("b") == [(1, b"1")]
        assert len(started.routers) == 0
