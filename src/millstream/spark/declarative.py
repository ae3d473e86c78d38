"""Spark Declarative Pipelines over streams: the session that the definitions use.

    from pyspark import pipelines as dp
    from millstream.spark.declarative import session

    spark = session()

    @dp.table
    def orders():
        return spark.readStream.format("millstream").option("stream", "ORDERS").load()

Nothing is registered here: Spark finds the source by itself, as its Python has this package.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Their client takes a report about a Python source for an unknown answer, and fails at the end of
# a run that went well.
MENDED_VERSIONS = frozenset({"4.3.0"})


def session() -> "SparkSession":
    """Return the session of the pipeline that reads this file; its client is mended if need be."""
    from pyspark.sql import SparkSession

    if pyspark.__version__ in MENDED_VERSIONS:
        _mend_client()
    return SparkSession.active()


def _mend_client() -> None:
    from pyspark.sql.connect.client.core import SparkConnectClient

    SparkConnectClient.execute_command_as_iterator = _answers


def _answers(client: Any, command: Any, observations: Any = None) -> Iterator[dict[str, Any]]:
    """Run a command and yield what it answers, without the metrics in between."""
    request = client._execute_plan_request_with_metadata()
    client._set_command_in_plan(request.plan, command)
    found = client._execute_and_fetch_as_iterator(request, observations or {})
    return (one for one in found if isinstance(one, dict))
