"""A real nats-server on a free port, for tests that need the reference or any NATS server."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.peers import nats_server_path

START_LIMIT = 20.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where the server listens."""

    url: str
    port: int
    process: subprocess.Popen[bytes]


@contextmanager
def nats_server(*arguments: str) -> Iterator[RunningServer]:
    """Run a nats-server until the block ends; ``arguments`` are its own flags."""
    with tempfile.TemporaryDirectory(prefix="nats-server-") as directory:
        command = [nats_server_path(), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", directory]
        process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = _port(Path(directory), process)
            yield RunningServer(f"nats://127.0.0.1:{port}", port, process)
        finally:
            process.kill()
            process.wait()


def _port(directory: Path, process: subprocess.Popen[bytes]) -> int:
    """Wait for the ports file and return the client port in it."""
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        for file in directory.glob("*.ports"):
            try:
                return int(json.loads(file.read_text())["nats"][0].rpartition(":")[2])
            except ValueError:
                pass  # still being written
        if process.poll() is not None:
            raise RuntimeError(f"nats-server ended with code {process.returncode}")
        time.sleep(0.01)
    raise TimeoutError("nats-server wrote no ports file")
