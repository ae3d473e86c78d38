"""Spark and a running broker: what NATS clients published is what Spark reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.client import connect
from millstream.client.streams import StreamMissing
from millstream.message import NewRecord
from millstream.spark import count, table
from millstream.spark.options import parse
from millstream.spark.problems import DataLoss, StreamReplaced
from millstream.spark.reading.stream_source import StreamingReader
from millstream.spark.source import BatchReader
from millstream.streams.config.config import StreamConfig
from support.small_broker import SmallBroker, small_broker
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT = 1_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    """A stream of four sealed segments and a tail of 200 records, published by a NATS client."""
    with small_broker(tmp_path / "data", segment_records=200) as running:
        running.create("ORDERS", ["orders.>"])
        publish(running, 1, COUNT)
        running.seal("ORDERS", 4)
        yield running


def publish(broker: SmallBroker, first: int, last: int) -> None:
    with connect(broker.url) as client:
        for number in range(first, last + 1):
            client.publish(f"orders.{number % 4}", b"number %d" % number, {"N": str(number)})
            if number % 50 == 0:  # small batches, so that segments end near their bound
                client.request(f"orders.{number % 4}x", b"")
        client.flush()


def load(spark: SparkSession, broker: SmallBroker, **options: object) -> DataFrame:
    given = {"url": broker.url, "stream": "ORDERS"} | options
    return spark.read.format("millstream").options(**given).load()


def numbers(frame: DataFrame) -> list[int]:
    found = frame.where("length(payload) > 0").select("payload").collect()
    return sorted(int(row.payload.split()[1]) for row in found)


def test_what_was_published_is_what_spark_reads(spark: SparkSession, broker: SmallBroker) -> None:
    plan = broker.do(lambda: broker._store.plan(broker.stream("ORDERS").incarnation))
    assert len(plan) >= 4
    for access in ("auto", "broker"):
        frame = load(spark, broker, access=access, includeHeaders="true")
        assert numbers(frame) == list(range(1, COUNT + 1))
        row = frame.where("cast(payload as string) = 'number 7'").first()
        assert (row.subject, row.headers) == ("orders.3", {"N": ["7"]})
    assert len(numbers(load(spark, broker, subject="orders.1"))) == COUNT // 4


def test_deleted_records_are_absent_from_files_and_tail(
    spark: SparkSession, broker: SmallBroker
) -> None:
    before = {r.seq for r in load(spark, broker).select("seq").collect()}
    assert count(spark, "ORDERS", url=broker.url) == len(before)
    gone = [2, 150, max(before)]
    assert broker.delete("ORDERS", gone) == 3
    broker.flushed("ORDERS")
    assert {r.seq for r in load(spark, broker).select("seq").collect()} == before - set(gone)
    assert count(spark, "ORDERS", url=broker.url) == len(before) - 3
    assert count(spark, "ORDERS", url=broker.url, startSeq="1", endSeq="3") == 2


def test_a_damaged_record_is_told_and_never_served(
    spark: SparkSession, broker: SmallBroker
) -> None:
    segment = broker.do(lambda: broker._store.plan(broker.stream("ORDERS").incarnation))[1]
    with open(segment.path, "r+b") as file:
        content = file.read()
        position = content.index(b"number 3")
        file.seek(position)
        file.write(b"NUMBER 3")
    with pytest.raises(PySparkException, match=r"has lost records .* \(corruption\)"):
        load(spark, broker).collect()
    frame = load(spark, broker, failOnDataLoss="false")
    (gap,) = frame.where("gap_from is not null").collect()
    assert gap.gap_from == gap.gap_to
    assert len(numbers(frame)) == COUNT - 1
    assert gap.gap_from not in {r.seq for r in frame.select("seq").collect()}


def test_a_tail_that_seals_after_planning_is_read_all_the_same(broker: SmallBroker) -> None:
    reader = BatchReader(parse({"url": broker.url, "stream": "ORDERS"}), ("seq",))
    partitions = reader.partitions()
    head = broker.do(lambda: broker.stream("ORDERS").log.state().last_seq)
    publish(broker, COUNT + 1, COUNT + 400)
    broker.seal("ORDERS", 6)
    found = [
        seq
        for partition in partitions
        for batch in reader.read(partition)
        for seq in batch.column("seq").to_pylist()
    ]
    assert found == list(range(1, head + 1))


def test_a_segment_trimmed_after_planning_is_told(broker: SmallBroker) -> None:
    options = {"url": broker.url, "stream": "ORDERS", "failOnDataLoss": "false"}
    reader = BatchReader(parse(options), ("seq", "gap_from", "gap_to", "gap_reason"))
    partitions = reader.partitions()
    head = broker.do(lambda: broker.stream("ORDERS").log.state().last_seq)
    parts = [part for partition in partitions for part, _ in partition.value]
    first_kept = parts[1].from_seq
    broker.trim("ORDERS", first_kept, "cap")
    removed = Path(parts[0].path)
    until(lambda: not removed.exists())  # the file goes behind the trim
    rows = [
        row
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    assert [row["seq"] for row in rows if row["seq"]] == list(range(first_kept, head + 1))
    assert [tuple(row.values()) for row in rows if row["gap_from"]] == [
        (None, 1, first_kept - 1, "retention")
    ]


def test_a_query_copies_a_growing_stream_exactly_once(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    reader = spark.readStream.format("millstream").option("url", broker.url)
    frame = reader.option("maxRecordsPerTrigger", 400).load("ORDERS")
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    for last in (COUNT, COUNT + 500):
        if last > COUNT:
            publish(broker, COUNT + 1, last)
        query = (
            frame.writeStream.format("parquet")
            .option("path", out)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert numbers(spark.read.parquet(out)) == list(range(1, last + 1))


def test_a_stream_deleted_and_made_anew_ends_the_query(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    def run() -> None:
        reader = spark.readStream.format("millstream").option("url", broker.url)
        query = (
            reader.load("ORDERS")
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    broker.delete_stream("ORDERS")
    broker.create("ORDERS", ["orders.>"])
    publish(broker, 1, 10)
    with pytest.raises(PySparkException, match="deleted and created again"):
        run()


def test_a_stream_of_another_server_is_refused_by_a_checkpoint(
    broker: SmallBroker, tmp_path: Path
) -> None:
    def reader(at: SmallBroker) -> StreamingReader:
        return StreamingReader(parse({"url": at.url, "stream": "ORDERS"}), ("seq",))

    begun = reader(broker).initialOffset()
    with small_broker(tmp_path / "elsewhere") as other:
        other.create("ORDERS", ["orders.>"])
        assert other.stream("ORDERS").incarnation == broker.stream("ORDERS").incarnation
        with pytest.raises(StreamReplaced, match=r"on another server .* checkpointLocation"):
            reader(other).latestOffset(begun, ReadAllAvailable())
    end = reader(broker).latestOffset(begun, ReadAllAvailable())
    assert end["ORDERS"]["seq"] == broker.stream("ORDERS").state().last_seq
    # A checkpoint of an earlier version goes on, and is bound to the stream from then on.
    older = {"v": 1, "ORDERS": {"seq": 3, "incarnation": begun["ORDERS"]["incarnation"]}}
    assert reader(broker).latestOffset(older, ReadAllAvailable()) == end


def test_a_stream_in_memory_is_another_one_after_a_restart(tmp_path: Path) -> None:
    def reader(at: SmallBroker) -> StreamingReader:
        return StreamingReader(parse({"url": at.url, "stream": "KEPT"}), ("seq",))

    for durability, refused in (("ephemeral", True), ("disk", False)):
        config = {"name": "KEPT", "metadata": {"millstream.durability": durability}}
        with small_broker(tmp_path / durability) as before:
            before.run(before._catalog.create(StreamConfig.from_request(config)))
            before.append("KEPT", [NewRecord(subject=b"KEPT", payload=b"1")])
            begun = reader(before).latestOffset(reader(before).initialOffset(), ReadAllAvailable())
        with small_broker(tmp_path / durability) as after:
            after.append("KEPT", [NewRecord(subject=b"KEPT", payload=b"2") for _ in range(2)])
            if refused:
                with pytest.raises(StreamReplaced, match="in memory alone"):
                    reader(after).latestOffset(begun, ReadAllAvailable())
            else:
                end = reader(after).latestOffset(begun, ReadAllAvailable())
                assert end["KEPT"]["seq"] > begun["KEPT"]["seq"]


def test_a_server_that_was_set_back_is_told(broker: SmallBroker) -> None:
    def reader(**options: str) -> StreamingReader:
        return StreamingReader(parse({"url": broker.url, "stream": "ORDERS"} | options), ("seq",))

    last = broker.stream("ORDERS").state().last_seq
    ahead = reader().initialOffset()
    ahead["ORDERS"]["seq"] = last + 7
    with pytest.raises(DataLoss, match=rf"ends at {last}, and .* up to {last + 7}: .* set back"):
        reader().latestOffset(ahead, ReadAllAvailable())
    end = reader(failOnDataLoss="false").latestOffset(ahead, ReadAllAvailable())
    assert end["ORDERS"]["seq"] == last + 7


def test_a_query_tells_a_stream_that_never_was_from_one_that_is_gone(broker: SmallBroker) -> None:
    def reader(streams: str, **options: str) -> StreamingReader:
        return StreamingReader(parse({"url": broker.url, "streams": streams} | options), ("seq",))

    misspelt = reader("ORDERZ")
    misspelt.prepareForTriggerAvailableNow()
    with pytest.raises(StreamMissing, match="no stream named 'ORDERZ'"):
        misspelt.initialOffset()
    broker.create("BILLS", ["bills"])
    begun = reader("ORDERS,BILLS").initialOffset()
    broker.delete_stream("BILLS")
    with pytest.raises(DataLoss, match="stream 'BILLS' is gone"):
        reader("ORDERS,BILLS").latestOffset(begun, ReadAllAvailable())
    others = reader("ORDERS,BILLS", failOnDataLoss="false")
    others.prepareForTriggerAvailableNow()
    end = others.latestOffset(begun, ReadAllAvailable())
    assert end["ORDERS"]["seq"] > COUNT
    assert end["BILLS"] == begun["BILLS"]
    with pytest.raises(StreamMissing, match="no stream named 'NEW'"):
        reader("ORDERS,NEW").latestOffset(reader("ORDERS").initialOffset(), ReadAllAvailable())


def test_a_batch_that_was_planned_before_its_stream_went_is_told_as_lost(
    broker: SmallBroker,
) -> None:
    def reader(**options: str) -> StreamingReader:
        asked = parse({"url": broker.url, "streams": "ORDERS,BILLS"} | options)
        return StreamingReader(asked, ("stream", "seq", "gap_from", "gap_to", "gap_reason"))

    broker.create("BILLS", ["bills"])
    begun = reader().initialOffset()
    broker.append("BILLS", [NewRecord(payload=b"1", subject=b"bills") for _ in range(3)])
    end = reader().latestOffset(begun, ReadAllAvailable())
    broker.delete_stream("BILLS")  # the batch is in the offset log: a restart asks for it again
    with pytest.raises(DataLoss, match="stream 'BILLS' is gone"):
        reader().partitions(begun, end)
    goes_on = reader(failOnDataLoss="false")
    batches = [one for part in goes_on.partitions(begun, end) for one in goes_on.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(row["seq"] for row in rows if row["seq"]) == list(
        range(1, end["ORDERS"]["seq"] + 1)
    )
    (gap,) = (row for row in rows if row["seq"] is None)
    assert list(gap.values()) == ["BILLS", None, 1, 3, "stream deleted"]


def test_a_subject_is_read_from_whichever_stream_holds_it(
    spark: SparkSession, broker: SmallBroker
) -> None:
    broker.create("BILLS", ["bills"])
    broker.append("BILLS", [NewRecord(payload=b"number 0", subject=b"bills")])
    reader = spark.read.format("millstream").option("url", broker.url)
    assert numbers(reader.option("subject", "bills").load()) == [0]
    assert count(spark, "*", url=broker.url, subject="bills") == 1
    assert table(spark, "*", url=broker.url, columns="stream").distinct().count() == 2
