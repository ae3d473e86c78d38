"""ClaimCohorts: claimers who come within one window and are served in one pass."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from millstream.delivery.timers import Timer, Timers
from millstream.errors import MillstreamError
from millstream.queues.leases import Claimer
from millstream.queues.queue_work import QueueWork
from millstream.queues.stored_jobs import Job
from millstream.streams.state import StreamState

Served = tuple[list[list[Job]], StreamState | None]


class _Cohort(msgspec.Struct, eq=False):
    """Claimers who are served together once the first one's window is over."""

    lease_ms: int
    members: "list[tuple[Claimer, asyncio.Future[list[Job]]]]" = msgspec.field(default_factory=list)
    timer: Timer | None = None


class ClaimCohorts:
    """At most one cohort is open; ``serve`` grants jobs, ``take_back`` those of who has left."""

    def __init__(
        self,
        timers: Timers,
        work: QueueWork,
        serve: Callable[[list[Claimer], int], Awaitable[Served]],
        take_back: Callable[[Claimer], None],
    ) -> None:
        self._timers = timers
        self._work = work
        self._serve = serve
        self._take_back = take_back
        self._open: _Cohort | None = None

    @property
    def is_open(self) -> bool:
        """Say whether claimers are being gathered."""
        return self._open is not None

    async def join(self, claimer: Claimer, lease_ms: int, window: float) -> list[Job]:
        """Wait for the jobs of a claimer; the first one sets the length of lease and window."""
        cohort = self._open or self._begin(lease_ms, window)
        answer: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()
        member = (claimer, answer)
        cohort.members.append(member)
        try:
            return await answer
        except asyncio.CancelledError:  # the client left
            if self._open is cohort:
                cohort.members.remove(member)
            self._take_back(claimer)
            raise

    def _begin(self, lease_ms: int, window: float) -> _Cohort:
        self._open = cohort = _Cohort(lease_ms)
        cohort.timer = self._timers.after(window, partial(self._end, cohort))
        return cohort

    def _end(self, cohort: _Cohort) -> None:
        self._open = None
        if cohort.members:
            self._work.start(self._serve_all(cohort))

    async def _serve_all(self, cohort: _Cohort) -> None:
        """Serve everybody in one pass; when it fails the first one hears why."""
        members = [member for member in cohort.members if not member[1].cancelled()]
        claimers = [claimer for claimer, _ in members]
        try:
            found, _ = await self._serve(claimers, cohort.lease_ms)
        except MillstreamError as error:
            found = [[] for _ in claimers]
            leader = members[0][1]
            if not leader.done():
                leader.set_exception(error)
        for (claimer, answer), jobs in zip(members, found, strict=True):
            if answer.cancelled():
                self._take_back(claimer)
            elif not answer.done():
                answer.set_result(jobs)

    def hurry(self) -> None:
        """Serve now those who wait for the end of their window."""
        cohort = self._open
        if cohort is not None:
            if cohort.timer is not None:
                cohort.timer.cancel()
            self._end(cohort)

    def close(self, error: MillstreamError) -> None:
        """Send those who wait away with an error."""
        cohort, self._open = self._open, None
        if cohort is None:
            return
        if cohort.timer is not None:
            cohort.timer.cancel()
        for _, answer in cohort.members:
            if not answer.done():
                answer.set_exception(error)
