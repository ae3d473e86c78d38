"""Tables that take a micro-batch at a time, and know a batch that comes again."""

import shutil
from typing import TYPE_CHECKING, Any, Protocol

from millstream.pipelines.file.spec import Mode, TableSink
from millstream.pipelines.problems import MissingPackage, PipelineError
from millstream.pipelines.tables.parquet_table import (
    AppendedParquet,
    TableOwner,
    local_path,
    rows_in,
)
from millstream.pipelines.tables.tables import iceberg_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = "millstream.batch."  # property of an Iceberg snapshot: the last batch of a sink


class BatchTable(Protocol):
    """Where rows go; ``batch`` is None for a job that has no number."""

    def put(self, frame: "DataFrame", batch: int | None) -> int | None:
        """Add the rows, unless this batch is there already; returns how many, where it knows."""
        ...


def batch_table(sink: TableSink, identity: str, owner: TableOwner | None = None) -> BatchTable:
    """Return the table of a sink; ``identity`` tells its batches from those of others."""
    match sink.format:
        case "parquet" if sink.mode is Mode.APPEND:
            return AppendedParquet(sink, identity, owner)
        case "parquet":
            return WholeParquet(sink)
        case "delta":
            return DeltaTable(sink, identity)
        case "iceberg":
            return IcebergTable(sink, identity)
        case "jdbc":
            return JdbcTable(sink)
    raise PipelineError(f"there is no sink of format {sink.format!r}")


class WholeParquet:
    """A Parquet table that each batch replaces; readers see the old one or the new one.

    Not so at a url: there Spark itself removes the old files and writes the new ones.
    """

    def __init__(self, sink: TableSink) -> None:
        self._sink = sink

    def put(self, frame: "DataFrame", batch: int | None) -> int | None:
        """Write beside the table, then change places with it."""
        if self._sink.mode is Mode.COMPLETE:  # rewritten each time, so small: one file will do
            frame = frame.coalesce(1)
        path = local_path(self._sink.place)
        if path is None:
            self._write(frame, self._sink.place)
            return None
        new = path.with_name(f".{path.name}.new")
        old = path.with_name(f".{path.name}.old")
        self._write(frame, str(new))
        rows = rows_in(new)
        shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            path.rename(old)
        new.rename(path)
        shutil.rmtree(old, ignore_errors=True)
        return rows

    def _write(self, frame: "DataFrame", place: str) -> None:
        writer = frame.write.mode("overwrite").options(**self._sink.options)
        writer.partitionBy(*self._sink.partition_by).parquet(place)


class DeltaTable:
    """A Delta table by delta-rs; its log keeps the last batch of each sink."""

    def __init__(self, sink: TableSink, identity: str) -> None:
        try:
            import deltalake
        except ImportError:
            raise MissingPackage("deltalake", "a Delta sink") from None
        self._library: Any = deltalake
        self._sink = sink
        self._identity = identity

    def put(self, frame: "DataFrame", batch: int | None) -> int:
        """Add the rows in one transaction that names the batch."""
        properties = None
        if batch is not None:
            if self._has(batch):
                return 0
            mark = self._library.Transaction(app_id=self._identity, version=batch)
            properties = self._library.CommitProperties(app_transactions=[mark])
        rows = frame.toArrow()
        self._library.write_deltalake(
            self._sink.place,
            rows,
            mode="append" if self._sink.mode is Mode.APPEND else "overwrite",
            partition_by=list(self._sink.partition_by) or None,
            commit_properties=properties,
            storage_options=dict(self._sink.options) or None,
        )
        return int(rows.num_rows)

    def _has(self, batch: int) -> bool:
        options = dict(self._sink.options) or None
        if not self._library.DeltaTable.is_deltatable(self._sink.place, options):
            return False
        table = self._library.DeltaTable(self._sink.place, storage_options=options)
        last = table.transaction_version(self._identity)
        return last is not None and last >= batch


class IcebergTable:
    """An Iceberg table by pyiceberg; a snapshot names the batch that made it."""

    def __init__(self, sink: TableSink, identity: str) -> None:
        self._sink = sink
        self._mark = MARK + identity
        self._catalog = iceberg_catalog(sink.catalog)

    def put(self, frame: "DataFrame", batch: int | None) -> int:
        """Add the rows in one snapshot that names the batch."""
        rows = frame.toArrow()
        table = self._table(rows.schema)
        if batch is not None and self._has(table, batch):
            return 0
        properties = {} if batch is None else {self._mark: str(batch)}
        if self._sink.mode is Mode.APPEND:
            table.append(rows, snapshot_properties=properties)
        else:
            table.overwrite(rows, snapshot_properties=properties)
        return int(rows.num_rows)

    def _table(self, schema: Any) -> Any:
        namespace = self._sink.place.rpartition(".")[0]
        if namespace:
            self._catalog.create_namespace_if_not_exists(namespace)
        return self._catalog.create_table_if_not_exists(self._sink.place, schema=schema)

    def _has(self, table: Any, batch: int) -> bool:
        """Look through the snapshots from the newest: others may write to the table too."""
        for snapshot in sorted(table.metadata.snapshots, key=lambda one: -one.sequence_number):
            properties = snapshot.summary.additional_properties if snapshot.summary else {}
            if self._mark in properties:
                return int(properties[self._mark]) >= batch
        return False


_JARS = {
    "postgresql": "the jar org.postgresql:postgresql",
    "mysql": "the jar com.mysql:mysql-connector-j",
    "mariadb": "the jar org.mariadb.jdbc:mariadb-java-client",
    "sqlserver": "the jar com.microsoft.sqlserver:mssql-jdbc",
    "oracle": "the jar com.oracle.database.jdbc:ojdbc11",
    "sqlite": "the jar org.xerial:sqlite-jdbc",
    "h2": "the jar com.h2database:h2",
}


class JdbcTable:
    """A database table. A batch that Spark repeats is there twice: at least once."""

    def __init__(self, sink: TableSink) -> None:
        self._sink = sink

    def put(self, frame: "DataFrame", batch: int | None) -> None:
        """Insert the rows."""
        mode = "overwrite" if self._sink.mode is Mode.OVERWRITE else "append"
        writer = frame.write.format("jdbc").option("url", self._sink.place).mode(mode)
        try:
            writer.options(**self._sink.options).save()
        except Exception as error:
            if (missing := self._missing_driver(str(error))) is not None:
                raise PipelineError(missing) from None
            raise

    def _missing_driver(self, text: str) -> str | None:
        """Return what to do where Java has no driver for this database; None where it has."""
        named = self._sink.options.get("driver")
        if "No suitable driver" not in text and not (
            named and f"ClassNotFoundException: {named}" in text
        ):
            return None
        kind = ":".join(self._sink.place.split(":")[:2])  # the rest may hold a password
        jar = _JARS.get(kind.removeprefix("jdbc:"), "the jar of its driver")
        what = f"driver {named}" if named else f"driver for {kind}"
        return (
            f"Java has no {what}: get {jar} and name it in the file, "
            "spark: {spark.jars: /path/to/driver.jar}"
        )
