"""A stream as a table: cold history by Spark's own Parquet reader, the rest in place."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from segment_writer import PlannedStream, serving
from spark_frames import Row

from millstream.client.streams import StreamMissing
from millstream.spark import count, table
from millstream.spark.problems import DataLoss
from millstream.store.cold import twin

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

STREAM_ID = 7
T0 = 1_700_000_000_000_000_000
ROWS = [Row(s, T0 + s * 1000, b"orders.%d" % (s % 3), b"p%d" % s) for s in range(1, 21)]


def cooled(directory: Path, rows: list[Row]) -> dict[str, object]:
    """Write rows as a cold file; returns what a plan says about it."""
    fields = ((r.seq, r.ts_ns, r.subject, r.payload, b"", b"", b"", b"") for r in rows)
    path = directory / "seg.parquet"
    path.write_bytes(twin.make(fields, "ORDERS"))
    return {"path": str(path), "base_seq": rows[0].seq, "last_seq": rows[-1].seq}


def seqs(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


def test_cold_history_and_the_rest_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    stream = PlannedStream([], ROWS[12:], STREAM_ID)  # the server has no more than the rest
    stream.first_seq = 1
    stream.cold = {"cold": [cooled(tmp_path, ROWS[:12])], "cold_deleted": [[3, 4], [9, 9]]}
    left = [s for s in range(1, 21) if s not in (3, 4, 9)]
    with serving({"ORDERS": stream}) as url:
        whole = table(spark, "ORDERS", url=url)
        rows = {row.seq: (row.subject, row.payload.encode()) for row in whole.collect()}
        assert rows == {s: (f"orders.{s % 3}", b"p%d" % s) for s in left}
        some = table(spark, "ORDERS", url=url, startSeq="2", endSeq="15", columns="seq,subject")
        assert (seqs(some), some.columns) == ([s for s in left if 2 <= s <= 15], ["seq", "subject"])
        found = table(spark, "ORDERS", url=url, subject="orders.1", columns="payload").collect()
        assert {row.payload.encode() for row in found} == {b"p%d" % s for s in left if s % 3 == 1}
        stream.first_seq = 6  # the limits took some of the cold file's rows
        assert seqs(table(spark, "ORDERS", url=url)) == [s for s in left if s >= 6]


def test_cold_files_are_left_alone_where_they_do_not_tell_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = PlannedStream([], ROWS, STREAM_ID)
    cold = cooled(tmp_path, ROWS[:12])
    with serving({"ORDERS": stream}) as url:
        stream.cold = {"cold": [cold | {"path": str(tmp_path / "elsewhere.parquet")}]}
        assert seqs(table(spark, "ORDERS", url=url)) == list(range(1, 21))
        stream.cold = {"cold": [cold], "cold_deleted": [[n, n] for n in range(100, 400)]}
        assert seqs(table(spark, "ORDERS", url=url)) == list(range(1, 21))
        stream.cold = {"cold": [cold]}
        stream.gaps = [(5, 5, "corruption")]
        with pytest.raises(DataLoss, match=r"has lost records 5..5 \(corruption\)"):
            table(spark, "ORDERS", url=url)


def test_records_are_counted_with_those_of_cold_files(spark: SparkSession, tmp_path: Path) -> None:
    stream = PlannedStream([], ROWS, STREAM_ID)
    stream.cold = {"cold": [cooled(tmp_path, ROWS[:12])], "cold_deleted": [[3, 4]]}
    with serving({"ORDERS": stream}) as url:
        assert count(spark, "ORDERS", url=url) == 18
        counted = table(spark, "ORDERS", url=url, columns="records").collect()
        assert sum(row.records for row in counted) == 18


def test_cold_files_in_a_store_that_spark_cannot_open_are_read_through_the_server(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = PlannedStream([], ROWS, STREAM_ID)
    cold = cooled(tmp_path, ROWS[:12])
    with serving({"ORDERS": stream}) as url:
        stream.cold = {"cold": [cold | {"path": "s3://bucket/ORDERS/seg.parquet"}]}
        assert seqs(table(spark, "ORDERS", url=url)) == list(range(1, 21))
        stream.rows, stream.reads = ROWS[:12], 0
        stream.cold = {"cold": [cold | {"path": f"file://{tmp_path}/seg.parquet"}]}
        assert seqs(table(spark, "ORDERS", url=url)) == list(range(1, 13))
        assert stream.reads == 0  # a url that Spark can open is its own affair


def test_a_table_is_of_several_streams_and_of_columns_that_are_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    cold = PlannedStream([], [Row(s, T0, b"a", b"[%d]" % s) for s in range(1, 6)], STREAM_ID)
    whole = list(cold.rows)
    cold.cold = {"cold": [cooled(tmp_path, whole[:3])]}
    plain = PlannedStream([], [Row(s, T0, b"b", b"{") for s in (1, 2)], 8)
    cold.name, plain.name = "COLD", "PLAIN"
    with serving({"COLD": cold, "PLAIN": plain}) as url:
        found = table(spark, "COLD,PLAIN", url=url).select("seq", "subject").collect()
        assert sorted((r.subject, r.seq) for r in found) == [
            *(("a", s) for s in range(1, 6)), ("b", 1), ("b", 2),
        ]  # fmt: skip
        for asked in ({"payload_json": True}, {"payloadJson": "true"}):
            frame = table(spark, "COLD,PLAIN", url=url, columns="seq", **asked)
            assert frame.columns == ["seq", "payload_json"]
            number = "try_variant_get(payload_json, '$[0]', 'int') n"
            rows = frame.selectExpr("seq", number).collect()
            assert sorted((r.seq, r.n or 0) for r in rows) == [
                (1, 0), (1, 1), (2, 0), (2, 2), (3, 3), (4, 4), (5, 5),
            ]  # fmt: skip
        with pytest.raises(StreamMissing, match="no stream named 'NOPE'"):
            table(spark, "COLD,NOPE", url=url)
        assert count(spark, "COLD", url=url, streams="PLAIN") == 7
