"""Snapshots: the store's small state as of one WAL position, two kept.

    meta/snapshot-<16 digits>.bin
    0 8s "MSTRSNP\\0"   8 u32 version   12 u32 flags (1 = SEALED)   16 u64 body bytes
   24 u64 XXH3-64 of bytes 0..24 and the body
   32 body: MessagePack; a SEALED one is cipher (1), key id (8), nonce (24) and sealed bytes

Records are not in it: they are in segment files, synced before the snapshot is written.
"""

import logging
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_64_intdigest

from millstream.errors import StorageUnusable
from millstream.store.disk.files import Files, ensure_dir, replace_file
from millstream.store.disk.keys import KeyRing
from millstream.store.segments.files import HEADER_BYTES

if TYPE_CHECKING:
    from millstream.store.log.file_log import FileLog

VERSION = 1
SEALED_VERSION = 2
SEALED = 1
MAGIC = b"MSTRSNP\0"
HEADER = struct.Struct("<8sIIQQ")
HEADER_CHECKED = 24
KEPT = 2
BOUND = b"millstream snapshot"

log = logging.getLogger(__name__)


class SegmentState(msgspec.Struct, frozen=True, array_like=True):
    """A segment whose first ``size`` bytes are on stable storage."""

    base_seq: int
    size: int
    sealed: bool


class LogSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One log's floors and files."""

    log_id: int
    durability: str
    first_kept: int
    evict_floor: int
    committed_seq: int
    reserved_seq: int
    last_ts_ns: int
    gaps: list[tuple[int, int, str]]
    deleted: list[tuple[int, int]]
    segments: list[SegmentState]
    floors: dict[str, int] = {}
    erasing: list[int] = []  # deleted, and their bytes not yet overwritten

    @classmethod
    def of(cls, log: "FileLog", flushes: Mapping[int, int]) -> "LogSnapshot":
        """Describe a log now; ``flushes`` says how far each growing file will reach."""
        return cls(
            log_id=log.log_id,
            durability=log.durability.value,
            first_kept=log.first_kept,
            evict_floor=log.evict_floor,
            committed_seq=log.committed_seq,
            reserved_seq=log.promise.reserved_seq,
            last_ts_ns=log.last_ts_ns,
            gaps=[(gap.first, gap.last, gap.reason) for gap in log.gaps],
            deleted=list(log.deleted),
            segments=[
                SegmentState(s.base_seq, flushes.get(s.base_seq, s.flushed), s.sealed)
                for s in log.segments
                if s.made or flushes.get(s.base_seq, 0) > HEADER_BYTES
            ],
            floors=dict(log.floors),
            erasing=log.erasure.pending,
        )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """Everything up to each shard's position is in here or in the segments that it names."""

    number: int
    position: int  # of shard 0
    control_number: int
    logs: list[LogSnapshot]
    dropped: list[int]
    sections: dict[str, bytes]
    further: dict[int, int] = {}  # positions of all other shards that there ever were

    @property
    def positions(self) -> dict[int, int]:
        """Return each shard's position."""
        return {0: self.position, **self.further}


class PackedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The same with what there may be much of encoded already, bit by bit."""

    number: int
    position: int
    control_number: int
    logs: list[msgspec.Raw]  # of a ``LogSnapshot`` each
    dropped: list[int]
    sections: dict[str, bytes]
    further: dict[int, int]


def packed(log: LogSnapshot) -> msgspec.Raw:
    """Return a log as a packed snapshot holds it."""
    return msgspec.Raw(msgspec.msgpack.encode(log))


def snapshot_name(number: int) -> str:
    """Return a snapshot's file name."""
    return f"snapshot-{number:016d}.bin"


def write_snapshot(
    files: Files, directory: str, snapshot: Snapshot | PackedSnapshot, ring: KeyRing | None = None
) -> None:
    """Put the snapshot in place, then remove all but the newest two.

    The older one goes only after the new one is durable under its name.
    """
    ensure_dir(files, directory)
    body = msgspec.msgpack.encode(snapshot)
    version, flags = VERSION, 0
    if ring is not None and ring.seals:
        version, flags = SEALED_VERSION, SEALED
        body = ring.seal_whole(body, BOUND)
    head = HEADER.pack(MAGIC, version, flags, len(body), 0)[:HEADER_CHECKED]
    check = xxh3_64_intdigest(head + body).to_bytes(8, "little")
    replace_file(files, directory, snapshot_name(snapshot.number), head + check + body)
    for number in snapshot_numbers(files, directory)[:-KEPT]:
        files.unlink(f"{directory}/{snapshot_name(number)}")


def snapshot_numbers(files: Files, directory: str) -> list[int]:
    """Return the numbers of the snapshots there are, ascending."""
    if not files.exists(directory):
        return []
    names = files.listdir(directory)
    return sorted(int(n[9:25]) for n in names if n.startswith("snapshot-") and n.endswith(".bin"))


def load_snapshots(files: Files, directory: str, ring: KeyRing | None = None) -> list[Snapshot]:
    """Return the snapshots that can be trusted, newest first."""
    found = []
    for number in reversed(snapshot_numbers(files, directory)):
        path = f"{directory}/{snapshot_name(number)}"
        file = files.open(path)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        snapshot = decode_snapshot(data, path, ring)
        if snapshot is not None:
            found.append(snapshot)
        else:
            log.error("damaged snapshot, using an older one file=%s offset=0", path)
    return found


def decode_snapshot(data: bytes, path: str, ring: KeyRing | None = None) -> Snapshot | None:
    """Return the snapshot, None when it is damaged; refuses a version of the future."""
    if len(data) < HEADER.size:
        return None
    magic, version, flags, size, check = HEADER.unpack_from(data)
    body: bytes | None = data[HEADER.size :]
    assert body is not None
    if magic != MAGIC or len(body) != size:
        return None
    if xxh3_64_intdigest(data[:HEADER_CHECKED] + body) != check:
        return None
    if version not in (VERSION, SEALED_VERSION):
        raise StorageUnusable(
            f"{path} has format version {version}, this millstream knows versions up to "
            f"{SEALED_VERSION}: start the newer millstream that wrote it"
        )
    if flags & SEALED:
        body = (ring or KeyRing()).open_whole(body, BOUND, path)
        if body is None:
            return None
    try:
        return msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.MsgspecError:
        return None
