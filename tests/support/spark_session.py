"""The one small Spark session that all Spark tests of a process share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession


@contextmanager
def spark_session(home: Path) -> Iterator[SparkSession]:
    """Run Spark in this process until the block ends; ``home`` gets its files."""
    from millstream.spark import register

    os.environ.pop("PYSPARK_PYTHON", None)  # `register` must do without
    session = (
        SparkSession.builder.master("local[2]")
        .appName("millstream tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "120s")  # the machine may be busy
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()
