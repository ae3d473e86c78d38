"""SocketWriter: writes to a client's socket past its transport, alone or with hundreds of others.

A transport's own write takes half as long again as the system's, which counts where a piece goes
to hundreds. What a socket does not take, and whatever is wrong with it, is left to its transport.
"""

import os
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from millstream.kernel._fanout import Fanout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

NO_FILE = -1  # in place of a socket that only its transport can send on


class SocketWriter:
    """Writes to one client; its socket stays the client's until ``connection_lost`` was called."""

    __slots__ = ("fd", "later", "waiting")

    def __init__(self, transport: "asyncio.Transport") -> None:
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("sslcontext") is None
        self.fd: int = sock.fileno() if is_plain else NO_FILE
        self.later: Callable[[bytes], None] = transport.write
        # What waits in the transport goes first; so does what only it can send.
        self.waiting: Callable[[], int] = transport.get_write_buffer_size if is_plain else _one

    def send(self, data: bytes) -> None:
        """Send on the socket what it takes at once, and the rest when there is room."""
        if self.waiting():
            self.later(data)
            return
        try:
            sent = os.write(self.fd, data)
        except OSError:
            sent = 0
        if sent < len(data):
            self.later(data[sent:])


def send_all(writers: Iterable[SocketWriter], data: bytes) -> None:
    """Send the same to each, as ``SocketWriter.send`` does, by one call to the system for many."""
    clear: list[SocketWriter] = []
    fds: list[int] = []
    for writer in writers:
        if writer.waiting():
            writer.later(data)
        else:
            clear.append(writer)
            fds.append(writer.fd)
    for place, sent in _fanout().send(fds, data):
        clear[place].later(data[sent:])


@cache
def _fanout() -> Fanout:
    return Fanout()


def _one() -> int:
    return 1
