"""The command line, run in this process: what it prints, and how it exits."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from millstream.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


Shell = Callable[..., Ran]


class Terminal:
    """Runs commands with the options of one server."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self._capsys = capsys
        self._options = options

    def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        """Run a command; what comes behind ``--`` stays last."""
        before, after = list(words), []
        if "--" in before:
            at = before.index("--")
            before, after = before[:at], before[at:]
        return run(self._capsys, [*before, *self._options, *after], stdin)


def run(capsys: pytest.CaptureFixture[str], words: Sequence[str], stdin: bytes = b"") -> Ran:
    """Run one command line."""
    capsys.readouterr()
    kept = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        code = main.run(list(words))
    finally:
        sys.stdin = kept
    told = capsys.readouterr()
    return Ran(code, told.out, told.err)
