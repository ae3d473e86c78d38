"""Slow file work beside the loop. A worker does one job at a time, in order.

A store has two: what writes and removes files is done by one, and what waits for the disk to have
them by the other. A disk takes less than its cache does, and whoever waited for it before writing
on would have to keep in memory what comes meanwhile.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from millstream.supervisor import Ended, Supervisor

Job = Callable[[], None]
Done = Callable[[Exception | None], None]


class FileWorker(Protocol):
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

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, Done]] = deque()

    def run(self, job: Job, done: Done) -> None:
        """Run ``job`` and report it before returning; one that a report gives comes behind it."""
        self._jobs.append((job, done))
        if len(self._jobs) > 1:
            return
        try:
            while self._jobs:
                job, done = self._jobs[0]
                done(_attempt(job))
                self._jobs.popleft()
        finally:
            self._jobs.clear()

    def close(self) -> None:
        """Nothing is ever waiting."""


class WorkerEnded(RuntimeError):
    """A job is not done, as the thread for it has ended."""


class ThreadWorker:
    """One thread that runs jobs one after another; once it has ended, every job fails at once."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], object],
        name: str,
        supervisor: Supervisor,
        ended: Ended,
    ) -> None:
        """``ended`` is told, on the loop, that the thread ended although nobody closed it."""
        self._post = post
        self._name = f"millstream-{name}"
        self._tell = ended
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        self._open: Done | None = None  # who waits for the job that is under way
        self._lock = threading.Lock()  # between a job that comes and the end of the thread
        self._why: WorkerEnded | None = None
        self._thread = supervisor.thread(self._name, self._loop, self._ended)

    def run(self, job: Job, done: Done) -> None:
        """Queue ``job``."""
        with self._lock:
            if self._why is None:
                self._jobs.put((job, done))
                return
        self._post(partial(done, self._why))

    def close(self) -> None:
        """Return once every job given has run; their reports are posted."""
        self._jobs.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, self._open = item
            error = _attempt(job)
            self._post(partial(self._open, error))
            self._open = None

    def _ended(self, error: BaseException) -> None:
        """Fail every job that the thread was given."""
        with self._lock:
            self._why = why = WorkerEnded(f"the thread {self._name} ended ({error!r}); restart")
            waiting = [] if self._open is None else [self._open]
            while not self._jobs.empty():
                item = self._jobs.get()
                if item is not None:
                    waiting.append(item[1])
        self._post(partial(self._tell, error))
        for done in waiting:
            self._post(partial(done, why))
