"""Stream: a log plus policy. Admission lets records in, removal takes them out."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.kernel._batch import Batch
from millstream.message import NewRecord, Record
from millstream.store.log.log import Log
from millstream.streams.account_quota import AccountRoom
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing.admission import Admission
from millstream.streams.publishing.capture import Capture
from millstream.streams.publishing.scheduling import Scheduling
from millstream.streams.reading.contents import Contents, as_record
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.streams.reading.watchers import Watchers
from millstream.streams.recall import Recall, recall_ids
from millstream.streams.retention.claims import Claims
from millstream.streams.retention.departures import Departures, settle
from millstream.streams.retention.removal import Removal
from millstream.streams.state import StreamState
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.run import Run
from millstream.streams.writing.writes import Writes

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest
    from millstream.streams.config.source import Source

__all__ = ["Stream", "StreamFollower", "as_record", "settle"]


class StreamFollower(Protocol):
    """Something that brings records into a stream by itself."""

    @property
    def source(self) -> "Source":
        """Where they come from."""
        ...

    @property
    def taken(self) -> int:
        """The newest sequence of the origin that is here."""
        ...

    @property
    def draws(self) -> bool:
        """Whether it takes them from there now, through no consumer that people see."""
        ...

    def refresh(self) -> None:
        """Look again for where the records come from."""
        ...

    def stop(self) -> None:
        """Bring nothing any more."""
        ...

    def info(self) -> dict[str, Any]:
        """Return how far it is, as StreamInfo shows it."""
        ...


class Stream:
    """One stream of one account; see ``deliver`` for writes from NATS, ``append`` for the rest."""

    def __init__(
        self,
        config: StreamConfig,
        log: Log,
        *,
        created_ns: int,
        clock: Clock,
        timers: Timers,
        hub: "Hub | None" = None,
        interest: "Interest | None" = None,
        account: str = "$G",
        batch_limits: BatchLimits | None = None,
        room: AccountRoom | None = None,
        server_is_full: Callable[[], bool] | None = None,
        on_abandoned: Callable[["Stream", bytes, str], None] | None = None,
        domain: str = "",
    ) -> None:
        """Acks name ``domain``; ``on_abandoned`` hears why each atomic batch is given up."""
        self.config = config
        self.account = account
        self.log = log
        self.incarnation = log.log_id  # delete and recreate changes it
        self.created_ns = created_ns
        self.opened_ns = clock.time_ns()  # by this process
        self.feeds: Sequence[StreamFollower] = ()
        self.is_closed = False  # the stream was deleted, or the server ends
        self.is_leaving = False  # its deletion is being logged: copies of its records come too late
        self._clock = clock
        self._capture = Capture(interest, self)
        claims = Claims()
        self.watchers = Watchers()
        self.index = SubjectIndex(log)
        departures = Departures(log, self.index, claims, timers, self.watchers.wake)
        self.contents = Contents(config, log, self.index, departures.count)
        self.writes = Writes(
            config, log, self.index, clock, hub, interest,
            committed=self._on_commit, paused=self._capture.pause, keeps=self.keeps,
            domain=domain,
        )  # fmt: skip
        self.admission = Admission(
            self.contents, self.keeps, self.writes, clock, timers, batch_limits, room,
            server_is_full, partial(on_abandoned, self) if on_abandoned is not None else None,
        )  # fmt: skip
        self.removal = Removal(self.contents, departures, claims, self.writes, clock, timers)
        self._scheduling = Scheduling(
            self.contents, self.removal, self.admission, self.writes, clock, timers
        )
        self._recall()

    def _recall(self) -> None:
        """Recover what the records say, and keep the limits."""
        expiry = self.removal.ageing.expiry
        recall = Recall(self.config, self.log, self.writes, expiry, self._scheduling)
        recall.everything(self._clock.time_ns())
        self.removal.limits.keep(None)
        self._scheduling.start()

    @property
    def name(self) -> str:
        """Return the stream's name; HTTP calls it the topic's."""
        return self.config.name

    # -- life --------------------------------------------------------------------------------

    def capture(self) -> None:
        """Register the stream's subjects; called again after they changed."""
        self._capture.register(self.config.subjects)

    def reconfigure(self, config: StreamConfig) -> None:
        """Take on a checked configuration; lowered limits act at once."""
        self.removal.departures.log_gathered()
        before, self.config = self.config, config
        self.contents.configure(config)
        self.writes.configure(config)
        self.admission.configure(config)
        if config.duplicate_window > before.duplicate_window:
            recall_ids(self.log, self.writes, self._clock.time_ns() - config.duplicate_window)
        if config.subjects != before.subjects:
            self.capture()
        self.removal.limits.keep(None)

    def feed_by(self, feeds: Sequence[StreamFollower]) -> None:
        """Be fed by these from now on."""
        old, self.feeds = self.feeds, feeds
        for feed in old:
            feed.stop()
        for feed in feeds:
            feed.refresh()

    def close(self) -> None:
        """Stop capturing and forget every deadline; staged writes still answer."""
        self.is_closed = True
        self.feed_by(())
        self._capture.release()
        self.admission.close()
        self.removal.close()
        self._scheduling.close()
        self.watchers.wake()

    # -- writes ------------------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Store captured publishes in order; a reply is answered once its record is committed."""
        self.admission.publish(batch)

    async def append(self, records: Sequence[NewRecord]) -> tuple[int, int]:
        """Store all records or none; returns the first and last sequence once committed."""
        batch = Batch()
        for record in records:
            batch.add(
                record.subject or self.name.encode(), b"", record.headers, record.payload,
                record.tag, record.node, record.meta,
            )  # fmt: skip
        return await self.begin_append(batch)

    def begin_append(self, batch: Batch, at_once: bool = False) -> asyncio.Future[tuple[int, int]]:
        """Hand a batch over to the log; the future ends as ``append`` does.

        Where ``at_once`` asks for it the batch may be committed, and the future done, on return.
        """
        self.admission.admit_whole(batch)
        run = Run(batch, 0, len(batch))
        run.future = asyncio.get_running_loop().create_future()
        self.writes.append(run, at_once)
        return run.future

    def keeps(self, subject: bytes) -> bool:
        """Whether records of a subject are kept at all: somebody may have to wait for them."""
        return self.config.retention != "interest" or self.removal.claims.concern(subject)

    def _on_commit(self, run: Run) -> None:
        self.removal.limits.keep(run)
        if self.config.allow_msg_schedules:
            self._scheduling.on_commit(run)
        if self.watchers.are_filtered:
            self.watchers.wake_for(run.batch.subjects(run.start, run.count))
        else:
            self.watchers.wake()

    # -- reads -------------------------------------------------------------------------------

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> "Frames":
        """Return committed records from ``start_seq`` on, ascending, at least one if any."""
        frames = self.log.read(start_seq, max_records, max_bytes)
        self.index.records_read += len(frames)
        return frames

    def get(self, seq: int) -> Record:
        """Return one record; raises RecordNotFound."""
        return self.contents.get(seq)

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        return self.contents.state()

    def watch(
        self, on_change: Callable[[], None], filters: tuple[str, ...] = ()
    ) -> Callable[[], None]:
        """Call ``on_change`` after each commit and removal; returns the undo.

        With ``filters`` a commit of records that match none of them does not count.
        """
        return self.watchers.add(on_change, filters)

    # -- removal -----------------------------------------------------------------------------

    async def delete(self, seqs: Sequence[int], erase: bool = False) -> int:
        """Remove these records for good; see ``Removal.delete``."""
        return await self.removal.delete(seqs, erase)

    async def purge(self, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove what matches ``subject``: all, those below a sequence, or all but the newest."""
        return await self.removal.purge(subject, below, keep)
