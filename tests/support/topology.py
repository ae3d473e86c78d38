"""Servers that are linked: ours and real nats-servers, each as a process with its own config."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.peers import nats_server_path

OURS, REAL = "millstream", "nats-server"
START_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Member:
    """One running server; ``ports`` by the words of a ports file: nats, leafnodes, cluster…"""

    kind: str
    ports: dict[str, int]
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.ports['nats']}"

    def output(self) -> str:
        """Return what it logged."""
        return self.log.read_text()


def free_port() -> int:
    """Return a port that nobody listens on, for what a ports file does not tell."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def member(kind: str, config: str, *arguments: str) -> Iterator[Member]:
    """Run one server until the block ends; it listens where ``config`` says, on free ports."""
    with tempfile.TemporaryDirectory(prefix="member-") as place:
        directory = Path(place)
        conf = directory / "server.conf"
        conf.write_text(f'host: 127.0.0.1\nport: -1\nports_file_dir: "{place}"\n{config}')
        program = [nats_server_path()]
        if kind == OURS:
            program = [sys.executable, "-m", "millstream", "nats-server"]
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*program, "-c", str(conf), *arguments], stdout=output, stderr=output
            )
        try:
            yield Member(kind, _ports(directory, process, log), process, log)
        finally:
            process.kill()
            process.wait()


def _ports(directory: Path, process: subprocess.Popen[bytes], log: Path) -> dict[str, int]:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        for file in directory.glob("*.ports"):
            try:
                found = json.loads(file.read_text())
            except ValueError:
                continue  # still being written
            return {name: int(urls[0].rpartition(":")[2]) for name, urls in found.items() if urls}
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()}")
        time.sleep(0.01)
    raise TimeoutError(f"no ports file: {log.read_text()}")
