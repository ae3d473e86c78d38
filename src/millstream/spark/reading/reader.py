"""What a task does: one part of a stream to Arrow batches, from files or from the server."""

from collections.abc import Iterator
from typing import assert_never

import numpy as np
import pyarrow as pa

from millstream.client.streams import StreamReader
from millstream.spark.columns import FROM_INDEX
from millstream.spark.options import Access
from millstream.spark.problems import FilesUnreachable
from millstream.spark.reading import cold_file, rows, segment_file
from millstream.spark.reading.planner import (
    ColdRange,
    FileRange,
    Lost,
    LostRanges,
    Part,
    ServerRange,
    lost,
    newly_lost,
)
from millstream.spark.reading.rows import Records
from millstream.spark.reading.subject_filter import matching, pattern_of
from millstream.spark.reading.task import Task, loss, replaced
from millstream.spark.reading.verify import intact


def read(part: Part, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one part, in sequence order."""
    match part:
        case FileRange():
            return _from_file(part, task)
        case ColdRange():
            return _from_cold(part, task)
        case ServerRange():
            return _from_server(part, task)
        case LostRanges():
            return _gaps(part.gaps, task)
        case _:
            assert_never(part)


def _from_file(part: FileRange, task: Task) -> Iterator[pa.RecordBatch]:
    try:
        records = segment_file.open_segment(part.path, part.idx_path, task.incarnation)
    except FilesUnreachable:
        if task.access is Access.FILES:
            raise
        yield from _from_server(ServerRange(part.from_seq, part.to_seq), task)
        return
    low, high = np.searchsorted(records.seqs, [part.from_seq, part.to_seq + 1])
    records = records.select(slice(int(low), int(high)))
    if FROM_INDEX.issuperset(task.columns):
        for batch in rows.batches(records, rows.INDEX_ROWS):
            yield from _listed(batch, task)
        return
    for batch in rows.batches(records, rows.BATCH_ROWS):
        yield from _settled(batch, task)


def _from_cold(part: ColdRange, task: Task) -> Iterator[pa.RecordBatch]:
    wanted = cold_file.Wanted(task.stream, task.columns, task.subject, task.start_ns, task.end_ns)
    position = part.from_seq
    try:
        for settled, batch in cold_file.batches(part, wanted):
            if len(batch):
                yield batch
            position = max(position, settled + 1)
    except FilesUnreachable:
        if task.access is Access.FILES:
            raise
        yield from _from_server(ServerRange(position, part.to_seq), task)


def _from_server(part: ServerRange, task: Task) -> Iterator[pa.RecordBatch]:
    """Read range after range; a segment that seals or moves meanwhile makes no difference here."""
    server = task.server.streams()
    position, seen = part.from_seq, 0
    while position <= part.to_seq:
        frames = server.read(task.stream, position, part.to_seq)
        if not frames:
            break
        if segment_file.stream_of(frames) != task.incarnation:
            raise replaced(task.stream)
        records = segment_file.records_of(frames)
        for batch in rows.batches(records, rows.BATCH_ROWS):
            yield from _decoded(_wanted(batch, task, rows.live(batch)), task)
        seen += len(records)
        position = int(records.seqs[-1]) + 1
    if seen < part.to_seq - part.from_seq + 1:
        yield from _gaps(_lost_meanwhile(part, task, server), task)


def _lost_meanwhile(part: ServerRange, task: Task, server: StreamReader) -> tuple[Lost, ...]:
    """Return why sequences of the range were absent, as far as the read's plan did not know."""
    plan = server.plan(task.stream)
    if plan.incarnation != task.incarnation:
        raise replaced(task.stream)
    return newly_lost(lost(plan, part.from_seq, part.to_seq), task.known_lost)


def _listed(records: Records, task: Task) -> Iterator[pa.RecordBatch]:
    """Decode one run of a file's index, which has a checksum of its own.

    Of the records only the flags are looked at, unless the file was cut.
    """
    if not rows.within_file(records):
        yield from _settled(records, task)
        return
    wanted = _wanted(records, task, rows.live(records))
    yield from _decoded(_known(wanted, task.known_lost), task)


def _settled(records: Records, task: Task) -> Iterator[pa.RecordBatch]:
    """Filter, decode and verify one run of a file; damage is told after the rows around it.

    Verified last: a record may be erased in place while it is copied, and what was whole and alive
    after the copy was so before.
    """
    wanted = _wanted(records, task, rows.listed(records))
    lost: list[Lost] = []
    while True:
        copied = list(_decoded(wanted, task)) if rows.within_file(wanted) else None
        good = intact(wanted, task.incarnation)
        alive = rows.live(wanted)
        if copied is not None and good.all() and alive.all():
            break
        lost += _runs(wanted.select(alive & ~good))
        wanted = wanted.select(alive & good)
    yield from copied
    yield from _gaps(newly_lost(sorted(lost), task.known_lost), task)


def _known(records: Records, known_lost: tuple[Lost, ...]) -> Records:
    """Return the records that are not among those that the read's plan calls lost."""
    keep = np.ones(len(records), dtype=np.bool_)
    for first, last, _ in known_lost:
        low, high = np.searchsorted(records.seqs, [first, last + 1])
        keep[low:high] = False
    return records if keep.all() else records.select(keep)


def _decoded(records: Records, task: Task) -> Iterator[pa.RecordBatch]:
    if len(records):
        yield rows.decode(records, task.stream, task.columns)


def _wanted(records: Records, task: Task, keep: rows.Mask) -> Records:
    times = records.entries["ts_ns"]
    if task.start_ns is not None:
        keep &= times >= np.uint64(max(task.start_ns, 0))
    if task.end_ns is not None:
        keep &= times < np.uint64(max(task.end_ns, 0))
    if task.subject is not None:
        keep &= matching(records, pattern_of(task.subject))
    return records if keep.all() else records.select(keep)


def _runs(damaged: Records) -> tuple[Lost, ...]:
    """Return damaged sequences as ranges."""
    if not len(damaged):
        return ()
    seqs = damaged.seqs
    breaks = np.flatnonzero(np.diff(seqs) != 1)
    firsts = seqs[np.concatenate(([0], breaks + 1))]
    lasts = seqs[np.concatenate((breaks, [len(seqs) - 1]))]
    return tuple((int(a), int(b), "corruption") for a, b in zip(firsts, lasts, strict=True))


def _gaps(gaps: tuple[Lost, ...], task: Task) -> Iterator[pa.RecordBatch]:
    if not gaps:
        return
    if task.fail_on_data_loss:
        raise loss(task.stream, gaps)
    yield rows.gap_rows(gaps, task.stream, task.columns)
