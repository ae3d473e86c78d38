"""Threads for work at the cold place: whatever it does, nothing else waits for them."""

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from millstream.supervisor import Supervisor

T = TypeVar("T")
Work = tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]
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


class ColdWork:
    """One piece of work at a time: whether one is under way, and what went wrong with the last."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.is_busy = False
        self.problems: dict[str, str] = {}  # kind of work → what is wrong, in words


class PoolEnded(RuntimeError):
    """A job is not done, as a thread for it has ended."""


class ThreadPool:
    """Some threads over one queue; a place that hangs never holds the end of the process up.

    Once a thread has ended by itself, every job fails at once.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        threads: int,
        name: str,
        supervisor: Supervisor,
    ) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._closed = False
        self._open: dict[int, Work] = {}  # what each thread has under way
        self._lock = threading.Lock()  # between a job that comes and the end of a thread
        self._why: PoolEnded | None = None
        names = [f"millstream-cold-{name}-{n}" for n in range(threads)]
        self._threads = [
            supervisor.thread(each, partial(self._loop, n), partial(self._ended, n, each))
            for n, each in enumerate(names)
        ]

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Queue ``job``."""
        with self._lock:
            if self._why is None:
                self._jobs.put((job, done))
                return
        self._post(partial(done, None, self._why))

    def close(self) -> None:
        """Let what is under way end, for a moment; what waits is not begun."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _loop(self, number: int) -> None:
        while (work := self._jobs.get()) is not None:
            if self._closed:
                continue
            self._open[number] = work
            job, done = work
            found, error = _attempt(job)
            self._answer(done, found, error)
            del self._open[number]

    def _answer(
        self, done: Callable[[Any, Exception | None], None], found: Any, error: Exception | None
    ) -> None:
        try:
            if not self._closed:
                self._post(partial(done, found, error))
        except RuntimeError:
            if not self._closed:  # else the loop has ended meanwhile
                raise

    def _ended(self, number: int, name: str, error: BaseException) -> None:
        """Fail every job that the thread had and that waits; other threads finish their own."""
        with self._lock:
            self._why = why = PoolEnded(f"the thread {name} ended ({error!r}); restart")
            waiting = [self._open[number]] if number in self._open else []
            while not self._jobs.empty():
                work = self._jobs.get()
                if work is not None:
                    waiting.append(work)
        for _, done in waiting:
            self._answer(done, None, why)


def _attempt(job: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return job(), None
    except Exception as error:
        return None, error
