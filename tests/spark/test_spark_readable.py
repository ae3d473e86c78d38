"""What somebody sees who reads a stream for the first time: rows, views, and mistakes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millstream.message import NewRecord
from millstream.spark import attach
from millstream.spark.reading.sample import sampled
from support.small_broker import SmallBroker, small_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
TEXT, BYTES = b'{"id":1,"price":2}', b"\xff\xfe"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with small_broker(tmp_path / "data", segment_records=20) as running:
        for name in ("ORDERS", "OUT-2"):
            running.create(name)
        for payload in (TEXT, b'{"id":2,"price":2.5,"to":{"city":"Bonn"}}'):
            running.append("ORDERS", [NewRecord(b"ORDERS", payload)])
        yield running


def test_a_text_is_shown_as_text_and_bytes_as_bytes(
    spark: SparkSession, broker: SmallBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.append("ORDERS", [NewRecord(b"ORDERS", BYTES)])
    reader = spark.read.format("millstream").option("url", broker.url)
    rows = reader.load("ORDERS").orderBy("seq").collect()
    assert [row.payload for row in rows] == [TEXT.decode(), rows[1].payload, None]
    assert [row.payload_binary for row in rows] == [None, None, BYTES]
    reader.load("ORDERS").select("payload", "payload_binary").show(truncate=False)
    shown = capsys.readouterr().out
    assert TEXT.decode() in shown
    assert "[FF FE]" in shown
    bare = reader.option("payloadFormat", "binary").load("ORDERS")
    assert [bytes(row.payload) for row in bare.orderBy("seq").collect()][::2] == [TEXT, BYTES]
    chosen = reader.schema("seq bigint, payload binary").load("ORDERS").where("seq = 3")
    assert bytes(chosen.first().payload) == BYTES


def test_bytes_are_never_lost_behind_a_column_of_text(
    spark: SparkSession, broker: SmallBroker
) -> None:
    broker.append("ORDERS", [NewRecord(b"ORDERS", BYTES)])
    reader = spark.read.format("millstream").option("url", broker.url)
    with pytest.raises(Exception, match="record 3 of stream 'ORDERS' is no UTF-8 text") as found:
        reader.option("columns", "seq,payload").load("ORDERS").collect()
    assert "Traceback" not in str(found.value)
    reader = spark.read.format("millstream").option("url", broker.url)
    copy = reader.load("ORDERS").selectExpr("'OUT-2' subject", "payload", "payload_binary")
    copy.write.format("millstream").options(url=broker.url, stream="OUT-2").mode("append").save()
    bare = reader.option("payloadFormat", "binary").load("OUT-2").orderBy("seq").collect()
    assert [bytes(row.payload) for row in bare][::2] == [TEXT, BYTES]


def test_json_is_a_column_by_option(spark: SparkSession, broker: SmallBroker) -> None:
    reader = spark.read.format("millstream").option("url", broker.url)
    frame = reader.option("payloadFormat", "json").load("ORDERS")
    assert [row.n for row in frame.selectExpr("payload_json:id::int n").collect()] == [1, 2]


def test_attach_makes_a_view_of_each_stream_with_the_fields_it_holds(
    spark: SparkSession, broker: SmallBroker
) -> None:
    assert attach(spark, url=broker.url) == {"orders": "ORDERS", "out_2": "OUT-2"}
    orders = spark.table("orders")
    assert orders.dtypes[:3] == [
        ("id", "bigint"),
        ("price", "double"),
        ("to", "struct<city:string>"),
    ]
    assert orders.columns[3:6] == ["stream", "seq", "ts"]
    found = spark.sql("select sum(price) p, max(to.city) c from orders").first()
    assert found is not None
    assert tuple(found) == (4.5, "Bonn")
    assert spark.table("out_2").columns[0] == "stream"
    broker.append("ORDERS", [NewRecord(b"ORDERS", TEXT)])
    attach(spark, "ORD*", url=broker.url)
    assert spark.table("orders").count() == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stream": "ORDRES"}, "no stream named 'ORDRES'; did you mean 'ORDERS'?"),
        ({"strem": "ORDERS"}, "unknown option 'strem'; did you mean 'stream'?"),
        ({"stream": "ORDERS", "url": "nats://127.0.0.1:1"}, "cannot reach nats://127.0.0.1:1"),
    ],
)
def test_a_mistake_is_told_in_one_line_below_that_of_spark(
    spark: SparkSession, broker: SmallBroker, given: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as found:
        spark.read.format("millstream").options(**{"url": broker.url} | given).load().collect()
    lines = [line for line in str(found.value).splitlines() if "SQLSTATE" not in line]
    assert len(lines) == 1, lines
    assert said in lines[0]


def test_fields_that_differ_from_record_to_record_get_one_kind() -> None:
    made = [{"a": 1, "b": None, "l": [1]}, {"a": 1.5, "b": True, "l": [{"x": 1}]}, {"c`": {}}]
    found = sampled([*(json.dumps(one).encode() for one in made), b"no json", b"[1]"])
    assert (found.records, found.objects) == (5, 3)
    assert found.ddl == "`a` double, `b` boolean, `l` array<string>, `c``` string"


@pytest.fixture
def dropped(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql("drop table if exists shop")


@pytest.mark.usefixtures("dropped")
def test_a_table_in_the_catalog_reads_its_stream(spark: SparkSession, broker: SmallBroker) -> None:
    spark.sql(
        f"create table shop using millstream options (stream 'ORDERS', url '{broker.url}', "
        "startSeq '2')"
    )
    assert [row.seq for row in spark.sql("select seq from shop").collect()] == [2]
    broker.append("ORDERS", [NewRecord(b"ORDERS", TEXT)])
    assert spark.sql("select count(*) from shop").first()[0] == 2  # a table is read anew each time
    assert spark.sql("select count(*) from shop with (startSeq = 3)").first()[0] == 1
    assert [row.seq for row in spark.read.table("shop").orderBy("seq").collect()] == [2, 3]


@pytest.mark.usefixtures("dropped")
def test_a_table_takes_no_secret_and_says_what_to_do(
    spark: SparkSession, broker: SmallBroker
) -> None:
    for option in ("token 'x'", "password 'x', user 'ada'"):
        with pytest.raises(Exception, match=r"cannot be one: use credsFile or nkeyFile"):
            spark.sql(
                f"create table shop using millstream options (stream 'ORDERS', {option}, "
                f"url '{broker.url}')"
            )


@pytest.mark.usefixtures("dropped")
def test_a_table_whose_columns_were_written_by_hand_says_what_is_missing(
    spark: SparkSession, broker: SmallBroker
) -> None:
    spark.sql(
        "create table shop (seq bigint, payload string) using millstream "
        f"options (stream 'ORDERS', url '{broker.url}')"
    )
    with pytest.raises(Exception, match=r"leave the columns out of CREATE TABLE"):
        spark.sql("select * from shop").collect()
