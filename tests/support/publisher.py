"""A publisher that remembers what was acknowledged, and a reader to compare it with."""

import json
import socket
import time
from typing import BinaryIO

from millstream.client.blocking import Client, connect
from millstream.kernel._frames import Frames, scan


class Publisher:
    """Publishes numbered payloads with many acks outstanding, until the connection breaks."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._inbox = f"_INBOX.{subject.replace('.', '-')}"
        self.sent = 0
        self.acked: dict[int, int] = {}  # sequence → number
        self.errors: list[str] = []

    def payload(self, number: int) -> bytes:
        """Return what the message of this number holds."""
        return b"%08d " % number + bytes((number * 31 + i) % 251 for i in range(number % 120))

    def run(self, port: int, seconds: float, window: int = 256) -> None:
        """Publish for a while; returns early when the server is gone."""
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            return
        with sock, sock.makefile("rb") as lines:
            self._run(sock, lines, seconds, window)

    def _run(self, sock: socket.socket, lines: BinaryIO, seconds: float, window: int) -> None:
        waiting: dict[int, None] = {}
        end = time.monotonic() + seconds
        try:
            sock.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
            sock.sendall(f"SUB {self._inbox}.* 1\r\n".encode())
            while time.monotonic() < end or waiting:
                room = window - len(waiting) if time.monotonic() < end else 0
                if room > window // 2:
                    sock.sendall(b"".join(self._next(waiting) for _ in range(room)))
                self._take(lines.readline(), lines, waiting)
        except (OSError, ConnectionError):
            return

    def _next(self, waiting: dict[int, None]) -> bytes:
        self.sent += 1
        waiting[self.sent] = None
        payload = self.payload(self.sent)
        head = f"PUB {self.subject} {self._inbox}.{self.sent} {len(payload)}\r\n"
        return head.encode() + payload + b"\r\n"

    def _take(self, line: bytes, lines: BinaryIO, waiting: dict[int, None]) -> None:
        if not line.endswith(b"\n"):
            raise ConnectionError
        if not line.startswith(b"MSG "):
            return
        _, subject, _, size = line.split()
        body = lines.read(int(size) + 2)
        if len(body) != int(size) + 2:
            raise ConnectionError
        number = int(subject.rsplit(b".", 1)[1])
        waiting.pop(number)
        answer = json.loads(body)
        if "error" in answer:
            self.errors.append(answer["error"]["description"])
        else:
            self.acked[answer["seq"]] = number


def client(port: int) -> Client:
    """Return a connected client."""
    return connect(f"nats://127.0.0.1:{port}")


def api(port: int, subject: str, body: object, timeout: float = 5) -> dict[str, object]:
    """Ask the JetStream API; the answer as it is, errors included."""
    with client(port) as asking:
        answer = asking.request(subject, json.dumps(body).encode(), timeout=timeout)
        found = json.loads(answer.payload)
        assert isinstance(found, dict)
        return found


def create_stream(port: int, name: str, durability: str) -> None:
    """Make a stream over ``<name>.>`` with this class."""
    body = {
        "name": name,
        "subjects": [f"{name}.>"],
        "metadata": {"millstream.durability": durability},
    }
    answer = api(port, f"$JS.API.STREAM.CREATE.{name}", body)
    assert "error" not in answer, answer


def read_stream(port: int, name: str, first: int, last: int) -> dict[int, bytes]:
    """Return the payloads of ``first..last`` by sequence."""
    found: dict[int, bytes] = {}
    with client(port) as asking:
        while first <= last:
            body = json.dumps({"from_seq": first, "to_seq": last}).encode()
            data = bytes(asking.request(f"$MILLSTREAM.API.READ.{name}", body, timeout=10).payload)
            if not data:
                break
            assert not data.startswith(b"{"), data
            offsets = b"".join(f[5].to_bytes(4, "little") for f in scan(data)[0])
            for record in Frames(data, offsets):
                found[record[0]] = record[3]
            first = max(found) + 1
    return found


def stream_state(port: int, name: str) -> dict[str, int]:
    """Return the stream's state."""
    info = api(port, f"$JS.API.STREAM.INFO.{name}", {})
    assert "error" not in info, info
    state = info["state"]
    assert isinstance(state, dict)
    return state
