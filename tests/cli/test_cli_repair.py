"""``millstream repair`` as a user types it, over a directory that a server left."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import millstream
from support.publisher import Publisher, create_stream, read_stream, stream_state


def run(*arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, input=answer
    )


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Publisher]:
    """A directory that a server wrote and closed: a snapshot, a segment, a WAL."""
    data = tmp_path_factory.mktemp("left") / "data"
    publisher = Publisher("KEPT.a")
    with millstream(data_dir=data) as peer:
        create_stream(peer.port, "KEPT", "fsync")
        publisher.run(peer.port, 0.2)
    with millstream(data_dir=data) as peer:  # a second snapshot
        assert stream_state(peer.port, "KEPT")["messages"] > 10
    return data, publisher


@pytest.fixture
def data(left: tuple[Path, Publisher], tmp_path: Path) -> Path:
    return Path(shutil.copytree(left[0], tmp_path / "data"))


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def kept_beside(data: Path) -> list[Path]:
    return list(data.parent.glob("data.before-repair-*"))


def test_a_repair_asks_says_what_it_will_do_and_does_nothing_unless_told(data: Path) -> None:
    snapshot = max(data.glob("meta/snapshot-*"))
    flip(snapshot, 40)
    before = {p: p.read_bytes() for p in data.rglob("*") if p.is_file()}
    refused = run("repair", str(data), answer="n\n")
    assert refused.returncode == 3, refused
    assert f"file={snapshot} offset=0" in refused.stdout
    assert "to be made anew:" in refused.stdout
    assert "no record is lost" in refused.stdout
    assert {p: p.read_bytes() for p in data.rglob("*") if p.is_file()} == before
    assert kept_beside(data) == []
    done = run("repair", str(data), answer="y\n")
    assert done.returncode == 0, done
    (kept,) = kept_beside(data)
    assert str(kept) in done.stdout
    assert (kept / "meta" / snapshot.name).read_bytes() == before[snapshot]
    assert run("fsck", str(data)).returncode == 0
    assert "nothing to repair" in run("repair", str(data)).stdout


def test_a_server_starts_on_what_is_left_without_snapshots_and_names_its_streams(
    data: Path, left: tuple[Path, Publisher]
) -> None:
    for snapshot in data.glob("meta/snapshot-*"):
        snapshot.write_bytes(b"nothing of it is left" * 40)
    for wal in sorted(data.glob("wal/shard-00/*.log"))[:1]:
        wal.unlink()
    shown = run("repair", str(data), "--yes", "--json", "--keep", str(data.parent / "old"))
    assert shown.returncode == 0, shown
    report = json.loads(shown.stdout)
    assert report["repaired"] is True
    assert report["kept"] == str(data.parent / "old")
    assert run("fsck", str(data)).returncode == 0
    publisher = left[1]
    with millstream(data_dir=data) as peer:
        name = f"recovered_{int(next((data / 'streams').iterdir()).name, 16)}"
        state = stream_state(peer.port, name)
        assert state["messages"] == len(publisher.acked)
        found = read_stream(peer.port, name, 1, state["last_seq"])
        assert {seq: publisher.payload(publisher.acked[seq]) for seq in found} == found
        create_stream(peer.port, "KEPT", "fsync")
        assert stream_state(peer.port, "KEPT")["messages"] == 0


def test_a_directory_in_use_is_left_alone(data: Path) -> None:
    flip(max(data.glob("meta/snapshot-*")), 40)
    with millstream(data_dir=data):
        flip(max(data.glob("meta/snapshot-*")), 41)
        refused = run("repair", str(data), "--yes")
    assert refused.returncode != 0
    assert kept_beside(data) == []


def test_dump_shows_what_a_server_wrote_in_both_forms(data: Path) -> None:
    items = [json.loads(line) for line in run("dump", str(data), "--json").stdout.splitlines()]
    kinds = {item["kind"] for item in items}
    assert {"wal", "entry", "control", "segment", "record", "snapshot", "log"} <= kinds
    created = next(i for i in items if i.get("name") == "stream set")
    assert created["body"]["name"] == "KEPT"
    assert {i["subject"] for i in items if i["kind"] == "record"} == {"KEPT.a"}
    text = run("dump", str(data)).stdout
    assert "record    file=" in text
    assert "subject=KEPT.a" in text
