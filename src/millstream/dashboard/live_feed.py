"""LiveFeed: one event a second to every page that is open, each rendered once for all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from millstream.dashboard.sampler import CredentialView, Sampler
from millstream.http.request import Caller, Request
from millstream.http.response import Answer, StreamedResponse

RETRY = b"retry: 2000\n\n"
REVOKED = b'event: error\ndata: {"code":"unauthorized","message":"the credential was revoked"}\n\n'
STOPPING = (
    b'event: error\ndata: {"code":"server_shutting_down",'
    b'"message":"the server is stopping; connect again later"}\n\n'
)


class FeedSlots(Protocol):
    """How many event streams may be open."""

    def take(self, key: str) -> Callable[[], None]:
        """Count one in, or raise; returns the undo."""
        ...


class Stopping(Protocol):
    """Tells when the server ends, and when a credential was revoked."""

    is_set: bool

    def on_wake(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` then; returns the undo."""
        ...


class LiveFeed:
    """Serves the looks of a sampler as server-sent events.

    A client that does not read is not asked for its next event: it holds one look at most, and
    gets the newest whole one when it goes on.
    """

    def __init__(self, sampler: Sampler, slots: FeedSlots, stopping: Stopping) -> None:
        self._sampler = sampler
        self._slots = slots
        self._stopping = stopping

    async def open(self, request: Request) -> Answer:
        """Begin a feed for the caller of a request."""
        free = self._slots.take(request.caller.key)
        return StreamedResponse(self._events(request.caller, free))

    async def past(self, request: Request) -> Answer:
        """Return the figures of the last minutes, for charts."""
        from millstream.http.response import Response

        body = self._sampler.past() if request.caller.sees_server else b"[]"
        return Response(200, b'{"samples":%b}' % body)

    async def _events(self, caller: Caller, free: Callable[[], None]) -> AsyncIterator[bytes]:
        sampler = self._sampler
        view = sampler.join(caller)
        try:
            seen = sampler.tick
            yield RETRY + sampler.words(view, whole=True)
            while True:
                await self._next()
                if caller.revoked or self._stopping.is_set:
                    yield REVOKED if caller.revoked else STOPPING
                    return
                if sampler.tick == seen:
                    continue
                whole, seen = sampler.tick != seen + 1, sampler.tick
                yield self._words(view, whole)
        finally:
            sampler.leave(caller)
            free()

    def _words(self, view: CredentialView, whole: bool) -> bytes:
        return self._sampler.words(view, whole=whole)

    async def _next(self) -> None:
        """Wait for the next look, or for the end."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self._sampler.next_look(wake)
        undo = self._stopping.on_wake(wake)
        try:
            await arrived
        finally:
            undo()
