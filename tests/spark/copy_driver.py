"""A Spark driver for tests that kill it: copies a stream into a stream and into Parquet files.

python copy_driver.py URL HOME: runs until HOME/stop exists, then copies what is left and ends.
"""

import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from millstream.spark import register


def session(home: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m").config("spark.local.dir", str(home))
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.python.authenticate.socketTimeout", "120s")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    return spark


def writers(spark: SparkSession, url: str, home: Path) -> list[DataStreamWriter]:
    source = spark.readStream.format("millstream").option("url", url).option("columns", "seq")
    rows = source.option("maxRecordsPerTrigger", 3000).option("patience", 20).load("IN")
    records = rows.selectExpr("'out.' || (seq % 3) subject", "cast(seq as string) payload")
    stream = records.writeStream.format("millstream").option("url", url).option("stream", "OUT")
    stream = stream.option("patience", 20)
    files = rows.writeStream.format("parquet").option("path", str(home / "out"))
    return [
        stream.option("checkpointLocation", str(home / "to-stream")),
        files.option("checkpointLocation", str(home / "to-files")),
    ]


def start(writer: DataStreamWriter) -> StreamingQuery:
    return writer.trigger(processingTime="0 seconds").start()


def main() -> None:
    url, home = sys.argv[1], Path(sys.argv[2])
    spark = session(home / "spark")
    copies = writers(spark, url, home)
    queries = [start(copy) for copy in copies]
    while not (home / "stop").exists():
        for at, query in enumerate(queries):
            if not query.isActive:  # the broker was away for longer than its patience
                print(f"a query ended: {query.exception()}", flush=True)
                time.sleep(2)  # or the machine is busy, and more processes make it no faster
                queries[at] = start(copies[at])
        time.sleep(0.1)
    for query in queries:
        query.stop()
    for copy in copies:
        finish(copy)
    found = spark.read.parquet(str(home / "out")).groupBy("seq").count().collect()
    lines = [f"{row.seq} {row['count']}" for row in found]
    (home / "found").write_text("\n".join(lines))
    spark.stop()


def finish(copy: DataStreamWriter) -> None:
    for attempt in range(5):
        query = copy.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException:
            if attempt == 4:
                raise


if __name__ == "__main__":
    main()
