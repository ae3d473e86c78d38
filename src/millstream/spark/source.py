"""The PySpark data source ``millstream``: reads a stream as a table."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from millstream.client.streams import ReadPlan
from millstream.clock import SystemClock
from millstream.spark import planner, reader
from millstream.spark.columns import GAP_COLUMNS, check_names, spark_schema, spark_type
from millstream.spark.options import ReadOptions, parse, time_ns
from millstream.spark.planner import LostRanges, Part
from millstream.spark.problems import OptionError
from millstream.spark.subject_filter import pattern_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class MillstreamSource(DataSource):
    """``spark.read.format("millstream").option("stream", "ORDERS").load()``."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._read = parse(options)
        if self._read.subject is not None:
            pattern_of(self._read.subject)

    @classmethod
    def name(cls) -> str:
        """Return the name after ``format``."""
        return "millstream"

    def schema(self) -> str:
        """Return the columns that the options ask for."""
        return spark_schema(self._read.table_columns())

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return the batch reader for a schema: ours, or a narrower one that the user gave."""
        return BatchReader(self._read, columns_of(schema, self._read))


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


class BatchReader(DataSourceReader):
    """One look at the stream, cut into tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Ask the server once where the records are, and cut the range asked for."""
        options = self._options
        plan = reader.connection(options.url, options.timeout).plan(options.stream)
        first = plan.first_seq if options.start_seq is None else max(options.start_seq, 1)
        last = plan.last_seq if options.end_seq is None else min(options.end_seq, plan.last_seq)
        return planned(options, plan, task_for(options, self._columns, plan), first, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        return read_partition(partition)
