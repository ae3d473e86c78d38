"""Whole pages damaged: cut off, zeroed, swapped, stale or written twice. What they held is lost,
by name, and nothing else; nothing is served wrong."""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from test_bit_flips import filled, lost, read_all

from millstream.kernel._frames import MORE, RECORD, scan
from millstream.store.options import StoreOptions
from millstream.store.upkeep.inspect import DAMAGED, check_directory
from millstream.store.wal.entry import scan_entries
from millstream.store.wal.local_engine import HEADER
from support.fake_disk import FakeDisk, Mode, Node
from support.scale import count
from support.store_bench import PROMISING, SMALL, Bench, image

PAGE = 512
Ranges = list[tuple[int, int]]
Damage = Callable[[Node, random.Random, bytes], Ranges]


class Damaged(NamedTuple):
    """A disk with a damaged page, and how the file was before."""

    disk: FakeDisk
    path: str
    before: bytes
    ranges: Ranges


def pages(node: Node) -> list[int]:
    used = len(bytes(node.data).rstrip(b"\0"))
    return list(range(0, max(used, 1), PAGE))


def overwrite(node: Node, at: int, data: bytes) -> tuple[int, int]:
    end = min(at + len(data), len(node.data))
    node.data[at:end] = data[: end - at]
    return at, end


def cut(node: Node, rng: random.Random, older: bytes) -> Ranges:
    at = rng.randrange(len(bytes(node.data).rstrip(b"\0")) + 1)
    size = len(node.data)
    del node.data[at:]
    return [(at, size)]


def zero(node: Node, rng: random.Random, older: bytes) -> Ranges:
    return [overwrite(node, rng.choice(pages(node)), bytes(PAGE))]


def garble(node: Node, rng: random.Random, older: bytes) -> Ranges:
    return [overwrite(node, rng.choice(pages(node)), rng.randbytes(rng.randint(1, PAGE)))]


def swap(node: Node, rng: random.Random, older: bytes) -> Ranges:
    content = {at: bytes(node.data[at : at + PAGE]) for at in pages(node)}
    pairs = [
        (a, b)
        for a in content
        for b in content
        if a < b and len(content[a]) == len(content[b]) and content[a] != content[b]
    ]
    if not pairs:
        return []
    one, two = rng.choice(pairs)
    return [overwrite(node, one, content[two]), overwrite(node, two, content[one])]


def twice(node: Node, rng: random.Random, older: bytes) -> Ranges:
    one, two = rng.choice(pages(node)), rng.choice(pages(node))
    return [overwrite(node, two, bytes(node.data[one : one + PAGE]))]


def stale(node: Node, rng: random.Random, older: bytes) -> Ranges:
    behind = [at for at in pages(node) if node.data[at : at + PAGE] != older[at : at + PAGE]]
    at = rng.choice(behind or [0])
    return [overwrite(node, at, older[at : at + PAGE].ljust(PAGE, b"\0"))]


KINDS: dict[str, Damage] = {
    "cut": cut,
    "zeroed": zero,
    "garbled": garble,
    "swapped": swap,
    "written twice": twice,
    "stale": stale,
}


def touched(data: bytes, ranges: Ranges) -> tuple[set[tuple[int, int]], bool]:
    """Return the records whose frames the damage meets, and whether it meets a control frame."""
    met = [f for f in scan(data)[0] if any(f[5] < b and f[5] + f[6] > a for a, b in ranges)]
    return {(f[2], f[3]) for f in met if f[0] == RECORD}, any(f[0] != RECORD for f in met)


def batch_of(data: bytes, log_id: int, seq: int) -> set[tuple[int, int]]:
    """Return the records of the batch that a record came in."""
    batch: set[tuple[int, int]] = set()
    for kind, flags, stream_id, number, *_ in scan(data)[0]:
        batch.add((stream_id, number))
        if kind == RECORD and not flags & MORE:
            if (log_id, seq) in batch:
                return batch
            batch = set()
    return batch


def judge(
    clean: Any, bench: Bench, path: str, before: bytes, ranges: Ranges, newest_wal: str
) -> tuple[list[str], set[tuple[int, int]]]:
    """Return what is wrong, and what went without its sequence being named."""
    found, named = read_all(bench), lost(bench)
    missing = {(i, s) for i in clean for s in clean[i].keys() - found[i].keys()}
    met, control = touched(before, ranges)
    if path == newest_wal:  # a damaged tail is taken for a torn one: a batch goes as a whole
        met = {(i, s) for i, s in missing if met & batch_of(before, i, s)}
    wrong = []
    for i in found:
        for seq, record in found[i].items():
            if clean[i].get(seq) != record and not (seq not in clean[i] and control):
                wrong.append(f"log {i} serves {seq} wrong")
    beside = missing - met
    if path == newest_wal:
        beside -= named  # above the durable mark only what is surely whole is kept
    if beside:
        wrong.append(f"lost {beside} that the damage did not meet")
    return wrong, missing - named


def damages(kind: str, checkpoints: int, wanted: int, options: StoreOptions) -> Iterator[Damaged]:
    """Yield disks on which a page is not what it was."""
    disk = filled(checkpoints, options)
    older = filled(max(checkpoints - 1, 0), options).content()
    rng = random.Random(f"{kind} {checkpoints}")
    paths = [p for p, data in disk.content().items() if any(data)]
    for _ in range(20 * wanted):
        path = rng.choice(paths)
        damaged = disk.copy()
        node = damaged.names[path]
        assert node is not None
        before = bytes(node.data)
        ranges = KINDS[kind](node, rng, older.get(path, b""))
        node.sync()
        if bytes(node.data) != before:
            yield Damaged(damaged, path, before, ranges)
            wanted -= 1
        if not wanted:
            return


@pytest.mark.parametrize("options", [SMALL, PROMISING], ids=["plain", "promising"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_damaged_page_costs_what_it_held_and_says_so(kind: str, options: StoreOptions) -> None:
    fired = cost = 0
    for checkpoints in (0, 1, 2):
        content = filled(checkpoints, options).content()
        clean = read_all(Bench(filled(checkpoints, options), options))
        newest = max(p for p in content if "/wal-" in p and any(content[p]))
        for disk, path, before, ranges in damages(kind, checkpoints, count(40, 600), options):
            fired += 1
            where = (kind, checkpoints, path, ranges)
            bench = Bench(disk, options)
            wrong, silent = judge(clean, bench, path, before, ranges, newest)
            assert not wrong, (where, wrong)
            assert not silent, (where, silent)
            cost += read_all(bench) != clean
            second = Bench(disk.after_crash(Mode.KEEP, 0), options)
            assert image(second.store) == image(bench.store), where
    print(f"pages {kind}: damaged {fired}, records lost in {cost}, lost without a name 0")
    assert fired >= 2 * count(40, 600)  # without a checkpoint there is nothing older
    assert cost >= (0 if kind == "stale" else fired // 50)


def test_a_cut_wal_file_is_damage_for_fsck_and_no_torn_tail() -> None:
    disk = filled(0)
    content = disk.content()
    newest = max(p for p in content if "/wal-" in p and any(content[p]))
    node = disk.names[newest]
    assert node is not None
    entry = next(e for e in scan_entries(memoryview(bytes(node.data)), HEADER.size, 0))
    del node.data[entry.end - 10 :]
    node.sync()
    assert check_directory("/data", disk).status == DAMAGED
    bench = Bench(disk)
    assert bench.store.recovery.damaged_bytes
    assert lost(bench)
