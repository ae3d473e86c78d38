"""What Spark writes is in the stream once: jobs, streaming queries, retries and restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.client.streams import open_streams
from support.small_broker import SmallBroker, small_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path / "data") as running:
        running.create("OUT", ["out.>"])
        yield running


def stored(spark: SparkSession, broker: SmallBroker, stream: str = "OUT") -> DataFrame:
    reader = spark.read.format("millstream").option("url", broker.url)
    return reader.option("includeHeaders", "true").load(stream)


def payloads(spark: SparkSession, broker: SmallBroker) -> list[str]:
    rows = stored(spark, broker).selectExpr("cast(payload as string) p").collect()
    return sorted(row.p for row in rows)


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    frame = spark.range(0, count, 1, partitions)
    return frame.selectExpr("'out.' || (id % 3) subject", "cast(id as string) payload")


def save(frame: DataFrame, broker: SmallBroker, **options: object) -> None:
    given = {"url": broker.url, "stream": "OUT"} | options
    frame.write.format("millstream").mode("append").options(**given).save()


def test_rows_become_records_with_subject_payload_headers_tag_and_id(
    spark: SparkSession, broker: SmallBroker
) -> None:
    frame = spark.sql(
        "select 'out.a' subject, named_struct('n', 1, 'at', array('x')) payload, "
        "map('H', array('1', '2')) headers, 't' tag, 'id-1' msgId"
    )
    save(frame, broker)
    (row,) = stored(spark, broker).collect()
    assert (row.subject, row.payload.encode(), row.tag) == ("out.a", b'{"n":1,"at":["x"]}', "t")
    assert row.headers == {"Nats-Msg-Id": ["id-1"], "H": ["1", "2"]}


def test_a_subject_may_be_a_template_and_other_columns_make_the_payload(
    spark: SparkSession, broker: SmallBroker
) -> None:
    frame = spark.sql("select 7 id, 'eu' region, cast(null as string) note")
    save(frame, broker, subject="out.{region}.{id}")
    (row,) = stored(spark, broker).collect()
    assert row.subject == "out.eu.7"
    assert row.payload.encode() == b'{"id":7,"region":"eu","note":null}'


def test_json_says_what_spark_types_say(spark: SparkSession, broker: SmallBroker) -> None:
    frame = spark.sql(
        "select cast(1.50 as decimal(10,2)) amount, map() e, map('a', map()) m, array() l, "
        """parse_json('{"k":[1,2]}') v, struct(parse_json('7') as v) s"""
    )
    save(frame, broker, subject="out.a")
    save(frame.selectExpr("v payload"), broker, subject="out.b")
    found = {row.subject: row.payload.encode() for row in stored(spark, broker).collect()}
    assert found == {
        "out.a": b'{"amount":1.50,"e":{},"m":{"a":{}},"l":[],"v":{"k":[1,2]},"s":{"v":7}}',
        "out.b": b'{"k":[1,2]}',
    }


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_rows_of_lost_ranges_become_no_records(
    spark: SparkSession, broker: SmallBroker, delivery: str
) -> None:
    broker.create("IN", ["in.>"])
    publish(broker, 1, 10)
    broker.trim("IN", 4, "cap")
    reader = spark.read.format("millstream").option("url", broker.url)
    frame = reader.options(stream="IN", startSeq=1, failOnDataLoss="false").load()
    assert frame.where("gap_from is not null").count() == 1
    save(frame, broker, subject="out.x", delivery=delivery)
    assert payloads(spark, broker) == sorted(str(n) for n in range(4, 11))
    with pytest.raises(PySparkException, match=r"stands for a lost range .* seq is not null"):
        save(frame.selectExpr("'out.' || subject subject", "payload"), broker)
    gaps = frame.where("gap_from is not null").select("stream", "gap_from", "gap_to")
    save(gaps, broker, subject="out.gaps")  # meant as what they are
    assert payloads(spark, broker)[-1] == '{"stream":"IN","gap_from":1,"gap_to":3}'


def test_a_job_is_there_whole_or_not_at_all(spark: SparkSession, broker: SmallBroker) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "'out.x' subject", "if(id = 99, raise_error('a bad row'), cast(id as string)) payload"
    )
    with pytest.raises(PySparkException):
        save(frame, broker)
    assert payloads(spark, broker) == []
    save(numbers(spark, 100), broker)
    assert payloads(spark, broker) == sorted(map(str, range(100)))


def test_a_task_that_runs_twice_writes_once(spark: SparkSession, broker: SmallBroker) -> None:
    save(numbers(spark, 50), broker, sinkId="nightly")
    save(numbers(spark, 50), broker, sinkId="nightly")
    assert len(payloads(spark, broker)) == 50


def test_what_a_stream_does_not_take_is_refused(spark: SparkSession, broker: SmallBroker) -> None:
    wrong = spark.sql("select 'other.a' subject, 'x' payload")
    with pytest.raises(PySparkException, match=r"'other\.a' is not one that stream OUT takes"):
        save(wrong, broker)
    with pytest.raises(PySparkException, match="a stream only grows"):
        numbers(spark, 1).write.format("millstream").mode("overwrite").options(
            url=broker.url, stream="OUT"
        ).save()
    with pytest.raises(PySparkException, match="did you mean 'sinkId'"):
        save(numbers(spark, 1), broker, sinkid_="x")


def copy(spark: SparkSession, broker: SmallBroker, checkpoint: Path, **options: object) -> None:
    source = spark.readStream.format("millstream").option("url", broker.url)
    frame = source.option("maxRecordsPerTrigger", 40).load("IN")
    rows = frame.selectExpr("'out.' || subject subject", "payload")
    given = {"url": broker.url, "stream": "OUT", "checkpointLocation": str(checkpoint)} | options
    query = (
        rows.writeStream.format("millstream").options(**given).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def publish(broker: SmallBroker, first: int, last: int) -> None:
    from millstream.message import NewRecord

    records = [
        NewRecord(payload=b"%d" % n, subject=b"in.%d" % (n % 3)) for n in range(first, last + 1)
    ]
    broker.append("IN", records)


def test_a_query_writes_each_micro_batch_once_over_restarts_and_repeats(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    broker.create("IN", ["in.>"])
    publish(broker, 1, 100)
    copy(spark, broker, tmp_path / "c")
    assert payloads(spark, broker) == sorted(str(n) for n in range(1, 101))
    for name in ("2", ".2.crc"):  # as if the driver had died before it wrote this down
        (tmp_path / "c" / "commits" / name).unlink()
    publish(broker, 101, 130)
    copy(spark, broker, tmp_path / "c")
    assert payloads(spark, broker) == sorted(str(n) for n in range(1, 131))
    (mark,) = broker.do(lambda: broker.sinks.of(broker.stream("OUT")))
    assert mark.batch == 3


def test_a_query_that_lost_its_checkpoint_is_refused_and_loses_nothing(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    broker.create("IN", ["in.>"])
    publish(broker, 1, 30)
    copy(spark, broker, tmp_path / "lost", sinkId="copy")
    publish(broker, 31, 40)
    with pytest.raises(PySparkException, match=r"checkpoint was lost.* another sinkId"):
        copy(spark, broker, tmp_path / "new", sinkId="copy")
    assert len(payloads(spark, broker)) == 30
    copy(spark, broker, tmp_path / "lost", sinkId="copy")  # who still has it goes on
    assert payloads(spark, broker) == sorted(str(n) for n in range(1, 41))


def test_batches_of_foreach_batch_belong_to_their_query_too(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    broker.create("IN", ["in.>"])
    publish(broker, 1, 10)
    source = spark.readStream.format("millstream").option("url", broker.url).load("IN")

    def each(frame: DataFrame, batch: int) -> None:
        rows = frame.selectExpr("'out.' || subject subject", "payload")
        save(rows, broker, sinkId="each", batchId=batch)

    def run(checkpoint: Path) -> None:
        writer = source.writeStream.foreachBatch(each).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    run(tmp_path / "lost")
    publish(broker, 11, 15)
    with pytest.raises(PySparkException, match="checkpoint was lost"):
        run(tmp_path / "new")
    assert len(payloads(spark, broker)) == 10


def test_a_query_of_all_there_is_now_shows_that_it_has_taken_it(
    spark: SparkSession, broker: SmallBroker, tmp_path: Path
) -> None:
    broker.create("IN", ["in.>"])
    publish(broker, 1, 50)

    def shown(checkpoint: str) -> int:
        # Longer than both queries take: a reader that is silent for so long is forgotten.
        source = spark.readStream.format("millstream").options(url=broker.url, retentionHold=600)
        rows = source.options(consumer="pipe", maxRecordsPerTrigger=40).load("IN")
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        query.awaitTermination()
        (consumer,) = broker.do(lambda: broker.consumers.of(broker.stream("IN")))
        return broker.do(lambda: consumer.cursor.position) - 1

    assert shown("one") == 50
    publish(broker, 51, 60)
    assert shown("two") == 50  # the other has not come so far
    assert shown("one") == 60  # and is known again by its checkpoint


def test_rows_whose_message_id_is_known_are_left_out(
    spark: SparkSession, broker: SmallBroker
) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr(
        "'out.x' subject", "cast(id as string) payload", "'m' || (id % 4) msgId"
    )
    save(frame, broker)
    assert payloads(spark, broker) == ["0", "1", "2", "3"]
    save(frame, broker)
    assert payloads(spark, broker) == ["0", "1", "2", "3"]


def test_at_least_once_publishes_to_any_server(spark: SparkSession, broker: SmallBroker) -> None:
    save(numbers(spark, 300), broker, delivery="at-least-once")
    assert payloads(spark, broker) == sorted(map(str, range(300)))
    (first,) = stored(spark, broker).where("cast(payload as string) = '0'").collect()
    assert first.headers["Nats-Msg-Id"][0].endswith("/0/0/0")


def test_at_least_once_stores_nothing_in_another_stream(
    spark: SparkSession, broker: SmallBroker
) -> None:
    broker.create("ALO", ["alo.>"])
    with pytest.raises(PySparkException, match="stream 'ALO' does not take these subjects"):
        save(numbers(spark, 10), broker, stream="ALO", delivery="at-least-once")
    assert payloads(spark, broker) == []
    frame = numbers(spark, 1).selectExpr("'nobody' subject", "payload")
    with pytest.raises(PySparkException, match=r"no stream of .* captures these subjects"):
        save(frame, broker, stream="ALO", delivery="at-least-once")


def test_spark_tells_tasks_their_batch_and_query(spark: SparkSession, tmp_path: Path) -> None:
    """The names are not documented: the sink relies on them, so their loss must be seen here."""
    seen = tmp_path / "seen"

    def look(rows: Iterator[object]) -> Iterator[object]:
        context = TaskContext.get()
        names = ("streaming.sql.batchId", "sql.streaming.queryId")
        seen.write_text(repr([context.getLocalProperty(name) for name in names]))
        yield from rows

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = (
        frame.mapInArrow(look, frame.schema)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    batch, query_id = eval(seen.read_text())
    assert batch is not None
    assert query_id == query.id


def test_nothing_stays_staged(spark: SparkSession, broker: SmallBroker, tmp_path: Path) -> None:
    save(numbers(spark, 100), broker)
    streams = open_streams(broker.url)
    streams.close()
    broker.files_done()  # a commit is answered before what was staged for it is removed
    assert broker.do(lambda: broker.sinks._staging.total) == 0
    assert list((tmp_path / "data" / "staging").rglob("*.staged")) == []


def test_batches_of_foreach_batch_are_there_once_by_their_numbers(
    spark: SparkSession, broker: SmallBroker
) -> None:
    for batch in (0, 1, 1, 0):
        frame = spark.sql(f"select 'out.x' subject, 'batch {batch}' payload")
        save(frame, broker, sinkId="each", batchId=batch)
    assert payloads(spark, broker) == ["batch 0", "batch 1"]
