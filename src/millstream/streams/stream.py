"""Stream: a log plus policy. Admission lets records in, removal takes them out."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from millstream.clock import Clock
from millstream.delivery.timers import Timers
from millstream.errors import ColdUnavailable, MillstreamError, RecordNotFound
from millstream.kernel._batch import Batch
from millstream.message import NewRecord, Record
from millstream.store.log.log import Committed, Durability, Log, LogState, Note, Staged
from millstream.streams.account_quota import AccountRoom
from millstream.streams.config import durations, extras
from millstream.streams.config.config import StreamConfig
from millstream.streams.config.data_size import counts_data, data_bytes
from millstream.streams.config.size import size_of, stored_size
from millstream.streams.publishing.admission import Admission
from millstream.streams.publishing.scheduling import Scheduling
from millstream.streams.reading.subject_index import Selection, SubjectIndex
from millstream.streams.retention.claims import RecordClaim
from millstream.streams.retention.recent_removals import RecentRemovals
from millstream.streams.retention.removal import Removal, settle
from millstream.streams.sourcing.adoption import Adoption
from millstream.streams.sourcing.intake import Incoming
from millstream.streams.state import StreamState
from millstream.streams.writing import preconditions
from millstream.streams.writing.batch_limits import BatchLimits
from millstream.streams.writing.run import Run
from millstream.streams.writing.writes import Writes

if TYPE_CHECKING:
    from millstream.kernel._frames import Frames
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

__all__ = ["Stream", "StreamFollower", "as_record", "settle"]

READ_BYTES = 1024 * 1024


class StreamFollower(Protocol):
    """Something that brings records into a stream by itself."""

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
    ) -> None:
        """``on_abandoned`` hears of each atomic batch that is given up: its id, and why."""
        self.config = config
        self.account = account
        self.log = log
        self.created_ns = created_ns
        self.opened_ns = clock.time_ns()  # by this process
        self.index = SubjectIndex(log)
        self.feeds: Sequence[StreamFollower] = ()
        self._everything = self.index.select(())
        self._clock = clock
        self._interest = interest
        self._handles: list[int] = []
        self._watchers: dict[object, Callable[[], None]] = {}
        self._closed = False
        self.is_leaving = False  # its deletion is being logged: copies of its records come too late
        self._writes = Writes(
            config, log, self.index, clock, hub, interest,
            committed=self._committed, paused=self._pause, keeps=self.keeps,
        )  # fmt: skip
        self._admission = Admission(
            self, self._writes, clock, timers, batch_limits, room, server_is_full,
            partial(on_abandoned, self) if on_abandoned is not None else None,
        )  # fmt: skip
        self._adoption = Adoption(self, self._admission, self._writes, clock)
        self._removal = Removal(self, self._writes, clock, timers)
        self._scheduling = Scheduling(self, self._admission, self._writes, clock, timers)
        self._rebuild()

    @property
    def name(self) -> str:
        """Return the stream's name; HTTP calls it the topic's."""
        return self.config.name

    @property
    def incarnation(self) -> int:
        """Return the id that delete and recreate changes."""
        return self.log.log_id

    @property
    def removals(self) -> RecentRemovals:
        """Return what went lately: whether to count anew."""
        return self._removal.notes

    # -- registration ------------------------------------------------------------------------

    def capture(self) -> None:
        """Register the stream's subjects; called again after they changed."""
        if self._interest is None:
            return
        self._interest.remove_sinks(self._handles)
        subjects = [subject.encode() for subject in self.config.subjects]
        self._handles = self._interest.add_sinks(subjects, self)

    def reconfigure(self, config: StreamConfig) -> None:
        """Take on a checked configuration; lowered limits act at once."""
        self.log_removals()
        recapture = config.subjects != self.config.subjects
        wider = config.duplicate_window > self.config.duplicate_window
        self.config = config
        self._writes.configure(config)
        self._admission.configure(config)
        if wider:
            self._recall_ids()
        if recapture:
            self.capture()
        self._removal.keep_limits(None)

    @property
    def is_bounded(self) -> bool:
        """Whether account or server may refuse a record for want of room."""
        return self._admission.is_bounded

    def coming_bytes(self) -> int:
        """Return the size of what is on its way into the log."""
        return self._writes.staged_size

    def feed_by(self, feeds: Sequence[StreamFollower]) -> None:
        """Be fed by these from now on."""
        old, self.feeds = self.feeds, feeds
        for feed in old:
            feed.stop()
        for feed in feeds:
            feed.refresh()

    @property
    def is_closed(self) -> bool:
        """Whether the stream was deleted, or the server ends."""
        return self._closed

    def close(self) -> None:
        """Stop capturing and forget every deadline; staged writes still answer."""
        self._closed = True
        self.feed_by(())
        if self._interest is not None:
            self._interest.remove_sinks(self._handles)
        self._handles = []
        self._admission.close()
        self._removal.close()
        self._scheduling.close()
        self.wake()

    def hold_publishers(self, held: bool) -> None:
        """Stall publishers while the disk is behind with all streams; one in memory goes on."""
        self._writes.hold_publishers(held and self.log.durability is not Durability.EPHEMERAL)

    def _pause(self, paused: bool) -> None:
        if self._interest is not None:
            for handle in self._handles:
                self._interest.pause_sink(handle, paused)

    # -- writes ------------------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Store captured publishes in order; a reply is answered once its record is committed."""
        self._admission.publish(batch)

    async def append(self, records: Sequence[NewRecord]) -> tuple[int, int]:
        """Store all records or none; returns the first and last sequence once committed."""
        batch = Batch()
        for record in records:
            batch.add(
                record.subject or self.name.encode(), b"", record.headers, record.payload,
                record.tag, record.node, record.meta,
            )  # fmt: skip
        return await self.append_batch(batch)

    async def append_batch(self, batch: Batch) -> tuple[int, int]:
        """Store a batch laid out already, whole or not at all, as ``append`` does."""
        return await self.begin_append(batch)

    def begin_append(self, batch: Batch) -> asyncio.Future[tuple[int, int]]:
        """Hand a batch over to the log; the future ends as ``append`` does."""
        self._admission.admit_whole(batch)
        run = Run(batch, 0, len(batch))
        run.future = asyncio.get_running_loop().create_future()
        self._writes.append(run)
        return run.future

    def renamed(self, batch: Batch) -> Batch:
        """Return a batch under the subjects that the stream stores it under."""
        return self._admission.renamed(batch)

    async def deposit(
        self, batch: Batch, note: Note, noted: Callable[[], None]
    ) -> tuple[int, int] | None:
        """Store a sink's batch and its note in one commit: both, or neither.

        ``noted`` is called as they are committed, before anything else can look: a snapshot of that
        moment covers the note. Records whose message id is known are left out. None means that
        there was nothing to store; the note is then not written either.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_end(_run: Run, error: MillstreamError | None) -> None:
            if error is None:
                noted()
            settle(stored, error)

        run = self._admission.deposited(batch, note, on_end)
        if not run.count:
            return None
        self._writes.append(run)
        await stored
        return run.first_seq, run.last_seq

    def take_in(self, coming: Incoming, done: Committed) -> None:
        """Store records of another stream, all or none."""
        self._adoption.take_in(coming, done)

    def check_copy(
        self, subject: bytes, headers: bytes, payload: bytes, messages: int, size: int
    ) -> None:
        """Raise when a copy may not follow so many others, of so many bytes with it."""
        self._admission.check_copy(subject, headers, payload, messages, size)

    def stage(self, batch: Batch, ts_ns: int) -> Staged:
        """Stage copies of another stream's records, which the caller logs by their origin."""
        return self._writes.stage(Run(batch, 0, len(batch), _heard), ts_ns)

    def take_copies(self, batch: Batch, done: Committed) -> None:
        """Store copies of records that do not outlive the process, as records of their own."""
        self._writes.append(Run(batch, 0, len(batch), lambda _run, error: done(error)))

    def skip(self, count: int, reason: str) -> Staged:
        """Stage sequences for records that another stream lost before they were copied."""
        return self._writes.skip(count, reason, self._skipped)

    def _skipped(self, error: MillstreamError | None) -> None:
        if error is None:
            self.wake()

    def _committed(self, run: Run) -> None:
        self._removal.keep_limits(run)
        if self.config.allow_msg_schedules:
            self._scheduling.committed(run)
        if self._watchers:
            self.wake()

    def last_seq(self) -> int:
        """Return the newest sequence given out, staged writes included."""
        return self._writes.last_seq()

    def last_of_subject(self, pattern: bytes) -> int:
        """Return the newest sequence of a subject or pattern, staged writes included."""
        return self._writes.last_of_subject(pattern)

    # -- reads -------------------------------------------------------------------------------

    def read(self, start_seq: int, max_records: int, max_bytes: int) -> "Frames":
        """Return committed records from ``start_seq`` on, ascending, at least one if any."""
        return self.log.read(start_seq, max_records, max_bytes)

    def get(self, seq: int) -> Record:
        """Return one record; raises RecordNotFound."""
        # A record that is being removed is gone for readers, though that is not logged yet.
        sought = seq > 0 and not self.index.is_hidden(seq)
        frames = self.log.read(seq, 1, READ_BYTES) if sought else None
        if frames is None or not len(frames) or frames.first_seq != seq:
            raise RecordNotFound()
        return as_record(frames, 0)

    def state(self) -> StreamState:
        """Return one consistent look at the stream."""
        state = self.log.state()
        messages = max(0, state.count - self._removal.going)
        first = self._first_seq(state)
        return StreamState(
            messages=messages,
            bytes=stored_size(self.config, state) - self._leaving_size(),
            first_seq=first,
            last_seq=state.last_seq,
            synced_seq=state.synced_seq,
            first_ts_ns=self._time_of_first(state, first) if messages else 0,
            last_ts_ns=state.last_ts_ns,
            num_deleted=max(state.last_seq - first + 1 - messages, 0),
            evict_floor=state.evict_floor,
            gaps=state.gaps,
            floors=state.floors,
            capped=self.stored_bytes() if self.config.max_bytes > 0 else None,
        )

    def _leaving_size(self) -> int:
        if not self.index.hides_any:
            return 0
        return size_of(self.config, *self.index.leaving_sizes())

    def _first_seq(self, state: LogState) -> int:
        """Return the oldest sequence that is not on its way out."""
        if not self.index.is_hidden(state.first_seq):
            return state.first_seq
        return next(self.index.seqs(self._everything, state.first_seq, 1), state.last_seq + 1)

    def _time_of_first(self, state: LogState, first: int) -> int:
        """Return when the oldest record was stored that is not on its way out."""
        return state.first_ts_ns if first == state.first_seq else self.index.time_of(first)

    def stored_bytes(self) -> int:
        """Return the size of what is in the log, as ``max_bytes`` counts it."""
        state = self.log.state()
        if counts_data(self.config):
            return data_bytes(self.log, self.name, state.first_seq)
        return stored_size(self.config, state)

    def count_from(self, seq: int, chosen: Selection | None = None) -> int:
        """Return exactly how many live records from ``seq`` on are chosen."""
        state = self.log.state()
        everything = (chosen is None or chosen.is_everything) and not self.index.hides_any
        if everything and state.count == state.last_seq - state.first_seq + 1:
            return max(0, state.last_seq - max(seq, state.first_seq) + 1)
        return self.index.count(chosen or self._everything, seq)

    def subject_counts(self, filters: Sequence[str] = ()) -> dict[bytes, int]:
        """Return how many live records each matching subject has."""
        return self.index.counts(self.index.select(filters))

    def num_subjects(self) -> int:
        """Return how many subjects have a live record."""
        return self.log.subjects.living - self.index.leaving()

    def deleted(self) -> list[int]:
        """Return the sequences between first and last that hold no record."""
        state = self.log.state()
        live = set(self.index.seqs(self._everything))
        first = self._first_seq(state)  # what is on its way out below it is no hole
        return [seq for seq in range(first, state.last_seq + 1) if seq not in live]

    def watch(self, grown: Callable[[], None]) -> Callable[[], None]:
        """Call ``grown`` after each commit and removal; returns the undo."""
        key = object()
        self._watchers[key] = grown
        return lambda: self._watchers.pop(key, None) and None

    async def grown(self, after: int) -> None:
        """Return once the stream holds a sequence above ``after``, or was closed."""
        if self.log.state().last_seq > after or self._closed:
            return
        arrived = asyncio.get_running_loop().create_future()

        def look() -> None:
            if not arrived.done() and (self.log.state().last_seq > after or self._closed):
                arrived.set_result(None)

        undo = self.watch(look)
        try:
            await arrived
        finally:
            undo()

    def wake(self) -> None:
        """Let watchers look again; one that fails does so behind all the others."""
        failed: Exception | None = None
        for grown in list(self._watchers.values()):
            try:
                grown()
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed

    # -- removal -----------------------------------------------------------------------------

    def hold(self, holder: str, taken: int, seconds: float, reader: str = "") -> int:
        """Keep what is above ``taken`` from max_age, max_msgs and max_bytes for a time.

        Returns how far the last of the readers is that go by this name.
        """
        return self._removal.hold(holder, taken, seconds, reader)

    def claim(self, holder: str, claim: RecordClaim) -> None:
        """Keep what ``holder`` needs, until it is settled; asked by interest retention alone."""
        self._removal.claims.put(holder, claim)

    def unclaim(self, holder: str) -> None:
        """Let go of what only ``holder`` needed."""
        self._removal.claims.drop(holder)
        self._removal.drop_unclaimed()

    def settled(self, holder: str, seqs: Sequence[int]) -> None:
        """Take note that a consumer is done with records; limits retention keeps them."""
        self._removal.settled(holder, seqs)

    def keeps(self, subject: bytes) -> bool:
        """Whether records of a subject are kept at all: somebody may have to wait for them."""
        return self.config.retention != "interest" or self._removal.claims.concern(subject)

    def drop_unclaimed(self) -> None:
        """Drop what nobody needs, where interest retention says so."""
        self._removal.drop_unclaimed()

    def log_removals(self) -> None:
        """Have the log remove what limits per subject have taken until now."""
        self._removal.crowd.leave()

    def drop_subject(self, subject: bytes) -> None:
        """Remove every record of a subject."""
        self._removal.drop_subject(subject)

    async def delete(self, seqs: Sequence[int], erase: bool = False) -> int:
        """Remove these records for good; returns how many were there, once that is durable.

        With ``erase`` it returns once their bytes are overwritten wherever they are.
        """
        return await self._removal.delete(seqs, erase)

    async def purge(self, subject: str = "", below: int = 0, keep: int = 0) -> int:
        """Remove what matches ``subject``: all, those below a sequence, or all but the newest."""
        return await self._removal.purge(subject, below, keep)

    # -- recovery ----------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """Recover message ids, per-message lifetimes and limits from the records themselves."""
        state = self.log.state()
        if state.headed:  # ids, lifetimes and schedules are headers: most streams have none to read
            oldest = self._clock.time_ns() - self.config.duplicate_window
            from_start = self.config.allow_msg_ttl or self.config.allow_msg_schedules
            start = state.first_seq if from_start else self.log.seek_time(oldest)
            self._rebuild_from(start, state.last_seq)
        self._removal.keep_limits(None)
        self._scheduling.start()

    def _rebuild_from(self, at: int, last: int) -> None:
        while at <= last:
            try:
                frames = self.log.read(at, 4096, READ_BYTES)
            except ColdUnavailable:  # moved: nothing in there is young enough to matter
                at = self._after_cold(at)
                continue
            if not len(frames):
                return
            self._writes.newest_msg_id = b""
            # One search over the bytes: most records carry no demand and need no look.
            looked_at = self.config.allow_msg_schedules or b"\nNats-" in frames.raw()
            for seq, ts_ns, subject, _, headers, *_ in frames if looked_at else ():
                self._writes.newest_msg_id = b""
                self._scheduling.recall(seq, ts_ns, subject, headers)
                if b"\nNats-" in headers:
                    self._recall(seq, ts_ns, extras.first_values(headers))
            at = frames.last_seq + 1

    def _after_cold(self, at: int) -> int:
        """Return where the log goes on behind the segment that ``at`` is in."""
        later = (segment.base_seq for segment in self.log.segments if segment.base_seq > at)
        return next(later, self.log.committed_seq + 1)

    def _recall_ids(self) -> None:
        """Know the ids of records that a wider window reaches back to."""
        at = self.log.seek_time(self._clock.time_ns() - self.config.duplicate_window)
        while at <= self.log.state().last_seq:
            try:
                frames = self.log.read(at, 4096, READ_BYTES)
            except ColdUnavailable:  # moved: nothing in there is young enough to matter
                at = self._after_cold(at)
                continue
            if not len(frames):
                return
            for seq, ts_ns, _, _, headers, *_ in frames:
                if b"\nNats-Msg-Id:" in headers:
                    self._writes.window.add(
                        extras.first_values(headers)[preconditions.MSG_ID], seq, ts_ns
                    )
            at = frames.last_seq + 1

    def _recall(self, seq: int, ts_ns: int, values: dict[bytes, bytes]) -> None:
        if preconditions.MSG_ID in values:
            self._writes.newest_msg_id = values[preconditions.MSG_ID]
            self._writes.window.add(self._writes.newest_msg_id, seq, ts_ns)
        if preconditions.TTL in values and self.config.allow_msg_ttl:
            seconds = durations.lifetime(values[preconditions.TTL])
            if seconds:
                self._removal.expiry.later(seq, ts_ns, seconds)
            elif seconds == 0:
                self._removal.expiry.never(seq)


def _heard(_run: Run, error: MillstreamError | None) -> None:
    """Nobody waits for a copy: whoever made it hears of the commit from the store."""


def as_record(frames: "Frames", at: int) -> Record:
    """Return one frame as a value."""
    return Record(*frames.record(at))
