"""The thirty tasks of the guide, typed one after the other, against both servers."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command_line import run
from support.peers import Peer

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "coming-from-nats.md"
ROW = re.compile(
    r"^\| ([^|]+) \| `(nats [^|]+)` \| `(millstream [^|]+)` \| `(.+)` \|$", re.MULTILINE
)
TASKS = ROW.findall(GUIDE.read_text())


def test_there_are_thirty_tasks_and_none_is_longer_here() -> None:
    assert len(TASKS) >= 30
    longer = [
        task for task, theirs, ours, _ in TASKS if len(shlex.split(ours)) > len(shlex.split(theirs))
    ]
    assert longer == []


def test_every_task_works_on_both_servers(
    either: Peer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", either.url)
    for task, _, command, prints in TASKS:
        done = run(capsys, shlex.split(command)[1:])
        assert done.code == 0, (task, done.err)
        assert prints in done.out, (task, done.out)


@pytest.mark.skipif(shutil.which("nats") is None, reason="the nats command is not installed")
def test_the_nats_command_does_the_same_tasks(either: Peer, tmp_path: Path) -> None:
    for task, command, _, _ in TASKS:
        words = [*shlex.split(command), "--server", either.url]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, (task, done.stderr)
