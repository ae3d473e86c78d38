"""A batch read as a DataFrame that takes Arrow from its tasks, past Spark's data source interface.

Of a data source in Python, Spark copies every row twice on the way from Arrow to its own rows, and
asks for metrics every hundred rows; of ``mapInArrow`` it copies them once, for half of the time in
Java. What it costs: the read is planned where the frame is made, and filters stay with Spark.
"""

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millstream.spark.columns import spark_schema
from millstream.spark.options import ReadOptions
from millstream.spark.reading.partitions import read_partition
from millstream.spark.source import BatchReader
from millstream.spark.worker_socket import acknowledge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def scan(spark: "SparkSession", options: ReadOptions) -> "DataFrame":
    """Return the rows that the options ask for, as the server's plan is now.

    Raises what is wrong with the plan, such as ``DataLoss``, at once.
    """
    columns = options.table_columns()
    # Each by itself: a task unpickles its own, not all of a large read.
    tasks = [pickle.dumps(one) for one in BatchReader(options, columns).partitions()]

    def read_streams(numbers: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        return read_tasks(tasks, numbers)

    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return numbers.mapInArrow(read_streams, spark_schema(columns))


def read_tasks(
    tasks: Sequence[bytes], numbers: Iterator["pa.RecordBatch"]
) -> Iterator["pa.RecordBatch"]:
    """Yield the Arrow batches of the tasks whose numbers come in."""
    acknowledge()
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_partition(pickle.loads(tasks[number]))
