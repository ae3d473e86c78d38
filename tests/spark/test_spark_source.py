"""The source in a real local Spark: rows, options, losses and mistakes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from planned_orders import LIVE, damage, planned_orders, row, seqs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from segment_writer import PlannedStream, serving

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Load = Callable[..., DataFrame]


@pytest.fixture
def stream(tmp_path: Path) -> PlannedStream:
    return planned_orders(tmp_path)


@pytest.fixture
def load(spark: SparkSession, stream: PlannedStream) -> Iterator[Load]:
    with serving({"ORDERS": stream}) as url:

        def loaded(**options: object) -> DataFrame:
            given = {"url": url, "stream": "ORDERS"} | options
            return spark.read.format("millstream").options(**given).load()

        yield loaded


def failure(frame: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        frame()
    return str(caught.value)


def test_a_stream_is_a_table_of_files_and_tail(load: Load, stream: PlannedStream) -> None:
    frame = load(includeHeaders="true")
    assert frame.dtypes == [
        ("stream", "string"),
        ("seq", "bigint"),
        ("ts", "timestamp"),
        ("ts_ns", "bigint"),
        ("subject", "string"),
        ("payload", "string"),
        ("headers", "map<string,array<string>>"),
        ("tag", "string"),
        ("node", "string"),
        ("meta", "string"),
        ("payload_binary", "binary"),
    ]
    found = {r.seq: r for r in frame.collect()}
    assert sorted(found) == LIVE
    for seq, r in found.items():
        wrote = row(seq)
        assert (r.stream, r.ts_ns, r.subject.encode()) == ("ORDERS", wrote.ts_ns, wrote.subject)
        assert r.payload.encode() == wrote.payload
        assert r.ts.timestamp() * 1e9 == wrote.ts_ns
        assert r.headers == ({"Trace": ["a", "b"]} if seq % 10 == 0 else None)
        assert (r.tag, r.node) == ("even" if seq % 2 == 0 else None, None)
    assert stream.reads == 1  # only the tail went through the server


def test_counts_and_aggregates_equal_what_was_written(load: Load) -> None:
    frame = load()
    assert frame.count() == 99
    by_subject = {r.subject: r["count"] for r in frame.groupBy("subject").count().collect()}
    assert by_subject == {"orders.eu": 33, "orders.us": 33, "bills.eu": 33}
    assert frame.agg(F.sum("seq")).first()[0] == sum(LIVE)


def test_only_the_columns_asked_for_are_read(load: Load) -> None:
    frame = load(columns="payload,seq")
    assert frame.columns == ["payload", "seq"]
    assert seqs(frame) == LIVE


def test_a_schema_prunes_columns_too(spark: SparkSession, stream: PlannedStream) -> None:
    with serving({"ORDERS": stream}) as url:
        reader = spark.read.format("millstream").option("url", url).schema("seq bigint")
        assert seqs(reader.load("ORDERS")) == LIVE
        wrong = spark.read.format("millstream").option("url", url).schema("seq string")
        assert "column seq is bigint, not string" in failure(lambda: wrong.load("ORDERS").count())


def test_a_subject_filter_selects_rows(load: Load) -> None:
    expected = [seq for seq in LIVE if row(seq).subject == b"orders.us"]
    assert seqs(load(subject="orders.us")) == expected
    assert len(seqs(load(subject="orders.*"))) == 66


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startSeq": 35, "endSeq": 45}, range(35, 46)),
        ({"startSeq": 79}, range(79, 101)),
        ({"endSeq": 3}, range(1, 4)),
        ({"startSeq": 101}, range(0)),
        ({"startTime": "2023-11-14T22:13:50Z", "endTime": "2023-11-14T22:14:10Z"}, range(30, 50)),
        ({"startTime": "-1h"}, range(0)),
        ({"startSeq": 95, "access": "broker"}, range(95, 101)),
        ({"startSeq": 20, "endSeq": 30, "access": "files"}, range(20, 31)),
    ],
)
def test_a_range_is_exact(load: Load, options: dict[str, object], expected: range) -> None:
    assert seqs(load(**options)) == list(expected)


def test_records_per_partition_bound_the_tasks(load: Load) -> None:
    assert load().rdd.getNumPartitions() == 1  # two small files and the tail
    assert load(minPartitions=3).rdd.getNumPartitions() == 3
    frame = load(maxRecordsPerPartition=15)
    assert frame.rdd.getNumPartitions() == 8
    assert seqs(frame) == LIVE


def test_files_that_went_away_are_read_through_the_server(
    load: Load, stream: PlannedStream
) -> None:
    frame = load()
    Path(stream.segments[0].path).unlink()
    assert seqs(frame) == LIVE
    assert "cannot read" in failure(load(access="files").collect)


def test_a_damaged_record_fails_the_read_and_is_named(load: Load, stream: PlannedStream) -> None:
    damage(stream, b"payload 12")
    assert "has lost records 12..12 (corruption)" in failure(load().collect)


def test_a_damaged_record_becomes_a_gap_row_when_loss_is_allowed(
    load: Load, stream: PlannedStream
) -> None:
    damage(stream, b"payload 12")
    frame = load(failOnDataLoss="false")
    assert seqs(frame.where("gap_from is null")) == [seq for seq in LIVE if seq != 12]
    (gap,) = frame.where("gap_from is not null").collect()
    assert (gap.stream, gap.seq, gap.payload) == ("ORDERS", None, None)
    assert (gap.gap_from, gap.gap_to, gap.gap_reason) == (12, 12, "corruption")


def test_a_trimmed_range_matters_only_to_those_who_asked_for_it(
    load: Load, stream: PlannedStream
) -> None:
    stream.first_seq = 21
    stream.gaps = [(1, 20, "cap")]
    assert seqs(load()) == list(range(21, 101))
    assert "has lost records 5..20 (cap)" in failure(load(startSeq=5).collect)
    frame = load(startSeq=5, failOnDataLoss="false")
    (gap,) = frame.where("gap_from is not null").collect()
    assert (gap.gap_from, gap.gap_to, gap.gap_reason) == (5, 20, "cap")


def test_mistakes_are_answered_in_one_sentence(load: Load, spark: SparkSession) -> None:
    assert "unknown option 'subjects'; did you mean 'subject'?" in failure(
        lambda: load(subjects="a")
    )
    assert "the server has no stream named 'NOPE'" in failure(lambda: load(stream="NOPE").collect())
    absent = failure(lambda: load(url="http://127.0.0.1:9").collect())
    assert "127.0.0.1:9: Connection refused. Start a server with `millstream serve`" in absent
    assert "name the stream to read" in failure(lambda: spark.read.format("millstream").load())
