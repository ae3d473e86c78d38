"""The demo: from nothing to a table and a stream of results, in one command."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millstream.cli.main import run
from millstream.cli.pipeline.demo import _own_server
from millstream.client.blocking import connect
from millstream.client.errors import ConnectFailed
from millstream.pipelines.demo import (
    MINUTES,
    REGIONS,
    document,
    fill,
    orders,
    start_afresh_where_due,
)
from millstream.pipelines.file.document import Document
from millstream.pipelines.file.parse import parse
from millstream.pipelines.problems import PipelineError
from millstream.spark.server import Server
from support.peers import Peer

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def server(broker: Peer) -> Iterator[Server]:
    found = Server(broker.url)
    yield found
    found.streams().close()


def test_generated_orders_are_the_same_each_time_and_end_now() -> None:
    first, again = list(orders(300, NOW)), list(orders(300, NOW))
    assert first == again
    assert [one["id"] for one in first] == list(range(1, 301))
    assert {one["region"] for one in first} == set(REGIONS)
    times = [datetime.fromisoformat(one["at"]) for one in first]
    assert times == sorted(times)
    assert times[-1] == NOW
    assert times[0] > NOW - timedelta(minutes=MINUTES)


def test_orders_are_made_up_only_where_the_stream_holds_nothing(server: Server) -> None:
    assert fill(server, "FILLED", 25, NOW) == 25
    assert server.streams().plan("FILLED").last_seq == 25
    assert fill(server, "FILLED", 25, NOW) == 0
    assert server.streams().plan("FILLED").last_seq == 25


def test_a_stream_that_takes_other_subjects_is_told(server: Server) -> None:
    with connect(server.url) as client:
        config = b'{"name":"ELSEWHERE","subjects":["quite.else"]}'
        client.request("$JS.API.STREAM.CREATE.ELSEWHERE", config)
    with pytest.raises(PipelineError, match="use a stream of another name"):
        fill(server, "ELSEWHERE", 3, NOW)


def test_where_no_server_runs_the_demo_has_one_of_its_own_for_as_long_as_it_takes(
    tmp_path: Path,
) -> None:
    with _own_server(tmp_path) as url:
        connect(url).close()
    with pytest.raises(ConnectFailed):
        connect(url)
    assert (tmp_path / ".millstream" / "demo-data").is_dir()


def test_a_server_that_was_named_and_does_not_answer_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["pipeline", "demo", "-s", "nats://127.0.0.1:1"]) == 1
    assert "cannot reach" in capsys.readouterr().err


def test_the_demo_starts_afresh_where_its_table_is_gone_or_the_stream_is_another(
    server: Server, tmp_path: Path
) -> None:
    fill(server, "FRESH", 3, NOW)
    pipeline = parse(Document("demo", document("FRESH"), tmp_path), {"url": server.url})

    def why() -> str | None:
        return start_afresh_where_due(server, "FRESH", pipeline, tmp_path)

    assert why() is None
    kept = tmp_path / ".millstream" / "checkpoints" / "demo-FRESH"
    table = tmp_path / "lake" / "fresh_by_minute"
    table.mkdir(parents=True)
    (kept / "table").mkdir()
    assert why() is None
    assert (kept / "table").is_dir()
    table.rmdir()
    assert why() == "lake/fresh_by_minute is gone"
    assert not (kept / "table").exists()
    table.mkdir()
    with connect(server.url) as client:
        client.request("$JS.API.STREAM.DELETE.FRESH")
    fill(server, "FRESH", 3, NOW)
    assert "another stream" in (why() or "")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_one_command_makes_a_table_and_a_stream_and_prints_both(
    server: Server, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "millstream", "pipeline", "demo", "SALES", "-s", server.url]
    command += ["--events", "600", "--no-ui", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "600 orders published to SALES (sales.>)"
    told = "batch 0: 600 rows   committed seq 600   lag 0   → "
    assert f"{told}lake/sales_by_minute (Parquet)" in lines
    assert f"{told}SALES-BY-MINUTE (stream)" in lines
    assert "lake/sales_by_minute, the newest" in lines
    rows = pq.read_table(tmp_path / "lake" / "sales_by_minute").to_pylist()
    assert sum(row["orders"] for row in rows) == 600
    last = json.loads(lines[-1].split(maxsplit=1)[1])
    table = {(f"{row['window_start']:%FT%TZ}", row["region"]): row["orders"] for row in rows}
    assert table[last["window_start"], last["region"]] == last["orders"]
    assert server.streams().plan("SALES-BY-MINUTE").last_seq == len(rows)
