"""Threads for work at the cold place: whatever it does, nothing else waits for them."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")
PATIENCE = 1.0  # seconds that a stop waits for work under way


class Pool(Protocol):
    """Runs jobs and reports each to the loop."""

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run ``job``; ``done`` is called on the loop with what it returned or raised."""
        ...

    def close(self) -> None:
        """Take no more jobs; one that hangs is left behind."""
        ...


class InlinePool:
    """Runs jobs on the spot, for tests."""

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run ``job`` and report it before returning."""
        done(*_attempt(job))

    def close(self) -> None:
        """Nothing is ever waiting."""


class ThreadPool:
    """Some threads over one queue; a place that hangs never holds the end of the process up."""

    def __init__(self, post: Callable[[Callable[[], None]], object], threads: int) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._loop, name=f"millstream-cold-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Queue ``job``."""

        def work() -> None:
            found, error = _attempt(job)
            if not self._closed:
                self._post(lambda: done(found, error))

        self._jobs.put(work)

    def close(self) -> None:
        """Let what is under way end, for a moment; what waits is not begun."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _loop(self) -> None:
        while (work := self._jobs.get()) is not None:
            if self._closed:
                continue
            try:
                work()
            except RuntimeError:  # the loop is gone
                return


def _attempt(job: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return job(), None
    except Exception as error:
        return None, error
