"""Turns: who says when a request is answered that has come in whole."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from millstream.http.request import Request

Serve = Callable[[], None]


class Turns(Protocol):
    """An order among requests that came in together; each is served once, on the loop."""

    def take(self, request: Request, serve: Serve, at: float, client: object) -> None:
        """Serve a request that was read ``at`` this moment, now or when it is its turn.

        A client is one whose next request comes after the answer to this one.
        """
        ...

    def wait(self, request: Request, serve: Serve) -> None:
        """Serve a request when it is its turn, and not before the loop has gone round."""
        ...


class FirstCome:
    """Serves requests as they come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def take(self, request: Request, serve: Serve, at: float, client: object) -> None:
        """Serve at once."""
        serve()

    def wait(self, request: Request, serve: Serve) -> None:
        """Serve in the loop's next turn."""
        self._loop.call_soon(serve)
