"""Damaged segment files: index what is sound, name what is not, put back what the WAL still has."""

import logging
from bisect import bisect_left

from millstream.kernel._frames import RECORD, index_frames, scan
from millstream.store.disk.files import write_all
from millstream.store.disk.seq_ranges import SeqRanges
from millstream.store.log.file_log import FileLog
from millstream.store.segments.files import HEADER_BYTES
from millstream.store.segments.segment import Segment

log = logging.getLogger(__name__)


def index_segment(segment: Segment, buffer: memoryview, limit: int, quiet: bool = False) -> bool:
    """Index a segment from its frames; False when some are damaged and stay out."""
    _, at, _ = index_frames(buffer, HEADER_BYTES, limit, segment.log_id, segment.index)
    whole = at >= limit
    if not whole:
        segment.index.truncate(0)
        at = HEADER_BYTES
        for start, end in _in_order(buffer, limit, segment.log_id):
            if start > at and not quiet:
                log.error("damaged segment file=%s offset=%d", segment.path, at)
            index_frames(buffer, start, end, segment.log_id, segment.index)
            at = end
        if at < limit and not quiet:
            log.error("damaged segment file=%s offset=%d", segment.path, at)
    segment.size = segment.flushed = segment.synced = limit
    segment.flushed_seq = segment.last_seq
    return whole


def _in_order(buffer: memoryview, limit: int, log_id: int) -> list[tuple[int, int]]:
    """Return where the most frames are that ascend in the file: (start, end) of each stretch.

    A page in a wrong place brings sound frames too; taking the first that comes would leave out
    those that stand where they belong.
    """
    found, _ = scan(buffer, HEADER_BYTES, limit)
    frames = [(f[3], f[5], f[5] + f[6]) for f in found if f[0] == RECORD and f[2] == log_id]
    tails: list[int] = []  # per length of a chain: the lowest sequence that ends one
    ends: list[int] = []  # and which frame that is
    before: list[int] = []
    for i, (seq, _, _) in enumerate(frames):
        length = bisect_left(tails, seq)
        before.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [seq]
        ends[length : length + 1] = [i]
    stretches: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        _, start, end = frames[at]
        if stretches and stretches[-1][0] == end:
            end = stretches.pop()[1]
        stretches.append((start, end))
        at = before[at]
    return stretches[::-1]


def missing_seqs(target: FileLog, segment: Segment) -> list[tuple[int, int]]:
    """Return the sequences that the segment should hold and does not."""
    after = [s.base_seq for s in target.segments if s.base_seq > segment.base_seq]
    end = min(after) - 1 if after else target.loaded_seq
    present = SeqRanges()
    first = max(segment.base_seq, target.first_kept)
    for each in (segment, *target.segments):  # the WAL may have started another one in its place
        for position in each.positions(first, end):
            seq = each.index.seq(position)
            present.add(seq, seq)
    gone = [part for a, b in present.missing(first, end) for part in target.lost.missing(a, b)]
    return [part for a, b in gone for part in target.deleted.missing(a, b)]


def repair_segment(segment: Segment, frames: dict[int, bytes]) -> None:
    """Write frames back into the damaged places of a segment and index it again.

    Not into blocks: there at most one is lost, and it is named.
    """
    if segment.head.in_blocks:
        return
    wrote = False
    with segment.use() as file:
        for start, end, above, below in _damaged_places(segment):
            fill = b"".join(frames[seq] for seq in sorted(frames) if above < seq < below)
            if fill and len(fill) <= end - start:
                log.warning("repaired from the wal file=%s offset=%d", segment.path, start)
                write_all(file, fill, start)
                wrote = True
        if wrote:
            file.sync()
            size = segment.size
            segment.index.truncate(0)
            index_segment(segment, file.view(segment.flushed), segment.flushed)
            for block in segment.blocks:
                index_frames(
                    block.data, 0, len(block.data), segment.log_id, segment.index, block.offset
                )
            segment.size = size
    segment.release()


def _damaged_places(segment: Segment) -> list[tuple[int, int, int, int]]:
    """Return (start, end, sequence before, sequence after) of file ranges without a record."""
    places = []
    at, above = HEADER_BYTES, 0
    index = segment.index
    for i in range(index.position(segment.flushed_seq + 1)):
        if index.offset(i) > at:
            places.append((at, index.offset(i), above, index.seq(i)))
        at, above = index.offset(i) + index.frame_len(i), index.seq(i)
    if segment.flushed > at:
        places.append((at, segment.flushed, above, 1 << 63))
    return places
