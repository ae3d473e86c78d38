"""Whatever kind of file is damaged, fsck names it and the place; dump goes on around it."""

import pytest
from test_bit_flips import FSYNC, filled

from millstream.store.log.log import Durability
from millstream.store.upkeep.dump import CONTROLS, dump_directory
from millstream.store.upkeep.inspect import DAMAGED, check_directory
from support.fake_disk import FakeDisk, Mode
from support.store_bench import COMPRESSED, SEALED, Bench

NEWEST_WAL = "/data/wal/shard-00/wal-0000000000000002.log"
LONE_WAL = "/data/wal/shard-00/wal-0000000000000001.log"
SEGMENT = "/data/streams/0000000000000001/seg-00000000000000000001.data"
INDEX = SEGMENT.replace(".data", ".idx")
SNAPSHOT = "/data/meta/snapshot-0000000000000002.bin"


def spoil(disk: FakeDisk, path: str, offset: int, size: int = 1) -> None:
    node = disk.names[path]
    assert node is not None
    for at in range(offset, offset + size):
        node.data[at] ^= 0x55
    node.sync()


def in_blocks(form: str) -> FakeDisk:
    disk = FakeDisk()
    bench = Bench(disk, SEALED if form == "sealed" else COMPRESSED)
    log = bench.store.create_log(FSYNC, Durability.FSYNC, compressed=form == "compressed")
    for step in range(8):
        bench.append(log, [b"%d %d" % (step, i) + b"z" * 40 for i in range(4)])
        bench.run()
        if step in (2, 5):
            bench.store.checkpoint({})
            bench.run()
    bench.store.mark()
    return disk.after_crash(Mode.KEEP, 0)


@pytest.mark.parametrize(
    ("path", "offset", "size", "said"),
    [
        (NEWEST_WAL, 0, 8, f"damaged wal header file={NEWEST_WAL} offset=0"),
        (LONE_WAL, 64, 8, f"damaged wal file={LONE_WAL} offset=64"),
        (SEGMENT, 0, 8, f"damaged segment header file={SEGMENT} offset=0"),
        (SEGMENT, 64 + 60, 1, f"damaged records file={SEGMENT} offset=64 seq=1-1"),
        (INDEX, 70, 1, f"damaged index, rebuilding it file={INDEX} offset=0"),
        (SNAPSHOT, 40, 1, f"damaged snapshot, using an older one file={SNAPSHOT} offset=0"),
    ],
    ids=["wal header", "wal entry", "segment header", "record", "index", "snapshot"],
)
def test_fsck_names_file_and_offset_of_each_kind_of_damage(
    path: str, offset: int, size: int, said: str
) -> None:
    disk = filled(0 if path == LONE_WAL else 2)  # what snapshots cover is not read again
    spoil(disk, path, offset, size)
    report = check_directory("/data", disk)
    assert report.status == DAMAGED
    assert any(line.startswith(said) for line in report.findings), report.findings
    damage = [i for i in dump_directory("/data", disk) if i["kind"] == "damage"]
    assert path in {item["file"] for item in damage}


@pytest.mark.parametrize("form", ["compressed", "sealed"])
def test_fsck_names_the_block_that_is_damaged(form: str) -> None:
    disk = in_blocks(form)
    spoil(disk, SEGMENT, 64 + 64 + 5)
    ring = SEALED.ring if form == "sealed" else None
    report = check_directory("/data", disk, ring)
    assert report.status == DAMAGED
    assert any(f"file={SEGMENT} offset=64" in line for line in report.findings), report.findings
    blocks = [i for i in dump_directory("/data", disk, ring) if i["kind"] == "block"]
    spoiled = [i for i in blocks if not i["sound"]]
    assert [(i["file"], i["offset"]) for i in spoiled] == [(SEGMENT, 64)]


def test_fsck_names_a_missing_segment_and_a_damaged_list_of_erases() -> None:
    disk = filled(2)
    disk.names.pop(SEGMENT)
    redo = "/data/meta/erase.redo"
    file = disk.open(redo, create=True)
    file.pwritev([b"MSTRRDO\0 and nothing that fits it"], 0)
    file.sync()
    disk.sync_dir("/data/meta")
    report = check_directory("/data", disk)
    assert report.status == DAMAGED
    assert f"segment file is missing file={SEGMENT} offset=0" in report.findings
    assert any(f"file={redo} offset=0" in line for line in report.findings)
    damage = [i["file"] for i in dump_directory("/data", disk) if i["kind"] == "damage"]
    assert redo in damage


def test_dump_shows_indexes_erases_and_what_every_control_frame_says() -> None:
    disk = filled(2)
    bench = Bench(disk)
    answers: list[object] = []
    for kind in sorted(CONTROLS.keys() - {17, 21, 22, 23, 24, 28, 30, 33}):
        bench.store.control(kind, FSYNC, b'{"kind":%d}' % kind, answers.append)
    log = bench.store.log(FSYNC)
    assert log is not None
    log.delete([5], answers.append)
    log.trim(4, "delete")
    bench.run()
    bench.store.mark()
    items = list(dump_directory("/data", disk))
    bodies = {i["name"]: i["body"] for i in items if i["kind"] == "control"}
    assert bodies["router set"] == {"kind": 31}
    assert bodies["trim"] == [4, "delete"]
    assert bodies["delete"] == [5]
    assert bodies["reserve"] > 0  # type: ignore[operator]
    assert "unknown" not in bodies
    index = next(i for i in items if i["kind"] == "index")
    assert (index["file"], index["entries"], index["last_seq"]) == (INDEX, 9, 9)
    logs = [i for i in items if i["kind"] == "log"]
    assert {i["log_id"] for i in logs} == {"0000000000000001", "0000000000000002"}


def test_dump_goes_on_behind_a_file_that_needs_a_key() -> None:
    disk = in_blocks("sealed")
    kinds = [item["kind"] for item in dump_directory("/data", disk)]
    assert "unreadable" in kinds
    assert "segment" in kinds
