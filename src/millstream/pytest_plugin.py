"""Fixtures for the tests of programs that use millstream: pytest finds them once it is installed.

def test_orders(millstream_server):
    connect(millstream_server.nats_url)
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.01


class MillstreamServer:
    """A server in a process of its own, on free ports, over one directory."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.data_dir = directory / "data"
        self.nats_url = ""
        self.http_url = ""
        self._directory = directory
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, and wait until clients are welcome; after a stop, on the same ports."""
        command = [sys.executable, "-m", "millstream", "serve", "--data-dir", str(self.data_dir)]
        command += ["--ports-file-dir", str(self._directory), *self._ports(), *self._arguments]
        log = self._directory / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self._wait_for_ports(log)
        return self

    def stop(self) -> None:
        """Stop as an operator would; harmless when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does; ``start`` recovers."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def _ports(self) -> list[str]:
        if not self.nats_url:
            return ["--port", "0", "--http-port", "0"]
        nats, http = (url.rpartition(":")[2] for url in (self.nats_url, self.http_url))
        return ["--port", nats, "--http-port", http]

    def _wait_for_ports(self, log: Path) -> None:
        import msgspec

        assert self._process is not None
        place = self._directory / f"millstream_{self._process.pid}.ports"
        deadline = time.monotonic() + _START_SECONDS
        while not place.exists() or not (text := place.read_bytes()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"millstream did not start: {log.read_text()}")
            time.sleep(_POLL_SECONDS)
        urls = msgspec.json.decode(text, type=dict[str, list[str]])
        self.nats_url, self.http_url = urls["nats"][0], urls["monitoring"][0]


@pytest.fixture
def millstream_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MillstreamServer]:
    """A server for one test, with an empty directory that goes afterwards."""
    yield from _served(tmp_path_factory)


@pytest.fixture(scope="session")
def millstream_session_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MillstreamServer]:
    """One server for all tests of the session, which share its streams."""
    yield from _served(tmp_path_factory)


def _served(places: pytest.TempPathFactory) -> Iterator[MillstreamServer]:
    arguments = os.environ.get("MILLSTREAM_TEST_ARGUMENTS", "").split()
    server = MillstreamServer(places.mktemp("millstream"), *arguments)
    try:
        yield server.start()
    finally:
        server.stop()
