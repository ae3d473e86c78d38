"""Makes a Spark session know the source, and run it with the Python that imported this."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from millstream.spark.source import MillstreamSource
from millstream.spark.worker_python import lasting_python

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# What a streaming query puts into the environment of its source's workers as it starts. All queries
# of a session share that map, and Spark 4.3 puts without a lock, even while tasks pickle the map:
# two new keys at once can spoil it for good. A key that is there already only gets its value again.
PUT_BY_QUERIES = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
_known: "WeakSet[SparkSession]" = WeakSet()


def register(spark: "SparkSession") -> None:
    """Register ``format("millstream")`` in a session.

    Spark starts its workers with whatever ``python3`` is first on the PATH, which usually has
    neither pyarrow nor this package; unless the user chose one by ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python``, they get the Python of this process. A Spark Connect session has no
    say in that: its server's Python must have millstream installed.
    """
    context = _context_of(spark)
    if context is None:
        spark.dataSource.register(MillstreamSource)
    else:
        _use_this_python(context)
        with _whole_environment(context):
            spark.dataSource.register(MillstreamSource)
    _known.add(spark)


def registered(spark: "SparkSession") -> None:
    """Register it unless that was done: it costs more than to plan a small read."""
    if spark not in _known:
        register(spark)


def can_open(spark: "SparkSession", url: str) -> bool:
    """Whether this Spark itself can open a file at a url: it has the file system, and may look.

    A session of Spark Connect cannot be asked to look; what its configuration names is believed.
    """
    context = _context_of(spark)
    if context is None:
        scheme = url.partition("://")[0]
        return spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", None) is not None
    from py4j.protocol import Py4JError  # a client of Spark Connect may be without it

    try:
        path = context._jvm.org.apache.hadoop.fs.Path(url)
        hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        return bool(path.getFileSystem(hadoop).exists(path))
    except Py4JError as error:
        log.info("not opened by Spark, the server reads it url=%s error=%s", url, error)
        return False


def _context_of(spark: "SparkSession") -> "SparkContext | None":
    try:
        return spark.sparkContext
    except Exception:  # Spark Connect: the attribute exists and raises
        return None


def _use_this_python(context: "SparkContext") -> None:
    if "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python"):
        return
    # On a cluster the command would have to be on every machine, and only this Python may be.
    local = context.master.startswith("local")
    context.pythonExec = lasting_python() if local else sys.executable


@contextmanager
def _whole_environment(context: "SparkContext") -> Iterator[None]:
    """Give what is registered meanwhile every key that queries will put; Spark sets each anew."""
    before = dict(context.environment)
    for name in PUT_BY_QUERIES:
        context.environment.setdefault(name, "")
    try:
        yield
    finally:
        context.environment.clear()
        context.environment.update(before)
