"""PutThreads: threads that carry entries to the store, so that several are under way at once."""

import queue
from collections.abc import Callable

from millstream.supervisor import Supervisor


class PutThreads:
    """Runs calls, each on whichever thread is free."""

    def __init__(self, count: int, supervisor: Supervisor) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count = count
        for number in range(count):
            supervisor.thread(f"millstream-puts-{number}", self._run, lambda error: None)

    def start(self, call: Callable[[], None]) -> None:
        """Run a call soon."""
        self._calls.put(call)

    def close(self) -> None:
        """Let the threads end; what hangs in a request ends with the process."""
        for _ in range(self._count):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
