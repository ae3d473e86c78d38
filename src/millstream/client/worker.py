"""Worker: a function that is called for each job of a queue, in threads."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.client.errors import ApiError, ConnectFailed
from millstream.client.patience import Patience
from millstream.client.topic_values import Job, TopicState
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    from millstream.client.topics import Topic

log = logging.getLogger(__name__)

Handler = Callable[[Job], Any]
POLL_SECONDS = 1.0  # between two looks at a queue that has had nothing for a while
FIRST_POLL_SECONDS = 0.05  # behind the last job, where the next is likeliest
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 100, 86_400_000  # as the server grants them


class WorkTerms(msgspec.Struct, frozen=True):
    """How a worker takes jobs: under which name, how many at a time, and for how long.

    Without a ``lease_ms`` the queue's own is asked for when the worker begins. Each claim then
    names the lease, so that the one that is renewed is the one that was granted.
    """

    node: str
    concurrency: int
    lease_ms: int | None
    retry_ms: int

    @classmethod
    def of(
        cls, node: str | None, concurrency: int, lease_ms: int | None, retry_ms: int
    ) -> "WorkTerms":
        """Return the terms; a worker that has no name is called after machine and process."""
        name = node or f"{socket.gethostname()}-{os.getpid()}"
        return cls(name, concurrency, lease_ms, retry_ms)

    def lease_of(self, state: TopicState) -> "Lease":
        """Return for how long jobs of a queue are claimed and kept."""
        wish = self.lease_ms if self.lease_ms is not None else int(state.config["lease_ms"])
        length = min(max(wish, SHORTEST_LEASE_MS), LONGEST_LEASE_MS)
        return Lease(length, bool(state.config["claim_jitter_ms"]))


class Lease(msgspec.Struct, frozen=True):
    """For how long jobs are claimed, and kept again before a third of it is left."""

    ms: int
    is_shared: bool = False  # who claims together gets the lease of the first, maybe a shorter one

    @property
    def pause(self) -> float:
        """Return the seconds between two renewals."""
        return self.ms / 3000


class IdleWait:
    """How long a worker waits before it looks again: longer, the longer there was nothing."""

    def __init__(self) -> None:
        self._next = FIRST_POLL_SECONDS

    def pause(self) -> float:
        """Return the seconds to the next look, as this one was in vain."""
        pause, self._next = self._next, min(2 * self._next, POLL_SECONDS)
        return pause

    def end(self) -> None:
        """Begin anew: there was a job."""
        self._next = FIRST_POLL_SECONDS


class Worker:
    """Takes jobs, at most ``concurrency`` at a time; call it like the function that it wraps.

    ``done`` counts the jobs that it has finished, ``failed`` how often the function raised, and
    ``lost`` the jobs whose lease was over when they were answered: those come again.
    """

    def __init__(self, queue: "Topic", terms: WorkTerms, handler: Handler) -> None:
        self.node = terms.node
        self.done = 0
        self.failed = 0
        self.lost = 0
        self._queue = queue
        self._handler = handler
        self._terms = terms
        self._stop = threading.Event()
        self._freed = threading.Event()
        self._held: dict[int, Job] = {}
        self._broken: BaseException | None = None  # what ended the thread that keeps the leases
        self._idleness = IdleWait()
        self._lease = Lease(LONGEST_LEASE_MS)

    def __call__(self, job: Job) -> Any:
        """Call the function itself."""
        return self._handler(job)

    def stop(self) -> None:
        """Take no more jobs; ``run`` returns once those under way are finished."""
        self._stop.set()
        self._freed.set()

    def run(self, *, until_empty: bool = False) -> None:
        """Take jobs until ``stop`` is called, or until there are none left."""
        self._lease = self._terms.lease_of(self._queue.state())
        patience = self._queue.patience()
        ended = threading.Event()  # not before the last job: a worker that stops still has some
        self._stop.clear()
        self._broken = None
        renewer = Supervisor().thread(
            "millstream-leases", partial(self._renew, ended), self._renewer_ended
        )
        try:
            with ThreadPoolExecutor(self._terms.concurrency) as pool:
                while not self._stop.is_set():
                    was_busy = bool(self._held)  # such a job may come back behind the look
                    if not self._take(pool, patience) and not self._held and not was_busy:
                        if until_empty:
                            break
                        self._stop.wait(self._idleness.pause())
        finally:
            ended.set()
            renewer.join()
        if self._broken is not None:
            raise self._broken

    def _take(self, pool: ThreadPoolExecutor, patience: Patience) -> bool:
        """Start on jobs while there is room; False when the queue has none."""
        self._freed.clear()
        room = self._terms.concurrency - len(self._held)
        if room <= 0:
            self._freed.wait(POLL_SECONDS)
            return True
        try:
            jobs = self._queue.claim(self.node, room, lease_ms=self._lease.ms)
        except (ApiError, ConnectFailed) as error:
            pause = patience.pause(error)
            log.warning("no jobs for now queue=%s error=%s", self._queue.name, error)
            self._stop.wait(pause)
            return True
        patience.answered()
        if self._lease.is_shared:
            self._keep(jobs)
        if jobs:
            self._idleness.end()
        for job in jobs:
            self._held[job.seq] = job
            future: Future[None] = pool.submit(self._handle, job)
            future.add_done_callback(partial(self._finished, job))
        if not jobs and self._held:
            self._freed.wait(POLL_SECONDS)
        return bool(jobs)

    def _handle(self, job: Job) -> None:
        try:
            self._handler(job)
        except Exception:
            log.exception("job failed queue=%s seq=%d", self._queue.name, job.seq)
            self.failed += 1
            self._answer(partial(self._queue.nack, delay_ms=self._terms.retry_ms), job)
        else:
            if self._answer(self._queue.ack, job):
                self.done += 1
            else:
                self.lost += 1
                log.warning("lease was over queue=%s seq=%d", self._queue.name, job.seq)

    def _answer(self, verb: Callable[..., int], job: Job) -> int:
        """Answer for a job; while its lease may last a server that is away is asked again."""
        patience = Patience(self._lease.ms / 1000)
        while True:
            try:
                return verb(self.node, job)
            except (ApiError, ConnectFailed) as error:
                time.sleep(patience.pause(error))

    def _finished(self, job: Job, future: "Future[None]") -> None:
        self._held.pop(job.seq, None)
        self._freed.set()
        error = future.exception()
        if error is not None:  # the job comes again when its lease is over
            log.error("job not answered queue=%s seq=%d error=%s", self._queue.name, job.seq, error)

    def _renew(self, ended: threading.Event) -> None:
        """Keep the leases of jobs alive that take longer than that."""
        while not ended.wait(self._lease.pause):
            self._keep(list(self._held.values()))

    def _renewer_ended(self, error: BaseException) -> None:
        """Stop: whoever took more jobs now would lose those that take longer than a lease."""
        self._broken = error
        self.stop()

    def _keep(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        try:
            self._queue.extend(self.node, *jobs, lease_ms=self._lease.ms)
        except (ApiError, ConnectFailed) as error:
            log.warning("leases not kept queue=%s error=%s", self._queue.name, error)
