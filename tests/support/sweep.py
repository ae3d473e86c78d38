"""A model of what a store was asked for and answered, and what must hold of it after a crash."""

from dataclasses import dataclass, field, replace
from typing import Any

from millstream.store.log.log import Durability
from millstream.store.options import StoreOptions
from support.fake_disk import FakeDisk, Mode
from support.store_bench import SMALL, Answer, Bench, image, records

FSYNC, DISK = 1, 2


@dataclass
class Sent:
    """What a workload asked for, and which answers it got."""

    batches: list[tuple[int, int | list[int], list[bytes], Answer]] = field(default_factory=list)
    deletes: list[tuple[int, list[int], Answer]] = field(default_factory=list)
    erases: list[tuple[int, list[int], Answer]] = field(default_factory=list)
    trims: list[tuple[int, int]] = field(default_factory=list)
    controls: list[tuple[bytes, Answer]] = field(default_factory=list)
    classes: dict[int, Durability] = field(default_factory=dict)
    drops: dict[int, Answer] = field(default_factory=dict)
    synced: dict[int, int] = field(default_factory=dict)  # what the log said was stable
    floors: dict[int, tuple[int, int]] = field(default_factory=dict)  # once stable: kept, evicted

    def removed(self, log_id: int) -> set[int]:
        """Return what may be missing because its removal was asked for."""
        gone = {s for owner, seqs, _ in self.deletes if owner == log_id for s in seqs}
        for owner, first_kept in self.trims:
            if owner == log_id:
                gone |= set(range(1, first_kept))
        return gone

    def surely_removed(self, log_id: int) -> set[int]:
        """Return what an acknowledged delete took away."""
        return {
            s for owner, seqs, a in self.deletes if owner == log_id and a == [None] for s in seqs
        }

    def acked(self, log_id: int) -> dict[int, bytes]:
        """Return the payloads of acknowledged records by sequence."""
        return {
            seq: payload
            for owner, first, payloads, a in self.batches
            if owner == log_id and a == [None]
            for seq, payload in placed(first, payloads)
        }

    def given(self, log_id: int) -> set[int]:
        """Return the sequences that the caller gave: it brings them again when they are lost."""
        return {
            seq
            for owner, seqs, _, _ in self.batches
            if owner == log_id and isinstance(seqs, list)
            for seq in seqs
        }

    def left_out(self, log_id: int) -> set[int]:
        """Return what acknowledged appends under given sequences left out between them."""
        return {
            seq
            for owner, seqs, _, a in self.batches
            if owner == log_id and a == [None] and isinstance(seqs, list)
            for seq in set(range(seqs[0], seqs[-1])).difference(seqs)
        }

    def keeps(self, log_id: int, mode: Mode) -> bool:
        """Say whether every ack of the log must hold: a disk ack may go with the power."""
        durability = self.classes[log_id]
        return durability is Durability.FSYNC or (mode in KILLED and durability is Durability.DISK)


KILLED = (Mode.KEEP, Mode.KILL)  # the process, not the machine


def placed(first: int | list[int], payloads: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the payloads with their sequences, given ones or those that follow ``first``."""
    seqs = first if isinstance(first, list) else range(first, first + len(payloads))
    return list(zip(seqs, payloads, strict=True))


def violations(sent: Sent, bench: Bench, mode: Mode) -> list[str]:
    """Return every promise that the recovered store breaks, in words."""
    wrong = _control_violations(sent, bench)
    for log_id in sent.classes:
        dropped = sent.drops.get(log_id)
        if dropped is None:
            wrong += _log_violations(sent, bench, mode, log_id)
        elif dropped == [None] and bench.store.log(log_id) is not None:
            wrong.append(f"log {log_id} was dropped and is back")
    return wrong


def _control_violations(sent: Sent, bench: Bench) -> list[str]:
    acked_bodies = {b for b, a in sent.controls if a == [None]}
    known = {c.body for c in bench.store.recovery.controls}
    known |= set(bench.store.recovery.sections.get("controls", b"").split(b"\n"))
    lost = acked_bodies - known
    return [f"acked controls lost: {lost}"] if lost else []


def _left_behind(sent: Sent, disk: FakeDisk) -> list[str]:
    """Return the erased records whose payload is still in a file that can be read as it is."""
    content = b"".join(disk.content().values())
    payloads = {
        (log_id, first[i] if isinstance(first, list) else first + i): payload
        for log_id, first, some, _ in sent.batches
        for i, payload in enumerate(some)
    }
    return [
        f"log {log_id} still has the erased {seq} on disk"
        for log_id, seqs, answer in sent.erases
        if answer == [None] and log_id not in sent.drops
        for seq in seqs
        if payloads.get((log_id, seq), b"absent") in content
    ]


def _log_violations(sent: Sent, bench: Bench, mode: Mode, log_id: int) -> list[str]:
    log = bench.store.log(log_id)
    if log is None:
        return [f"log {log_id} is gone"] if sent.acked(log_id) and sent.keeps(log_id, mode) else []
    found = {r[0]: r[3] for r in records(log)}
    lost = {s for g in log.gaps for s in range(g.first, g.last + 1)}
    removed = sent.removed(log_id)
    acked = sent.acked(log_id)
    if not sent.keeps(log_id, mode):
        loose = {s for s in sent.given(log_id) if s > sent.synced.get(log_id, 0)}
        acked = {seq: payload for seq, payload in acked.items() if seq not in loose}
    missing = acked.keys() - found.keys() - removed
    stable = {s for s in acked if s <= sent.synced.get(log_id, 0)}
    if sent.classes[log_id] is Durability.MEMORY:
        missing, acked = set(), {}  # answered before it is written: may go with the process
    keeps = sent.keeps(log_id, mode)
    rotten = [gap for gap in log.gaps if gap.reason == "corruption" and acked]
    torn = [gap for gap in log.gaps if gap.reason == "torn" and mode in KILLED and acked]
    kept_floor, evict_floor = sent.floors.get(log_id, (0, 0))
    tests = {
        f"counts {log.count}, holds {len(found)}": log.count != len(found),
        f"names lost what it holds {lost & found.keys()}": lost & found.keys(),
        f"deleted came back {sent.surely_removed(log_id) & found.keys()}": keeps
        and sent.surely_removed(log_id) & found.keys(),
        f"calls damaged what no bit flip touched {rotten}": rotten,
        f"calls lost what nobody was told of {torn}": torn,
        f"lost acked {missing}": keeps and missing,
        f"lost {missing & stable} below its synced mark": missing & stable,
        f"lost silently {missing - lost}": missing - lost,
        f"calls lost what was left out {lost & sent.left_out(log_id)}": keeps
        and lost & sent.left_out(log_id),
        f"would give {log.next_seq} again": acked and log.next_seq <= max(acked),
        f"floor fell to {log.first_kept} from {kept_floor}": log.first_kept < kept_floor,
        f"eviction floor fell to {log.evict_floor}": log.evict_floor < evict_floor,
    }
    wrong = [f"log {log_id} {what}" for what, happened in tests.items() if happened]
    return wrong + _content_violations(sent, log_id, found, removed)


def _content_violations(
    sent: Sent, log_id: int, found: dict[int, bytes], removed: set[int]
) -> list[str]:
    wrong = []
    submitted = set()
    memory = sent.classes[log_id] is Durability.MEMORY
    acked = {} if memory else sent.acked(log_id)
    for owner, first, payloads, _ in sent.batches:
        if owner != log_id:
            continue
        pairs = set(placed(first, payloads))
        submitted |= pairs
        whole = {pair for pair in pairs if pair[0] not in removed}
        if whole & found.items() not in (set(), whole):
            wrong.append(f"log {log_id} tore the batch at {first}")
    for seq, payload in found.items():
        if (seq, payload) not in submitted or acked.get(seq, payload) != payload:
            wrong.append(f"log {log_id} fabricated {seq}")
    return wrong


def check_recovery(
    disk: FakeDisk, sent: Sent, mode: Mode, options: StoreOptions = SMALL
) -> list[str]:
    """Recover twice, write, recover again after a power cut; return what is wrong."""
    first = Bench(disk, options)
    first.run()
    wrong = violations(sent, first, mode) + _left_behind(sent, disk)
    before = image(first.store)
    again = disk.after_crash(Mode.KEEP, 0)
    if options.shards > 1:  # the number of shards may be another with each start
        options = replace(options, shards=options.shards % 3 + 1)
    second = Bench(again, options)
    if image(second.store) != before:
        wrong.append(f"second recovery differs: {differences(image(second.store), before)}")
    log_id = next(i for i in (FSYNC, *range(90, 99)) if i not in sent.drops)
    log = second.store.create_log(log_id, Durability.FSYNC)
    seq, answer = second.append(log, [b"new"])
    second.run()
    if answer != [None]:
        wrong.append(f"not writable: {answer}")
    before = image(second.store)
    third = image(Bench(again.after_crash(Mode.DROP, 0), options).store)
    if third[log_id] != before[log_id] or third[log_id][1][-1][0] != seq:
        wrong.append(f"an ack after the recovery did not hold: {differences(third, before)}")
    for other, (_, held) in before.items():
        if sent.classes.get(other) is Durability.MEMORY:
            continue
        if third.get(other, (None, []))[1] != held:
            wrong.append(f"what a recovery kept is gone: {differences(third, before)}")
    return wrong


def differences(one: dict[int, Any], two: dict[int, Any]) -> list[str]:
    """Say where two images differ, in few words."""
    found = [f"logs {one.keys() ^ two.keys()}"] if one.keys() != two.keys() else []
    for log_id in one.keys() & two.keys():
        (a, held), (b, other) = one[log_id], two[log_id]
        found += [
            f"log {log_id}: {name} {getattr(a, name)} is not {getattr(b, name)}"
            for name in a.__slots__
            if getattr(a, name) != getattr(b, name)
        ]
        if held != other:
            seqs = {r[0] for r in held} ^ {r[0] for r in other}
            found.append(f"log {log_id}: records {seqs or 'have other content'}")
    return found
