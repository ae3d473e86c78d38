"""Reads, writes and copies a stream in a session of another kind; prints what it counted.

elsewhere_job.py (connect|cluster) <url> <checkpoint>
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from millstream.spark import count, register, table


def main(kind: str, url: str, checkpoint: str) -> None:
    """Do it all in one session: starting one takes longest."""
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if kind == "connect":
        builder = builder.remote("local[2]")
    else:  # executors are processes of their own, as they are on other machines
        builder = builder.master("local-cluster[1,2,1024]")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(spark)
    seen: dict[str, Any] = {}
    for access in ("auto", "files", "broker"):
        frame = reading(spark.read, url, "ORDERS").option("access", access).load()
        seen[access] = sorted(tuple(row) for row in frame.groupBy("subject").count().collect())
    seen["table"] = table(spark, "ORDERS", url=url).count()
    seen["count"] = count(spark, "ORDERS", url=url)
    rows = frame.selectExpr("'out.x' subject", "payload")
    reading(rows.write.mode("append"), url, "OUT").save()
    copied = reading(spark.readStream, url, "ORDERS").load()
    query = (
        reading(copied.selectExpr("'out.y' subject", "payload").writeStream, url, "OUT")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    seen["ended"] = query.awaitTermination(240)
    written = reading(spark.read, url, "OUT").load()
    seen["written"] = sorted(tuple(row) for row in written.groupBy("subject").count().collect())
    print("seen", json.dumps(seen), flush=True)
    spark.stop()


def reading(of: Any, url: str, stream: str) -> Any:
    """Return a reader or writer of a stream."""
    return of.format("millstream").option("url", url).option("stream", stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
