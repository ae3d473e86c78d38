"""millstream as a subprocess, the way a user starts it."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from support.peers import Peer, free_port, running, scratch_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def serve_command(
    port: int, http_port: int, data_dir: Path, python: str = sys.executable
) -> list[str]:
    """The command line that serves on these ports over this directory."""
    return [
        *(python, "-m", "millstream", "serve", "--host", "127.0.0.1"),
        *("--port", str(port), "--http-port", str(http_port), "--data-dir", str(data_dir)),
    ]


@contextlib.contextmanager
def millstream(
    *, data_dir: Path | None = None, extra: Sequence[str] = (), python: str = sys.executable
) -> Iterator[Peer]:
    """A millstream of its own; give ``data_dir`` to start again over the same records.

    ``python`` is another environment's, to run the version that is installed there.
    """
    with scratch_directory("millstream") as directory:
        port, http_port = free_port(), free_port()
        command = serve_command(port, http_port, data_dir or directory / "data", python)
        with running("millstream", [*command, *extra], port, directory, http_port) as peer:
            yield peer
