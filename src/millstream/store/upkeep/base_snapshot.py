"""A snapshot for a directory that no start can use, made of what is still there.

A start needs a snapshot that ends where the WAL begins. Where there is none, because snapshots are
damaged or WAL files are gone, the newest one that can be read or mended is carried on: segment
files tell which records there are, and the oldest WAL file from where on it tells the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.kernel._frames import RECORD, scan
from millstream.store.cold.copy import SUFFIX
from millstream.store.disk import blocks
from millstream.store.disk.files import Files
from millstream.store.disk.keys import ID_BYTES, KeyRing
from millstream.store.disk.seq_ranges import SeqRanges
from millstream.store.log.log import Durability
from millstream.store.log.snapshot import (
    HEADER,
    HEADER_CHECKED,
    LogSnapshot,
    SegmentState,
    Snapshot,
    decode_snapshot,
    snapshot_name,
    snapshot_numbers,
)
from millstream.store.recovery.shard_wal import has_counted
from millstream.store.segments.files import (
    HEADER_BYTES,
    binding,
    holds_blocks,
    read_data_header,
    segment_name,
)
from millstream.store.shard import shards_on_disk
from millstream.store.wal.entry import first_entry
from millstream.store.wal.local_engine import HEADER as WAL_HEADER
from millstream.store.wal.local_engine import decode_header, shard_directory, wal_indexes, wal_name

MOST_MENDED = 64 << 10  # a longer snapshot has too many bits to try each


@dataclass(slots=True)
class BaseSnapshot:
    """The snapshot to start from, and what people must know about it."""

    snapshot: Snapshot
    notes: list[str] = field(default_factory=list)
    is_new: bool = False  # no file holds it yet
    lacks_names: bool = False  # streams may have been created that it knows nothing of


@dataclass(frozen=True, slots=True)
class _Found:
    """A segment file as it lies there."""

    state: SegmentState
    last_seq: int
    last_ts_ns: int
    deleted: tuple[int, ...] = ()  # by the flags of its frames


def lay_foundation(files: Files, directory: str, ring: KeyRing) -> BaseSnapshot:
    """Return the snapshot from which a start can go on; raises for what a newer program wrote."""
    made = _best(files, f"{directory}/meta", ring)
    starts = dict(_wal_starts(files, directory, ring))
    known = made.snapshot.positions
    late = {shard: at for shard, at in starts.items() if at > known.get(shard, 0) + 1}
    is_gone = 0 not in starts and _had_wal(files, directory, made.snapshot)
    if not late and not is_gone:
        return made
    if is_gone:
        made.notes.append(
            f"{shard_directory(directory, 0)} has no WAL: what only it told is lost, such as the "
            "newest records and changes to streams and consumers; segment files tell the rest"
        )
    for shard, at in sorted(late.items()):
        made.notes.append(
            f"{shard_directory(directory, shard)} begins at position {at}: what only positions "
            f"{known.get(shard, 0) + 1} to {at - 1} told is lost, such as changes to streams and "
            "consumers; records are taken from segment files"
        )
    positions = known | {shard: at - 1 for shard, at in late.items()}
    made.snapshot = _carried_on(files, directory, ring, made.snapshot, positions)
    made.is_new = made.lacks_names = True
    return made


def missing_wal(files: Files, directory: str, ring: KeyRing) -> str:
    """Return where WAL files were and are no more, nothing when all is well."""
    starts = dict(_wal_starts(files, directory, ring))
    snapshot = _best(files, f"{directory}/meta", ring).snapshot
    if 0 not in starts and _had_wal(files, directory, snapshot):
        return shard_directory(directory, 0)
    return ""


def _had_wal(files: Files, directory: str, snapshot: Snapshot) -> bool:
    """Say whether anything was ever written: the newest WAL file of shard 0 is always kept."""
    streams = f"{directory}/streams"
    return snapshot.position > 0 or bool(files.exists(streams) and files.listdir(streams))


def _best(files: Files, meta: str, ring: KeyRing) -> BaseSnapshot:
    """Return the newest snapshot that is sound, else the newest that can be mended, else none."""
    numbers = snapshot_numbers(files, meta)[::-1]
    damaged: list[tuple[str, bytes]] = []
    for number in numbers:
        path = f"{meta}/{snapshot_name(number)}"
        data = _content(files, path)
        snapshot = decode_snapshot(data, path, ring)
        if snapshot is not None:
            return BaseSnapshot(snapshot)
        damaged.append((path, data))
    for path, data in damaged:
        whole = mended(data)
        snapshot = decode_snapshot(whole, path, ring) if whole else None
        if snapshot is not None:
            note = f"{path} has one wrong bit, which is put right"
            return BaseSnapshot(snapshot, [note], is_new=True)
    nothing = Snapshot(max(numbers, default=0), 0, 0, [], [], {})
    return BaseSnapshot(nothing, ["no snapshot can be read"] if numbers else [])


def mended(data: bytes) -> bytes | None:
    """Return a snapshot's bytes with the one bit turned that makes its checksum right."""
    if not HEADER.size <= len(data) <= MOST_MENDED:
        return None
    check = int.from_bytes(data[HEADER_CHECKED : HEADER.size], "little")
    trial = bytearray(data[:HEADER_CHECKED] + data[HEADER.size :])
    right = xxh3_64_intdigest(trial)
    if (right ^ check).bit_count() == 1:
        return data[:HEADER_CHECKED] + right.to_bytes(8, "little") + data[HEADER.size :]
    for at in range(len(trial)):
        for bit in range(8):
            trial[at] ^= 1 << bit
            if xxh3_64_intdigest(trial) == check:
                found = bytes(trial)
                middle = data[HEADER_CHECKED : HEADER.size]
                return found[:HEADER_CHECKED] + middle + found[HEADER_CHECKED:]
            trial[at] ^= 1 << bit
    return None


def _wal_starts(files: Files, directory: str, ring: KeyRing) -> Iterator[tuple[int, int]]:
    """Yield (shard, first position that its files tell) of shards that have files."""
    for shard in shards_on_disk(files, directory):
        place = shard_directory(directory, shard)
        found = (_first_position(files, place, index, ring) for index in wal_indexes(files, place))
        first = next((position for position in found if position), 0)
        if first:
            yield shard, first


def _first_position(files: Files, place: str, index: int, ring: KeyRing) -> int:
    """Return where a WAL file begins, 0 when it never counted; its entries tell when they must."""
    path = f"{place}/{wal_name(index)}"
    file = files.open(path)
    try:
        data = file.pread(WAL_HEADER.size, 0)
        header = decode_header(data, path)
        if header is not None:
            ring.require(header.key_id.to_bytes(ID_BYTES, "little"), path)
            return header.first_position
        if not any(data) and not has_counted(file):
            return 0
        entry = first_entry(file.view(file.size()), 0)
    finally:
        file.close()
    return 0 if entry is None else 1 if index == 1 else entry.position


def _carried_on(
    files: Files, directory: str, ring: KeyRing, base: Snapshot, positions: dict[int, int]
) -> Snapshot:
    known = {each.log_id: each for each in base.logs}
    streams = f"{directory}/streams"
    names = files.listdir(streams) if files.exists(streams) else []
    on_disk = {int(name, 16) for name in names if len(name) == 16}
    logs = [
        _log(files, f"{streams}/{log_id:016x}", log_id, known.get(log_id), ring)
        for log_id in sorted((known.keys() | on_disk) - set(base.dropped))
    ]
    further = {shard: at for shard, at in positions.items() if shard}
    return msgspec.structs.replace(
        base, number=base.number + 1, position=positions.get(0, 0), logs=logs, further=further
    )


def _log(
    files: Files, directory: str, log_id: int, known: LogSnapshot | None, ring: KeyRing
) -> LogSnapshot:
    """Return a log as its files and the older snapshot tell it."""
    names = files.listdir(directory) if files.exists(directory) else []
    named = {state.base_seq: state for state in known.segments} if known else {}
    newest = max(named, default=0)
    found: list[_Found] = []
    for base in sorted(int(n[4:24]) for n in names if n.startswith("seg-") and n.endswith(".data")):
        if known is None or base >= newest:
            each = _segment(files, directory, log_id, base, names, ring)
            found += [each] if each.last_seq >= base else []
    cold = [int(n[4:24]) for n in names if n.startswith("seg-") and n.endswith(SUFFIX)]
    if known is None:
        first = min([each.state.base_seq for each in found] + cold, default=1)
        known = LogSnapshot(
            log_id, Durability.FSYNC.value, first, first - 1, first - 1, 0, 0, [], [], []
        )
    states = named | {each.state.base_seq: each.state for each in found}
    last = max((each.last_seq for each in found), default=0)
    ts_ns = max((each.last_ts_ns for each in found), default=0)
    deleted = SeqRanges(known.deleted)
    for seq in (seq for each in found for seq in each.deleted):
        deleted.add(seq, seq)
    return msgspec.structs.replace(
        known,
        deleted=list(deleted),
        committed_seq=max(known.committed_seq, last),
        last_ts_ns=max(known.last_ts_ns, ts_ns),
        gaps=[*known.gaps, *_gaps(known, found, cold)],
        segments=[states[base] for base in sorted(states)],
    )


def _gaps(known: LogSnapshot, found: list[_Found], cold: list[int]) -> list[tuple[int, int, str]]:
    """Return what no file holds between those that there are."""
    there = SeqRanges()
    there.add(1, max(known.committed_seq, known.first_kept - 1))
    for first, last in known.deleted:
        there.add(first, last)
    for each in found:
        there.add(each.state.base_seq, each.last_seq)
    last = max((each.last_seq for each in found), default=0)
    if cold:  # their own indexes tell what they hold
        there.add(1, max(cold))
    return [(a, b, "corruption") for a, b in there.missing(1, last)]


def _segment(
    files: Files, directory: str, log_id: int, base: int, names: list[str], ring: KeyRing
) -> _Found:
    name = segment_name(base)
    path = f"{directory}/{name}.data"
    bound = binding(log_id, base)
    data = _content(files, path)
    image = memoryview(data)
    head = read_data_header(data[:HEADER_BYTES], log_id, base, path)
    if head.in_blocks if head else holds_blocks(image, bound):
        if head is not None:
            ring.require(head.key_id, path)
        refs, _ = blocks.find_blocks(image, HEADER_BYTES, len(image), bound)
        image, _ = blocks.plain_image(image, refs, bound, ring)
    frames, _ = scan(image, HEADER_BYTES, len(image))
    mine = [f for f in frames if f[0] == RECORD and f[2] == log_id]
    if not mine:
        return _Found(SegmentState(base, HEADER_BYTES, False), base - 1, 0)
    end = max(f[5] + f[6] for f in mine)
    sealed = f"{name}.idx" in names
    return _Found(
        SegmentState(base, end, sealed),
        max(f[3] for f in mine),
        max(f[4] for f in mine),
        tuple(f[3] for f in mine if f[7]),
    )


def _content(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
