"""Records of damaged blocks that the WAL still has, so that a copy is whole again."""

from bisect import bisect_left
from collections.abc import Iterator

from millstream.kernel._frames import RECORD
from millstream.store.disk.files import Files
from millstream.store.disk.keys import KeyRing
from millstream.store.segments.salvage import Frame, frames_in
from millstream.store.segments.segment import Segment
from millstream.store.wal.entry import Damage, plain_body, scan_entries
from millstream.store.wal.local_engine import HEADER, wal_indexes, wal_name

Frames = dict[tuple[int, int], bytes]  # (log, sequence) → frame


def lost_positions(segment: Segment) -> list[int]:
    """Return the index positions of live records whose block cannot be read."""
    if not segment.sealed or not segment.head.in_blocks or segment.cold is not None:
        return []
    index = segment.index
    lost = []
    at = 0
    while at < len(index):
        raw, _, end = segment.block(index.offset(at))
        if raw is not None:
            at = bisect_left(range(len(index)), end, lo=at + 1, key=index.offset)
            continue
        if not index.deleted(at):
            lost.append(at)
        at += 1
    return lost


def find_in_wal(
    files: Files, directory: str, ring: KeyRing, wanted: set[tuple[int, int]]
) -> Frames:
    """Return those of the wanted records that a WAL file holds."""
    found: Frames = {}
    for frame in _wal_frames(files, directory, ring) if wanted else ():
        if frame.kind == RECORD and (frame.stream_id, frame.seq) in wanted:
            found[frame.stream_id, frame.seq] = frame.data
    return found


def _wal_frames(files: Files, directory: str, ring: KeyRing) -> Iterator[Frame]:
    wal = f"{directory}/wal"
    for shard in files.listdir(wal) if files.exists(wal) else []:
        for index in wal_indexes(files, f"{wal}/{shard}"):
            file = files.open(f"{wal}/{shard}/{wal_name(index)}")
            try:
                buffer = file.view(file.size())
            finally:
                file.close()
            for item in scan_entries(buffer, HEADER.size, 0):
                start = item.start if isinstance(item, Damage) else item.body
                if isinstance(item, Damage) or not item.sealed:
                    yield from frames_in(buffer, start, item.end)
                if isinstance(item, Damage) or item.sealed:
                    plain = plain_body(buffer, start, item.end, ring)
                    yield from frames_in(plain, 0, len(plain))
