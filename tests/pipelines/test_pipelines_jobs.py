"""Jobs into streams: as many batches as it takes, each once; a range of history at its times."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.main import run
from millstream.client.streams import open_streams
from millstream.pipelines import ready_made
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.ready_made import Period, moment, period
from millstream.pipelines.stream_job import Stride, batches_of, publish

pytestmark = pytest.mark.timeout(600)

JOB = """\
import signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from millstream.pipelines import stream_job
from millstream.spark import register
saved = stream_job._save
def save(plan, place):
    saved(plan, place)
    if plan.next == int(sys.argv[1]):
        signal.pause()  # who is to kill it may be late, and must not find it at its end
stream_job._save = save
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.python.authenticate.socketTimeout", "120s")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
register(spark)
rows = spark.range({rows}).selectExpr("cast(id as string) payload").orderBy("payload")
options = {{"url": "{url}", "stream": "CUT", "subject": "cut.x"}}
print(stream_job.publish(rows, options, Path("{place}"), None, {most}))
"""


def test_strides_become_batches_that_are_small_enough() -> None:
    strides = [Stride(at, at + 9, 10, 40) for at in range(0, 50, 10)]
    assert batches_of(strides, 100) == [(0, 19), (20, 39), (40, 49)]
    assert batches_of(strides, 1) == [(at, at + 9) for at in range(0, 50, 10)]
    assert batches_of([], 100) == []


def test_a_range_is_at_fixed_times_and_stays_while_it_is_not_finished(tmp_path: Path) -> None:
    now = 1_777_636_800_123_456_789
    left = tmp_path / "left.json"
    first = period("-1h", None, now, left)
    assert first == Period("2026-05-01T11:00:00.123456Z", "2026-05-01T12:00:00.123456Z")
    assert period("2026-05-01", "now", now, left).start == "2026-05-01T00:00:00Z"
    with pytest.raises(KeyError), ready_made.remembered(first, left, lambda: True):
        raise KeyError
    again = period("-1h", None, now + 10**12, left)
    assert (again.bounds, again.resumed) == (first.bounds, True)
    with pytest.raises(KeyError), ready_made.remembered(first, left, lambda: False):
        raise KeyError
    assert not left.exists()
    assert moment(0) == "1970-01-01T00:00:00Z"
    for start, end in (("2026-05-02", "2026-05-01"), ("2027-01-01", None), ("-1h", "-1h")):
        with pytest.raises(
            PipelineError, match=f"--from {start} is not before --to {end or 'now'}"
        ):
            period(start, end, now, left)


@pytest.mark.spark
def test_a_job_writes_as_many_batches_as_it_needs_in_order(bench: Any, tmp_path: Path) -> None:
    bench.create("MANY", "many.>")
    rows = bench.spark.range(2500).repartition(3).orderBy("id").selectExpr("id", "null as none")
    options = {"url": bench.broker.url, "stream": "MANY", "subject": "many.{id}"}
    before = open_streams(bench.broker.url)
    assert publish(rows, options, tmp_path / "job", None, 40_000) == 2500
    assert not (tmp_path / "job").exists()
    assert [one["id"] for one in bench.payloads("MANY")] == list(range(2500))
    before.close()
    # Of a job that has a name, nothing is there twice, also when it is cut in another way.
    for most in (40_000, 10_000):
        publish(rows, options | {"stream": "MANY"}, tmp_path / "job", "mine", most)
    assert len(bench.records("MANY")) == 5000
    assert publish(rows.where("false"), options, tmp_path / "job", None) == 0


@pytest.mark.spark
def test_a_job_that_is_killed_goes_on_and_each_row_is_there_once(
    bench: Any, tmp_path: Path
) -> None:
    bench.create("CUT", "cut.>")
    total = 6000
    text = JOB.format(rows=total, url=bench.broker.url, place=tmp_path / "job", most=30_000)
    streams = open_streams(bench.broker.url)
    seen = 0
    for most in ("5", "10"):  # batches, of the 15 that there are
        command = [sys.executable, "-c", text, most]
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 180
        while streams.plan("CUT").last_seq <= seen + 400:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        seen = streams.plan("CUT").last_seq
    assert seen < total
    streams.close()
    command = [sys.executable, "-c", text, "-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout.strip() == str(total)
    expected = sorted(str(number) for number in range(total))
    assert [bytes(row.payload).decode() for row in bench.records("CUT")] == expected


@pytest.mark.spark
def test_a_backfill_of_the_last_hour_takes_what_has_come_since_and_counts_it(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.create("HOUR", "hour.>")
    bench.create("HOUR-OUT", "hour-out.>")
    bench.publish("hour.x", {"n": 1}, {"n": 2})
    data = {
        "sources": {"a": {"stream": "HOUR"}},
        "steps": [{"name": "slim", "sql": "select payload from a"}],
        "sinks": [
            {"from": "slim", "stream": "HOUR-OUT", "subject": "hour-out.x"},
            {"from": "slim", "parquet": "past"},
        ],
    }
    file = bench.home / "b.yaml"
    file.write_text(json.dumps(data))
    command = ["pipeline", "backfill", str(file), "-s", bench.broker.url]

    def rows(*bounds: str) -> list[int]:
        capsys.readouterr()
        assert run([*command, *bounds]) == 0
        shown = capsys.readouterr()
        assert shown.err.startswith("from ")
        return [json.loads(line)["rows"] for line in shown.out.splitlines()]

    assert rows("--from", "-1h") == [2, 2]
    bench.publish("hour.x", {"n": 3})
    assert rows("--from", "-1h") == [3, 3]
    assert len(bench.records("HOUR-OUT")) == 5
    fixed = ("--from", "2026-01-01", "--to", moment(time.time_ns()))
    assert rows(*fixed) == [3, 3]
    assert rows(*fixed)[1] == 0
    assert len(bench.records("HOUR-OUT")) == 8
    assert len(bench.parquet("past", "payload")) == 8
    assert not list((bench.home / ".millstream" / "backfills").iterdir())
