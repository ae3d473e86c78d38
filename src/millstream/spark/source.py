"""The PySpark data source ``millstream``: reads streams as a table, and writes to one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from millstream.clock import SystemClock
from millstream.spark.columns import spark_schema
from millstream.spark.options import ReadOptions, parse, parse_write
from millstream.spark.problems import OptionError
from millstream.spark.reading.partitions import (
    Range,
    columns_of,
    looked_at,
    planned,
    read_partition,
    resolved,
)
from millstream.spark.table_options import is_table, table_options, with_table_options
from millstream.spark.worker_errors import in_one_line
from millstream.spark.worker_socket import Prompt

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

NO_SEGMENTS = 1 << 62  # a plan from here on lists none: only the head is wanted


class MillstreamSource(DataSource):
    """``spark.read.format("millstream").option("stream", "ORDERS").load()``."""

    @classmethod
    def name(cls) -> str:
        """Return the name after ``format``."""
        return "millstream"

    @in_one_line()
    def schema(self) -> "str | StructType":
        """Return the columns that the options ask for."""
        columns = spark_schema(parse(self.options).table_columns())
        return with_table_options(columns, self.options) if is_table(self.options) else columns

    @in_one_line()
    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return the batch reader for a schema: ours, or a narrower one that the user gave."""
        options = parse(table_options(schema, self.options))
        if options.pushdown:
            from millstream.spark.reading.pushdown import PushdownReader

            return PushdownReader(options, columns_of(schema, options))
        return BatchReader(options, columns_of(schema, options))

    @in_one_line()
    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        try:
            from millstream.spark.reading.stream_source import RefusedReader, StreamingReader
        except ImportError as error:
            raise OptionError("spark.readStream needs PySpark 4.2 or newer") from error
        options = parse(table_options(schema, self.options))
        try:
            return StreamingReader(options, columns_of(schema, options))
        except OptionError as error:
            return RefusedReader(error)

    @in_one_line()
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        """Return the writer of ``df.write``."""
        from millstream.spark.writing.sink import BatchWriter

        if overwrite:
            raise OptionError("a stream only grows: use mode('append')")
        options = parse_write(self.options)
        writer = BatchWriter(options, schema)
        if options.sink_id is None:  # one that has a name may be a batch of a query that goes on
            options.server.reach()
        return writer

    @in_one_line()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":
        """Return the writer of a streaming query."""
        from millstream.spark.writing.sink import StreamWriter

        if overwrite:
            raise OptionError(
                "a stream only grows: use outputMode('append'), or write what changed in "
                "foreachBatch with a sinkId and the batch's number as batchId"
            )
        return StreamWriter(parse_write(self.options), schema)


class BatchReader(Prompt, DataSourceReader):
    """One look at the streams, cut into tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @in_one_line()
    def partitions(self) -> list[InputPartition]:
        """Ask the server once where the records are, and cut the range asked for."""
        options = self._options
        options.server.reach()
        ranges = looked_at(options, self._range)
        return planned(options, self._columns, list(ranges.values()))

    def _range(self, name: str) -> Range:
        options, server = self._options, self._options.server.streams()
        plan = server.plan(name)
        first = plan.first_seq if options.start_seq is None else max(options.start_seq, 1)
        first = first if options.exact_start else max(first, plan.first_seq)
        last = plan.last_seq if options.end_seq is None else min(options.end_seq, plan.last_seq)
        now_ns = SystemClock().time_ns()
        start_ns, end_ns = resolved(options.start_time, now_ns), resolved(options.end_time, now_ns)
        if start_ns is not None:
            first = max(first, self._seek(name, start_ns, first))
        if end_ns is not None:
            last = min(last, self._seek(name, end_ns, last + 1) - 1)
        return Range(plan, first, last)

    def _seek(self, name: str, at_ns: int, otherwise: int) -> int:
        """Return the first sequence at or after a time; rows are compared once more as they come.

        A server that does not say is asked for everything.
        """
        found = self._options.server.streams().plan(name, NO_SEGMENTS, at_ns=max(at_ns, 1))
        return otherwise if found.time_seq is None else found.time_seq

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the Arrow batches of one partition."""
        return read_partition(partition)
