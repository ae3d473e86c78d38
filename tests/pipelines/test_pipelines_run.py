"""Pipelines on a real Spark and a real server: what goes in comes out once, in every sink."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream.pipelines.problems import PipelineError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ORDER = {"id": "bigint", "region": "string", "amount": "double", "at": "timestamp"}


def order(number: int, region: str = "eu", amount: Any = 1.5, minute: int = 0) -> dict[str, Any]:
    at = f"2026-05-01T12:{minute:02d}:00Z"
    return {"id": number, "region": region, "amount": amount, "at": at}


def test_a_stream_becomes_a_parquet_table_and_each_record_is_there_once_over_runs(
    bench: Any,
) -> None:
    bench.create("PLAIN", "plain.>")
    bench.publish("plain.a", order(1), order(2))
    pipeline = {
        "sources": {"orders": {"stream": "PLAIN", "json": ORDER}},
        "steps": [{"name": "slim", "sql": "select id, region, seq, subject from orders"}],
        "sinks": [{"from": "slim", "parquet": "out", "partition_by": ["region"]}],
    }
    assert bench.run(pipeline) == {"parquet-out": 2}
    bench.publish("plain.b", order(3, "us"))
    assert bench.run(pipeline) == {"parquet-out": 1}
    assert bench.run(pipeline) == {"parquet-out": 0}
    found = bench.parquet("out", "id", "region", "seq", "subject")
    assert found == [(1, "eu", 1, "plain.a"), (2, "eu", 2, "plain.a"), (3, "us", 3, "plain.b")]
    assert (bench.checkpoint("test", "parquet-out") / "metadata").is_file()


def test_bad_records_go_to_the_quarantine_with_their_reason_and_the_rest_goes_on(
    bench: Any,
) -> None:
    bench.create("MIXED", "mixed.>")
    bench.publish("mixed.x", order(1), b"{no json", b"\xff\xfe", order(2, amount=-1), b"")
    bench.publish("mixed.x", order(3, amount="a lot"), order(4))
    bench.run(
        {
            "sources": {
                "orders": {
                    "stream": "MIXED",
                    "json": ORDER,
                    "expect": "amount > 0",
                    "quarantine": {
                        "stream": "MIXED-BAD",
                        "create": ["bad.>"],
                        "subject": "bad.mixed",
                    },
                }
            },
            "sinks": [{"from": "orders", "parquet": "good"}],
        }
    )
    assert bench.parquet("good", "id") == [(1,), (4,)]
    bad = bench.records("MIXED-BAD")
    headers = [{name: values[0] for name, values in row.headers.items()} for row in bad]
    assert [one["Millstream-Seq"] for one in headers] == ["2", "3", "4", "5", "6"]
    assert bytes(bad[0].payload) == b"{no json"
    assert bytes(bad[1].payload) == b"\xff\xfe"
    assert headers[2]["Millstream-Reason"] == "not amount > 0"
    assert "no JSON" in headers[0]["Millstream-Reason"]
    assert (headers[0]["Millstream-Stream"], headers[0]["Millstream-Subject"]) == (
        "MIXED",
        "mixed.x",
    )


def test_without_a_quarantine_a_bad_record_stops_the_pipeline_and_is_named(bench: Any) -> None:
    bench.create("STRICT", "strict.>")
    bench.publish("strict.x", order(1), b"{no json")
    pipeline = {
        "sources": {"orders": {"stream": "STRICT", "json": ORDER}},
        "sinks": [{"from": "orders", "parquet": "strict"}],
    }
    with pytest.raises(PipelineError, match=r"bad record STRICT 2: .*quarantine") as failure:
        bench.run(pipeline)
    assert "\n" not in str(failure.value)
    assert "org.apache" not in str(failure.value)


@pytest.mark.parametrize("quarantined", [True, False])
def test_a_lost_range_is_no_bad_record_and_stays_visible(bench: Any, quarantined: bool) -> None:
    name = "GAPPY-Q" if quarantined else "GAPPY"
    bench.create(name, f"{name.lower()}.>", max_msgs=2)
    bench.publish(f"{name.lower()}.x", *(order(n) for n in range(1, 6)))
    source = {
        "stream": name,
        "json": ORDER,
        "expect": "amount > 0",
        "options": {"failOnDataLoss": "false", "startSeq": "1"},
    }
    if quarantined:
        source["quarantine"] = {"stream": f"{name}-BAD", "create": ["gb"], "subject": "gb"}
    bench.run({"sources": {"o": source}, "sinks": [{"from": "o", "parquet": "out"}]})
    rows = [(4, None, None), (5, None, None)]
    columns = ("coalesce(id, 0) as id", "gap_from", "gap_to")
    frame = bench.spark.read.parquet(str(bench.home / "out")).selectExpr(*columns)
    found = sorted((tuple(row) for row in frame.collect()), key=lambda row: row[0])
    assert found == (rows if quarantined else [(0, 1, 3), *rows])
    if quarantined:
        (letter,) = bench.records(f"{name}-BAD")
        assert json.loads(bytes(letter.payload))["gap_to"] == 3
        headers = {name: values[0] for name, values in letter.headers.items()}
        assert headers["Millstream-Stream"] == name
        assert "records 1 to 3 are lost" in headers["Millstream-Reason"]
        assert "Millstream-Seq" not in headers


def test_windows_are_written_once_the_watermark_has_passed_them(bench: Any) -> None:
    bench.create("LATE", "late.>")
    bench.publish("late.x", *(order(n, minute=n % 3) for n in range(6)), order(9, minute=30))
    pipeline = {
        "sources": {"orders": {"stream": "LATE", "json": ORDER}},
        "steps": [
            {
                "name": "windows",
                "from": "orders",
                "watermark": {"column": "at", "delay": "5m"},
                "window": {"column": "at", "size": "1m"},
                "by": ["region"],
                "aggregate": {"orders": "count(*)", "revenue": "sum(amount)"},
            }
        ],
        "sinks": [{"from": "windows", "parquet": "windows"}],
    }
    bench.run(pipeline)
    found = bench.parquet("windows", "window_start", "region", "orders", "revenue")
    assert [(start.minute, *rest) for start, *rest in found] == [
        (0, "eu", 2, 3.0),
        (1, "eu", 2, 3.0),
        (2, "eu", 2, 3.0),
    ]
    bench.publish("late.x", order(10, minute=1), order(11, minute=40))  # the first is too late
    bench.run(pipeline)
    found = bench.parquet("windows", "window_start", "orders")
    assert [(start.minute, orders) for start, orders in found] == [(0, 2), (1, 2), (2, 2), (30, 1)]


def test_a_stream_is_joined_with_a_table_and_written_to_a_stream(
    bench: Any, spark: SparkSession
) -> None:
    bench.create("JOINED-IN", "joined-in.>")
    bench.publish("joined-in.x", order(1, "eu"), order(2, "us"), order(3, "mars"))
    names = spark.createDataFrame(
        [("eu", "Europe"), ("us", "America")], "region string, name string"
    )
    names.write.parquet(str(bench.home / "regions"))
    bench.run(
        {
            "sources": {
                "orders": {"topic": "JOINED-IN", "json": ORDER},
                "regions": {"parquet": "regions"},
            },
            "steps": [
                {
                    "name": "named",
                    "join": {"left": "orders", "right": "regions", "on": "region", "how": "left"},
                },
                {"name": "out", "sql": "select id, region, name from named"},
            ],
            "sinks": [
                {
                    "from": "out",
                    "stream": "JOINED-OUT",
                    "subject": "joined-out.{region}",
                    "create": ["joined-out.>"],
                }
            ],
        }
    )
    found = sorted(bench.payloads("JOINED-OUT"), key=lambda one: one["id"])
    assert [(one["id"], one["name"]) for one in found] == [
        (1, "Europe"),
        (2, "America"),
        (3, None),
    ]
    assert {row.subject for row in bench.records("JOINED-OUT")} == {
        *("joined-out.eu", "joined-out.us", "joined-out.mars")
    }


def test_repeats_within_the_watermark_are_left_out(bench: Any) -> None:
    bench.create("TWICE", "twice.>")
    bench.publish("twice.x", order(1), order(1, minute=1), order(2))
    pipeline = {
        "sources": {"orders": {"stream": "TWICE", "json": ORDER}},
        "steps": [
            {
                "name": "once",
                "from": "orders",
                "distinct": ["id"],
                "watermark": {"column": "at", "delay": "10m"},
            }
        ],
        "sinks": [{"from": "once", "parquet": "once"}],
    }
    bench.run(pipeline)
    bench.publish("twice.x", order(2, minute=2), order(3))
    bench.run(pipeline)
    assert bench.parquet("once", "id") == [(1,), (2,), (3,)]


def test_a_step_may_be_a_function_of_frames(bench: Any) -> None:
    bench.create("CALLED", "called.>")
    bench.publish("called.x", order(1), order(2))

    def doubled(spark: SparkSession, orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id", "amount * 2 as twice")

    bench.run(
        {
            "sources": {"orders": {"stream": "CALLED", "json": ORDER}},
            "steps": [{"name": "doubled", "from": "orders", "python": doubled}],
            "sinks": [{"from": "doubled", "parquet": "doubled"}],
        }
    )
    assert bench.parquet("doubled", "id", "twice") == [(1, 3.0), (2, 3.0)]


def test_a_whole_result_replaces_its_table(bench: Any) -> None:
    bench.create("COUNTED", "counted.>")
    bench.publish("counted.x", order(1, "eu"), order(2, "us"))
    pipeline = {
        "sources": {"orders": {"stream": "COUNTED", "json": ORDER}},
        "steps": [
            {"name": "totals", "sql": "select region, count(*) n from orders group by region"}
        ],
        "sinks": [
            {"from": "totals", "parquet": "totals", "mode": "complete"},
        ],
    }
    bench.run(pipeline)
    assert bench.parquet("totals", "region", "n") == [("eu", 1), ("us", 1)]
    bench.publish("counted.x", order(3, "eu"))
    bench.run(pipeline)
    assert bench.parquet("totals", "region", "n") == [("eu", 2), ("us", 1)]
    assert list(bench.home.glob(".totals*")) == []


def test_tables_alone_make_a_job_and_a_snapshot_is_a_table(bench: Any) -> None:
    bench.create("SNAP", "snap.>")
    bench.publish("snap.x", order(1), order(2))
    pipeline = {
        "sources": {"orders": {"stream": "SNAP", "json": ORDER, "snapshot": True}},
        "sinks": [{"from": "orders", "parquet": "snap", "mode": "overwrite"}],
    }
    assert bench.run(pipeline) == {"parquet-snap": 2}
    assert bench.run(pipeline) == {"parquet-snap": 2}
    assert bench.parquet("snap", "id") == [(1,), (2,)]
    pipeline["sinks"] = [
        {"from": "orders", "parquet": f"file://{bench.home}/by-url", "mode": "overwrite"}
    ]
    bench.run(pipeline)
    assert bench.parquet("by-url", "id") == [(1,), (2,)]


def test_a_wrong_column_is_told_in_one_line(bench: Any) -> None:
    bench.create("WRONG", "wrong.>")
    pipeline = {
        "sources": {"orders": {"stream": "WRONG", "json": ORDER}},
        "steps": [{"name": "bad", "sql": "select amuont from orders"}],
        "sinks": [{"from": "bad", "parquet": "bad"}],
    }
    with pytest.raises(PipelineError, match="amuont") as failure:
        bench.run(pipeline)
    assert "\n" not in str(failure.value)


def test_a_column_to_partition_by_is_looked_for_before_a_batch_is_begun(bench: Any) -> None:
    bench.create("UNPARTED", "unparted.>")
    bench.publish("unparted.a", {"id": 1})
    sink = {"from": "a", "parquet": "unparted", "partition_by": ["idd"]}
    data = {"sources": {"a": {"stream": "UNPARTED", "json": "id bigint"}}, "sinks": [sink]}
    with pytest.raises(PipelineError, match=r"no column 'idd' to partition by; did you mean 'id'"):
        bench.run(data)


def test_a_missing_stream_is_told_before_spark_is_asked(bench: Any, tmp_path: Path) -> None:
    bench.create("THERE", "there.>")
    pipeline = {
        "sources": {"orders": {"stream": "TEHRE"}},
        "sinks": [{"from": "orders", "parquet": "x"}],
    }
    with pytest.raises(PipelineError, match="no stream is named 'TEHRE'; did you mean 'THERE'"):
        bench.run(pipeline)
