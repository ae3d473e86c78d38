"""Stream: a log plus policy. Admission lets records in, removal takes them out."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from millstream.kernel._batch import Batch
from millstream.message import NewRecord, Record
from millstream.store.log.log import Log
from millstream.streams.config.config import StreamConfig
from millstream.streams.publishing.admission import Admission
from millstream.streams.publishing.capture import Capture
from millstream.streams.reading.contents import Contents, as_record, resting_state
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.streams.reading.watchers import Watchers
from millstream.streams.recall import recall_ids
from millstream.streams.retention.departures import settle
from millstream.streams.retention.removal import Removal
from millstream.streams.state import StreamState
from millstream.streams.stream_parts import StreamParts, Surroundings, may_sleep
from millstream.streams.writing.run import Run
from millstream.streams.writing.writes import Writes

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


class Stream:
    """One stream of one account; see ``deliver`` for writes from NATS, ``append`` for the rest.

    One that nobody uses is asleep: it has its configuration and its log, and makes the parts that
    let records in and out when somebody needs one of them.
    """

    __slots__ = (
        "__weakref__",
        "_around",
        "_capture",
        "_is_held",
        "_is_pinned",
        "_parts",
        "_read_before",
        "account",
        "config",
        "created_ns",
        "feeds",
        "incarnation",
        "is_closed",
        "is_leaving",
        "log",
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
        self.config = config
        self.account = account
        self.log = log
        self.incarnation = log.log_id  # delete and recreate changes it
        self.created_ns = created_ns
        self.opened_ns = around.clock.time_ns()  # by this process
        self.feeds: Sequence[StreamFollower] = ()
        self.is_closed = False  # the stream was deleted, or the server ends
        self.is_leaving = False  # its deletion is being logged: copies of its records come too late
        self._around = around
        self._capture = Capture(around.interest, self)
        self._is_held = False  # publishers wait for the disk
        self._is_pinned = False
        self._read_before = 0  # records, until it slept last
        self._parts: StreamParts | None = None
        if not may_sleep(config, log):
            self.wake()

    # -- sleep -------------------------------------------------------------------------------

    def wake(self) -> StreamParts:
        """Return the parts, made if there are none."""
        parts = self._parts
        if parts is None:
            parts = self._parts = StreamParts(self, self._around, self._capture.pause)
            parts.index.records_read = self._read_before
            parts.begin()
            if self._is_held:
                parts.writes.backlog.hold_publishers(True)
        parts.is_used = True
        return parts

    def pin(self) -> None:
        """Stay awake: somebody remembers what the parts have counted."""
        self._is_pinned = True
        self.wake()

    def sleep(self) -> bool:
        """Give up the parts, unless somebody used them since this was called last."""
        parts = self._parts
        if parts is None:
            return True
        was_used, parts.is_used = parts.is_used, False
        if was_used or self._is_pinned or not may_sleep(self.config, self.log):
            return False
        if not parts.are_idle():
            return False
        self._read_before = parts.index.records_read
        self._parts = None
        return True

    @property
    def is_asleep(self) -> bool:
        """Say whether it has only its configuration and its log."""
        return self._parts is None

    @property
    def index(self) -> SubjectIndex:
        """Return the records by subject, from the log's integers."""
        return self.wake().index

    @property
    def contents(self) -> Contents:
        """Return state and counts, as readers see them."""
        return self.wake().contents

    @property
    def watchers(self) -> Watchers:
        """Return who looks again after a change."""
        return self.wake().watchers

    @property
    def admission(self) -> Admission:
        """Return what may come in, and as which runs."""
        return self.wake().admission

    @property
    def writes(self) -> Writes:
        """Return the runs on their way into the log."""
        return self.wake().writes

    @property
    def removal(self) -> Removal:
        """Return claims, limits, age, requests; what went lately."""
        return self.wake().removal

    @property
    def staged_size(self) -> int:
        """Return what records on their way in will count in ``max_bytes``."""
        return 0 if self._parts is None else self._parts.writes.staged_size

    @property
    def records_read(self) -> int:
        """Return how many records were read since the start, by whoever."""
        return self._read_before if self._parts is None else self._parts.index.records_read

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

    def hold_publishers(self, held: bool) -> None:
        """Hold publishers back while the disk is behind with what all streams have staged."""
        self._is_held = held
        if self._parts is not None:
            self._parts.writes.backlog.hold_publishers(held)
        else:
            self._capture.pause(held)

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
        parts = self._parts
        return resting_state(self.config, self.log) if parts is None else parts.contents.state()

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
