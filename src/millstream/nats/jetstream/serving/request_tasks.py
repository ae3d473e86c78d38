"""RequestTasks: the tasks of requests that have to wait, from the loop's first turn to the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from millstream.eager_task import begin
from millstream.kernel._batch import Batch
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)


class RequestTasks:
    """Holds what comes before the first turn, and hands it to ``take`` once tasks can begin.

    Where the group of all tasks fails, ``failed`` says why, and no task begins any more.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        supervisor: Supervisor,
        take: Callable[[Batch], None],
    ) -> None:
        self.failed = ""  # why no request is served any more
        self._name = name
        self._loop = loop
        self._supervisor = supervisor
        self._take = take
        self._group: asyncio.TaskGroup | None = None
        self._early: list[Batch] = []
        self._runner: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._spawned: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin with the loop's next turn."""
        self._runner = self._loop.create_task(self._run())
        self._supervisor.task(self._name, self._runner, self._ended.is_set, self._run_ended)

    async def finish(self) -> None:
        """Cancel work behind answers, and wait for the requests under way."""
        self._ended.set()
        for task in list(self._spawned):
            task.cancel()
        if self._runner is not None:
            await asyncio.wait([self._runner])

    def holds_early(self, batch: Batch) -> bool:
        """Say whether the loop has yet to turn; if so the batch is kept until it does."""
        if self._group is None:
            self._early.append(batch)
        return self._group is None

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work at once, or in a task of its own where it has to wait."""
        group = self._group
        assert group is not None
        begin(work, lambda rest: group.create_task(_to_its_end(rest)))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work go on behind an answer; it ends with the API at the latest."""
        assert self._group is not None
        task = self._group.create_task(_to_its_end(work))
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._take_early()
            await self._ended.wait()

    def _run_ended(self, error: BaseException) -> None:
        """Have every request refused from now on, those that came early first."""
        self.failed = f"the JetStream API has failed ({type(error).__name__}): restart the server"
        self._group = None
        self._take_early()

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for batch in early:
            self._take(batch)


async def _to_its_end(work: Awaitable[None]) -> None:
    """Wait for work; where it fails it fails alone, and the group of all goes on."""
    try:
        await work
    except Exception:
        log.exception("work for a request failed")
