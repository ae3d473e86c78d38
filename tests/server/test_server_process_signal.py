import os
import signal
from pathlib import Path

import pytest

from millstream.server.command_line.flags import BadFlag
from millstream.server.process.process_signal import send


class Kills:
    """Remembers who would have been told what."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def __call__(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("stop", signal.SIGKILL),
        ("quit", signal.SIGINT),
        ("term", signal.SIGTERM),
        ("reopen", signal.SIGUSR1),
        ("reload", signal.SIGHUP),
        ("ldm", signal.SIGUSR2),
    ],
)
def test_each_command_is_a_signal(command: str, number: int) -> None:
    kills = Kills()
    send(f"{command}=1234", kills)
    assert kills.sent == [(1234, number)]


def test_a_pid_file_will_do(tmp_path: Path) -> None:
    (tmp_path / "x.pid").write_text("4321\n")
    kills = Kills()
    send(f"reload={tmp_path / 'x.pid'}", kills)
    assert kills.sent == [(4321, signal.SIGHUP)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("dance=1", "unknown signal 'dance'"), ("reload=x", "neither a process id nor a pid file")],
)
def test_nonsense_is_told(text: str, complaint: str) -> None:
    with pytest.raises(BadFlag) as failure:
        send(text, Kills())
    assert complaint in str(failure.value)


def test_a_process_that_is_gone_is_told() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(BadFlag, match=f"there is no process {child}"):
        send(f"reload={child}")
