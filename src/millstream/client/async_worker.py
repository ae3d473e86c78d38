"""AsyncWorker: takes jobs of a queue from asyncio and runs a coroutine function for each."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.client.errors import ApiError, ConnectFailed
from millstream.client.patience import Patience
from millstream.client.topic_values import Job
from millstream.client.worker import LONGEST_LEASE_MS, POLL_SECONDS, IdleWait, Lease, WorkTerms

if TYPE_CHECKING:
    from millstream.client.async_topics import AsyncTopic

log = logging.getLogger(__name__)

AsyncHandler = Callable[[Job], Awaitable[Any]]


class AsyncWorker:
    """Takes jobs, at most ``concurrency`` at a time; call it like the function that it wraps.

    ``done``, ``failed`` and ``lost`` count as those of a ``Worker`` do.
    """

    def __init__(self, queue: "AsyncTopic", terms: WorkTerms, handler: AsyncHandler) -> None:
        self.node = terms.node
        self.done = 0
        self.failed = 0
        self.lost = 0
        self._queue = queue
        self._handler = handler
        self._terms = terms
        self._stopping = asyncio.Event()
        self._held: dict[asyncio.Task[None], Job] = {}
        self._idleness = IdleWait()
        self._lease = Lease(LONGEST_LEASE_MS)

    async def __call__(self, job: Job) -> Any:
        """Call the function itself."""
        return await self._handler(job)

    def stop(self) -> None:
        """Take no more jobs; ``run`` returns once those under way are finished."""
        self._stopping.set()

    async def run(self, *, until_empty: bool = False) -> None:
        """Take jobs until ``stop`` is called, or until there are none left."""
        self._lease = self._terms.lease_of(await self._queue.state())
        patience = self._queue.patience()
        self._stopping.clear()
        async with asyncio.TaskGroup() as group:
            renewer = group.create_task(self._renew())
            try:
                while not self._stopping.is_set():
                    was_busy = bool(self._held)  # such a job may come back behind the look
                    found = await self._take(group, patience)
                    if found or await self._wait() or was_busy:
                        continue
                    if until_empty:
                        break
            finally:
                if self._held:
                    await asyncio.wait(list(self._held))
                renewer.cancel()

    async def _take(self, group: asyncio.TaskGroup, patience: Patience) -> bool:
        """Start on jobs while there is room; False when the queue has none."""
        room = self._terms.concurrency - len(self._held)
        if room <= 0:
            return False
        try:
            jobs = await self._queue.claim(self.node, room, lease_ms=self._lease.ms)
        except (ApiError, ConnectFailed) as error:
            pause = patience.pause(error)
            log.warning("no jobs for now queue=%s error=%s", self._queue.name, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            return True
        patience.answered()
        if self._lease.is_shared:
            await self._keep(jobs)
        if jobs:
            self._idleness.end()
        for job in jobs:
            task = group.create_task(self._handle(job))
            self._held[task] = job
            task.add_done_callback(self._held.pop)
        return bool(jobs)

    async def _wait(self) -> bool:
        """Wait for a job to be finished or for more to come; False when none is under way."""
        under_way = bool(self._held)
        stopping = asyncio.ensure_future(self._stopping.wait())
        if under_way or not self._stopping.is_set():
            await asyncio.wait(
                [*self._held, stopping],
                timeout=POLL_SECONDS if under_way else self._idleness.pause(),
                return_when=asyncio.FIRST_COMPLETED,
            )
        stopping.cancel()
        return under_way

    async def _handle(self, job: Job) -> None:
        is_done = True
        try:
            await self._handler(job)
        except Exception:
            log.exception("job failed queue=%s seq=%d", self._queue.name, job.seq)
            self.failed += 1
            is_done = False
        try:
            if not is_done:
                await self._answer(partial(self._queue.nack, delay_ms=self._terms.retry_ms), job)
            elif await self._answer(self._queue.ack, job):
                self.done += 1
            else:
                self.lost += 1
                log.warning("lease was over queue=%s seq=%d", self._queue.name, job.seq)
        except (ApiError, ConnectFailed) as error:  # it comes again when its lease is over
            log.warning("job not answered queue=%s seq=%d %s", self._queue.name, job.seq, error)

    async def _answer(self, verb: Callable[..., Awaitable[int]], job: Job) -> int:
        """Answer for a job; while its lease may last a server that is away is asked again."""
        patience = Patience(self._lease.ms / 1000)
        while True:
            try:
                return await verb(self.node, job)
            except (ApiError, ConnectFailed) as error:
                await asyncio.sleep(patience.pause(error))

    async def _renew(self) -> None:
        """Keep the leases of jobs alive that take longer than that."""
        while True:
            await asyncio.sleep(self._lease.pause)
            await self._keep(list(self._held.values()))

    async def _keep(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        try:
            await self._queue.extend(self.node, *jobs, lease_ms=self._lease.ms)
        except (ApiError, ConnectFailed) as error:
            log.warning("leases not kept queue=%s error=%s", self._queue.name, error)
