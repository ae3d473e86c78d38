"""The PySpark data source ``millstream``: reads a stream as a table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from millstream.spark import reader
from millstream.spark.columns import spark_schema
from millstream.spark.options import ReadOptions, parse
from millstream.spark.partitions import columns_of, planned, read_partition, task_for
from millstream.spark.problems import OptionError
from millstream.spark.subject_filter import pattern_of

if TYPE_CHECKING:
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

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        try:
            from millstream.spark.stream_source import StreamingReader
        except ImportError as error:
            raise OptionError("spark.readStream needs PySpark 4.2 or newer") from error
        return StreamingReader(self._read, columns_of(schema, self._read))


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
