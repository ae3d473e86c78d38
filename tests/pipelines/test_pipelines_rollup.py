"""Roll-ups and results that change: the table has them all, the stream each change once."""

import shutil
from typing import Any

import pytest

from millstream.pipelines import ready_made

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def sized(number: int, amount: float) -> dict[str, Any]:
    return {"id": number, "amount": amount}


def rollup(home: Any, name: str) -> dict[str, Any]:
    fields = "id bigint, amount double"
    table = str(home / "windows")
    return ready_made.rollup(name, table, f"{name}-OUT", "1h", ["subject"], fields, "amount")


def test_a_roll_up_counts_by_window_and_tells_a_stream_what_changed(bench: Any) -> None:
    bench.create("ROLLED", "rolled.>")
    bench.publish("rolled.a", *(sized(n, float(n)) for n in range(1, 101)))
    bench.publish("rolled.b", sized(101, 7.0))
    assert bench.run(rollup(bench.home, "ROLLED")) == {"table": 101, "stream": 101}
    columns = ("subject", "records", "per_second", "min", "p50", "p90", "p99", "max", "mean")
    assert bench.parquet("windows", *columns) == [
        ("rolled.a", 100, 0.028, 1.0, 50.0, 90.0, 99.0, 100.0, 50.5),
        ("rolled.b", 1, 0.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0),
    ]
    told = sorted((one["subject"], one["records"]) for one in bench.payloads("ROLLED-OUT"))
    assert told == [("rolled.a", 100), ("rolled.b", 1)]

    bench.publish("rolled.b", sized(102, 9.0))
    bench.run(rollup(bench.home, "ROLLED"))
    assert bench.parquet("windows", "subject", "records") == [("rolled.a", 100), ("rolled.b", 2)]
    changed = [(one["subject"], one["records"]) for one in bench.payloads("ROLLED-OUT")[2:]]
    assert changed == [("rolled.b", 2)]


def test_changes_that_spark_writes_again_after_a_crash_are_in_the_stream_once(bench: Any) -> None:
    bench.create("CRASHED", "crashed.>")
    bench.publish("crashed.a", sized(1, 1.0), sized(2, 2.0))
    pipeline = rollup(bench.home, "CRASHED")
    pipeline["sinks"] = pipeline["sinks"][1:]
    bench.run(pipeline)
    kept = bench.checkpoint(pipeline["name"], "stream")
    shutil.rmtree(kept / "commits")  # as if the driver had died between the batch and its note
    bench.run(pipeline)
    assert [one["records"] for one in bench.payloads("CRASHED-OUT")] == [2]


def test_the_name_of_a_stream_is_text_in_the_query_of_a_roll_up() -> None:
    steps = ready_made.rollup("A", None, "it's", "1h", ["subject"], None, None)["steps"]
    assert steps[1]["sql"].startswith("select 'it\\'s' as subject")
