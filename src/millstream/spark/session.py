"""Makes a Spark session know the source, and run it with the Python that imported this."""

import os
import sys
from typing import TYPE_CHECKING

from millstream.spark.source import MillstreamSource
from millstream.spark.worker_python import lasting_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register ``format("millstream")`` in a session.

    Spark starts its workers with whatever ``python3`` is first on the PATH, which usually has
    neither pyarrow nor this package; unless the user chose one by ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python``, they get the Python of this process. A Spark Connect session has no
    say in that: its server's Python must have millstream installed.
    """
    _use_this_python(spark)
    spark.dataSource.register(MillstreamSource)


def _use_this_python(spark: "SparkSession") -> None:
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect: the attribute exists and raises
        return
    if "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python"):
        return
    # On a cluster the command would have to be on every machine, and only this Python may be.
    local = context.master.startswith("local")
    context.pythonExec = lasting_python() if local else sys.executable
