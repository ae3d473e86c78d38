"""Spark Declarative Pipelines over a stream, run as a user would run them."""

import subprocess
import sys
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.cli.main import run

SPEC = """\
name: shop
storage: file://{home}/storage
libraries:
  - glob: {{include: definitions/**}}
"""
DEFINITIONS = """\
from pyspark import pipelines as dp
from millstream.spark.declarative import session

spark = session()


@dp.table
def orders():
    reader = spark.readStream.format("millstream").option("url", "{url}")
    return reader.option("columns", "seq,subject").load("DECLARED")


@dp.materialized_view
def by_subject():
    return spark.read.table("orders").groupBy("subject").count()
"""


def test_a_spec_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "declared", "absent.yml"]) == 1
    assert capsys.readouterr().err == "millstream: absent.yml: no such file\n"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_streaming_table_and_a_view_are_made_of_a_stream_and_the_run_ends_well(
    bench: Any,
) -> None:
    bench.create("DECLARED", "declared.>")
    bench.publish("declared.a", {"n": 1}, {"n": 2})
    bench.publish("declared.b", {"n": 3})
    home = bench.home
    (home / "definitions").mkdir()
    spec = home / "spark-pipeline.yml"
    spec.write_text(SPEC.format(home=home))
    (home / "definitions" / "shop.py").write_text(DEFINITIONS.format(url=bench.broker.url))
    command = [sys.executable, "-m", "millstream", "pipeline", "declared", str(spec)]
    done = subprocess.run(
        command, cwd=home, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (place,) = home.rglob("by_subject")
    rows = pq.read_table(place).to_pylist()
    assert {row["subject"]: row["count"] for row in rows} == {"declared.a": 2, "declared.b": 1}
