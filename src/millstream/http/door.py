"""HttpDoor: the listening socket, its connections and their deadlines."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache, partial
from socket import socket
from time import gmtime, strftime

from millstream.clock import Clock
from millstream.http import sockets
from millstream.http.browser import BrowserGuard
from millstream.http.compression import compressed
from millstream.http.connection import Connection, HttpConnection
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer
from millstream.http.turns import FirstCome, Turns
from millstream.http.unread import UnreadBudget
from millstream.listener import Listener
from millstream.supervisor import Supervisor

DATE = "%a, %d %b %Y %H:%M:%S GMT"

log = logging.getLogger(__name__)

App = Callable[[Request], Awaitable[Answer]]


class HttpDoor:
    """Serves one application on one address.

    Pages of other sites are kept out by a ``BrowserGuard``: on loopback it takes only loopback
    names and ``hosts`` as Host, elsewhere (or with ``hosts`` None) any. ``on_stop`` is called when
    the door begins to close: it tells long answers to end by themselves. ``turns`` says in which
    order requests are answered that came in together, ``unread`` how much clients may leave unread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        app: App,
        clock: Clock,
        limits: Limits | None = None,
        on_stop: Callable[[], None] | None = None,
        hosts: Collection[str] | None = (),
        turns: Turns | None = None,
        supervisor: Supervisor | None = None,
        unread: UnreadBudget | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.stopping = asyncio.Event()
        self.turns = turns or FirstCome(loop)
        self.unread = unread or UnreadBudget()
        self._on_stop = on_stop
        self._hosts = hosts
        self._loop = loop
        self._app = compressed(app)
        self._clock = clock
        self._listeners: list[Listener] = []
        self._arriving: set[asyncio.Task[None]] = set()  # a handshake is under way
        self._connections: set[Connection] = set()
        self._emptied = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        supervisor = supervisor or Supervisor()
        self._sweep = supervisor.repeated("the deadlines of HTTP clients", self.sweep)

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._connections)

    def stalled(self) -> int:
        """Return how many clients leave their answers unread."""
        return sum(connection.stalled for connection in self._connections)

    async def start(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        bound: Sequence[socket] | None = None,
    ) -> int:
        """Listen, and return the port: the one asked for, or the one given for port 0.

        With ``tls`` it is HTTPS; a handshake may take as long as a head. ``bound`` are sockets for
        this host that are to be used, and belong to the door then. Call it once for each address.
        """
        own = sockets.bound(host, port) if bound is None else bound
        guarded = BrowserGuard(self._app, self._names(host, own))
        listener = Listener(self._loop, partial(self._accepted, guarded, tls))
        self._listeners.append(listener)
        listener.take(own)
        taken: int = own[0].getsockname()[1]  # listening may have taken another one
        self.serve()
        return taken

    def serve(self) -> None:
        """Look at the deadlines of clients from now on."""
        if self._timer is None:
            self._tick()

    def greet(self) -> HttpConnection:
        """Return the protocol of a client that comes by another way than a listening socket."""
        return HttpConnection(self, self._app)

    def _names(self, host: str, own: Sequence[socket]) -> Collection[str] | None:
        """Return by which names it may be called; any, where others can reach it."""
        if self._hosts is None or not sockets.are_loopback(own):
            return None
        return {host, *self._hosts}

    def _accepted(self, app: App, tls: ssl.SSLContext | None, fd: int, peer: str) -> None:
        client = socket(fileno=fd)
        task = self._loop.create_task(self._let_in(app, tls, client, peer))
        self._arriving.add(task)
        task.add_done_callback(partial(self._arrived, client))

    def _arrived(self, client: socket, task: asyncio.Task[None]) -> None:
        self._arriving.discard(task)
        if task.cancelled():  # perhaps before its first step, which is to hand the socket over
            client.close()
        elif (error := task.exception()) is not None:
            log.error("http connection not established", exc_info=error)
            client.close()

    async def _let_in(
        self, app: App, tls: ssl.SSLContext | None, client: socket, peer: str
    ) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: HttpConnection(self, app),
                client,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self.limits.head_seconds,
            )
        except OSError as error:
            log.debug("http connection not established peer=%s error=%s", peer, error)
            client.close()

    async def stop(self) -> None:
        """Accept nobody, let requests under way finish for a while, then drop who is left."""
        for listener in self._listeners:
            listener.stop()
        self.stopping.set()
        if self._on_stop is not None:
            self._on_stop()
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            self._emptied.clear()
            try:
                async with asyncio.timeout(self.limits.drain_seconds):
                    await self._emptied.wait()
            except TimeoutError:
                log.warning("http drain gave up waiting connections=%d", len(self._connections))
        for connection in list(self._connections):
            connection.abort()
        for arriving in self._arriving:
            arriving.cancel()
        if self._arriving:
            await asyncio.wait(self._arriving)
        if self._timer is not None:
            self._timer.cancel()
        self._listeners.clear()

    def sweep(self) -> None:
        """Cut every connection whose deadline has passed."""
        now = self.now()
        for connection in list(self._connections):
            if connection.deadline is not None and connection.deadline <= now:
                connection.expire()
        self.unread.sweep(now, self.limits.stall_seconds)

    def now(self) -> float:
        """Return the clock's monotonic seconds."""
        return self._clock.monotonic()

    def date(self) -> bytes:
        """Return the Date header's value, made once a second."""
        return _date_of(self._clock.time_ns() // 1_000_000_000)

    def admit(self, connection: Connection) -> bool:
        """Count a connection in; False when there is no room for it."""
        self._connections.add(connection)
        return len(self._connections) <= self.limits.connections and not self.stopping.is_set()

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def _tick(self) -> None:
        self._sweep()
        self._timer = self._loop.call_later(self.limits.sweep_seconds, self._tick)


@lru_cache(maxsize=1)
def _date_of(second: int) -> bytes:
    return strftime(DATE, gmtime(second)).encode()
