"""Writes: runs on their way into a stream's log, and what is true with them counted in."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.errors import MillstreamError, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.message import Record
from millstream.store.log.log import Appended, Committed, Log, Staged
from millstream.streams.config.config import StreamConfig
from millstream.streams.reading.subject_index import SubjectIndex
from millstream.streams.writing.backlog import BACKLOG_BYTES, Backlog
from millstream.streams.writing.preconditions import DuplicateWindow
from millstream.streams.writing.pub_acks import PubAcks
from millstream.streams.writing.republish import Republish
from millstream.streams.writing.republished_copies import RepublishedCopies
from millstream.streams.writing.run import Demand, Run
from millstream.subjects.matcher import matcher
from millstream.subjects.subject import has_wildcard

if TYPE_CHECKING:
    from millstream.kernel._hub import Hub
    from millstream.kernel._interest import Interest

_READ_BYTES = 1024 * 1024


class Writes:
    """Stages runs in order and tells everybody who waits what became of them.

    ``committed`` is called with each run that is in the log, ``paused`` when publishers are to be
    stalled or let go on. ``keeps`` says of which subjects records stay: others go out no second
    time.
    """

    def __init__(
        self,
        config: StreamConfig,
        log: Log,
        index: SubjectIndex,
        clock: Clock,
        hub: "Hub | None",
        interest: "Interest | None",
        *,
        committed: Callable[[Run], None],
        paused: Callable[[bool], None],
        keeps: Callable[[bytes], bool],
        domain: str = "",
    ) -> None:
        self.acks = PubAcks(config.name, hub, interest, domain)
        self.window = DuplicateWindow(config.duplicate_window)
        self.inflight: deque[Run] = deque()
        self.backlog = Backlog(log, paused)
        self.newest_msg_id = b""
        self.changes = 0  # runs that were staged or settled: what was counted before is stale
        self._growing: Run | None = None  # the newest in flight, which the log does not have yet
        self._config = config
        self._log = log
        self._index = index
        self._clock = clock
        self._committed = committed
        self._copies = RepublishedCopies(log, hub, interest, keeps, self.last_of_subject)
        self._last_staged = log.state().last_seq
        self.configure(config)

    def configure(self, config: StreamConfig) -> None:
        """Follow what a configuration says about acks, ids and copies."""
        self._config = config
        self.window.window_ns = config.duplicate_window
        self.acks.is_silent = config.no_ack
        self._copies.republish = Republish.of(config.name, config.republish)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way, and nothing known that the records do not say."""
        self.window.expire(self.now_ns())
        waits = self.inflight or self.backlog.size or self.backlog.is_full
        return not waits and not len(self.window) and not self.newest_msg_id

    def now_ns(self) -> int:
        """Return the time that records get now."""
        return self._clock.time_ns()

    @property
    def staged(self) -> int:
        """Return how many records wait for their commit."""
        return sum(run.count for run in self.inflight)

    @property
    def staged_size(self) -> int:
        """Return what they will count in ``max_bytes``."""
        return sum(run.stored_size(self._config) for run in self.inflight)

    def unstaged_of(self, subject: bytes) -> int:
        """Return how many records of a subject are in flight that the log does not know of yet."""
        return self._growing.count_of(subject) if self._growing is not None else 0

    # -- appending ---------------------------------------------------------------------------

    def join(self, batch: Batch, start: int, count: int, demand: Demand | None = None) -> None:
        """Count in entries that may be stored as they are; ``stage_joined`` has them stored.

        Neighbours make one run, and each is in flight for the checks of those behind it.
        ``demand`` is what the last of them asks for.
        """
        run = self._growing
        if run is None or run.batch is not batch or run.start + run.count != start:
            run = self._begin(batch, start)
        run.count += count
        self._last_staged = run.last_seq
        self.newest_msg_id = b""
        if demand is not None:
            run.demands.append(demand._replace(at=run.count - 1))
            if demand.msg_id:
                self.newest_msg_id = demand.msg_id
                self.window.add(demand.msg_id, run.last_seq, self._clock.time_ns())

    def _begin(self, batch: Batch, start: int) -> Run:
        self.stage_joined()
        run = self._growing = Run(batch, start, 0)
        run.first_seq = self._log.next_seq
        self.inflight.append(run)
        return run

    def stage_joined(self) -> None:
        """Stage what was joined since; everything that is appended goes behind it."""
        run, self._growing = self._growing, None
        if run is not None:
            self.inflight.pop()
            self.append(run)

    def append(self, run: Run, at_once: bool = False) -> None:
        """Stage a run; who waits for it hears of its commit or its failure.

        With ``at_once`` that is before this returns, if nothing but a small write stands before it.
        """
        if self._growing is not None:
            self.stage_joined()
        self.changes += 1
        if self._copies.republish is not None:
            self._copies.note_previous(run, self._copies.republish)
        self.inflight.append(run)
        try:
            appended = self._stage(run, partial(self._settle, run), at_once)
        except MillstreamError as error:
            self.inflight.remove(run)
            self._take_back(run)
            self.acks.settle(run, error)
            return
        self._note_staged(run, appended.first_seq)
        if appended.is_committed:
            self._settle(run, None)
        elif self.backlog.size > BACKLOG_BYTES:
            self.backlog.stall()

    def stage(self, run: Run, ts_ns: int) -> Staged:
        """Stage a run that the caller logs in its own way; raises where the log takes nothing."""
        self.stage_joined()
        self.changes += 1
        if self._copies.republish is not None:
            self._copies.note_previous(run, self._copies.republish)
        self.inflight.append(run)
        try:
            _check_lengths(run)
            staged = self._log.stage(run.batch, ts_ns, partial(self._settle, run))
        except MillstreamError:
            self.inflight.remove(run)
            raise
        self._note_staged(run, staged.first_seq)
        if self.backlog.size > BACKLOG_BYTES:
            self.backlog.stall()
        return staged

    def skip(self, count: int, reason: str, done: Committed) -> Staged:
        """Stage sequences that hold nothing, likewise."""
        self.stage_joined()
        staged = self._log.skip(count, reason, done)
        self._last_staged = staged.first_seq + count - 1
        return staged

    def _note_staged(self, run: Run, first: int) -> None:
        run.first_seq = first
        self._last_staged = run.last_seq
        self.newest_msg_id = b""
        if run.demands:
            self._note_ids(run)
        self.backlog.size += run.batch.size

    def _note_ids(self, run: Run) -> None:
        self.newest_msg_id = run.last_msg_id
        now = self._clock.time_ns()
        for demand in run.demands:
            if demand.msg_id:
                self.window.add(demand.msg_id, run.seq_of(demand.at), run.time_of(demand.at, now))

    def _stage(self, run: Run, done: Committed, at_once: bool) -> Appended:
        _check_lengths(run)
        batch, start, count = run.batch, run.start, run.count
        if run.seqs is None:
            now = self._clock.time_ns()
            return self._log.append(batch, start, count, now, done, run.note, at_once)
        return self._log.append_exact(batch, start, count, run.seqs, run.times_ns, done)

    def _settle(self, run: Run, error: MillstreamError | None) -> None:
        """Tell everybody what became of a run that the log has given its sequences."""
        self.inflight.remove(run)
        self.changes += 1
        self.backlog.size -= run.batch.size
        if error is not None:
            self._take_back(run)
        elif self._copies.republish is not None:  # a copy is out before its publisher hears of it
            self._copies.publish(run, self._copies.republish)
        self.acks.settle(run, error)
        if error is None:
            self._committed(run)
        for go_on in run.waiting:
            go_on()
        if self.backlog.is_full and self.backlog.size < BACKLOG_BYTES // 2:
            self.backlog.let_go()

    def _take_back(self, run: Run) -> None:
        """Forget what was true with a run that never came to be."""
        for demand in run.demands:
            self.window.forget(demand.msg_id, run.seq_of(demand.at))
        if not self.inflight:
            self._last_staged = self._log.state().last_seq

    # -- what preconditions ask --------------------------------------------------------------

    def last_seq(self) -> int:
        """Return the newest sequence given out, staged writes included."""
        return max(self._last_staged, self._log.state().last_seq)  # a purge may skip some

    def last_msg_id(self) -> bytes:
        """Return the message id of the newest write, empty when it had none."""
        return self.newest_msg_id

    def last_headers(self, subject: bytes) -> bytes | None:
        """Return the headers of a subject's newest record, None when it has none."""
        for run in reversed(self.inflight):
            for at in reversed(range(run.start, run.start + run.count)):
                staged, _, headers, _, _ = run.batch.message(at)
                if staged == subject:
                    return headers
        seq = self._log.last_by_subject(subject)
        frames = self._log.read(seq, 1, _READ_BYTES) if seq else None
        return Record(*frames.record(0)).headers if frames is not None and len(frames) else None

    def last_of_subject(self, pattern: bytes) -> int:
        """Return the newest sequence of a subject or pattern, staged writes included."""
        text = pattern.decode("utf-8", "surrogateescape")
        if not has_wildcard(text):
            return self._last_of_literal(pattern)
        match = matcher([text])
        for run in reversed(self.inflight):
            staged = run.last_of_subjects()
            if match is None:
                return max(staged.values())
            found = max((seq for subject, seq in staged.items() if match(subject)), default=0)
            if found:
                return found
        return self._index.last_seq(self._index.select([text]))

    def _last_of_literal(self, subject: bytes) -> int:
        for run in reversed(self.inflight):
            found = run.last_of_subjects().get(subject, 0)
            if found:
                return found
        return self._index.last_of(self._log.subjects.find(subject))


def _check_lengths(run: Run) -> None:
    """Raise when a frame cannot hold an entry: found any later, it would take others with it."""
    if run.batch.is_oversized(run.start, run.count):
        raise RecordTooLarge()
