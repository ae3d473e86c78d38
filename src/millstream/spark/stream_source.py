"""``spark.readStream.format("millstream")``: micro-batches by sequence, exact on replay."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from millstream.client.streams import ReadPlan
from millstream.spark import reader
from millstream.spark.offsets import Position, position_of
from millstream.spark.options import ReadOptions, StartFrom
from millstream.spark.partitions import planned, read_partition, task_for
from millstream.spark.problems import OptionError

_NO_SEGMENTS = 1 << 62  # a plan from here on lists none: only the head is wanted


class StreamingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and partitions of one query; lives on the driver, and pickled in its tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        _check(options)
        self._options = options
        self._columns = columns
        self._until: int | None = None  # where a run of AvailableNow ends
        self._head: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts."""
        plan = self._plan()
        start = plan.first_seq
        if self._options.start_seq is not None:
            start = max(self._options.start_seq, 1)
        elif self._options.start_from is StartFrom.LATEST:
            start = plan.last_seq + 1
        return Position(plan.stream, start - 1, plan.incarnation).as_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much one micro-batch takes."""
        if self._options.max_records_per_trigger:
            return ReadMaxRows(self._options.max_records_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: what arrives from now on belongs to the next run."""
        self._until = self._plan().last_seq

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends: at the head, or as far as the limit lets it."""
        position = position_of(start, self._options.stream)
        plan = self._plan()
        _same(position, plan)
        self._head = position.at(plan.last_seq)
        end = plan.last_seq if self._until is None else min(plan.last_seq, self._until)
        if isinstance(limit, ReadMaxRows):
            end = min(end, position.seq + limit.max_rows)
        return position.at(end).as_offset()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the head, so that progress reports show how far behind the query is."""
        return None if self._head is None else self._head.as_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut ``start..end`` into tasks; asked again after a restart, the rows are the same."""
        first = position_of(start, self._options.stream)
        last = position_of(end, self._options.stream)
        plan = self._plan(first.seq + 1)
        _same(first, plan)
        _same(last, plan)
        task = task_for(self._options, self._columns, plan)
        return planned(self._options, plan, task, first.seq + 1, last.seq)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        return read_partition(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint is the truth, and retention does not wait for queries."""

    def stop(self) -> None:
        """End the driver's connection."""
        reader.connection(self._options.url, self._options.timeout).close()

    def _plan(self, from_seq: int = _NO_SEGMENTS) -> ReadPlan:
        options = self._options
        return reader.connection(options.url, options.timeout).plan(options.stream, from_seq)


def _same(position: Position, plan: ReadPlan) -> None:
    if position.incarnation != plan.incarnation:
        raise reader.replaced(position.stream)


def _check(options: ReadOptions) -> None:
    """Refuse what has no meaning for a query without an end, or would change on replay."""
    for name, value in (
        ("endSeq", options.end_seq),
        ("endTime", options.end_time),
        ("startTime", options.start_time),
    ):
        if value is not None:
            raise OptionError(f"option {name} belongs to spark.read, not to spark.readStream")
