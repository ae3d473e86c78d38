"""Handshakes: connections that are not in yet, their handshakes and requests each timed."""

import asyncio
import socket
from typing import Protocol

from millstream.clock import Clock
from millstream.nats.sessions import Sessions
from millstream.nats.transport.link import READ_SIZE, Link, LinkOwner


class Arrival(Protocol):
    """A client that has not come in yet."""

    def expire(self) -> None:
        """Act on the deadline: go on without, or end."""
        ...

    def abandon(self) -> None:
        """Hang up: the server stops."""
        ...


class Handshakes:
    """What arriving clients share; it bounds how many there are and how long they take."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, sessions: Sessions, most: int
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.sessions = sessions
        self._most = most
        self._deadlines: dict[Arrival, float] = {}
        # One for all: the loop reads one socket at a time, and copies out what it got.
        self._buffer = memoryview(bytearray(READ_SIZE))

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def crowded(self) -> bool:
        """Whether nobody more may arrive now."""
        return len(self._deadlines) >= self._most

    def link(self, fd: int, owner: LinkOwner) -> Link:
        """Return a link over a connected socket, which tells ``owner`` of its events."""
        client = socket.socket(fileno=fd)
        client.setblocking(False)
        return Link(self.loop, client, self._buffer, owner)

    def expect(self, arrival: Arrival, within: float) -> None:
        """Call ``expire`` unless the client is in within so many seconds."""
        self._deadlines[arrival] = self.clock.monotonic() + within

    def forget(self, arrival: Arrival) -> None:
        """Stop waiting for a client: it is in, or gone."""
        self._deadlines.pop(arrival, None)

    def tick(self) -> None:
        """Look at every deadline."""
        now = self.clock.monotonic()
        for arrival, deadline in list(self._deadlines.items()):
            if now >= deadline:
                self.forget(arrival)
                arrival.expire()

    def close(self) -> None:
        """Hang up on everybody who is not in."""
        for arrival in list(self._deadlines):
            self.forget(arrival)
            arrival.abandon()
