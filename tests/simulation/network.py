"""The network between clients and a broker: bytes that a wire carries, in pieces of any size."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from millstream.nats.transport.transport import Kind, Transport
from simulation.broker import Broker

CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\nPING\r\n'


class Message:
    """What a NATS client was sent."""

    def __init__(
        self, subject: str, sid: str, reply: str, headers: dict[str, str], payload: bytes
    ) -> None:
        self.subject = subject
        self.sid = sid
        self.reply = reply
        self.headers = headers
        self.payload = payload
        self.status = headers.get(":status", "")


class NatsWire:
    """A NATS client's connection: what it says goes by ``hub.feed``, what it hears by ``take``."""

    def __init__(self, broker: Broker, hear: Callable[[Message], None]) -> None:
        self._hub = broker.parts.nats.hub
        self._loop = broker.loop
        self._hear = hear
        self._going = deque[bytes]()
        self._heard = bytearray()
        self.is_open = True
        self.has_news = False  # the world collects them after each step
        self.errors: list[bytes] = []
        self.cid = broker.parts.nats.sessions.open_fed(
            self, Transport(Kind.STANDARD, "127.0.0.1", port=1)
        )
        self.say(CONNECT)

    def say(self, data: bytes) -> None:
        """Put bytes on the wire; they arrive by ``carry``."""
        self._going.append(data)

    @property
    def is_loaded(self) -> bool:
        """Whether bytes are under way to the broker."""
        return self.is_open and bool(self._going) and not self._hub.is_stalled(self.cid)

    def carry(self, most: int = 1 << 20) -> None:
        """Have up to ``most`` of the bytes under way arrive at the broker."""
        data = b"".join(self._going)
        self._going.clear()
        if len(data) > most:
            self._going.append(data[most:])
        with self._loop.running():
            self._hub.feed(self.cid, data[:most])

    def collect(self) -> None:
        """Have the client hear everything that the broker has sent."""
        if not self.has_news or not self.is_open:
            return
        self.has_news = False
        self._heard += self._hub.take(self.cid, 0)
        while (message := _taken(self._heard, self.errors)) is not None:
            self._hear(message)

    def hang_up(self) -> None:
        """Leave without a word."""
        if self.is_open:
            with self._loop.running():
                self._hub.close_connection(self.cid, 1)

    # --- what the hub calls

    def output(self, cid: int) -> None:
        self.has_news = True

    def closed(self, reason: int) -> None:
        self.is_open = False


def _taken(heard: bytearray, errors: list[bytes]) -> Message | None:
    """Cut the next message off what was heard; None while there is none that is whole."""
    while True:
        end = heard.find(b"\r\n")
        if end < 0:
            return None
        words = bytes(heard[:end]).split()
        verb = words[0] if words else b""
        if verb not in (b"MSG", b"HMSG"):
            if verb == b"-ERR":
                errors.append(bytes(heard[:end]))
            del heard[: end + 2]
            continue
        size = int(words[-1])
        if len(heard) < end + 4 + size:
            return None
        body = bytes(heard[end + 2 : end + 2 + size])
        del heard[: end + 4 + size]
        sized = 2 if verb == b"HMSG" else 1
        reply = words[3].decode() if len(words) == 4 + sized else ""
        head = int(words[-2]) if verb == b"HMSG" else 0
        headers = _headers(body[:head])
        return Message(words[1].decode(), words[2].decode(), reply, headers, body[head:])


def _headers(block: bytes) -> dict[str, str]:
    lines = block.decode().split("\r\n")
    found = {":status": lines[0][8:].strip()} if len(lines[0]) > 8 else {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found


class HttpAnswer:
    """What an HTTP client was answered."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


class HttpWire(asyncio.Transport):
    """An HTTP client's connection, and the transport that the server writes to."""

    def __init__(self, broker: Broker, hear: Callable[[HttpAnswer], None]) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        assert broker.parts.http is not None
        self._protocol: asyncio.Protocol = broker.parts.http.door.greet()
        self._loop = broker.loop
        self._hear = hear
        self._going = deque[bytes]()
        self._heard = bytearray()
        self.is_open = True
        with self._loop.running():
            self._protocol.connection_made(self)

    def ask(self, method: str, path: str, body: bytes = b"") -> None:
        """Put a request on the wire."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._going.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    @property
    def is_loaded(self) -> bool:
        """Whether bytes are under way to the broker."""
        return self.is_open and bool(self._going)

    def carry(self, most: int = 1 << 20) -> None:
        """Have up to ``most`` of the bytes under way arrive at the broker."""
        data = b"".join(self._going)
        self._going.clear()
        if len(data) > most:
            self._going.append(data[most:])
        with self._loop.running():
            self._protocol.data_received(data[:most])

    def collect(self) -> None:
        """Have the client hear every answer that is whole."""
        while self._heard and (answer := _answered(self._heard)) is not None:
            self._hear(answer)

    def hang_up(self) -> None:
        """Leave without a word."""
        if self.is_open:
            self.is_open = False
            with self._loop.running():
                self._protocol.connection_lost(None)

    # --- what the server calls

    def write(self, data: Any) -> None:
        self._heard += data

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return not self.is_open

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _answered(heard: bytearray) -> HttpAnswer | None:
    end = heard.find(b"\r\n\r\n")
    if end < 0:
        return None
    lines = bytes(heard[:end]).decode().split("\r\n")
    named = dict(line.lower().split(": ", 1) for line in lines[1:])
    size = int(named.get("content-length", 0))
    if len(heard) < end + 4 + size:
        return None
    body = bytes(heard[end + 4 : end + 4 + size])
    del heard[: end + 4 + size]
    return HttpAnswer(int(lines[0].split()[1]), body)
