"""Tables as sources: files by Spark itself, Delta and Iceberg by their Python libraries."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.pipelines.file.spec import TableSource
from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.pipelines.tables.parquet_table import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "manifest.json"  # of a stream's cold history


def read(spark: "SparkSession", source: TableSource) -> "DataFrame":
    """Return the table as it is now."""
    if source.format == "parquet":
        return _parquet(spark, source.place)
    if source.format in ("csv", "json"):
        return _rows(spark, source)
    if source.format == "delta":
        return _from_arrow(spark, source, delta_table(source.place).to_pyarrow_table())
    table = iceberg_catalog(source.catalog).load_table(source.place)
    return _from_arrow(spark, source, table.scan().to_arrow())


def is_delta(place: str) -> bool:
    """Say whether a directory is a Delta table: its files are no table without its log."""
    path = local_path(place)
    return path is not None and (path / "_delta_log").is_dir()


def _parquet(spark: "SparkSession", place: str) -> "DataFrame":
    """Return the rows of files, or of a stream's cold history as its manifest tells them."""
    if is_delta(place):
        raise PipelineError(f"{place} is a Delta table: read it as delta, by its log")
    path = local_path(place)
    if path is not None and (path / MANIFEST).is_file():
        return _cold(spark, path)
    frame: DataFrame = spark.read.parquet(place)
    return frame


def _rows(spark: "SparkSession", source: TableSource) -> "DataFrame":
    """Return the rows of text files; a CSV has a line of names unless its options deny it."""
    reader = spark.read.options(**{"header": "true", "mode": "FAILFAST", **source.options})
    if source.schema is not None:
        reader = reader.schema(source.schema)
    elif source.format == "csv":
        reader = reader.option("inferSchema", "true")
    frame: DataFrame = reader.format(source.format).load(source.place)
    return frame


class _Twin(msgspec.Struct):
    name: str


class _ColdFile(msgspec.Struct):
    base_seq: int
    last_seq: int
    parquet: _Twin | None = None


class _Cold(msgspec.Struct):
    files: list[_ColdFile] = []
    deleted: list[tuple[int, int]] = []


class _Manifest(msgspec.Struct):
    manifest: _Cold


def _cold(spark: "SparkSession", folder: Path) -> "DataFrame":
    """Return the records in a stream's folder at the cold place, without those deleted since."""
    try:
        cold = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest).manifest
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"{folder / MANIFEST} does not describe cold history: {error}"
        ) from error
    if not cold.files:
        raise PipelineError(f"{folder} holds no cold history yet")
    for file in cold.files:
        if file.parquet is None:
            raise PipelineError(
                f"{folder}: records {file.base_seq} to {file.last_seq} have no Parquet file (the "
                "server had no pyarrow, or the stream is encrypted): archive the stream instead"
            )
    names = [str(folder / file.parquet.name) for file in cold.files if file.parquet is not None]
    frame: DataFrame = spark.read.parquet(*names)
    if not cold.deleted:
        return frame
    gone = spark.createDataFrame(cold.deleted, "_first bigint, _last bigint")
    return frame.join(gone, frame.seq.between(gone["_first"], gone["_last"]), "left_anti")


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
