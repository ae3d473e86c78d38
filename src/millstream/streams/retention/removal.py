"""Removal: what leaves a stream, and why: requests, limits, age, and interest that has ended."""

import asyncio
from collections.abc import Sequence
from functools import partial

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.streams.reading.contents import Contents
from millstream.streams.refusals import OperationDenied, StreamSealed
from millstream.streams.retention.ageing import Ageing
from millstream.streams.retention.claims import Claims
from millstream.streams.retention.departures import Departures, settle
from millstream.streams.retention.holds import Holds
from millstream.streams.retention.limits import LimitKeeper
from millstream.streams.writing.writes import Writes


class Removal:
    """Carries out the removals of one stream that somebody asks for."""

    def __init__(
        self,
        contents: Contents,
        departures: Departures,
        claims: Claims,
        writes: Writes,
        clock: Clock,
        timers: Timers,
    ) -> None:
        holds = self._holds = Holds()
        self.claims = claims
        self.departures = departures
        self.recent = departures.recent  # what went lately: whether to count anew
        self.ageing = Ageing(contents, departures, holds, writes, clock, timers)
        self.limits = LimitKeeper(contents, departures, claims, holds, self.ageing.expiry, clock)
        self._contents = contents

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way out, held or claimed, and nobody follows what goes."""
        held = self.claims or self._holds
        return not held and not self.departures.count() and not self.recent.has_listener

    def close(self) -> None:
        """Forget every deadline."""
        self.ageing.expiry.close()
        self.departures.close()

    # -- interest ----------------------------------------------------------------------------

    def release(self, holder: str, seqs: Sequence[int]) -> None:
        """Drop records that a consumer is done with if nobody else needs them.

        Limits retention keeps them.
        """
        retention = self._contents.config.retention
        if retention == "workqueue":
            self.departures.release(list(seqs))
        elif retention == "interest":
            free = self.claims.release(holder, seqs, self._contents.index.subject_of)
            self.departures.release(free)

    def unclaim(self, holder: str) -> None:
        """Let go of what only ``holder`` needed."""
        self.claims.drop(holder)
        self.drop_unclaimed()

    def drop_unclaimed(self) -> None:
        """Drop what nobody needs, where interest retention says so."""
        config, subjects = self._contents.config, self._contents.log.subjects
        if config.retention != "interest" or config.sealed:
            return
        doomed: list[int] = []
        for subject in map(subjects.subject, subjects.ids()):
            claims = self.claims.on(subject)
            found = self._contents.index.seqs_of(subject)
            doomed += (seq for seq in found if not any(claim.needs(seq) for claim in claims))
        self.departures.release(sorted(doomed))

    # -- on request --------------------------------------------------------------------------

    async def delete(self, seqs: Sequence[int], erase: bool = False) -> int:
        """Remove these records for good; returns how many were there, once that is durable.

        With ``erase`` it returns once their bytes are overwritten wherever they are.
        """
        if self._contents.config.sealed:
            raise StreamSealed()
        if self._contents.config.deny_delete:
            raise OperationDenied(10057, "message delete not permitted")
        self.departures.log_gathered()
        self.recent.drop(seqs)
        return await self.departures.remove_and_wait(list(seqs), erase)

    async def purge(self, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove what matches ``subject``: all, those below a sequence, or all but the newest."""
        if self._contents.config.sealed:
            raise StreamSealed()
        if self._contents.config.deny_purge:
            raise OperationDenied(10110, "stream purge not permitted")
        self.departures.log_gathered()
        index = self._contents.index
        chosen = index.select([subject] if subject else ())
        last = self._contents.log.state().last_seq
        stop = min(below - 1, last) if below else last
        if chosen.is_everything and not keep:
            removed = await self._trim_and_wait(stop + 1)
            if below > last + 1:  # the next record follows what was asked for
                await self._skip_to(below)
            return removed
        doomed = [s for s in index.seqs(chosen) if s <= stop]
        if keep:
            doomed = doomed[:-keep]
        self.recent.purge(doomed)
        return await self.departures.remove_and_wait(doomed)

    async def _skip_to(self, seq: int) -> None:
        skipped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._contents.log.skip_to(seq, partial(settle, skipped))
        await skipped

    async def _trim_and_wait(self, first_kept: int) -> int:
        """Remove everything below ``first_kept`` and return how much once that is durable.

        Removals are logged in order, so that the deletion of the oldest record behind the trim
        is durable after it.
        """
        state = self._contents.log.state()
        if first_kept <= state.first_seq:
            return 0
        doomed = state.count - self._contents.count_from(first_kept)
        self.departures.trim_to(first_kept, "delete")
        await self.departures.remove_and_wait([state.first_seq])
        return doomed

    def drop_subject(self, subject: bytes) -> None:
        """Remove every record of a subject; a failure leaves them there."""
        found = list(self._contents.index.seqs_of(subject))
        if found and not self._contents.config.deny_purge and not self._contents.config.sealed:
            self.departures.release(found)
