"""Streaming queries in a real local Spark: exact batches, exact restarts, losses told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from segment_writer import PlannedStream, serving, write_segment
from spark_frames import Row

from millstream.spark import register
from millstream.spark.session import PUT_BY_QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

STREAM_ID = 42
T0 = 1_700_000_000_000_000_000


def rows(first: int, last: int) -> list[Row]:
    return [Row(s, T0 + s, b"orders", b"p%d" % s) for s in range(first, last + 1)]


@pytest.fixture
def stream(tmp_path: Path) -> PlannedStream:
    written = rows(1, 70)
    return PlannedStream([write_segment(tmp_path, written[:50], STREAM_ID)], written, STREAM_ID)


class Copy:
    """A query that copies the stream into Parquet files, run to the end of what there is."""

    def __init__(self, spark: SparkSession, url: str, home: Path) -> None:
        self._spark = spark
        self._url = url
        self._home = home

    def run(self, **options: object) -> StreamingQuery:
        given = {"url": self._url, "stream": "ORDERS"} | options
        frame = self._spark.readStream.format("millstream").options(**given).load()
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(self._home / "out"))
            .option("checkpointLocation", str(self._home / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def seqs(self) -> list[int]:
        found = self._spark.read.parquet(str(self._home / "out"))
        return sorted(r.seq for r in found.where("seq is not null").select("seq").collect())

    def gaps(self) -> list[tuple[int, int, str]]:
        found = self._spark.read.option("mergeSchema", "true").parquet(str(self._home / "out"))
        lost = found.where("gap_from is not null").collect()
        return [(r.gap_from, r.gap_to, r.gap_reason) for r in lost]


@pytest.fixture
def copy(spark: SparkSession, stream: PlannedStream, tmp_path: Path) -> Iterator[Copy]:
    with serving({"ORDERS": stream}) as url:
        yield Copy(spark, url, tmp_path)


def test_batches_keep_their_bound_and_a_restart_goes_on_where_it_was(
    copy: Copy, stream: PlannedStream
) -> None:
    query = copy.run(maxRecordsPerTrigger=30, columns="seq,payload")
    progress = [p for p in query.recentProgress if p.numInputRows]
    assert [p.numInputRows for p in progress] == [30, 30, 10]
    assert '"seq":70' in str(progress[0].sources[0].latestOffset).replace(" ", "")
    assert copy.seqs() == list(range(1, 71))
    stream.rows += rows(71, 90)
    copy.run(columns="seq,payload")
    assert copy.seqs() == list(range(1, 91))


def test_a_query_puts_no_new_key_into_the_environment_that_all_queries_share(
    copy: Copy, spark: SparkSession
) -> None:
    register(spark)
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    shared = manager.lookupDataSource("millstream").dataSourceCls().envVars()
    before = dict(shared)
    copy.run(columns="seq")
    assert set(shared) == set(before)
    put = {name for name in before if shared[name] != before[name]}
    assert put == set(PUT_BY_QUERIES)  # or Spark has changed, and this is no longer needed


def test_a_query_may_start_at_a_sequence_or_at_the_head(copy: Copy, stream: PlannedStream) -> None:
    copy.run(startFrom="latest", columns="seq")
    stream.rows += rows(71, 73)
    copy.run(startFrom="latest", columns="seq")
    assert copy.seqs() == [71, 72, 73]


def test_a_stream_made_anew_is_refused(copy: Copy, stream: PlannedStream) -> None:
    copy.run(startSeq=60, columns="seq")
    assert copy.seqs() == list(range(60, 71))
    stream.stream_id, stream.segments, stream.rows = 43, [], rows(1, 99)
    with pytest.raises(PySparkException, match="deleted and created again"):
        copy.run(columns="seq")


def test_a_range_lost_before_it_was_read_fails_the_query_or_becomes_a_row(
    copy: Copy, stream: PlannedStream
) -> None:
    copy.run(maxRecordsPerTrigger=70, failOnDataLoss="false", columns="seq")
    stream.rows += rows(71, 90)
    stream.first_seq, stream.gaps = 81, [(1, 80, "cap")]
    with pytest.raises(PySparkException, match=r"has lost records 71\.\.80 \(cap\)"):
        copy.run(columns="seq")
    copy.run(failOnDataLoss="false", columns="seq")
    assert copy.seqs() == [*range(1, 71), *range(81, 91)]
    assert copy.gaps() == [(71, 80, "cap")]


def test_options_that_only_a_table_has_are_refused(copy: Copy) -> None:
    with pytest.raises(PySparkException, match=r"endSeq belongs to spark\.read") as refusal:
        copy.run(endSeq=5)
    assert "UnboundLocalError" not in str(refusal.value)
