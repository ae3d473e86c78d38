"""What batch and streaming reads share: a range of a stream as Spark's partitions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from millstream.client.streams import ReadPlan
from millstream.clock import SystemClock
from millstream.spark import planner, reader
from millstream.spark.columns import GAP_COLUMNS, check_names, spark_type
from millstream.spark.options import ReadOptions, time_ns
from millstream.spark.planner import LostRanges, Part
from millstream.spark.problems import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def columns_of(schema: "StructType", options: ReadOptions) -> tuple[str, ...]:
    """Return the column names of Spark's schema; raises ``OptionError`` for one we cannot fill."""
    names = tuple(schema.fieldNames())
    check_names(names)
    for field in schema.fields:
        if (given := field.dataType.simpleString()) != spark_type(field.name):
            raise OptionError(f"column {field.name} is {spark_type(field.name)}, not {given}")
    if not options.fail_on_data_loss and not set(GAP_COLUMNS) <= set(names):
        raise OptionError(
            f"failOnDataLoss=false reports lost ranges in {', '.join(GAP_COLUMNS)}: "
            "name them in the schema too"
        )
    return names


def task_for(options: ReadOptions, columns: tuple[str, ...], plan: ReadPlan) -> reader.Task:
    """Return what every task of a read needs to know."""
    now_ns = SystemClock().time_ns()
    return reader.Task(
        url=options.url,
        timeout=options.timeout,
        stream=options.stream,
        incarnation=plan.incarnation,
        columns=columns,
        subject=options.subject,
        start_ns=_resolved(options.start_time, now_ns),
        end_ns=_resolved(options.end_time, now_ns),
        access=options.access,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _resolved(text: str | None, now_ns: int) -> int | None:
    return None if text is None else time_ns(text, now_ns)


def planned(
    options: ReadOptions, plan: ReadPlan, task: reader.Task, from_seq: int, to_seq: int
) -> list[InputPartition]:
    """Return the partitions of a range; each carries all that its task needs."""
    gaps = planner.lost(plan, from_seq, to_seq)
    if gaps and options.fail_on_data_loss:
        raise reader.loss(options.stream, gaps)
    parts: list[Part] = planner.parts(
        plan, from_seq, to_seq, options.access, options.max_records_per_partition
    )
    if gaps:
        parts.append(LostRanges(gaps))
    told = replace(task, known_lost=gaps)
    return [InputPartition((part, told)) for part in parts]


def read_partition(partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    """Yield the Arrow batches of a partition; Spark gives an empty one when there is nothing."""
    if partition.value is None:
        return iter(())
    part, task = partition.value
    return reader.read(part, task)
