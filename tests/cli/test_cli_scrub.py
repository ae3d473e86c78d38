"""`millstream scrub` over real directories: what it prints, and its exit codes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.cli.main import run
from millstream.store.cold.options import ColdOptions
from millstream.store.disk.files import OsFiles
from millstream.store.log.log import Durability
from support.store_bench import SMALL, Bench

pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """Return where a data directory and its cold history are."""
    cold = ColdOptions(place=str(tmp_path / "cold"), hot_segments=1)
    bench = Bench(OsFiles(), replace(SMALL, cold=cold), directory=str(tmp_path / "data"))
    log = bench.store.create_log(1, Durability.FSYNC)
    log.name = "ORDERS"
    for n in range(40):
        bench.append(log, [b"%06d" % n])
        bench.run()
    for _ in range(12):
        bench.store.tick()
        bench.run()
        bench.store.checkpoint({})
        bench.run()
    bench.close()
    return tmp_path


def test_a_scrub_mends_cold_history_and_says_so(
    moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next((moved / "cold").rglob("seg-*1.data"))
    sound = path.read_bytes()
    path.write_bytes(sound[:200] + b"?" * 9 + sound[209:])
    command = ["scrub", str(moved / "data"), "--cold", str(moved / "cold")]
    assert run(command) == 0
    printed = capsys.readouterr().out
    assert f"mended {path.name}" in printed
    assert "sound: 1 logs, 40 records, " in printed
    assert path.read_bytes() == sound
    assert run([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["records"], report["mended"]) == (0, 40, [])


def test_a_scrub_without_the_cold_place_is_no_scrub(
    moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scrub", str(moved / "data")]) == 4
    assert "give --cold PLACE" in capsys.readouterr().out


def test_a_directory_in_use_is_left_alone(moved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(OsFiles(), directory=str(moved / "data"))
    try:
        assert run(["scrub", str(moved / "data"), "--cold", str(moved / "cold")]) == 4
    finally:
        bench.close()
    assert "unusable: " in capsys.readouterr().out
