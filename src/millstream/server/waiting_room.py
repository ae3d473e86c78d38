"""WaitingRoom: answers at the HTTP port while the data directory is being recovered.

The start has the loop until everything is in place, so a thread with a loop of its own serves those
who come before. It listens by copies of the sockets: whoever connects while they change hands waits
in their queue, and nobody is turned away.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from socket import SHUT_RDWR, socket

from millstream import __version__
from millstream.clock import Clock
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, json_response
from millstream.supervisor import Supervisor
from millstream.topics.api.health import not_owner, not_ready

NAME = "waiting-room"
DRAIN_SECONDS = 0.2  # a client that does not read must not hold the start up for longer


class WaitingRoom:
    """Serves from ``open`` to ``close``; ``share`` is what is told of the recovery, if anything."""

    def __init__(
        self,
        host: str,
        sockets: Sequence[socket],
        clock: Clock,
        tls: ssl.SSLContext | None,
        share: Callable[[], float] | None,
        allowed_hosts: Collection[str] = (),
        supervisor: Supervisor | None = None,
        owner: Callable[[], str] = lambda: "",
    ) -> None:
        """``owner`` says who serves instead of a member of a fleet that stands by."""
        self._host = host
        self._sockets = sockets
        self._clock = clock
        self._tls = tls
        self._share = share
        self._allowed_hosts = allowed_hosts
        self._owner = owner
        self._began_ns = clock.time_ns()
        self._supervisor = supervisor or Supervisor()
        self._thread: threading.Thread | None = None
        self._opened = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def open(self) -> None:
        """Serve from now on."""
        self._thread = self._supervisor.thread(NAME, self._run, self._ended)
        self._opened.wait()

    def close(self) -> None:
        """Return once nobody is served here any more."""
        if self._loop is not None and self._end is not None:
            with suppress(RuntimeError):  # it has failed, and ended by itself
                self._loop.call_soon_threadsafe(self._end.set)
        if self._thread is not None:
            self._thread.join()
        self._supervisor.works(NAME)  # whoever comes now is served by somebody else

    def _ended(self, error: BaseException) -> None:
        """Turn away who comes: nobody would take them from the queue before the start is over."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(SHUT_RDWR)
        self._opened.set()  # the start goes on without

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        limits = Limits(drain_seconds=DRAIN_SECONDS)
        hosts = self._allowed_hosts
        door = HttpDoor(self._loop, self._answer, self._clock, limits, hosts=hosts)
        try:
            await door.start(self._host, 0, self._tls, [each.dup() for each in self._sockets])
            self._opened.set()
            await self._end.wait()
        finally:
            await door.stop()

    async def _answer(self, request: Request) -> Answer:
        uptime_ms = (self._clock.time_ns() - self._began_ns) // 1_000_000
        about = {"version": __version__, "uptime_ms": uptime_ms}
        if self._share is None:
            return not_ready(None)
        if request.path == "/v0/health":
            return json_response({"status": "ok", **about})
        if request.path == "/healthz":
            why = self._owner() or "the log is being replayed"
            return json_response({"status": "unavailable", "error": why, **about}, 503)
        if owner := self._owner():
            return not_owner(owner)
        return not_ready({"replay_progress": round(self._share(), 3)})
