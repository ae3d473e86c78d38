"""Whole pages damaged: cut off, zeroed, swapped, stale or written twice. What they held is lost,
by name, and nothing else; nothing is served wrong."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from test_bit_flips import filled, lost, read_all

from millstream.errors import StorageUnusable
from millstream.kernel._frames import MORE, RECORD, scan
from support.fake_disk import Mode, Node
from support.scale import count
from support.store_bench import Bench, image

PAGE = 512
Ranges = list[tuple[int, int]]
Damage = Callable[[Node, random.Random, bytes], Ranges]


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
    behind = pages(node)[1:] or [0]  # a header in another place is more than one page's damage
    one, two = rng.choice(behind), rng.choice(behind)
    first, second = bytes(node.data[one : one + PAGE]), bytes(node.data[two : two + PAGE])
    if len(first) != len(second):
        return []
    return [overwrite(node, one, second), overwrite(node, two, first)]


def twice(node: Node, rng: random.Random, older: bytes) -> Ranges:
    one, two = rng.choice(pages(node)), rng.choice(pages(node))
    return [overwrite(node, two, bytes(node.data[one : one + PAGE]))]


def stale(node: Node, rng: random.Random, older: bytes) -> Ranges:
    at = rng.choice(pages(node))
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
) -> tuple[list[str], bool]:
    """Return what is wrong, and whether a tail went that nobody can tell from unused space."""
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
    silent = missing - named
    if silent and path != newest_wal:
        wrong.append(f"lost {silent} silently")
    return wrong, bool(silent)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_damaged_page_costs_what_it_held_and_says_so(kind: str) -> None:
    tried = fired = tails = 0
    for checkpoints in (0, 1, 2):
        disk = filled(checkpoints)
        older = filled(max(checkpoints - 1, 0)).content()
        clean = read_all(Bench(disk.copy()))
        newest = max(p for p in disk.content() if "/wal-" in p and any(disk.content()[p]))
        rng = random.Random(f"{kind} {checkpoints}")
        paths = [p for p, data in disk.content().items() if any(data)]
        if kind == "swapped":  # there it may pass for a torn tail, which is not told apart yet
            paths.remove(newest)
        for _ in range(count(30, 500)):
            path = rng.choice(paths)
            damaged = disk.copy()
            node = damaged.names[path]
            assert node is not None
            before = bytes(node.data)
            ranges = KINDS[kind](node, rng, older.get(path, b""))
            node.sync()
            tried += 1
            where = (kind, checkpoints, path, ranges)
            try:
                bench = Bench(damaged)
            except StorageUnusable as error:
                raise AssertionError(where) from error
            wrong, tail = judge(clean, bench, path, before, ranges, newest)
            assert not wrong, (where, wrong)
            fired += bytes(node.data) != before
            tails += tail
            second = Bench(damaged.after_crash(Mode.KEEP, 0))
            assert image(second.store) == image(bench.store), where
    print(f"pages {kind}: tried {tried}, changed {fired}, of them ambiguous tails {tails}")
    assert fired > tried // 20
    assert tails < tried // 4
