"""What Spark says about a failure, in one line; and the Java that it needs."""

from pathlib import Path
from typing import Any

import pytest

from millstream.pipelines.failures import in_one_line
from millstream.pipelines.java import check_java
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.progress import Progress, as_json, progress_of


def test_the_last_python_line_is_the_cause() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted SQLSTATE: XXKST\n"
        "Traceback (most recent call last):\n  File x\n"
        "millstream.spark.problems.DataLoss: stream 'A' has lost records 1-5\n\n"
        "\tat org.apache.spark.x(y.scala:1)\n"
        "org.apache.spark.SparkException: Job aborted"
    )
    assert in_one_line(text) == "stream 'A' has lost records 1-5"


def test_what_a_query_raises_itself_is_the_cause() -> None:
    text = (
        "[STREAM_FAILED] x SQLSTATE: 1\n[USER_RAISED_EXCEPTION] bad record A 2: why SQLSTATE: P0001"
    )
    assert in_one_line(text) == "bad record A 2: why"


def test_an_error_class_of_spark_is_named_without_its_plan() -> None:
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `a` cannot be resolved. SQLSTATE: 42703\n+- x"
    )
    assert in_one_line(text) == (
        "A column `a` cannot be resolved. (UNRESOLVED_COLUMN.WITH_SUGGESTION)"
    )


def test_where_only_java_knows_the_last_cause_is_told() -> None:
    text = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call "
        'last):\n  File "x.py", line 1, in y\npy4j.protocol.Py4JJavaError: An error occurred while '
        "calling o1.save.\n: java.lang.RuntimeException: outer\n\tat a.b(C.java:1)\n"
        "Caused by: java.net.ConnectException: Connection refused\n\t... 9 more"
    )
    assert in_one_line(text) == "Connection refused"


def test_what_spark_says_without_a_class_is_told() -> None:
    text = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call "
        'last):\n  File "x.py", line 1, in y\n'
        "pyspark.errors.exceptions.captured.AnalysisException: "
        "Partition column `a` not found in schema struct<b:bigint>.\n"
        "\n=== Streaming Query ===\n"
    )
    assert in_one_line(text) == "Partition column `a` not found in schema struct<b:bigint>."


def test_a_long_text_is_cut() -> None:
    assert len(in_one_line("x" * 5000)) == 600


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('openjdk version "11.0.2"', "is Java 11"),
        ('java version "1.8.0_1"', "is Java 8"),
        ("?", "does not say"),
    ],
)
def test_a_wrong_java_is_told_in_one_line_with_the_fix(
    tmp_path: Path, said: str, told: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    with pytest.raises(PipelineError, match=f"needs Java 17 or newer.*{told}.*install one"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_no_java_is_told_in_one_line_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="none on the PATH: install one"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(PipelineError, match="has no bin/java"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_a_progress_report_tells_position_and_lag_of_our_streams() -> None:
    report: dict[str, Any] = {
        "batchId": 3,
        "numInputRows": 40,
        "processedRowsPerSecond": 20.04,
        "durationMs": {"triggerExecution": 2000},
        "sources": [
            {
                "endOffset": '{"v": 1, "A": {"seq": 40, "incarnation": 1}}',
                "latestOffset": '{"v": 1, "A": {"seq": 100, "incarnation": 1}}',
            },
            {"endOffset": "7", "latestOffset": None},
        ],
    }
    as_connect_has_it = {**report, "numInputRows": None}
    as_connect_has_it["sources"] = [{**one, "numInputRows": 20} for one in report["sources"]]
    assert progress_of("out", as_connect_has_it) == progress_of("out", report)
    progress = progress_of("out", report)
    assert progress == Progress("out", 3, 40, 20.0, 2.0, {"A": 40}, 60)
    assert as_json(progress) == (
        '{"event":"batch","sink":"out","batch":3,"rows":40,"rows_per_second":20.0,'
        '"seconds":2.0,"positions":{"A":40},"lag":60,"rows_out":null,"late":0}'
    )
