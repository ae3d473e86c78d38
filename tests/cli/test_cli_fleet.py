"""``millstream fleet status`` looks at the store itself, whether members run or not."""

import json
from pathlib import Path

import pytest

from support.broker import millstream
from support.command_line import run


def test_a_fleet_names_its_owner_while_it_lives_and_nobody_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path / 'fleet'}"
    with millstream(data_dir=tmp_path / "data", extra=["--fleet", url]):
        alive = run(capsys, ["fleet", "status", url, "--json"], b"")
    assert alive.code == 0, alive
    assert [member["role"] for member in json.loads(alive.out)["members"]] == ["owner"]
    ended = run(capsys, ["fleet", "status", url], b"")
    assert ended.code == 2
    assert "epoch" in ended.out


def test_a_place_without_a_fleet_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (f"file://{tmp_path / 'nothing'}", "nonsense://x", "s3:/"):
        refused = run(capsys, ["fleet", "status", place], b"")
        assert refused.code not in (0, 2), (place, refused)
        assert len(refused.err.strip().splitlines()) == 1, refused
