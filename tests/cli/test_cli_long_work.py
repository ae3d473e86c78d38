"""Long work shows how far it is on a terminal, and mistakes name what was probably meant."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.messages.pub import _like
from millstream.cli.shown import progress
from millstream.cli.shown.progress import ProgressLine
from millstream.cli.streams.gaps import _explained
from support.broker import millstream
from support.command_line import Terminal


def on_terminal(*words: str) -> tuple[int, str]:
    """Run a command whose standard error is a terminal; returns its code and what that showed."""
    ours, theirs = pty.openpty()
    code = f"""
import sys
from millstream.cli.shown import progress
progress.PAUSE = 0.0
from millstream.cli.main import run
sys.exit(run({list(words)!r}))
"""
    asked = [sys.executable, "-c", code]
    with subprocess.Popen(asked, stderr=theirs, stdout=subprocess.PIPE) as process:
        process.communicate(timeout=60)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed, and all is read
            break
        shown += piece
    os.close(ours)
    return process.returncode, shown.decode()


@pytest.fixture
def directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    with millstream(data_dir=tmp_path / "data") as peer:
        run = Terminal(capsys, "--url", f"nats://{peer.host}:{peer.port}")
        assert run("stream", "add", "S", "--subjects", "s.*", "--max-msgs", "3").code == 0
        for n in range(5):
            assert run("pub", "s.x", str(n)).code == 0
    return tmp_path / "data"


def test_work_over_a_directory_shows_how_far_it_is(directory: Path, tmp_path: Path) -> None:
    saved, back = tmp_path / "saved", tmp_path / "back"
    for words, what in (
        (("fsck", str(directory)), "checking"),
        (("scrub", str(directory)), "checking"),
        (("backup", str(directory), str(saved)), "reading"),
        (("restore", str(saved), str(back)), "restoring"),
    ):
        code, shown = on_terminal(*words)
        assert code == 0, shown
        assert f"{what}  " in shown
        assert "%" in shown
        assert shown.endswith("\r\x1b[K")  # and leaves nothing behind


def test_nothing_is_shown_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine("copying", 10) as line:
        line.add_of(5, 20)
    assert capsys.readouterr().err == ""
    assert progress.PAUSE > 0


def test_gaps_have_reasons_in_words(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with millstream(data_dir=directory) as peer:
        run = Terminal(capsys, "--url", f"nats://{peer.host}:{peer.port}")
        assert run("stream", "rmm", "S", "4", "-f").code == 0
        shown = run("stream", "gaps", "S").out
    lines = [line.split(None, 3) for line in shown.splitlines()]
    assert [line[:3] for line in lines[-2:]] == [["1", "2", "2"], ["4", "4", "1"]]
    assert lines[-2][3].startswith("dropped by the limits")
    assert lines[-1][3] == "deleted"


def test_a_range_is_cut_where_the_reason_changes() -> None:
    told = [(3, 4, "ttl"), (6, 9, "torn")]
    assert list(_explained(1, 7, "removed", told)) == [
        (1, 2, "removed"),
        (3, 4, "older than the stream keeps (max_age)"),
        (5, 5, "removed"),
        (6, 7, "lost: the end of a file was cut off"),
    ]


def test_a_subject_that_nobody_captures_names_one_that_somebody_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with millstream() as peer:
        run = Terminal(capsys, "--url", f"nats://{peer.host}:{peer.port}")
        assert run("stream", "add", "ORDERS", "--subjects", "orders.>").code == 0
        said = run("pub", "order.new", "x")
        assert "Did you mean 'orders.new', which stream ORDERS captures?" in said.err
        assert "Did you mean" not in run("pub", "weather", "x").err


@pytest.mark.parametrize(
    ("pattern", "subject", "like"),
    [
        ("orders.>", "order.new.eu", "orders.new.eu"),
        ("orders.*", "order.new", "orders.new"),
        ("a.*.c", "a.b.d", "a.b.c"),
        ("orders.>", "orders", "orders.…"),
    ],
)
def test_an_open_pattern_takes_the_tokens_that_were_given(
    pattern: str, subject: str, like: str
) -> None:
    assert _like(pattern, subject) == like
