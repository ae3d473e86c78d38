"""``millstream backup`` and ``restore`` as a user types them, beside a server at work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import millstream
from support.publisher import Publisher, create_stream, read_stream, stream_state
from support.scale import count


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_backups_under_load_hold_everything_acknowledged_before_them(
    tmp_path: Path, durability: str
) -> None:
    publisher = Publisher("LOAD.a")
    acked: list[int] = []
    backups = count(3, 20)
    with millstream(data_dir=tmp_path / "data") as peer:
        create_stream(peer.port, "LOAD", durability)
        for _ in range(backups):
            publisher.run(peer.port, 0.3)
            acked.append(len(publisher.acked))
            busy = subprocess.Popen(
                [sys.executable, "-m", "millstream", "backup", "data", "backups", "--json"],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
            )
            publisher.run(peer.port, 0.5)
            shown = json.loads(busy.communicate(timeout=60)[0])
            assert busy.returncode == 0
            assert shown["files"] > 0
    listed = run("restore", str(tmp_path / "backups"), "--list", "--json").stdout.splitlines()
    moments = [json.loads(line)["moment"] for line in listed]
    assert len(moments) == backups
    for moment, least in zip(moments, acked, strict=True):
        place = tmp_path / f"restored-{least}"
        done = run("restore", str(tmp_path / "backups"), str(place), "--at", moment)
        assert done.returncode == 0, done.stderr
        assert run("fsck", str(place)).returncode == 0
        with millstream(data_dir=place) as peer:
            last = stream_state(peer.port, "LOAD")["last_seq"]
            found = read_stream(peer.port, "LOAD", 1, last)
            assert last >= least
            assert sorted(found) == list(range(1, last + 1))
            for seq, payload in found.items():
                if seq in publisher.acked:
                    assert payload == publisher.payload(publisher.acked[seq])
    print(f"backups under load {durability}: {backups}, acked {acked}, lost 0")


def test_an_object_store_holds_backups_too(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="object stores need the package obstore")
    with millstream(data_dir=tmp_path / "data") as peer:
        create_stream(peer.port, "S", "fsync")
        publisher = Publisher("S.a")
        publisher.run(peer.port, 0.1)
        (tmp_path / "bucket").mkdir()
        url = f"file://{tmp_path / 'bucket'}"
        assert run("backup", str(tmp_path / "data"), url, "--keep", "2").returncode == 0
    done = run("restore", url, str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert "try: millstream serve --data-dir" in done.stdout
    with millstream(data_dir=tmp_path / "new") as peer:
        assert stream_state(peer.port, "S")["last_seq"] >= len(publisher.acked)


@pytest.mark.parametrize("at", ["yesterday", "2026-11-16T12:00:00"])
def test_a_time_without_meaning_or_zone_is_refused(tmp_path: Path, at: str) -> None:
    done = run("restore", str(tmp_path), str(tmp_path / "new"), "--at", at)
    assert done.returncode == 2
    assert "Invalid value for --at" in done.stderr


def test_a_target_without_backups_says_so(tmp_path: Path) -> None:
    done = run("restore", str(tmp_path / "none"), str(tmp_path / "new"))
    assert (done.returncode, done.stderr) == (1, "millstream: there is no backup at this target\n")
    assert run("restore", str(tmp_path / "none")).stdout == "no backups here\n"
