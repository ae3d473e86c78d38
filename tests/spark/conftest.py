"""One small local Spark session for all Spark tests."""

from collections.abc import Iterator

import pytest

pyspark = pytest.importorskip("pyspark", reason="the Spark tests need pyspark")
pytest.importorskip("pyarrow", reason="the Spark tests need pyarrow")

from pyspark.sql import SparkSession  # noqa: E402

from support.spark_session import spark_session  # noqa: E402


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
