"""A nats-server, ours or the real one, as a process; and a client that shows the bare protocol."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.peers import nats_server_path

LIMIT = 30.0
OURS = (sys.executable, "-m", "millstream", "nats-server")
THEIRS = (nats_server_path(),)


class Started:
    """A started server: what it logged so far, and its process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._seen = 0
        self._rest = b""

    def until(self, pattern: str) -> re.Match[str]:
        """Read the log up to a line that matches."""
        deadline = time.monotonic() + LIMIT
        while True:
            while self._seen < len(self.lines):
                self._seen += 1
                found = re.search(pattern, self.lines[self._seen - 1])
                if found:
                    return found
            assert self._read(deadline), f"no line matches {pattern!r}: {self.lines}"

    def _read(self, deadline: float) -> bool:
        assert self.process.stderr is not None
        file = self.process.stderr.fileno()
        if not select.select([file], [], [], max(deadline - time.monotonic(), 0))[0]:
            return False
        data = os.read(file, 65536)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode() for line in whole]
        return bool(data)

    def ready(self) -> str:
        """Wait until clients are welcome; return the url."""
        address = self.until(r"Listening for client connections on (\S+)")[1]
        self.until("Server is ready")
        return f"nats://{address}"

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self) -> None:
        """Stop the server and read its log to the end."""
        self.tell(signal.SIGTERM)
        self.until("Server Exiting")

    def exit_code(self) -> int:
        return self.process.wait(LIMIT)


@contextmanager
def started(*arguments: str, program: Sequence[str] = OURS) -> Iterator[Started]:
    command = [*program, "-a", "127.0.0.1", "-p", "-1", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    )
    with process:
        try:
            yield Started(process)
        finally:
            process.kill()


class Wire:
    """A client that shows the bare protocol."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("nats://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), LIMIT)
        self._file = self._socket.makefile("rb")
        self.info = json.loads(self._file.readline().removeprefix(b"INFO "))

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def lines(self, *, answer_pings: bool = True) -> Iterator[str]:
        """Go through the lines as they come; a PING is answered, and not shown."""
        while line := self._line():
            if line == b"PING\r\n" and answer_pings:
                self.say("PONG")
            else:
                yield line.decode().rstrip()

    def say(self, text: str) -> None:
        self._socket.sendall(text.encode() + b"\r\n")

    def answers(self) -> list[str]:
        """Return what comes up to the answer to a PING, or to the end."""
        self.say("PING")
        return list(self.rest(until=b"PONG\r\n"))

    def rest(self, until: bytes = b"") -> Iterator[str]:
        """Go through the lines up to ``until``, or to the end."""
        while (line := self._line()) not in (until, b""):
            if line != b"PING\r\n":
                yield line.decode().rstrip()

    def _line(self) -> bytes:
        """Return the next line, nothing at the end."""
        try:
            return self._file.readline()
        except ConnectionResetError:  # how a server hangs up that has left something unread
            return b""
