"""What batch and streaming reads share: ranges of streams as Spark's partitions."""

import gc
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from millstream.client.errors import PermissionDenied
from millstream.client.streams import ReadPlan
from millstream.clock import SystemClock
from millstream.spark.columns import GAP_COLUMNS, check_names, spark_type, with_text
from millstream.spark.options import Access, ReadOptions, time_ns
from millstream.spark.problems import FilesUnreachable, OptionError
from millstream.spark.reading import planner
from millstream.spark.reading.planner import LostRanges, Part
from millstream.spark.reading.task import Task, loss
from millstream.spark.worker_errors import in_one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_Seen = TypeVar("_Seen")


@dataclass(frozen=True, slots=True)
class Range:
    """Records ``from_seq..to_seq`` of one stream, and where they are."""

    plan: ReadPlan
    from_seq: int
    to_seq: int


def columns_of(schema: "StructType", options: ReadOptions) -> tuple[str, ...]:
    """Return the column names of Spark's schema; raises ``OptionError`` for one we cannot fill."""
    names = tuple(schema.fieldNames())
    check_names(names)
    as_text = False
    for field in schema.fields:
        if field.name == "payload" and field.dataType.simpleString() == "string":
            as_text = True  # a schema of the user's own says it as well as the option
        elif (given := field.dataType.simpleString()) != spark_type(field.name):
            raise OptionError(f"column {field.name} is {spark_type(field.name)}, not {given}")
    if not options.fail_on_data_loss and not set(GAP_COLUMNS) <= set(names):
        raise OptionError(
            f"failOnDataLoss=false reports lost ranges in {', '.join(GAP_COLUMNS)}: "
            "name them in the schema too"
        )
    return with_text(names) if as_text else names


def stream_names(options: ReadOptions) -> list[str]:
    """Return the streams to read: those named, and those that a name with ``*`` stands for now."""
    named = [name for name in options.streams if "*" not in name]
    patterns = [name for name in options.streams if "*" in name]
    if not patterns:
        return list(dict.fromkeys(named))
    found = options.server.streams().names()
    matching = sorted(n for n in found if any(fnmatchcase(n, p) for p in patterns))
    return list(dict.fromkeys([*named, *matching]))


def looked_at(options: ReadOptions, look: Callable[[str], _Seen]) -> dict[str, _Seen]:
    """Return what ``look`` finds in each stream to read.

    A name with ``*`` stands for what the user may read: others are left out, unless they are all.
    """
    found: dict[str, _Seen] = {}
    refused: PermissionDenied | None = None
    for name in stream_names(options):
        try:
            found[name] = look(name)
        except PermissionDenied as error:
            if name in options.streams:
                raise
            refused = error
    if refused is not None and not found:
        raise refused
    return found


def task_for(options: ReadOptions, columns: tuple[str, ...], plan: ReadPlan) -> Task:
    """Return what every task of a read needs to know."""
    now_ns = SystemClock().time_ns()
    return Task(
        server=options.server,
        stream=plan.stream,
        incarnation=plan.incarnation,
        columns=columns,
        subject=options.subject,
        start_ns=resolved(options.start_time, now_ns),
        end_ns=resolved(options.end_time, now_ns),
        access=options.access,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def resolved(text: str | None, now_ns: int) -> int | None:
    """Return an option's time in nanoseconds."""
    return None if text is None else time_ns(text, now_ns)


def planned(
    options: ReadOptions, columns: tuple[str, ...], ranges: Sequence[Range]
) -> list[InputPartition]:
    """Return the partitions of ranges; each carries all that its task needs."""
    found = [_parts(options, one, task_for(options, columns, one.plan)) for one in ranges]
    pieces = [(part, task) for parts, task in found for part in parts]
    if options.max_records_per_partition:
        tasks = [[piece] for piece in pieces]
    else:
        tasks = planner.packed(pieces, os.cpu_count() or 1)
    if 0 < len(tasks) < options.min_partitions:
        each = options.min_partitions / len(pieces)
        tasks = [
            [(part, task)]
            for parts, task in found
            for part in planner.at_least(parts, math.ceil(len(parts) * each))
        ]
    return [InputPartition(one) for one in tasks]


def _parts(options: ReadOptions, one: Range, task: Task) -> tuple[list[Part], Task]:
    if options.access is Access.FILES and not one.plan.whole:
        raise FilesUnreachable(
            f"this user may read only some subjects of stream {one.plan.stream!r}, and its files "
            "hold them all; access=auto reads those through the server"
        )
    gaps = planner.lost(one.plan, one.from_seq, one.to_seq)
    if gaps and options.fail_on_data_loss:
        raise loss(one.plan.stream, gaps)
    parts: list[Part] = planner.parts(
        one.plan, one.from_seq, one.to_seq, options.access, options.max_records_per_partition
    )
    if gaps:
        parts.append(LostRanges(gaps))
    return parts, replace(task, known_lost=gaps)


def read_partition(partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    """Yield the Arrow batches of a partition; Spark gives an empty one when there is nothing."""
    from millstream.spark.reading import reader

    _exempt_modules()
    with in_one_line():
        for part, task in partition.value or ():
            yield from reader.read(part, task)


@cache
def _exempt_modules() -> None:
    """Let a worker not look for garbage among what it has imported, which stays.

    Spark collects all garbage behind each task: with Arrow, numpy and PySpark loaded that took as
    much time as to read half a million sequences.
    """
    if TaskContext.get() is not None:
        gc.freeze()
