"""Options: what is accepted, and what a typing mistake is answered with."""

import pytest

from millstream.client.login import Login
from millstream.spark.columns import GAP_COLUMNS, RECORD_COLUMNS, shown
from millstream.spark.options import (
    Access,
    Delivery,
    PayloadFormat,
    ReadOptions,
    StartFrom,
    WriteOptions,
    parse,
    parse_write,
    time_ns,
)
from millstream.spark.problems import OptionError
from millstream.spark.reading.subject_filter import pattern_of
from millstream.spark.server import Server

HOUR_NS = 3_600_000_000_000


def test_only_the_stream_must_be_named() -> None:
    options = parse({"stream": "ORDERS"})
    assert options == ReadOptions(("ORDERS",))
    assert options.server.url == "nats://127.0.0.1:4222"
    names = tuple(c for c in RECORD_COLUMNS if c != "headers")
    assert tuple(map(shown, options.table_columns())) == (*names, "payload_binary")
    assert parse({"stream": "S", "payloadFormat": "binary"}).table_columns() == names


def test_every_option_is_understood_whatever_its_case() -> None:
    options = parse(
        {
            "STREAM": "S",
            "url": "http://h:1",
            "subject": "a.>",
            "columns": "seq, payload",
            "includeheaders": "TRUE",
            "payloadJson": "true",
            "payloadFormat": "Binary",
            "startSeq": "5",
            "ENDSEQ": "9",
            "startTime": "-2h",
            "endTime": "now",
            "access": "Files",
            "maxRecordsPerPartition": "100",
            "maxRecordsPerTrigger": "7",
            "maxBytesPerTrigger": "8000",
            "minPartitions": "4",
            "failOnDataLoss": "false",
            "timeout": "2.5",
            "patience": "0",
            "user": "u",
            "password": "p",
            "startFrom": "latest",
            "pushdown": "true",
            "consumer": "spark-orders",
            "retentionHold": "60",
        }
    )
    assert options == ReadOptions(
        ("S",), Server("http://h:1", 2.5, 0.0, Login("u", "p"), 0.0), "a.>", ("seq", "payload"),
        True, True, PayloadFormat.BINARY, 5, 9, "-2h", "now", Access.FILES, 100, 7, 8000, 4, False,
        StartFrom.LATEST, True,
        consumer="spark-orders", retention_hold=60.0,
    )  # fmt: skip
    assert options.table_columns() == (
        "seq", "payload", "headers", "payload_json", *GAP_COLUMNS,
    )  # fmt: skip


def test_load_with_a_name_names_the_stream() -> None:
    assert parse({"path": "ORDERS"}).streams == ("ORDERS",)
    assert parse({"streams": "A, LOG-*"}).streams == ("A", "LOG-*")


def test_stream_and_streams_name_streams_together() -> None:
    assert parse({"streams": "B,C", "stream": "A,B"}).streams == ("A", "B", "C")
    assert parse({"path": "A", "streams": "B"}).streams == ("A", "B")
    assert parse({"path": "A", "stream": "A"}).streams == ("A",)
    with pytest.raises(OptionError, match=r"named twice: 'A' by option stream and 'B' by load"):
        parse({"path": "B", "stream": "A"})
    with pytest.raises(OptionError, match=r"named twice: 'A' by option stream and 'B' by save"):
        parse_write({"path": "B", "stream": "A"})


def test_a_subject_alone_is_read_from_all_streams() -> None:
    options = parse({"subject": "orders.>"})
    assert (options.streams, options.subject) == (("*",), "orders.>")


def test_a_hold_needs_a_consumer() -> None:
    with pytest.raises(OptionError, match="set option consumer too"):
        parse({"stream": "A", "retentionHold": "60"})
    assert parse({"stream": "A", "retentionHold": "0"}).retention_hold == 0.0


def test_a_sink_has_options_of_its_own() -> None:
    given = {"path": "OUT", "subject": "out.{id}", "sinkId": "s", "delivery": "At-Least-Once"}
    options = parse_write(given | {"checkpointLocation": "/c", "apiKey": "k"})
    assert options == WriteOptions(
        "OUT", Server(login=Login(token="k")), "out.{id}", "s", Delivery.AT_LEAST_ONCE
    )
    with pytest.raises(OptionError, match="unknown option 'startseq'"):
        parse_write({"stream": "S", "startSeq": "1"})
    with pytest.raises(OptionError, match="exactly-once or at-least-once"):
        parse_write({"stream": "S", "delivery": "maybe"})


def test_headers_are_a_column_when_asked_for() -> None:
    given = {"stream": "S", "includeHeaders": "true", "payloadFormat": "binary"}
    assert parse(given).table_columns() == RECORD_COLUMNS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r'\.option\("stream"'),
        ({"stream": " "}, "option stream is empty"),
        ({"stream": "S", "startsqe": "1"}, "did you mean 'startSeq'"),
        ({"stream": "S", "zzz": "1"}, "known to a read: stream, streams"),
        ({"stream": "S", "startSeq": "-1"}, "startSeq must be a whole number"),
        ({"stream": "S", "includeHeaders": "yes"}, "includeHeaders must be true or false"),
        ({"stream": "S", "access": "disk"}, "auto, files or broker"),
        ({"stream": "S", "columns": "seq,body"}, "unknown column 'body'"),
        ({"stream": "S", "columns": "seq,seq"}, "named twice"),
        ({"stream": "S", "startTime": "yesterday"}, "is not a time"),
        ({"stream": "S", "timeout": "0"}, "timeout must be seconds"),
    ],
)
def test_a_wrong_option_is_answered_with_what_is_right(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(options)


def test_times_are_absolute_or_relative_to_now() -> None:
    now = 10 * HOUR_NS
    assert time_ns("now", now) == now
    assert time_ns("-2h", now) == 8 * HOUR_NS
    assert time_ns("-250ms", now) == now - 250_000_000
    assert time_ns("1970-01-01T01:00:00Z", now) == HOUR_NS
    assert time_ns("1970-01-01T01:00:00", now) == HOUR_NS
    assert time_ns("1970-01-01T02:00:00.000001+01:00", now) == HOUR_NS + 1000


@pytest.mark.parametrize("subject", ["", "a..b", ">.a", "a b"])
def test_an_impossible_subject_pattern_is_refused(subject: str) -> None:
    with pytest.raises(OptionError, match="not a subject pattern"):
        pattern_of(subject)


def test_a_job_that_is_one_of_many_has_a_number_and_a_sink() -> None:
    options = parse_write({"stream": "OUT", "sinkId": "s", "batchId": "7"})
    assert (options.sink_id, options.batch_id) == ("s", 7)
    with pytest.raises(OptionError, match="set sinkId too"):
        parse_write({"stream": "OUT", "batchId": "7"})


def test_a_subject_that_is_no_pattern_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="not a subject pattern"):
        parse({"stream": "S", "subject": "a..b"})


def test_a_count_goes_with_nothing_that_one_record_has() -> None:
    assert parse({"stream": "S", "columns": "stream,records"}).columns == ("stream", "records")
    with pytest.raises(
        OptionError, match="records counts many records in one row: leave out payload, seq"
    ):
        parse({"stream": "S", "columns": "seq,records,payload"})


def test_a_query_that_writes_its_whole_result_again_is_told_another_way() -> None:
    from pyspark.sql.types import StructType

    from millstream.spark.source import MillstreamSource

    with pytest.raises(OptionError, match="foreachBatch with a sinkId"):
        MillstreamSource({"stream": "OUT"}).streamWriter(StructType(), overwrite=True)
