"""Listener: listening sockets on the loop that hand each accepted connection over."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial

log = logging.getLogger(__name__)

_BACKLOG = 1024
_ACCEPTS_PER_TURN = 128
_RETRY_AFTER = 0.1
# Accepting again at once cannot help while descriptors or memory are missing.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EVERYWHERE = "0.0.0.0"  # to Go, and so to nats-server, that is IPv6 too

Accepted = Callable[[int, str], None]


class Listener:
    """Accepts until the queue is empty; running out of descriptors is waited out, and told.

    Who connects meanwhile waits in the queue. libuv, which a server of the loop would use, closes
    such connections instead and tells nobody, or turns round and round while it lacks a spare
    descriptor.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, accepted: Accepted) -> None:
        self._loop = loop
        self._accepted = accepted
        self._sockets: list[socket.socket] = []
        self._retry: asyncio.TimerHandle | None = None

    def start(self, host: str, port: int, ready: Sequence[socket.socket] = ()) -> tuple[str, int]:
        """Listen, and return the address that was bound (port 0 picks a free one).

        ``ready`` are what ``opened`` returned for this place, where somebody listened before.
        """
        self._sockets.extend(ready or opened(host, port))
        bound = self._sockets[0].getsockname()
        self._resume()
        return str(bound[0]), int(bound[1])

    def take(self, bound: Iterable[socket.socket]) -> None:
        """Listen on sockets that are bound, which are the listener's then."""
        self._sockets.extend(bound)
        for each in self._sockets:
            each.listen(_BACKLOG)
            each.setblocking(False)
        self._resume()

    def stop(self) -> None:
        """Stop accepting; what was accepted lives on."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._sockets:
                return
            try:
                client, address = listening.accept()
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
        if error.errno not in _EXHAUSTED or not self._sockets:
            return
        log.error("cannot accept connections error=%s", error)
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_AFTER, self._resume)

    def _resume(self) -> None:
        self._retry = None
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), partial(self._accept, listening))


def opened(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen: who connects waits in their queue until somebody accepts."""
    first = _listening(host, port)
    if host != _EVERYWHERE:
        return [first]
    try:  # at the same port there, where there is IPv6
        return [first, _listening("::", int(first.getsockname()[1]), beside_ipv4=True)]
    except OSError as error:
        if port != 0 and error.errno == errno.EADDRINUSE:  # no other will do
            first.close()
            raise
        return [first]


def _listening(host: str, port: int, *, beside_ipv4: bool = False) -> socket.socket:
    """Return a socket that listens there; ``beside_ipv4``: another one takes IPv4's clients."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if beside_ipv4:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
