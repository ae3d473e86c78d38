"""JobRemoval: how jobs leave a queue, as finished ones or to the dead letters."""

import asyncio
import logging
from collections.abc import Callable

from millstream.errors import MillstreamError
from millstream.message import Record
from millstream.queues.dead_letters import DeadLetters
from millstream.queues.lease_events import DeadLettered
from millstream.queues.lease_journal import LeaseJournal, log_failure
from millstream.queues.leases import Leases
from millstream.queues.settings import Settings
from millstream.streams.stream import Stream

log = logging.getLogger(__name__)


class JobRemoval:
    """Deletes records of jobs that are on their way out; one that stays is claimable again."""

    def __init__(
        self,
        stream: Stream,
        leases: Leases,
        dead_letters: DeadLetters,
        journal: LeaseJournal,
        settings: Callable[[], Settings],
    ) -> None:
        self._stream = stream
        self._leases = leases
        self._dead_letters = dead_letters
        self._journal = journal
        self._settings = settings
        self.under_way = 0  # their deletion was handed to the log
        self.removed = 0  # by us, so that removals by others can be told apart

    async def delete(self, seqs: list[int]) -> None:
        """Delete jobs; those that cannot be are claimable again."""
        self.under_way += len(seqs)
        self.removed += len(seqs)
        try:
            await self._stream.delete(seqs)
        except BaseException:
            self.removed -= len(seqs)
            self._leases.put_back(seqs)
            raise
        else:
            self._leases.gone(seqs)
        finally:
            self.under_way -= len(seqs)

    async def bury(self, records: list[Record]) -> int:
        """Move jobs to the dead letters; returns how many went there."""
        moves = [self._bury_one(record) for record in records]
        moved = sum(await asyncio.gather(*moves))
        if moved and self._journal.is_persisted:
            try:
                await self._journal.write(DeadLettered(self._leases.dead_lettered))
            except MillstreamError as error:  # the jobs are where they belong; only the count lags
                log_failure(error)
        return moved

    async def _bury_one(self, record: Record) -> bool:
        settings = self._settings()
        topic, limit = settings.dead_letter, settings.max_deliveries
        try:
            if topic is None:  # the configuration changed just now
                self._leases.put_back([record.seq])
                return False
            await self._dead_letters.bury(self._stream, topic, record, limit)
        except BaseException as error:
            self._leases.put_back([record.seq])
            if not isinstance(error, MillstreamError):
                raise
            log.warning(
                "job not moved to its dead letters queue=%s seq=%d to=%s error=%s",
                self._stream.name, record.seq, topic, error,
            )  # fmt: skip
            return False
        try:
            await self.delete([record.seq])
        except MillstreamError as error:
            log.warning(
                "dead letter copied but not removed queue=%s seq=%d error=%s",
                self._stream.name, record.seq, error,
            )  # fmt: skip
            return False
        self._leases.dead_lettered += 1
        return True
