"""Parquet tables that several queries append to: nothing is skipped, and nothing is there twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.cli.main import run
from millstream.client.blocking import connect
from millstream.pipelines.file.spec import TableSink
from millstream.pipelines.problems import PipelineError
from millstream.pipelines.tables.parquet_table import AppendedParquet, TableOwner
from support.scale import count

pytestmark = [pytest.mark.spark, pytest.mark.timeout(count(600, 3600))]


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def copy(stream: str, table: str) -> dict[str, Any]:
    return {"sources": {"a": {"stream": stream}}, "sinks": [{"from": "a", "parquet": table}]}


def archived(bench: Any, stream: str, table: str, *more: str) -> int:
    place = str(bench.home / table)
    return run(["pipeline", "archive", stream, "--to", place, "-s", bench.broker.url, *more])


def test_streams_that_are_archived_one_after_the_other_are_all_in_the_table(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.home)
    for name, number in (("ONE", 5), ("TWO", 7)):
        bench.create(name, f"{name.lower()}.>")
        bench.publish(f"{name.lower()}.x", *ids(*range(number)))
        assert archived(bench, name, "lake/all") == 0
    bench.publish("one.x", *ids(5, 6))
    assert archived(bench, "ONE", "lake/all") == 0
    found = bench.parquet("lake/all", "stream", "seq")
    assert found == [("ONE", n) for n in range(1, 8)] + [("TWO", n) for n in range(1, 8)]
    # Any reader of Parquet sees the same, with no list of Spark's to heed.
    assert pq.read_table(bench.home / "lake" / "all").num_rows == 14
    assert (bench.home / "lake" / ".millstream" / "checkpoints").is_dir()
    assert not (bench.home / ".millstream").exists()


def test_an_archive_whose_records_the_table_has_already_is_refused(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("OVER", "LAP"):
        bench.create(name, f"{name.lower()}.>")
        bench.publish(f"{name.lower()}.x", *ids(1))
    assert archived(bench, "OVER", "both") == 0
    for other in (["OVER,LAP"], ["O*"], ["OVER", "--by", "hour"]):
        streams, *more = other
        capsys.readouterr()
        assert archived(bench, streams, "both", *more) == 1
        assert "would be there twice" in capsys.readouterr().err
    assert archived(bench, "LAP", "both") == 0
    assert bench.parquet("both", "stream", "seq") == [("LAP", 1), ("OVER", 1)]


def test_a_stream_goes_whole_into_each_table_that_it_is_archived_to(bench: Any) -> None:
    bench.create("BOTH", "both.>")
    bench.publish("both.x", *ids(1, 2, 3))
    for table in ("x", "y"):
        assert archived(bench, "BOTH", table) == 0
        assert len(bench.parquet(table, "seq")) == 3


def test_a_roll_up_of_other_settings_starts_from_the_beginning(bench: Any) -> None:
    bench.create("SIZES", "sizes.>")
    bench.publish("sizes.x", *ids(1, 2))
    rolled = ["pipeline", "rollup", "SIZES", "-s", bench.broker.url]
    for table, size in (("r1", "1m"), ("r5", "5m"), ("r5", "10m")):
        assert run([*rolled, "--to", str(bench.home / table), "--window", size]) == 0
        windows = bench.parquet(table, "window_start", "window_end", "records")
        assert sum(records for _, _, records in windows) == 2
        assert {f"{(end - start).seconds // 60}m" for start, end, _ in windows} == {size}


def test_a_sink_that_is_given_another_table_fills_it_from_the_beginning(bench: Any) -> None:
    bench.create("TURNED", "turned.>")
    bench.publish("turned.x", *ids(1, 2))
    for table in ("p/t", "q/t"):
        assert bench.run(copy("TURNED", table)) == {"parquet-t": 2}
        assert bench.parquet(table, "seq") == [(1,), (2,)]


def test_a_file_is_the_same_pipeline_wherever_it_is_run_from(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create("MOVED", "moved.>")
    bench.publish("moved.x", *ids(1, 2, 3, 4, 5))
    below = bench.home / "below"
    below.mkdir()
    (below / "x.yaml").write_text(json.dumps(copy("MOVED", "out")))
    monkeypatch.chdir(bench.home)
    assert run(["pipeline", "run", "below/x.yaml", "-s", bench.broker.url]) == 0
    bench.publish("moved.x", *ids(6, 7, 8))
    monkeypatch.chdir(below)
    assert run(["pipeline", "run", "x.yaml", "-s", bench.broker.url]) == 0
    assert len(bench.parquet("below/out", "seq")) == 8
    # The folder as a whole may move.
    moved = below.rename(bench.home / "elsewhere")
    bench.publish("moved.x", *ids(9))
    assert run(["pipeline", "run", str(moved / "x.yaml"), "-s", bench.broker.url]) == 0
    assert len(bench.parquet("elsewhere/out", "seq")) == 9


def test_a_checkpoint_and_table_of_an_earlier_version_go_on_and_take_no_other(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.home)
    bench.create("EARLY", "early.>")
    bench.publish("early.x", *ids(1, 2))
    reader = bench.spark.readStream.format("millstream").option("url", bench.broker.url)
    old = bench.home / ".millstream" / "checkpoints" / "test" / "parquet-out"
    writer = reader.load("EARLY").writeStream.option("checkpointLocation", str(old))
    writer = writer.option("path", str(bench.home / "out")).trigger(availableNow=True)
    writer.format("parquet").start().awaitTermination()
    bench.publish("early.x", *ids(3))
    assert bench.run(copy("EARLY", "out")) == {"parquet-out": 1}
    assert bench.parquet("out", "seq") == [(1,), (2,), (3,)]
    assert bench.run(copy("EARLY", "other/out")) == {"parquet-out": 3}  # it is not that one's
    with pytest.raises(PipelineError, match=r"only the checkpoint which began it"):
        bench.run({"name": "second", **copy("EARLY", "out")})
    with pytest.raises(PipelineError, match=r"only the checkpoint which began it"):
        bench.run({"sources": {"a": {"parquet": "other/out"}}, "sinks": copy("", "out")["sinks"]})


def test_a_lost_checkpoint_or_table_is_told_rather_than_rows_twice_or_never(bench: Any) -> None:
    bench.create("LOST", "lost.>")
    bench.publish("lost.x", *ids(1, 2))
    bench.run(copy("LOST", "out"))
    kept = bench.checkpoint("test", "parquet-out")
    aside = kept.rename(bench.home / "aside")
    with pytest.raises(PipelineError, match=r"by another checkpoint .* would be there twice"):
        bench.run(copy("LOST", "out"))
    assert len(bench.parquet("out", "seq")) == 2
    shutil.rmtree(kept)
    aside.rename(kept)
    shutil.rmtree(bench.home / "out")
    bench.publish("lost.x", *ids(3))
    with pytest.raises(PipelineError, match=r"is gone: remove .* too"):
        bench.run(copy("LOST", "out"))


def sink(table: Path, *parts: str) -> TableSink:
    return TableSink("s", "rows", "parquet", str(table), partition_by=parts)


def test_a_batch_that_comes_again_is_there_once_whatever_a_crash_left_of_it(
    bench: Any, tmp_path: Path
) -> None:
    frame = bench.spark.range(10).selectExpr("id", "id % 2 as odd").repartition(2)
    table = AppendedParquet(sink(tmp_path / "t", "odd"), "q1")
    assert table.put(frame, 0) == 10
    (file,) = (tmp_path / "t" / "_millstream").glob("*.json")
    moves = json.loads(file.read_text())["moves"]
    assert len(moves) == 4
    # It died after two files were moved.
    staged = tmp_path / "t" / "_millstream" / f"{file.stem}-0"
    for source, target in moves[2:]:
        (staged / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / target).rename(staged / source)
    assert pq.read_table(tmp_path / "t").num_rows < 10
    assert table.put(frame, 0) == 0
    assert sorted(pq.read_table(tmp_path / "t").column("id").to_pylist()) == list(range(10))
    # It died while the next one was written: nothing of that is seen.
    left = tmp_path / "t" / "_millstream" / f"{file.stem}-1" / "odd=1"
    left.mkdir(parents=True)
    shutil.copy(tmp_path / "t" / moves[-1][1], left / "part-left.parquet")
    assert pq.read_table(tmp_path / "t").num_rows == 10
    assert table.put(frame, 1) == 10
    # Another query counts from 0 too.
    assert AppendedParquet(sink(tmp_path / "t", "odd"), "q2").put(frame, 0) == 10
    assert table.put(frame, 0) == 0
    assert pq.read_table(tmp_path / "t").num_rows == 30
    assert [path.suffix for path in (tmp_path / "t" / "_millstream").iterdir()] == [".json"] * 2


def test_a_pipeline_that_is_killed_all_the_time_writes_each_record_once(bench: Any) -> None:
    bench.create("KILLED", "killed.>")
    data = copy("KILLED", "out") | {"run": "continuous"}
    data["sources"]["a"]["options"] = {"maxRecordsPerTrigger": "500"}
    file = bench.home / "k.yaml"
    file.write_text(json.dumps(data))
    stopped = threading.Event()

    def publish() -> None:
        with connect(bench.broker.url, timeout=60) as client:
            while not stopped.wait(0.02):
                for _ in range(20):
                    client.publish("killed.x", b"x")
                client.flush()
            # Its ack comes when all before it is written: the last run has to see it.
            assert b'"seq"' in client.request("killed.x", b"x", 60).payload

    publisher = threading.Thread(target=publish)
    publisher.start()
    command = [sys.executable, "-m", "millstream", "pipeline", "run", str(file), "--no-ui"]
    command += ["-s", bench.broker.url, "--master", "local[2]", "--json"]
    try:
        for at in range(count(2, 10)):
            with (bench.home / "lines").open("wb") as lines:
                driver = subprocess.Popen(command, stdout=lines, start_new_session=True)
            until = time.monotonic() + 180
            while len((bench.home / "lines").read_bytes().splitlines()) < 3:
                assert driver.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            time.sleep(0.13 * at)  # anywhere in a batch
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    finally:
        stopped.set()
        publisher.join()
    file.write_text(json.dumps(data | {"run": "once"}))
    assert run(["pipeline", "run", str(file), "-s", bench.broker.url]) == 0
    last = len(bench.records("KILLED"))
    assert last > 1000
    assert sorted(pq.read_table(bench.home / "out").column("seq").to_pylist()) == list(
        range(1, last + 1)
    )


def test_owners_are_told_apart_by_pipeline_and_sink(bench: Any, tmp_path: Path) -> None:
    frame = bench.spark.range(1)
    mine = TableOwner("p", "s", "here")
    AppendedParquet(sink(tmp_path / "t"), "q1", mine).put(frame, 0)
    AppendedParquet(sink(tmp_path / "t"), "q2", TableOwner("p", "other", "there")).put(frame, 0)
    with pytest.raises(PipelineError, match=r"\(here\)"):
        AppendedParquet(sink(tmp_path / "t"), "q3", mine).put(frame, 0)
