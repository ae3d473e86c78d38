"""WaitingRoom: answers at the HTTP port while the data directory is being recovered.

The start has the loop until everything is in place, so a thread with a loop of its own serves those
who come before. It listens by copies of the sockets: whoever connects while they change hands waits
in their queue, and nobody is turned away.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from socket import socket

from millstream import __version__
from millstream.clock import Clock
from millstream.http.door import HttpDoor
from millstream.http.limits import Limits
from millstream.http.request import Request
from millstream.http.response import Answer, json_response
from millstream.topics.api.health import not_ready

log = logging.getLogger(__name__)

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
    ) -> None:
        self._host = host
        self._sockets = sockets
        self._clock = clock
        self._tls = tls
        self._share = share
        self._allowed_hosts = allowed_hosts
        self._began_ns = clock.time_ns()
        self._thread = threading.Thread(target=self._run, name="waiting-room", daemon=True)
        self._opened = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def open(self) -> None:
        """Serve from now on."""
        self._thread.start()
        self._opened.wait()

    def close(self) -> None:
        """Return once nobody is served here any more."""
        if self._loop is not None and self._end is not None:
            with suppress(RuntimeError):  # it has failed, and ended by itself
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:  # the start goes on without
            log.warning("nobody answers at the http port during the recovery error=%s", error)
        finally:
            self._opened.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        limits = Limits(drain_seconds=DRAIN_SECONDS)
        hosts = self._allowed_hosts
        door = HttpDoor(self._loop, self._answer, self._clock, limits, hosts=hosts)
        await door.start(self._host, 0, self._tls, [each.dup() for each in self._sockets])
        self._opened.set()
        await self._end.wait()
        await door.stop()

    async def _answer(self, request: Request) -> Answer:
        uptime_ms = (self._clock.time_ns() - self._began_ns) // 1_000_000
        about = {"version": __version__, "uptime_ms": uptime_ms}
        if self._share is None:
            return not_ready(None)
        if request.path == "/v0/health":
            return json_response({"status": "ok", **about})
        if request.path == "/healthz":
            why = "the log is being replayed"
            return json_response({"status": "unavailable", "error": why, **about}, 503)
        return not_ready({"replay_progress": round(self._share(), 3)})
