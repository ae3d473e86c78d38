"""What one more topic, stream or consumer costs where there are 1,000, 10,000 or 100,000 already.

The server is one process with one client at a time: the times are what a caller waits, each the
median of a hundred calls. The last rows start the server again over all that was made.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.peers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = 100
IN_FLIGHT = 64
START_SECONDS = 300.0
REST = 130.0  # seconds until streams that nobody uses are asleep


class Server:
    """A server process over a directory, and a client of both its doors."""

    def __init__(self, directory: str) -> None:
        self.port, self.http_port = free_port(), free_port()
        command = [sys.executable, "-m", "millstream", "serve", "--data-dir", directory]
        ports = ["--port", str(self.port), "--http-port", str(self.http_port)]
        began = time.monotonic()
        with Path(directory).with_suffix(".log").open("ab") as output:
            self.process = subprocess.Popen([*command, *ports], stdout=output, stderr=output)
        self._until_ready(began)
        self.took = time.monotonic() - began
        self.http = http.client.HTTPConnection("127.0.0.1", self.http_port)
        self.nats = Requests(self.port)

    def _until_ready(self, began: float) -> None:
        while time.monotonic() - began < START_SECONDS:
            assert self.process.poll() is None, "the server has ended"
            with contextlib.suppress(OSError), _closing(self.http_port) as asked:
                asked.request("GET", "/v0/ready")
                if asked.getresponse().status == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError("the server is not ready")

    def call(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        """Return what the HTTP door answers."""
        data = json.dumps(body) if body is not None else None
        self.http.request(method, path, data, {"content-type": "application/json"})
        answer = self.http.getresponse()
        text = answer.read()
        assert answer.status in (expect, 200, 201, 204), (answer.status, text)
        return text

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the server is gone")

    def descriptors(self) -> int:
        """Return how many files the server has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self, how: signal.Signals) -> float:
        """End the server and return how long that took."""
        began = time.monotonic()
        self.nats.close()
        self.http.close()
        self.process.send_signal(how)
        self.process.wait()
        return time.monotonic() - began


@contextlib.contextmanager
def _closing(port: int) -> Iterator[http.client.HTTPConnection]:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        yield asked
    finally:
        asked.close()


class Requests:
    """A NATS client that keeps some requests under way."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nSUB in.> 1\r\n')

    def send(self, subject: str, body: Any) -> None:
        """Ask for something."""
        data = json.dumps(body).encode() if body is not None else b""
        self._socket.sendall(b"PUB %s in.x %d\r\n%s\r\n" % (subject.encode(), len(data), data))

    def take(self) -> Any:
        """Return the next answer."""
        while True:
            line = self._file.readline()
            if line.startswith(b"PING"):
                self._socket.sendall(b"PONG\r\n")
                continue
            assert line.startswith(b"MSG "), line
            found = json.loads(self._file.read(int(line.split()[-1]) + 2))
            assert "error" not in found, found
            return found

    def ask(self, subject: str, body: Any = None) -> Any:
        """Return the answer to a request."""
        self.send(subject, body)
        return self.take()

    def ask_all(self, requests: Iterator[tuple[str, Any]]) -> None:
        """Send requests, some of them at a time."""
        under_way = 0
        for subject, body in requests:
            self.send(subject, body)
            under_way += 1
            if under_way == IN_FLIGHT:
                self.take()
                under_way -= 1
        for _ in range(under_way):
            self.take()

    def close(self) -> None:
        """Leave the server."""
        self._file.close()
        self._socket.close()


def _filled(server: Server, kind: str, known: int, wanted: int) -> None:
    """Make things of a kind until there are so many."""
    if kind == "topics":
        _topics(server, known, wanted)
    elif kind == "streams":
        bodies = ({"name": f"s{i}", "subjects": [f"s.{i}"]} for i in range(known, wanted))
        server.nats.ask_all((f"$JS.API.STREAM.CREATE.{b['name']}", b) for b in bodies)
    else:
        if not known:
            config = {"name": "all", "subjects": ["a.>"], "max_consumers": 1_000_000}
            server.nats.ask("$JS.API.STREAM.CREATE.all", config)
        server.nats.ask_all(_consumer(f"c{i}") for i in range(known, wanted))


def _consumer(name: str) -> tuple[str, Any]:
    config = {"durable_name": name, "ack_policy": "explicit"}
    return f"$JS.API.CONSUMER.CREATE.all.{name}", {"stream_name": "all", "config": config}


def _topics(server: Server, known: int, wanted: int) -> None:
    """Have topics made by the first record of each."""
    with socket.create_connection(("127.0.0.1", server.http_port)) as plain:
        body = b'{"records":[{"data":1}]}'
        head = b"host: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        tail = head % len(body) + body
        answers = plain.makefile("rb")
        under_way = 0
        for i in range(known, wanted):
            plain.sendall(b"POST /v0/topics/t%d HTTP/1.1\r\n" % i + tail)
            under_way += 1
            if under_way == IN_FLIGHT:
                _skip_answer(answers)
                under_way -= 1
        for _ in range(under_way):
            _skip_answer(answers)


def _skip_answer(answers: Any) -> None:
    status, size = answers.readline(), 0
    assert b" 200 " in status or b" 201 " in status, status + answers.read(400)
    while (line := answers.readline()) != b"\r\n":
        if line.lower().startswith(b"content-length:"):
            size = int(line.split(b":")[1])
    answers.read(size)


def _calls(server: Server, kind: str) -> dict[str, Callable[[int], object]]:
    """Return what is measured, each call with a number of its own."""
    ask, call = server.nats.ask, server.call
    record = {"records": [{"data": 1}]}
    if kind == "topics":
        return {
            "create": lambda i: call("PUT", f"/v0/topics/n{i}", {}),
            "create by a first record": lambda i: call("POST", f"/v0/topics/m{i}", record),
            "describe": lambda i: call("GET", f"/v0/topics/n{i}"),
            "list a page": lambda i: call("GET", "/v0/topics?prefix=t5"),
            "a name that is not there": lambda i: call("GET", f"/v0/topics/q{i}", expect=404),
            "delete": lambda i: call("DELETE", f"/v0/topics/n{i}"),
            "delete another": lambda i: call("DELETE", f"/v0/topics/m{i}"),
        }
    if kind == "streams":
        return {
            "create": lambda i: ask(
                f"$JS.API.STREAM.CREATE.n{i}", {"name": f"n{i}", "subjects": [f"n.{i}"]}
            ),
            "info": lambda i: ask(f"$JS.API.STREAM.INFO.n{i}"),
            "names, a page": lambda i: ask("$JS.API.STREAM.NAMES", {"offset": 500}),
            "list a page": lambda i: ask("$JS.API.STREAM.LIST", {"offset": 500}),
            "which stream takes a subject": lambda i: ask(
                "$JS.API.STREAM.NAMES", {"subject": f"n.{i}"}
            ),
            "account info": lambda i: ask("$JS.API.INFO"),
            "update": lambda i: ask(
                f"$JS.API.STREAM.UPDATE.n{i}",
                {"name": f"n{i}", "subjects": [f"n.{i}"], "max_msgs": 7},
            ),
            "delete": lambda i: ask(f"$JS.API.STREAM.DELETE.n{i}"),
        }
    return {
        "create": lambda i: ask(*_consumer(f"n{i}")),
        "info": lambda i: ask(f"$JS.API.CONSUMER.INFO.all.n{i}"),
        "names, a page": lambda i: ask("$JS.API.CONSUMER.NAMES.all", {"offset": 500}),
        "list a page": lambda i: ask("$JS.API.CONSUMER.LIST.all", {"offset": 500}),
        "delete": lambda i: ask(f"$JS.API.CONSUMER.DELETE.all.n{i}"),
    }


def _measured(server: Server, kind: str) -> dict[str, float]:
    shown = {}
    for name, call in _calls(server, kind).items():
        took = []
        for i in range(CALLS):
            began = time.perf_counter()
            call(i)
            took.append(time.perf_counter() - began)
        shown[f"{kind}: {name}, ms"] = statistics.median(took) * 1000
        shown[f"{kind}: {name}, slowest, ms"] = max(took) * 1000
    return shown


def _one_size(kind: str, sizes: list[int], directory: str) -> list[dict[str, float]]:
    """Return the figures of a kind for each size, the last with what a restart takes."""
    found = []
    server = Server(directory)
    try:
        empty, known = server.resident(), 0
        for size in sizes:
            began = time.monotonic()
            _filled(server, kind, known, size)
            each = (time.monotonic() - began) / (size - known) * 1000
            known = size
            time.sleep(3)  # for what the server does behind the answers
            grown = server.resident() - empty
            found.append(
                {
                    **_measured(server, kind),
                    f"{kind}: created one after another, ms each": each,
                    f"{kind}: memory, KB each": grown / size / 1000,
                    f"{kind}: memory of the server, MB": server.resident() / 1e6,
                    f"{kind}: open files": server.descriptors(),
                }
            )
            time.sleep(REST)
            found[-1][f"{kind}: memory of the server after a rest, MB"] = server.resident() / 1e6
            found[-1][f"{kind}: open files after a rest"] = server.descriptors()
            for how in (signal.SIGTERM, signal.SIGKILL):
                took = server.stop(how)
                if how is signal.SIGTERM:
                    found[-1][f"{kind}: stop, s"] = took
                server = Server(directory)
                found[-1][f"{kind}: start after {how.name}, s"] = server.took
                found[-1][f"{kind}: memory after {how.name}, MB"] = server.resident() / 1e6
    finally:
        server.process.kill()
        server.process.wait()
    return found


def main() -> None:
    """Print one row for each figure, with a column for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--kinds", nargs="+", default=["topics", "streams", "consumers"], help="what to make"
    )
    parser.add_argument("--dir", help="where the data goes")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        place = tempfile.mkdtemp(prefix="many-", dir=arguments.dir)
        try:
            found = _one_size(kind, arguments.sizes, f"{place}/data")
        finally:
            shutil.rmtree(place)
        print(f"| {kind} |", *(f"{size:,} |" for size in arguments.sizes))
        print("|---|", *("---:|" for _ in arguments.sizes))
        for row in found[0]:
            print(f"| {row} |", *(f"{figures[row]:,.2f} |" for figures in found), flush=True)


if __name__ == "__main__":
    main()
