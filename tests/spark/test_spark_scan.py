"""A stream as a table without cold files: the rows of the source, past its interface."""

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from planned_orders import LIVE, damage, planned_orders, seqs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from segment_writer import PlannedStream, serving

from millstream.spark import count, table
from millstream.spark.options import parse
from millstream.spark.problems import DataLoss
from millstream.spark.reading.partitions import read_partition
from millstream.spark.reading.scan import read_tasks, scan
from millstream.spark.source import BatchReader

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def stream(tmp_path: Path) -> PlannedStream:
    return planned_orders(tmp_path)


@pytest.fixture
def url(stream: PlannedStream) -> Iterator[str]:
    with serving({"ORDERS": stream, "BILLS": stream}) as served:
        yield served


def rows(frame: DataFrame) -> list[str]:
    found = frame.selectExpr("seq", "to_json(struct(*)) as row").collect()
    return [one.row for one in sorted(found, key=lambda one: one.seq)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"includeHeaders": "true", "payloadJson": "true", "failOnDataLoss": "false"},
        {"columns": "subject,seq"},
        {"subject": "orders.*", "startSeq": "35", "endSeq": "85"},
        {"startTime": "2023-11-14T22:13:50Z", "endTime": "2023-11-14T22:14:10Z"},
        {"startSeq": "101"},
        {"access": "broker", "maxRecordsPerPartition": "15"},
    ],
)
def test_a_table_has_the_rows_of_the_source(
    spark: SparkSession, url: str, options: dict[str, str]
) -> None:
    source = spark.read.format("millstream").options(url=url, stream="ORDERS", **options).load()
    frame = table(spark, "ORDERS", url=url, **options)
    assert frame.dtypes == source.dtypes
    assert max(frame.rdd.getNumPartitions(), 1) == source.rdd.getNumPartitions()
    assert rows(frame) == rows(source)


def test_each_task_gets_its_own_records_and_no_others(
    spark: SparkSession, url: str, stream: PlannedStream
) -> None:
    frame = table(spark, "ORDERS", url=url, maxRecordsPerPartition="15")
    assert frame.rdd.getNumPartitions() == 8
    assert seqs(frame) == LIVE
    assert stream.reads == 2  # the tail alone went through the server: 15 and 5 records


def test_a_worker_looks_for_garbage_only_among_what_a_task_made(
    spark: SparkSession, url: str
) -> None:
    options = parse({"url": url, "stream": "ORDERS"})
    partitions = BatchReader(options, ("seq",)).partitions()
    tasks = [pickle.dumps(one) for one in partitions]

    def look(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sum(len(batch) for batch in read_tasks(tasks, numbers))
        kept = [gc.get_freeze_count(), found]
        yield pa.RecordBatch.from_arrays([pa.array([n]) for n in kept], ["frozen", "found"])

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(look, "frozen bigint, found bigint").collect()
    assert row.frozen > 10_000
    assert row.found == len(LIVE)
    before = gc.get_freeze_count()
    assert sum(len(batch) for one in partitions for batch in read_partition(one)) == len(LIVE)
    assert gc.get_freeze_count() == before  # nobody else's process


def test_several_streams_are_one_scan(spark: SparkSession, url: str) -> None:
    found = scan(spark, parse({"url": url, "streams": "ORDERS,BILLS", "columns": "seq"}))
    assert seqs(found) == sorted(LIVE * 2)


def test_records_are_counted_where_they_are(spark: SparkSession, url: str) -> None:
    assert count(spark, "ORDERS", url=url) == 99
    assert count(spark, "ORDERS,BILLS", url=url) == 198
    assert count(spark, "ORDERS", url=url, subject="orders.us", endSeq="20") == 6  # without 7
    assert count(spark, "ORDERS", url=url, startSeq="101") == 0


def test_what_the_plan_says_is_lost_fails_where_the_table_is_made(
    spark: SparkSession, url: str, stream: PlannedStream
) -> None:
    stream.gaps = [(5, 6, "corruption")]
    with pytest.raises(DataLoss, match=r"has lost records 5..6 \(corruption\)"):
        table(spark, "ORDERS", url=url)
    frame = table(spark, "ORDERS", url=url, failOnDataLoss="false")
    (gap,) = frame.where("gap_from is not null").collect()
    assert (gap.stream, gap.seq, gap.gap_from, gap.gap_to) == ("ORDERS", None, 5, 6)
    assert count(spark, "ORDERS", url=url, failOnDataLoss="false") == 97


def test_what_a_task_finds_lost_fails_the_query(
    spark: SparkSession, url: str, stream: PlannedStream
) -> None:
    damage(stream, b'{"n":11}')
    frame = table(spark, "ORDERS", url=url)
    with pytest.raises(PySparkException, match=r"has lost records 11..11 \(corruption\)"):
        frame.collect()
    assert count(spark, "ORDERS", url=url) == 99  # which looks at the index


def test_files_that_went_away_after_the_plan_are_read_through_the_server(
    spark: SparkSession, url: str, stream: PlannedStream
) -> None:
    frame = table(spark, "ORDERS", url=url)
    Path(stream.segments[0].path).unlink()
    assert seqs(frame) == LIVE
