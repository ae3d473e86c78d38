"""Delta, Iceberg and database tables: read, written, and a batch that comes again adds nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.file.spec import Mode, TableSink
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.tables.batch_tables import batch_table

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_stream_goes_into_a_delta_table_once_and_the_table_is_a_source(bench: Any) -> None:
    deltalake = pytest.importorskip("deltalake", reason="Delta tables need deltalake")
    bench.create("TO-DELTA", "to-delta.>")
    bench.publish("to-delta.x", {"id": 1}, {"id": 2})
    pipeline = {
        "sources": {"rows": {"stream": "TO-DELTA", "json": "id bigint"}},
        "steps": [{"name": "ids", "sql": "select id, seq from rows"}],
        "sinks": [{"from": "ids", "delta": "delta"}],
    }
    bench.run(pipeline)
    commits = bench.checkpoint("test", "delta-delta") / "commits"
    for name in ("0", ".0.crc"):  # as if Spark had died before it wrote this down
        (commits / name).unlink()
    bench.run(pipeline)
    table = deltalake.DeltaTable(str(bench.home / "delta"))
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [1, 2]
    bench.run(
        {
            "name": "back",
            "sources": {"ids": {"delta": "delta"}},
            "sinks": [{"from": "ids", "parquet": "from-delta"}],
        }
    )
    assert bench.parquet("from-delta", "id", "seq") == [(1, 1), (2, 2)]


def test_a_checkpoint_at_a_url_that_was_removed_loses_nothing(bench: Any) -> None:
    deltalake = pytest.importorskip("deltalake", reason="Delta tables need deltalake")
    bench.create("BY-URL", "by-url.>")
    bench.publish("by-url.x", {"id": 1})
    pipeline = {
        "checkpoint": f"file://{bench.home}/kept",
        "sources": {"rows": {"stream": "BY-URL", "json": "id bigint"}},
        "steps": [{"name": "ids", "sql": "select id from rows"}],
        "sinks": [{"from": "ids", "delta": "by-url"}],
    }
    bench.run(pipeline)
    shutil.rmtree(bench.home / "kept")  # batches count from 0 again, and hold other rows
    bench.publish("by-url.x", {"id": 2})
    bench.run(pipeline)
    table = deltalake.DeltaTable(str(bench.home / "by-url"))
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [1, 1, 2]


class Written:
    """A frame that only notes where it is written to."""

    def __init__(self) -> None:
        self.places: list[str] = []

    @property
    def write(self) -> "Written":
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self

    def parquet(self, place: str) -> None:
        self.places.append(place)


@pytest.mark.parametrize("mode", [Mode.COMPLETE, Mode.OVERWRITE])
def test_a_whole_table_at_a_url_is_written_there(mode: Mode, tmp_path: Path) -> None:
    sink, frame = TableSink("s", "rows", "parquet", "s3://bucket/rows", mode), Written()
    assert batch_table(sink, "").put(frame, None) is None
    assert frame.places == ["s3://bucket/rows"]


def test_an_iceberg_table_takes_a_batch_once_and_is_a_source(bench: Any) -> None:
    pytest.importorskip("pyiceberg", reason="Iceberg tables need pyiceberg")
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{bench.home}/catalog.db",
        "warehouse": f"file://{bench.home}/warehouse",
    }
    sink = TableSink("s", "rows", "iceberg", "db.rows", catalog=catalog)
    frame = bench.spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, name string")
    batch_table(sink, "query-1").put(frame, 0)
    batch_table(sink, "query-1").put(frame, 0)  # Spark repeats it
    batch_table(sink, "query-2").put(frame.where("id = 2"), 0)  # another query's batch 0
    bench.run(
        {
            "sources": {"rows": {"iceberg": "db.rows", "catalog": catalog}},
            "sinks": [{"from": "rows", "parquet": "from-iceberg"}],
        }
    )
    assert bench.parquet("from-iceberg", "id", "name") == [(1, "a"), (2, "b"), (2, "b")]


def test_rows_go_into_a_database_by_its_driver(bench: Any, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path}/db;create=true"  # the one driver that comes with Spark
    bench.spark.range(3).selectExpr("cast(id as int) id").write.parquet(str(tmp_path / "ids"))
    bench.run(
        {
            "sources": {"ids": {"parquet": "ids"}},
            "sinks": [{"from": "ids", "jdbc": url, "options": {"dbtable": "ids"}}],
        }
    )
    found = bench.spark.read.format("jdbc").option("url", url).option("dbtable", "ids").load()
    assert sorted(row[0] for row in found.collect()) == [0, 1, 2]


def test_a_database_without_its_driver_says_which_jar_to_give(bench: Any) -> None:
    bench.create("TO-DB", "to-db.>")
    bench.publish("to-db.x", {"id": 1})
    for more, told in (
        ({}, "no driver for jdbc:postgresql: get the jar org.postgresql:postgresql"),
        ({"driver": "org.example.Driver"}, "no driver org.example.Driver: get the jar"),
    ):
        pipeline = {
            "sources": {"rows": {"stream": "TO-DB", "json": "id bigint"}},
            "steps": [{"name": "ids", "sql": "select id from rows"}],
            "sinks": [
                {
                    "from": "ids",
                    "jdbc": "jdbc:postgresql://127.0.0.1:1/x?password=secret",
                    "options": {"dbtable": "t", **more},
                }
            ],
        }
        with pytest.raises(PipelineError) as failure:
            bench.run(pipeline)
        text = str(failure.value)
        assert told in text
        assert "spark: {spark.jars:" in text
        assert "secret" not in text
        assert "\n" not in text


def test_a_database_needs_a_table() -> None:
    data = {"sources": {"a": {"parquet": "x"}}, "sinks": [{"from": "a", "jdbc": "jdbc:x:y"}]}
    with pytest.raises(Exception, match="'dbtable' is missing"):
        parse(Document("p", data))
