"""UnbrokenWork: what is carried out to its end although the client that asked for it leaves."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class UnbrokenWork:
    """The tasks under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self, work: Awaitable[T]) -> T:
        """Wait for work that goes on to its end also when the client leaves meanwhile."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def finish(self) -> None:
        """Wait for all that is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


def _log_failure(task: "asyncio.Future[Any]") -> None:
    """Log what nobody hears: who asked for it has left."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.info("failed after its client left error=%s", error)
