"""Tables as sources: Parquet by Spark itself, Delta and Iceberg by their Python libraries."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.pipelines.spec import TableSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", source: TableSource) -> "DataFrame":
    """Return the table as it is now."""
    if source.format == "parquet":
        frame: DataFrame = spark.read.parquet(source.place)
        return frame
    if source.format == "delta":
        return _from_arrow(spark, source, delta_table(source.place).to_pyarrow_table())
    table = iceberg_catalog(source.catalog).load_table(source.place)
    return _from_arrow(spark, source, table.scan().to_arrow())


def delta_table(place: str) -> Any:
    """Return the Delta table at a path."""
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise MissingPackage("deltalake", "a Delta table") from None
    return DeltaTable(place)


def iceberg_catalog(properties: Mapping[str, str]) -> Any:
    """Return the catalog that these properties describe (pyiceberg's own names)."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise MissingPackage("pyiceberg", "an Iceberg table") from None
    given = dict(properties)
    return load_catalog(given.pop("name", "default"), **given)


def _from_arrow(spark: "SparkSession", source: TableSource, table: Any) -> "DataFrame":
    """Return the rows: both libraries read in this process, so the table must fit into it."""
    if not table.num_columns:
        raise PipelineError(f"the table {source.place} has no columns")
    frame: DataFrame = spark.createDataFrame(table)
    return frame
