"""Listener: a listening socket on the loop that hands each accepted connection over."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)

_BACKLOG = 1024
_ACCEPTS_PER_TURN = 128
_RETRY_AFTER = 0.1
# Accepting again at once cannot help while descriptors or memory are missing.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Accepted = Callable[[int, str], None]


class Listener:
    """Accepts until the queue is empty; running out of descriptors is waited out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, accepted: Accepted) -> None:
        self._loop = loop
        self._accepted = accepted
        self._socket: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address that was bound (port 0 picks a free one)."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        self._loop.add_reader(listening.fileno(), self._accept)
        bound = listening.getsockname()
        return str(bound[0]), int(bound[1])

    def stop(self) -> None:
        """Stop accepting; what was accepted lives on."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            try:
                client, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._failed(error)
                return
            self._hand_over(client, str(address[0]))

    def _hand_over(self, client: socket.socket, peer: str) -> None:
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accepted(client.fileno(), peer)
        except OSError as error:
            log.warning("connection not accepted peer=%s error=%s", peer, error)
            client.close()
        else:
            client.detach()

    def _failed(self, error: OSError) -> None:
        """Go on accepting: a client that gave up early is nothing, exhaustion needs a pause."""
        if error.errno not in _EXHAUSTED or self._socket is None:
            return
        log.error("cannot accept connections error=%s", error)
        self._loop.remove_reader(self._socket.fileno())
        self._retry = self._loop.call_later(_RETRY_AFTER, self._resume)

    def _resume(self) -> None:
        self._retry = None
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)
