"""A server of the HTTP API for the clients' tests."""

import asyncio
import threading
from pathlib import Path

from millstream.clock import SystemClock
from millstream.delivery.timers import Timers
from millstream.http.door import HttpDoor
from millstream.http.request import Request
from millstream.http.response import Answer, Response, error_body
from millstream.http.routes import Routes
from millstream.store.disk.files import OsFiles
from millstream.store.store import Store
from millstream.streams.catalog import SECTION, Catalog
from millstream.topics.context import Topics as Served
from millstream.topics.routes import topics_routes


class Site:
    """A topics API on a loop of its own thread; ``busy`` answers are ``refusal`` before any other.

    One with the directory and the port of another that has ended is its restart.
    """

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.busy = 0
        self.refusal = (429, "throttled")
        self.port = port
        self._directory = directory
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""
        self._ended: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self.seen: list[tuple[str, str]] = []

    def __enter__(self) -> "Site":
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *details: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(30)

    def drop_connections(self) -> None:
        """Cut every client off, as a restart would."""

        def cut() -> None:
            for connection in list(self._door._connections):
                connection.abort()

        self._loop.call_soon_threadsafe(cut)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        clock = SystemClock()
        store = Store.open(str(self._directory), OsFiles(), clock, self._loop.call_soon_threadsafe)
        timers = Timers(clock, self._loop)
        catalog = Catalog(store, clock, timers)
        catalog.replay(store.recovery.sections.get(SECTION), store.recovery.controls)
        topics = Served(catalog, clock, store, timers)
        topics.recover(store.recovery)
        routes = Routes(topics_routes(topics))

        async def app(request: Request) -> Answer:
            self.seen.append((request.method, request.path))
            if self.busy:
                self.busy -= 1
                headers = ((b"Retry-After", b"0"),)
                status, code = self.refusal
                return Response(status, error_body(code, "busy"), headers=headers)
            return await routes(request)

        self._door = HttpDoor(self._loop, app, clock, on_stop=topics.stop)
        self.port = await self._door.start("127.0.0.1", self.port)
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready.set()
        await self._ended.wait()
        await self._door.stop()
        catalog.close()
        store.close()
