"""``millstream pipeline …``: what is wrong is one line, and the exit code says what happened.

0 is done, 1 is a failure, 2 is a wrong command line, 3 is an audit that found something.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.main import run
from millstream.spark.server import Server
from support.peers import Peer

NOWHERE = "nats://127.0.0.1:1"
SMALL = "sources: {a: {stream: A}}\nsinks:\n  - {from: a, parquet: out}\n"
DELTA = "sources: {a: {stream: A}}\nsinks:\n  - {from: a, delta: out}\n"


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return str(file)


@pytest.fixture
def server(broker: Peer) -> Iterator[str]:
    """A server whose connection of this process is closed in the end."""
    yield broker.url
    Server(broker.url).streams().close()


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(["pipeline", *arguments])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "Missing argument 'FILE'"),
        (["run", "x.yaml", "--master", "local[1]", "--remote", "sc://h"], "not both"),
        (["archive", "A"], "Missing option '--to'"),
        (["archive", "A", "--to", "x", "--every", "1m", "--follow"], "--every or --follow"),
        (["archive", "A", "--to", "x", "--by", "week"], "'week' is not one of"),
        (["archive", "A", "--to", "x", "--format", "csv"], "'csv' is not one of"),
        (["replay", "x"], "Missing option '--to'"),
        (["replay", "x", "--to", "A", "--speed", "0"], "--speed"),
        (["compact", "x", "--to", "x"], "--to must be another table"),
        (["compact", "x", "--to", "y", "--files", "0"], "--files"),
        (["rollup", "A"], "give --to or --stream"),
        (["audit"], "Missing argument 'STREAMS...'"),
        (["demo", "--events", "0"], "--events"),
        (["rnu"], "did you mean 'run'?"),
    ],
)
def test_a_wrong_command_line_is_told_and_is_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = refused(arguments, capsys)
    assert (code, told in text) == (2, True), text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "absent.yaml"], "absent.yaml: no such file"),
        (["check", "absent.yaml"], "absent.yaml: no such file"),
        (["backfill", "absent.yaml"], "absent.yaml: no such file"),
        (["archive", "A", "--to", "x", "--every", "soon"], "must be a time span"),
        (["archive", "A", "--to", "x", "-s", NOWHERE], "cannot reach"),
        (["archive", "A", "--to", "x", "-s", "ftp://h"], "ftp"),
        (
            ["archive", "A", "--to", "x", "--subject", "a..b", "-s", NOWHERE],
            "not a subject pattern",
        ),
        (["replay", "x", "--to", "A", "-s", NOWHERE], "cannot reach"),
        (["replay", "x", "--to", "A", "--speed", "2", "-s", NOWHERE], "cannot reach"),
        (["rollup", "A", "--stream", "B", "--window", "long"], "must be a time span"),
        (["rollup", "A", "--stream", "B", "-s", NOWHERE], "cannot reach"),
        (["audit", "A", "-s", NOWHERE], "cannot reach"),
    ],
)
def test_what_cannot_work_is_one_line_before_spark_starts_and_is_1(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = refused(arguments, capsys)
    assert (code, told in text) == (1, True), text
    assert text.startswith("millstream: ")
    assert len(text.splitlines()) == 1


def test_a_file_that_is_wrong_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(SMALL.replace("parquet", "parket"))
    for command in ("run", "check"):
        code, text = refused([command, str(file)], capsys)
        assert code == 1
        assert "wrong.yaml:3: sinks[0]" in text


def test_check_needs_a_server_unless_it_is_offline(
    small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(["check", small, "-s", NOWHERE], capsys)[0] == 1
    assert run(["pipeline", "check", small, "--offline"]) == 0
    told = capsys.readouterr().out
    assert told == "small: 1 sources, 0 steps, 1 sinks; well-formed\n"


def test_a_range_of_history_is_checked_first(
    small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = refused(["backfill", small, "--from", "tomorrow"], capsys)
    assert (code, "--from, --to: 'tomorrow' is not a time" in text) == (1, True)


def test_what_the_driver_writes_is_refused_over_spark_connect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "delta.yaml"
    file.write_text(DELTA)
    code, text = refused(["run", str(file), "--remote", "sc://127.0.0.1:1"], capsys)
    assert (code, "use --master here" in text) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["archive", "NONE", "--to", "x"],
        ["replay", "x", "--to", "NONE"],
        ["rollup", "NONE", "--to", "x"],
        ["audit", "NONE"],
    ],
)
def test_a_stream_that_is_not_there_is_told_before_spark_starts(
    arguments: list[str], server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = refused([*arguments, "-s", server], capsys)
    assert (code, "'NONE'" in text) == (1, True), text


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_run_prints_a_line_a_batch_and_a_failure_of_spark_is_one_line(
    bench: Any, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.create("TYPED", "typed.>")
    bench.publish("typed.x", {"n": 1}, {"n": 2})
    file = bench.home / "typed.yaml"
    file.write_text(SMALL.replace("A}", "TYPED}"))
    common = ["-s", server, "--data", str(bench.home), "--no-ui"]
    assert run(["pipeline", "run", str(file), *common]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["batch", "done"]
    assert (lines[0]["positions"], lines[0]["lag"]) == ({"TYPED": 2}, 0)
    assert lines[1] == {
        "event": "done",
        "sink": "parquet-out",
        "rows": 2,
        "batches": 1,
        "rows_out": 2,
        "late": 0,
    }

    file.write_text(SMALL.replace("A}", "TYPED, expect: no_such_column > 1}"))
    code, text = refused(["run", str(file), *common], capsys)
    assert (code, len(text.splitlines()), "no_such_column" in text) == (1, 1, True), text


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_goes_through_archive_compact_replay_backfill_and_audit(
    bench: Any, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.create("WALKED", "walked.>")
    bench.publish("walked.x", *({"n": n} for n in range(1, 151)))
    common = ["--data", str(bench.home), "--no-ui"]
    at = [*common, "-s", server]
    lake, small = str(bench.home / "lake"), str(bench.home / "small")
    assert run(["pipeline", "archive", "WALKED", "--to", lake, "--by", "hour", *at]) == 0
    assert run(["pipeline", "compact", lake, "--to", small, *common]) == 0
    bench.create("SECOND", "second.>")
    paced = ["--subject", "second.x", "--where", "seq <= 20", "--speed", "1000000"]
    assert run(["pipeline", "replay", small, "--to", "SECOND", *paced, *at]) == 0
    assert [one["n"] for one in bench.payloads("SECOND")] == list(range(1, 21))
    file = bench.home / "copy.yaml"
    file.write_text("sources: {a: {stream: WALKED}}\nsinks:\n  - {from: a, parquet: past}\n")
    assert run(["pipeline", "backfill", str(file), "--from", "-1h", *at]) == 0
    assert len(bench.parquet("past", "seq")) == 150

    capsys.readouterr()
    assert run(["pipeline", "audit", "WALK*", "SECOND", *at]) == 0
    clean = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(one["records"] for one in clean if one["stream"] == "WALKED") == 150
    segment = Path(bench.sealed("WALKED").segments[0].path)
    data = bytearray(segment.read_bytes())
    data[data.index(b'{"n": 42}') + 6] ^= 1
    segment.write_bytes(data)
    assert run(["pipeline", "audit", "WALKED", *at]) == 3
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["problem"] for one in found if one["problem"]] == ["1 damaged records: 42"]
