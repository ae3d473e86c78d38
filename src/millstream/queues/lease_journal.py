"""LeaseJournal: what a queue writes down about its leases, where they survive the process."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from millstream.errors import MillstreamError
from millstream.queues.lease_events import Event
from millstream.queues.settings import Settings
from millstream.store.log.log import Committed, Durability
from millstream.streams.stream import Stream, settle

log = logging.getLogger(__name__)


class Journal(Protocol):
    """Where a queue writes what must survive the process."""

    def write(self, stream: Stream, event: Event, done: Committed) -> None:
        """Log an event on the timeline of the queue's records."""
        ...


class LeaseJournal:
    """The events of one queue; without a journal nothing survives."""

    def __init__(
        self, stream: Stream, journal: Journal | None, settings: Callable[[], Settings]
    ) -> None:
        self._stream = stream
        self._journal = journal
        self._settings = settings

    @property
    def is_persisted(self) -> bool:
        """Whether anything of the queue outlives the process."""
        is_kept = self._stream.log.durability is not Durability.EPHEMERAL
        return self._journal is not None and is_kept

    @property
    def keeps_leases(self) -> bool:
        """Whether leases and deliveries outlive the process."""
        return self.is_persisted and self._settings().keeps_leases

    async def write_leases(self, event: Event) -> None:
        """Write an event where leases are kept; returns once it is durable."""
        if self.keeps_leases:
            await self.write(event)

    async def write(self, event: Event) -> None:
        """Write an event; returns once it is durable."""
        assert self._journal is not None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._journal.write(self._stream, event, partial(settle, done))
        await done

    def note(self, event: Event) -> None:
        """Write an event that nobody waits for, where leases are kept."""
        if not self.keeps_leases or self._journal is None:
            return
        try:
            self._journal.write(self._stream, event, log_failure)
        except MillstreamError as error:
            log_failure(error)


def log_failure(error: MillstreamError | None) -> None:
    """Say that an event was not written."""
    if error is not None:
        log.warning("lease event not written error=%s", error)
