"""Stream: a log plus policy. Admission lets records in, removal takes them out."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millstream.kernel._batch import Batch
from millstream.message import NewRecord, Record
from millstream.store.log.log import Log
from millstream.streams.config.config import StreamConfig
from millstream.streams.reading.contents import as_record
from millstream.streams.recall import recall_ids
from millstream.streams.retention.departures import settle
from millstream.streams.sleeper import Sleeper
from millstream.streams.stream_parts import Surroundings
from millstream.streams.writing.run import Run

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames
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


class Stream(Sleeper):
    """One stream of one account; see ``deliver`` for writes from NATS, ``append`` for the rest."""

    __slots__ = (
        "account",
        "created_ns",
        "feeds",
        "incarnation",
        "is_closed",
        "is_leaving",
        "opened_ns",
    )

    def __init__(
        self,
        config: StreamConfig,
        log: Log,
        around: Surroundings,
        *,
        created_ns: int,
        account: str = "$G",
    ) -> None:
        self.account = account
        self.incarnation = log.log_id  # delete and recreate changes it
        self.created_ns = created_ns
        self.opened_ns = around.clock.time_ns()  # by this process
        self.feeds: Sequence[StreamFollower] = ()
        self.is_closed = False  # the stream was deleted, or the server ends
        self.is_leaving = False  # its deletion is being logged: copies of its records come too late
        super().__init__(config, log, around)

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
            now = self._around.clock.time_ns()
            recall_ids(self.log, self.writes, now - config.duplicate_window)
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
        if self._parts is not None:
            self._parts.close()

    # -- writes ------------------------------------------------------------------------------

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

    # -- reads -------------------------------------------------------------------------------

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> "Frames":
        """Return committed records from ``start_seq`` on, ascending, at least one if any."""
        frames = self.log.read(start_seq, max_records, max_bytes)
        self.index.records_read += len(frames)
        return frames

    def get(self, seq: int) -> Record:
        """Return one record; raises RecordNotFound."""
        return self.contents.get(seq)

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
