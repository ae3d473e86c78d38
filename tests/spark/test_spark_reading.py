"""Several streams, bounded batches, pushed filters, positions shown: reads of a running broker."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from millstream.message import NewRecord
from millstream.spark import table
from millstream.spark.options import parse
from millstream.spark.reading.stream_source import StreamingReader
from millstream.spark.source import BatchReader
from support.small_broker import SmallBroker, small_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path / "data", segment_records=20) as running:
        for name in ("LOG-A", "LOG-B", "OTHER"):
            running.create(name)
        yield running


def fill(broker: SmallBroker, name: str, count: int) -> None:
    for n in range(count):
        payload = b'{"n":%d}' % n if n % 2 else b"no json"
        broker.append(name, [NewRecord(name.encode(), payload)])


def copied(
    spark: SparkSession, broker: SmallBroker, home: Path, **options: object
) -> StreamingQuery:
    given = {"url": broker.url, "columns": "stream,seq"} | options
    query = (
        spark.readStream.format("millstream")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def found(spark: SparkSession, home: Path) -> list[tuple[str, int]]:
    rows = spark.read.parquet(str(home / "out")).collect()
    return sorted((row.stream, row.seq) for row in rows)


def seqs(name: str, first: int, last: int) -> list[tuple[str, int]]:
    return [(name, seq) for seq in range(first, last + 1)]


def test_a_query_over_a_pattern_takes_up_streams_that_come_later(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    fill(broker, "LOG-A", 30)
    fill(broker, "OTHER", 5)
    copied(spark, broker, tmp_path, streams="LOG-*", maxRecordsPerTrigger=20)
    assert found(spark, tmp_path) == seqs("LOG-A", 1, 30)
    broker.create("LOG-C")
    fill(broker, "LOG-C", 25)
    broker.trim("LOG-C", 6, "cap")  # what was gone before the query came is no loss of its
    fill(broker, "LOG-B", 10)
    query = copied(spark, broker, tmp_path, streams="LOG-*", maxRecordsPerTrigger=20)
    expected = [*seqs("LOG-A", 1, 30), *seqs("LOG-B", 1, 10), *seqs("LOG-C", 6, 25)]
    assert found(spark, tmp_path) == expected
    assert max(p.numInputRows for p in query.recentProgress) <= 21
    copied(spark, broker, tmp_path, streams="LOG-*")
    assert found(spark, tmp_path) == expected
    broker.delete_stream("LOG-B")
    with pytest.raises(PySparkException, match="'LOG-B' is gone"):
        copied(spark, broker, tmp_path, streams="LOG-*")


def test_micro_batches_keep_a_bound_in_bytes(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    for _ in range(50):
        broker.append("LOG-A", [NewRecord(b"LOG-A", b"x" * 934)])  # frames of 1000 bytes
    query = copied(spark, broker, tmp_path, stream="LOG-A", maxBytesPerTrigger=20_000)
    rows = [p.numInputRows for p in query.recentProgress if p.numInputRows]
    assert rows == [20, 20, 10]
    assert found(spark, tmp_path) == seqs("LOG-A", 1, 50)


def test_a_query_may_start_at_a_time_and_shows_where_it_is(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    fill(broker, "LOG-A", 10)
    frames = broker.do(lambda: broker.stream("LOG-A").read(7, 1, 1 << 20))
    ts_ns = frames.record(0)[1] // 1000 * 1000 + 1000
    moment = datetime.fromtimestamp(ts_ns // 10**9, UTC).replace(microsecond=ts_ns // 1000 % 10**6)
    first = broker.do(lambda: broker.stream("LOG-A").log.seek_time(ts_ns))
    given = {"stream": "LOG-A", "consumer": "copy", "retentionHold": 30}
    copied(spark, broker, tmp_path, startTime=moment.isoformat(), **given)
    assert found(spark, tmp_path) == seqs("LOG-A", first, 10)
    fill(broker, "LOG-A", 3)
    copied(spark, broker, tmp_path, **given)
    (consumer,) = broker.do(lambda: broker.consumers.of(broker.stream("LOG-A")))
    assert consumer.name == "copy"
    assert broker.do(lambda: consumer.cursor.position) >= 11


def test_progress_shows_the_heads(broker: SmallBroker) -> None:
    fill(broker, "LOG-A", 10)
    options = parse({"url": broker.url, "stream": "LOG-A", "maxRecordsPerTrigger": "4"})
    reader = StreamingReader(options, ("seq",))
    assert reader.reportLatestOffset() is None
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert end["LOG-A"]["seq"] == 4
    assert reader.reportLatestOffset()["LOG-A"]["seq"] == 10
    reader.stop()


def test_ranges_are_cut_into_as_many_tasks_as_asked_for(broker: SmallBroker) -> None:
    fill(broker, "LOG-A", 60)
    fill(broker, "LOG-B", 30)
    options = parse({"url": broker.url, "streams": "LOG-A,LOG-B", "minPartitions": "12"})
    reader = BatchReader(options, ("seq",))
    parts = reader.partitions()
    assert len(parts) >= 12
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(rows) == 90
    options.server.streams().close()


def test_pushed_filters_narrow_what_is_read(spark: SparkSession, broker: SmallBroker) -> None:
    fill(broker, "LOG-A", 60)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = table(spark, "LOG-A", url=broker.url)
        some = frame.where("seq >= 25 and seq < 28 and subject = 'LOG-A'")
        assert [row.seq for row in some.collect()] == [25, 26, 27]
        assert some.rdd.getNumPartitions() == 1
        assert frame.where("seq > 60").count() == 0
        assert frame.where("ts > timestamp'2020-01-01' and seq <= 2").count() == 2
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_table_is_one_moment_and_knows_json(spark: SparkSession, broker: SmallBroker) -> None:
    fill(broker, "LOG-A", 10)
    frame = table(spark, "LOG-A", url=broker.url, payload_json=True)
    fill(broker, "LOG-A", 5)
    rows = frame.selectExpr("seq", "try_variant_get(payload_json, '$.n', 'int') n").collect()
    expected = [(n + 1, n if n % 2 else None) for n in range(10)]
    assert sorted((row.seq, row.n) for row in rows) == expected
    reader = spark.read.format("millstream").option("url", broker.url)
    same = reader.option("columns", "seq,payload_json").option("endSeq", 10).load("LOG-A")
    rows = same.selectExpr("seq", "payload_json:n::int n").collect()
    assert sorted((row.seq, row.n) for row in rows) == expected
    assert json.loads(same.where("seq = 2").first().payload_json.toJson()) == {"n": 1}
