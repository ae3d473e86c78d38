"""Frames to Arrow: every column, only the columns asked for, and nothing that is damaged."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from spark_frames import Row, frames

from millstream.spark.columns import GAP_COLUMNS, RECORD_COLUMNS, arrow_schema, spark_schema
from millstream.spark.reading import rows
from millstream.spark.reading.segment_file import DamagedFrames, records_of, stream_of
from millstream.spark.reading.subject_filter import matching, pattern_of
from millstream.spark.reading.verify import intact

STREAM_ID = 7
T0 = 1_700_000_000_123_456_789
PLAIN = Row(3, T0, b"orders.eu", b"hello")
FULL = Row(
    5,
    T0 + 1_000,
    b"orders.us",
    b"\x00\xff",
    headers=b"NATS/1.0\r\nA: 1\r\nB: x:y\r\nA: 2\r\n\r\n",
    tag=b"blue",
    node=b"n1",
    meta=b'{"k":"v"}',
)


def decoded(given_rows: list[Row], *columns: str) -> list[dict[str, object]]:
    records = records_of(frames(given_rows, STREAM_ID))
    batch = rows.decode(records.select(rows.live(records)), "ORDERS", columns or RECORD_COLUMNS)
    batch.validate(full=True)
    return batch.to_pylist()


def test_a_record_becomes_a_row_of_every_column() -> None:
    plain, full = decoded([PLAIN, FULL])
    moment = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert plain == {
        "stream": "ORDERS",
        "seq": 3,
        "ts": moment,
        "ts_ns": T0,
        "subject": "orders.eu",
        "payload": b"hello",
        "headers": None,
        "tag": None,
        "node": None,
        "meta": None,
    }
    assert full["headers"] == [("A", ["1", "2"]), ("B", ["x:y"])]
    assert (full["tag"], full["node"], full["meta"]) == ("blue", "n1", '{"k":"v"}')
    assert (full["seq"], full["payload"]) == (5, b"\x00\xff")


def test_only_the_columns_asked_for_are_decoded_in_the_order_asked() -> None:
    assert decoded([PLAIN, FULL], "payload", "seq") == [
        {"payload": b"hello", "seq": 3},
        {"payload": b"\x00\xff", "seq": 5},
    ]


def test_a_deleted_record_has_no_row() -> None:
    gone = Row(4, T0, b"orders.eu", b"secret", deleted=True)
    assert [row["seq"] for row in decoded([PLAIN, gone, FULL], "seq")] == [3, 5]


def test_empty_and_absent_pieces_differ_from_each_other_where_they_should() -> None:
    (row,) = decoded([Row(1, T0, b"a", b"")])
    assert row["payload"] == b""
    assert row["tag"] is None


def test_text_that_is_not_utf8_keeps_its_row() -> None:
    odd = Row(1, T0, b"a.\xff", b"p", headers=b"NATS/1.0\r\nX: \xfe\r\n\r\n", tag=b"\xff")
    (row,) = decoded([odd])
    assert (row["subject"], row["tag"]) == ("a.\ufffd", "\ufffd")
    assert row["headers"] == [("X", ["\ufffd"])]
    assert row["payload"] == b"p"


@pytest.mark.spark
def test_the_arrow_schema_is_the_one_that_spark_expects(spark: SparkSession) -> None:
    every = RECORD_COLUMNS + GAP_COLUMNS
    expected = to_arrow_schema(StructType.fromDDL(spark_schema(every)), timezone="UTC")
    assert arrow_schema(every).equals(expected)
    batch = rows.decode(records_of(frames([PLAIN, FULL], STREAM_ID)), "S", every)
    assert batch.schema.equals(expected)


def test_a_gap_is_a_row_of_its_own() -> None:
    batch = rows.gap_rows([(4, 9, "cap")], "ORDERS", ("stream", "seq", "payload", *GAP_COLUMNS))
    assert batch.to_pylist() == [
        {
            "stream": "ORDERS",
            "seq": None,
            "payload": None,
            "gap_from": 4,
            "gap_to": 9,
            "gap_reason": "cap",
        }
    ]


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    good = [PLAIN, FULL, Row(6, T0, b"c", b"z")]
    raw = frames(good, STREAM_ID)
    records = records_of(raw)
    start = int(records.entries["offset"][1])
    end = int(records.ends[1])
    for position in range(start, end - 1):  # the last byte is the delete flag
        damaged = bytearray(raw)
        damaged[position] ^= 0x10
        touched = rows.Records(
            pa.py_buffer(bytes(damaged)),
            records.base_seq,
            records.entries,
            records.subjects,
            records.subject_lens,
        )
        assert intact(touched, STREAM_ID).tolist() == [True, False, True], position


def test_a_record_cut_off_by_the_end_of_its_file_is_damaged_and_its_neighbours_are_not() -> None:
    raw = frames([PLAIN, FULL], STREAM_ID)
    records = records_of(raw)
    cut = rows.Records(
        pa.py_buffer(raw[:-12]),
        records.base_seq,
        records.entries,
        records.subjects,
        records.subject_lens,
    )
    assert rows.live(cut).tolist() == [True, True]
    assert intact(cut, STREAM_ID).tolist() == [True, False]


def test_records_of_another_stream_do_not_pass_for_this_one() -> None:
    records = records_of(frames([PLAIN, FULL], STREAM_ID))
    assert not intact(records, STREAM_ID + 1).any()
    assert stream_of(frames([PLAIN], STREAM_ID)) == STREAM_ID


def test_damaged_bytes_from_a_server_are_refused() -> None:
    raw = bytearray(frames([PLAIN, FULL], STREAM_ID))
    raw[-20] ^= 1
    with pytest.raises(DamagedFrames, match="damaged at byte"):
        records_of(bytes(raw))
    with pytest.raises(DamagedFrames):
        records_of(b"short")


def test_batches_are_bounded_in_rows_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    records = records_of(frames([Row(i, T0, b"a", b"x" * 100) for i in range(1, 11)], STREAM_ID))
    assert [len(batch) for batch in rows.batches(records, 4)] == [4, 4, 2]
    monkeypatch.setattr(rows, "BATCH_BYTES", 330)  # two frames of 162 bytes and a bit
    assert [len(batch) for batch in rows.batches(records, 4)] == [3, 3, 3, 1]
    monkeypatch.setattr(rows, "BATCH_BYTES", 10)
    assert [len(batch) for batch in rows.batches(records, 4)] == [1] * 10


@pytest.mark.parametrize(
    ("pattern", "seqs"),
    [
        ("orders.eu", [1]),
        ("orders.*", [1, 2]),
        ("orders.>", [1, 2, 3]),
        ("*.eu", [1]),
        (">", [1, 2, 3, 4]),
        ("order", []),
        ("ordersXeu", []),
    ],
)
def test_a_subject_pattern_selects_records(pattern: str, seqs: list[int]) -> None:
    subjects = [b"orders.eu", b"orders.us", b"orders.eu.de", b"bills"]
    given_rows = [Row(i + 1, T0, subject, b"") for i, subject in enumerate(subjects)]
    records = records_of(frames(given_rows, STREAM_ID))
    found = records.select(matching(records, pattern_of(pattern)))
    assert found.seqs.tolist() == seqs


ROWS = st.lists(
    st.builds(
        Row,
        seq=st.just(0),
        ts_ns=st.integers(0, 2**62),
        subject=st.sampled_from([b"a", b"b.c", b"b.c.d"]),
        payload=st.binary(max_size=40),
        headers=st.sampled_from([b"", b"NATS/1.0\r\nK: v\r\n\r\n"]),
        tag=st.sampled_from([b"", b"t", b"tag"]),
        node=st.sampled_from([b"", b"n"]),
        meta=st.sampled_from([b"", b"{}"]),
        deleted=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(ROWS, st.sampled_from([1, 2]))
def test_decoding_by_arithmetic_agrees_with_reading_one_by_one(drawn: list[Row], step: int) -> None:
    numbered = [Row(**{**row.__dict__, "seq": 10 + step * i}) for i, row in enumerate(drawn)]
    live = [row for row in numbered if not row.deleted]
    found = decoded(numbered, "seq", "ts_ns", "subject", "payload", "tag", "node", "meta")
    assert [tuple(row.values()) for row in found] == [
        (
            row.seq,
            row.ts_ns,
            row.subject.decode(),
            row.payload,
            row.tag.decode() or None,
            row.node.decode() or None,
            row.meta.decode() or None,
        )
        for row in live
    ]


def test_gather_of_nothing_is_nothing() -> None:
    nothing = np.array([], dtype=np.int64)
    assert rows.gather(pa.py_buffer(b""), nothing, nothing).to_pylist() == []


def test_a_count_is_one_row_for_many_records() -> None:
    assert decoded([PLAIN, FULL], "records") == [{"records": 2}]
    assert decoded([PLAIN], "stream", "records", *GAP_COLUMNS) == [
        {"stream": "ORDERS", "records": 1, **dict.fromkeys(GAP_COLUMNS)}
    ]
