"""Copies made again: a replay reads the source once more, where a DERIVE frame stands for records.

The source is as it was: what came before the frame is replayed, and files of records that were
trimmed since are kept until a snapshot covers the frame. Its records may have been deleted
meanwhile, which the copies do not care about.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby

from millstream.kernel._batch import Batch
from millstream.kernel._frames import Frames, encode_batch
from millstream.store.log import derived
from millstream.store.log.derived import Derivation, DerivedPart
from millstream.store.log.file_log import FileLog


def stretches(
    derivation: Derivation, part: DerivedPart, source: FileLog | None, target: FileLog
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield (first, last, frames) of what the target lacks, None where the source lacks it too."""
    missing = _missing(part, source, target.next_seq)
    for is_found, group in groupby(missing, key=lambda copy: copy[1] is not None):
        copies = list(group)
        first, last = copies[0][0], copies[-1][0]
        if not is_found:
            yield first, last, None
            continue
        batch = Batch()
        for _, record in copies:
            assert record is not None
            derived.add_copy(batch, record, derivation, part)
        ts_ns = max(derivation.ts_ns, target.staged_ts_ns)
        frames = encode_batch(batch, 0, len(batch), target.log_id, first, ts_ns, None, 0, True)
        yield first, last, frames


def _missing(
    part: DerivedPart, source: FileLog | None, start: int
) -> Iterator[tuple[int, derived.Fields | None]]:
    """Yield (target's sequence, source's record) from ``start`` on."""
    at = part.base
    for first, last in part.ranges:
        for seq in range(first, last + 1):
            if at >= start:
                yield at, None if source is None else _record(source, seq)
            at += 1


def fill(
    derivation: Derivation, part: DerivedPart, source: FileLog, holes: dict[int, bytes]
) -> None:
    """Let copies fill holes in damaged files, where their source still has the records."""
    seqs = (seq for first, last in part.ranges for seq in range(first, last + 1))
    for at, seq in enumerate(seqs, part.base):
        record = _record(source, seq) if at in holes and not holes[at] else None
        if record is not None:
            batch = Batch()
            derived.add_copy(batch, record, derivation, part)
            ts_ns = derivation.ts_ns
            holes[at] = encode_batch(batch, 0, 1, part.target, at, ts_ns, None, 0, True)


def _record(source: FileLog, seq: int) -> derived.Fields | None:
    """Return a record of a log that is being rebuilt, also when it was deleted or trimmed."""
    at = bisect_right(source.segments, seq, key=lambda segment: segment.base_seq) - 1
    if at < 0:
        return None
    segment = source.segments[at]
    position = segment.index.find(seq)
    frame = segment.frame(position) if position >= 0 else None
    return None if frame is None else Frames(frame, [0]).record(0)
