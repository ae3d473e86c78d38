"""What a run says at its end: rows in and out of each sink, bad ones, late ones."""

from typing import Any

import pytest

from millstream.cli.pipeline.shown import print_summary
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.known_columns import check_columns
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.progress import Done

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ORDER = {"id": "bigint", "region": "string", "at": "timestamp"}


def order(number: int, minute: int = 0) -> dict[str, object]:
    return {"id": number, "region": "eu", "at": f"2026-05-01T12:{minute:02}:00Z"}


def test_rows_in_and_out_bad_and_late_ones_are_counted(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.create("COUNTED", "counted.>")
    bench.create("COUNTED-OUT", "counted-out.>")
    bench.create("COUNTED-BAD", "counted-bad.>")
    bench.publish("counted.x", *(order(n, n % 3) for n in range(6)), order(9, 30), b"no json")
    pipeline = {
        "sources": {
            "orders": {
                "stream": "COUNTED",
                "json": ORDER,
                "quarantine": {"stream": "COUNTED-BAD", "subject": "counted-bad.all"},
            }
        },
        "steps": [
            {
                "name": "few",
                "sql": "select id, 'counted-out.x' as subject from orders where id < 2",
            },
            {
                "name": "windows",
                "from": "orders",
                "watermark": {"column": "at", "delay": "5m"},
                "window": {"column": "at", "size": "1m"},
                "by": ["region"],
                "aggregate": {"orders": "count(*)"},
            },
        ],
        "sinks": [
            {"from": "few", "stream": "COUNTED-OUT", "name": "few"},
            {"from": "windows", "parquet": "windows", "name": "windows"},
        ],
    }
    done = bench.finished(pipeline)
    assert (done["few"].rows, done["few"].rows_out) == (8, 2)
    assert done["quarantine-orders"].rows_out == 1
    assert (done["windows"].rows_out, done["windows"].late) == (3, 0)
    bench.publish("counted.x", order(10, 1), order(11, 40))  # the first comes too late
    done = bench.finished(pipeline)
    assert (done["windows"].rows_out, done["windows"].late) == (1, 1)
    assert done["quarantine-orders"].rows_out == 0
    print_summary(list(done.values()))
    assert "rows out" in capsys.readouterr().out


def test_changed_groups_are_counted_as_they_are_written(bench: Any) -> None:
    bench.create("CHANGED", "changed.>")
    bench.create("CHANGED-OUT", "changed-out.>")
    bench.publish("changed.x", *(order(n) for n in range(5)))
    step = {"name": "all", "sql": "select region, count(*) as n from orders group by region"}
    pipeline = {
        "sources": {"orders": {"stream": "CHANGED", "json": ORDER}},
        "steps": [step],
        "sinks": [
            {
                "from": "all",
                "stream": "CHANGED-OUT",
                "subject": "changed-out.{region}",
                "mode": "update",
                "name": "out",
            }
        ],
    }
    done = bench.finished(pipeline)["out"]
    assert (done.rows, done.rows_out) == (5, 1)


def test_a_summary_says_where_nobody_counts(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary([Done("jdbc-x", 1200, 3), Done("out", 1200, 3, 40, 2)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == ["jdbc-x", "1,200", "?", "0", "3"]
    assert lines[-1].split() == ["out", "1,200", "40", "2", "3"]


def test_rows_come_from_text_files(bench: Any) -> None:
    (bench.home / "regions.csv").write_text("region,name\neu,Europe\nus,America\n")
    (bench.home / "more.json").write_text('{"region":"asia","name":"Asia"}\n')
    pipeline = {
        "sources": {
            "regions": {"csv": "regions.csv"},
            "more": {"json": "more.json", "schema": "region string, name string"},
        },
        "steps": [{"name": "all", "sql": "select * from regions union all select * from more"}],
        "sinks": [{"from": "all", "parquet": "all", "mode": "overwrite", "name": "all"}],
    }
    assert bench.run(pipeline) == {"all": 3}
    assert bench.parquet("all", "region", "name") == [
        ("asia", "Asia"), ("eu", "Europe"), ("us", "America"),
    ]  # fmt: skip


def test_a_row_that_does_not_fit_is_no_row_of_nulls(bench: Any) -> None:
    (bench.home / "wrong.csv").write_text("id\nfive\n")
    pipeline = {
        "sources": {"wrong": {"csv": "wrong.csv", "schema": {"id": "bigint"}}},
        "sinks": [{"from": "wrong", "parquet": "wrong", "mode": "overwrite"}],
    }
    with pytest.raises(PipelineError, match=r"wrong|MALFORMED|five"):
        bench.run(pipeline)


def test_columns_of_a_csv_are_known_before_spark_starts(bench: Any) -> None:
    (bench.home / "regions.csv").write_text("region,name\neu,Europe\n")
    data = {
        "name": "x",
        "sources": {"regions": {"csv": "regions.csv"}},
        "steps": [{"name": "one", "from": "regions", "distinct": ["regoin"]}],
        "sinks": [{"from": "one", "parquet": "one", "mode": "overwrite"}],
    }
    pipeline = parse(Document("test", data, bench.home), {})
    with pytest.raises(PipelineError, match="there is no column 'regoin'; did you mean 'region'"):
        check_columns(pipeline)
