"""Whether all records of a stream are there and whole: segments checked in parallel by Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.client.streams import ReadPlan
from millstream.spark.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOUND = "part string, first bigint, last bigint, records bigint, problem string"


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of a stream, and what is wrong with it; an empty ``problem`` means nothing is."""

    stream: str
    part: str  # a segment's path, a cold file's path, ``tail``, or ``gap``
    first: int
    last: int
    records: int = 0
    problem: str = ""


def audit(spark: "SparkSession", server: Server, stream: str) -> list[Finding]:
    """Check every segment, cold file and the tail of a stream; gaps are findings too."""
    plan = server.streams().plan(stream)
    found = [_tail(server, plan), *_gaps(plan), *missing(plan)]
    parts = [(one.path, one.idx_path, one.base_seq, one.last_seq) for one in plan.segments]
    parts += [(file.path, "", file.base_seq, file.last_seq) for file in plan.cold]
    if parts:
        incarnation = plan.incarnation
        frame = spark.createDataFrame(parts, "path string, idx string, first bigint, last bigint")
        tasks = frame.repartition(min(len(parts), 64))
        rows = tasks.mapInArrow(lambda batches: _check(batches, incarnation), _FOUND).collect()
        found += [Finding(stream, *row) for row in rows]
    return sorted((one for one in found if one is not None), key=lambda one: (one.first, one.part))


def missing(plan: ReadPlan) -> list[Finding]:
    """Return ranges that no part holds and no gap explains."""
    ranges = [(segment.base_seq, segment.last_seq) for segment in plan.segments]
    ranges += [(file.base_seq, file.last_seq) for file in plan.cold]
    ranges += [(first, last) for first, last, _ in plan.gaps]
    ranges.append((plan.tail.from_seq, plan.tail.to_seq))
    found, expected = [], plan.first_seq
    for first, last in sorted(one for one in ranges if one[1] >= one[0]):
        if first > expected:
            problem = "in no segment, no cold file and no gap"
            found.append(Finding(plan.stream, "gap", expected, first - 1, problem=problem))
        expected = max(expected, last + 1)
    return found


def _gaps(plan: ReadPlan) -> list[Finding]:
    """Return what the server knows to be lost; what was deleted on purpose is no problem."""
    return [
        Finding(plan.stream, "gap", first, last, problem="" if why in ("void", "delete") else why)
        for first, last, why in plan.gaps
    ]


def _tail(server: Server, plan: ReadPlan) -> Finding | None:
    """Read the tail through the server; every frame is checked on its way."""
    from millstream.spark.reading.segment_file import DamagedFrames, records_of

    first, last = plan.tail.from_seq, plan.tail.to_seq
    if last < first:
        return None
    position, seen = first, 0
    try:
        while position <= last and (frames := server.streams().read(plan.stream, position, last)):
            records = records_of(frames)
            seen += len(records)
            position = int(records.seqs[-1]) + 1
    except DamagedFrames as error:
        return Finding(plan.stream, "tail", first, last, seen, str(error))
    return Finding(plan.stream, "tail", first, last, seen)


def _check(batches: Iterator[Any], incarnation: int) -> Iterator[Any]:
    """Check the parts of one task; runs in Spark's workers."""
    import pyarrow as pa

    for batch in batches:
        rows = [_checked(**row, incarnation=incarnation) for row in batch.to_pylist()]
        names = ("part", "first", "last", "records", "problem")
        columns = [[row[at] for row in rows] for at in range(len(names))]
        kinds = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.string())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _checked(
    path: str, idx: str, first: int, last: int, incarnation: int
) -> tuple[str, int, int, int, str]:
    try:
        records, problem = _segment(path, idx, incarnation) if idx else _cold(path, first, last)
    except Exception as error:
        records, problem = 0, str(error).split("\n")[0]
    return path, first, last, records, problem


def _segment(path: str, idx: str, incarnation: int) -> tuple[int, str]:
    from millstream.spark.reading.segment_file import open_segment
    from millstream.spark.reading.verify import intact

    records = open_segment(path, idx, incarnation)
    bad = records.seqs[~intact(records, incarnation)].tolist()
    named = ", ".join(map(str, bad[:5])) + (", …" if len(bad) > 5 else "")
    return len(records), f"{len(bad)} damaged records: {named}" if bad else ""


def _cold(path: str, first: int, last: int) -> tuple[int, str]:
    """Read every page of a Parquet file with its checksums."""
    import pyarrow.parquet as pq

    seqs = pq.read_table(path, page_checksum_verification=True).column("seq").to_pylist()
    if seqs and (min(seqs) < first or max(seqs) > last):
        return len(seqs), f"holds records {min(seqs)} to {max(seqs)}"
    return len(seqs), "" if len(set(seqs)) == len(seqs) else "holds a record twice"
