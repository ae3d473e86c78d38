"""Raw connections that carry out a session and write down what came back."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat.sessions import Session
    from support.peers import Peer

PATIENCE = 20.0  # how long an unanswered PING means that the connection is stuck
FORGETTING = 0.005  # nats-server drops subscriptions just after it has closed the socket
LENIENT_LINE = re.compile(rb"MSG \S+ \S+ (\S* )?\d+|HMSG \S+ \S+ (\S* )?\d+ \d+", re.DOTALL)
MESSAGE_LINE = re.compile(rb"MSG \S+ \S+ (\S+ )?\d+|HMSG \S+ \S+ (\S+ )?\d+ \d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A MSG or HMSG."""

    sid: str
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """``+OK``, ``PONG`` or the class of an ``-ERR``."""

    text: str


Event: TypeAlias = Delivery | Line


@dataclass(slots=True)
class Outcome:
    """What each connection of a session saw."""

    events: list[list[Event]]
    states: list[str] = field(default_factory=list)  # open, closed, stuck


def error_class(line: bytes) -> str:
    """The kind of an -ERR, without the names and bytes that it quotes."""
    text = line.decode(errors="replace").removeprefix("-ERR").strip().strip("'").lower()
    return "-ERR " + re.split(r"[\"\[(:,]", text)[0].strip()


class Parser:
    """Turns server bytes into events; INFO and PING are no part of a comparison.

    A message line with anything but single spaces is no message here, as it is none to clients;
    a lenient parser takes the empty reply that nats-server gives some answers.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self._rest = b""
        self._is_message = (LENIENT_LINE if lenient else MESSAGE_LINE).fullmatch

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that are complete now."""
        self._rest += data
        while (end := self._rest.find(b"\n")) >= 0:
            line = self._rest[:end].rstrip(b"\r")
            if self._is_message(line):
                total = int(line.rsplit(b" ", 1)[1])
                if len(self._rest) < end + 1 + total + 2:
                    return
                body = self._rest[end + 1 : end + 1 + total]
                self._rest = self._rest[end + 1 + total + 2 :]
                yield _delivery(line, body)
                continue
            self._rest = self._rest[end + 1 :]
            if line.startswith(b"-ERR"):
                yield Line(error_class(line))
            elif not line.startswith((b"INFO ", b"PING")):
                yield Line(line.decode(errors="replace"))


def _delivery(line: bytes, body: bytes) -> Delivery:
    fields = line.split(b" ")
    with_headers = fields[0] == b"HMSG"
    head = int(fields[-2]) if with_headers else 0
    reply = fields[3] if len(fields) == 5 + with_headers else b""
    return Delivery(fields[2].decode("latin-1"), fields[1], reply, body[:head], body[head:])


class Wire:
    """One raw connection.

    A plain socket, not a stream: what a server said before it reset the connection must be read.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.events: list[Event] = []
        self.state = "open"
        self._sock = sock
        self._parser = Parser()
        self._pings = self._pongs = 0

    @classmethod
    async def open(cls, peer: Peer) -> Wire:
        """Connect; the greeting is read with the first answer."""
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (peer.host, peer.port))
        return cls(sock)

    async def say(self, data: bytes, pings: int = 0) -> None:
        """Write ``data`` and wait until the server has dealt with it."""
        if self.state != "open":
            return
        self._pings += pings + 1
        await self.write(data + b"PING\r\n")
        await self._read_until(lambda: self._pongs >= self._pings)
        if self.state == "closed":
            await asyncio.sleep(FORGETTING)

    async def write(self, data: bytes) -> None:
        """Write; a connection that the server has closed only shows when it is read."""
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def finish(self) -> None:
        """End our side and read what is left until the server ends its own."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        await self._read_until(lambda: False)

    def close(self) -> None:
        """Give the socket back."""
        self._sock.close()

    async def _read_until(self, enough: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.state == "open" and not enough():
                    await self._read()
        except TimeoutError:
            self.state = "stuck"

    async def _read(self) -> None:
        try:
            data = await asyncio.get_running_loop().sock_recv(self._sock, 1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self.state = "closed"
        for event in self._parser.feed(data):
            self.events.append(event)
            self._pongs += event == Line("PONG")


async def play(session: Session, peer: Peer) -> Outcome:
    """Carry out a session, each step only when the one before is dealt with."""
    wires = [await Wire.open(peer) for _ in range(session.connections)]
    try:
        for step in session.steps:
            await wires[step.conn].say(step.data, step.pings)
        for wire in wires:  # what others were sent stands before this PONG
            await wire.say(b"")
        return Outcome([wire.events for wire in wires], [wire.state for wire in wires])
    finally:
        for wire in wires:
            wire.close()
