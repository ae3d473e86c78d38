"""Slow file work beside the loop. A worker does one job at a time, in order.

A store has two: what writes and removes files is done by one, and what waits for the disk to have
them by the other. A disk takes less than its cache does, and whoever waited for it before writing
on would have to keep in memory what comes meanwhile.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

Job = Callable[[], None]
Done = Callable[[Exception | None], None]


class Worker(Protocol):
    """Runs jobs in the order given and reports each to the loop."""

    def run(self, job: Job, done: Done) -> None:
        """Run ``job``; ``done`` is called on the loop with what it raised, or None."""
        ...

    def close(self) -> None:
        """Return once every job given has run."""
        ...


def _attempt(job: Job) -> Exception | None:
    try:
        job()
    except Exception as error:
        return error
    return None


class InlineWorker:
    """Runs jobs on the spot, for tests and for the last checkpoint."""

    def run(self, job: Job, done: Done) -> None:
        """Run ``job`` and report it before returning."""
        done(_attempt(job))

    def close(self) -> None:
        """Nothing is ever waiting."""


class ThreadWorker:
    """One thread that runs jobs one after another."""

    def __init__(self, post: Callable[[Callable[[], None]], object], name: str) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=f"millstream-{name}", daemon=True)
        self._thread.start()

    def run(self, job: Job, done: Done) -> None:
        """Queue ``job``."""
        self._jobs.put((job, done))

    def close(self) -> None:
        """Return once every job given has run; their reports are posted."""
        self._jobs.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            error = _attempt(job)
            self._post(lambda done=done, error=error: done(error))  # type: ignore[misc]
