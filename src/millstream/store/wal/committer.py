"""Group commit: what arrives while one commit runs shares the next one.

What makes an acknowledgement true: ``disk`` is answered after the entry was written to the
operating system, ``fsync`` and control frames after the sync that covers it, always in the
order of submission per log. After a failed sync nothing is answered but errors.

Who writes: a small group that waits for no sync is written by the loop itself, in the turn after
it came, because handing it to a thread and back costs more than the write, and the thread may be
in the middle of a sync. Everything else, and every sync, is the thread's. Entries are appended by
one side at a time; a sync of the thread does not keep the loop from appending, and covers only
what was written before it began.

A failure that nobody foresaw, on either side, ends in the same way as a failed sync: what was taken
and not answered, what is queued and what comes later is answered with an error.
"""

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from millstream.clock import Clock
from millstream.errors import MillstreamError, ShardReadOnly, StorageFull
from millstream.kernel._frames import cut, scan
from millstream.store.disk.blocks import MOST_BYTES, OVERHEAD
from millstream.store.wal.commit import Ok
from millstream.store.wal.entry import RUN, TARGET_BYTES, Run, encode_entry
from millstream.store.wal.local_engine import LocalEngine
from millstream.store.wal.marks import SYNCED, Key, Known, Marks
from millstream.supervisor import Supervisor

if TYPE_CHECKING:
    from millstream.store.disk.keys import KeyRing

log = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], object]

SMALL_GROUP = 2 << 20  # bytes that the loop writes itself: below a millisecond in most cases
SLOW_WRITE = 0.02  # a busy machine alone makes a write take a few milliseconds
SLOW_PAUSE = 4  # the loop leaves writing to the thread for so many times a slow write's time
SWITCH_INTERVAL = 0.0005  # back from a sync the thread must not wait 5 ms for a busy loop
BRIEF = 1.0  # seconds; whoever fills a file sooner gets larger ones
LONGEST_WAIT = 0.1  # of what can wait; the thread looks once in a dirty age
PER_ENTRY = 88  # header and one run


class Submission(msgspec.Struct):
    """Frames that become durable together, and who wants to know."""

    stream_id: int
    first_seq: int  # 0: control frames
    count: int
    data: bytes
    sync: bool
    committed: Callable[[MillstreamError | None], None]
    control: bytes = b""  # control frames that count only together with these records
    runs: tuple[Run, ...] = ()  # the stretches of ``data``, where sequences are left out
    order: tuple[int, ...] = ()  # further logs on whose timeline this stands
    can_wait: bool = False  # nobody waits: goes with the next, or when the thread looks by itself
    tells: tuple[tuple[Key, int], ...] = ()  # marks that are true once this is stable
    apart: bool = False  # answered whenever it is stable: nothing of its log waits behind it

    @property
    def ordered(self) -> tuple[int, ...]:
        """Return the logs whose order this must keep."""
        return () if self.apart else (self.stream_id, *self.order)

    @property
    def last_seq(self) -> int:
        """Return the sequence of the last record, 0 without any."""
        if self.runs:
            return self.runs[-1].first_seq + self.runs[-1].frames - 1
        return self.first_seq and self.first_seq + self.count - 1

    @property
    def size(self) -> int:
        """Return how many bytes go into the log."""
        return len(self.control) + len(self.data) + RUN.size * len(self.runs)

    def pieces(self) -> Iterator[tuple[Run, bytes]]:
        """Yield each run with its frames."""
        if self.control:
            frames = len(scan(self.control)[0])
            yield Run(self.stream_id, 0, frames, len(self.control)), self.control
        if not self.runs:
            yield Run(self.stream_id, self.first_seq, self.count, len(self.data)), self.data
        at = 0
        for run in self.runs:
            yield run, self.data[at : at + run.size]
            at += run.size


class Committer:
    """One WAL shard: a queue filled on the loop and emptied by ``step`` on one thread.

    The state that both sides touch is the queue and a few flags under one lock; results go
    back by ``post`` alone.
    """

    def __init__(
        self,
        engine: LocalEngine,
        epoch: int,
        nonce: int,
        clock: Clock,
        post: Post,
        dirty_age: float = 0.05,
        dirty_bytes: int = 8 << 20,
        high_water: int = 256 << 20,
        entry_bytes: int = TARGET_BYTES,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._engine = engine
        self._supervisor = supervisor or Supervisor()
        self._epoch = epoch
        self._nonce = nonce
        self._clock = clock
        self._post = post
        self.soon: Post = post  # as `post`, but only ever called on the loop
        self._dirty_age = dirty_age
        self._dirty_bytes = dirty_bytes
        self._high_water = high_water
        self._low_water = high_water // 2
        self._entry_bytes = entry_bytes
        self._pressed = False
        self._queue: deque[Submission] = deque()
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._paused = False  # a commit failed and the loop has not taken its records back yet
        self._appending = False  # one side is writing entries
        self._stepping = False  # the loop will look at the queue in its next turn
        self._hurried = False  # what is queued is not to wait for more
        self._called = False  # the thread was told of work and has not come yet
        self._unanswered = 0  # groups that the thread wrote and the loop has not answered yet
        self._awaiting: list[set[int]] = []  # logs of each group that waits for its sync
        self._failures: list[tuple[list[Submission], MillstreamError]] = []  # told behind those
        self._apart: list[Submission] = []  # written by the loop, answered by the next sync
        self._slow_until = 0.0
        self._stopping = False
        self._dirty_since: float | None = None
        self._synced_bytes = 0  # of what the engine has written, when the last sync began
        self._marked = engine.synced_position  # the durable mark that the log itself tells
        self._begun = (engine.index, float("-inf"))  # the current file, and when it was first seen
        self._is_brief = False  # the file before it was full in no time
        self._thread: threading.Thread | None = None
        self._in_hand: list[Submission] = []  # of the thread: taken, and nothing posted for it yet
        self._in_hand_awaits: set[int] | None = None  # its logs, while it waits for its sync
        self._thread_ended = False  # although nobody has stopped it
        self._refusing = False  # what is queued is to be answered with the engine's refusal
        self.ring: KeyRing | None = None  # seals entries
        self.marks: Marks | None = None  # where to tell what is stable, outside of the log
        self._noted: Known = {}  # what the next sync makes true
        self.window = 0.0  # seconds that a commit waits for more to join it
        self.backlog_bytes = 0
        self.applied_position = engine.position - 1  # the loop has seen everything up to here
        self.on_pressure: Callable[[bool], None] = lambda pressed: None
        self.on_synced: Callable[[int], None] = lambda position: None
        self.on_failed: Callable[[MillstreamError], None] = lambda error: None
        self.read_only = ""  # why, once it is

    # --- the loop's side

    def check(self) -> None:
        """Raise what an append would end in anyway."""
        if self.read_only:
            raise ShardReadOnly(self.read_only)

    def submit(self, submission: Submission) -> None:
        """Queue a submission; its ``committed`` is called on the loop, once, in order."""
        self.backlog_bytes += len(submission.data)
        steps = False
        with self._lock:
            self._queue.append(submission)
            if submission.can_wait and self._dirty_age <= LONGEST_WAIT and not self._thread_ended:
                pass
            elif self._hurries(submission) or self.backlog_bytes > SMALL_GROUP:
                self._call_thread()
            elif not self._stepping:
                self._stepping = steps = True
        if steps:
            self.soon(self._step_here)  # which may be at once
        if not self._pressed and self.backlog_bytes >= self._high_water:
            self._pressed = True
            self.on_pressure(True)

    def _hurries(self, submission: Submission) -> bool:
        """Say whether its sync should come before the next that is due by age."""
        return submission.sync and not (submission.can_wait and self._dirty_age <= LONGEST_WAIT)

    def hurry(self) -> None:
        """Commit what is queued without waiting for more to join it."""
        with self._lock:
            if not self._queue:
                return
            self._hurried = True
            self._wake.notify()
        self._step_here()

    def start(self) -> None:
        """Commit on a thread of its own from now on."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        name = f"millstream-committer-{self._engine.shard}"
        self._thread = self._supervisor.thread(name, self._run, self._ended)

    def stop(self) -> None:
        """Commit and sync everything accepted, write the durable mark, end the thread."""
        with self._lock:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            if self._thread_ended:
                self._close()
        else:
            self._finish()

    def refuse(self, why: str) -> None:
        """Take nothing more; what is queued is answered with an error, behind what is written."""
        self._engine.refuse(why)
        with self._lock:
            self._refusing = True
            self._call_thread()

    def _call_thread(self) -> None:
        if self._thread_ended:  # nobody would come
            self._fail([], self._engine.refusal)
        elif not self._called:
            self._called = True
            self._wake.notify()

    def _step_here(self) -> None:
        """Write a small group on the loop, or leave it to the thread."""
        with self._lock:
            self._stepping = False
            if not self._queue:
                return
            if not self._may_write_here():
                self._call_thread()
                return
            group = self._take()
        started = self._clock.monotonic()
        written, error = self._write(group)
        now = self._clock.monotonic()
        if now - started > SLOW_WRITE:
            self._slow_until = now + SLOW_PAUSE * (now - started)
        with self._lock:
            self._appending = False
            self._note(written)
            if self._paused and error is None:  # a sync has failed, or the thread has ended
                written, error = [], self._engine.refusal
            if self._dirty_since is None and not self._paused:
                self._dirty_since = now
            apart = [each for each in written if each.sync]
            self._apart += apart
            if self._leaves_work():  # also where the thread came while this was written
                self._call_thread()
        if error is not None:
            self._fail(group[len(written) :], error)
        if apart:
            written = [each for each in written if not each.sync]
        self._settle(written, None, None if self._awaiting else self._engine.position)

    def _may_write_here(self) -> bool:
        """Say whether the loop may write the queue: quickly, alone, and without overtaking."""
        if self._paused or self._appending or self._unanswered or self._stopping:
            return False
        if self.window and not self._hurried:
            return False
        size = 0
        for submission in self._queue:
            if submission.sync and not submission.apart:
                return False
            if self._awaiting and self._waits_for_sync(submission):
                return False
            size += submission.size
            if size > SMALL_GROUP:  # a long queue is not looked through to its end
                return False
        entries = len(self._queue) + size // self._entry_bytes + 1
        if self.ring is not None:
            size += OVERHEAD * (entries + size // MOST_BYTES + 1)
        return (
            size <= SMALL_GROUP
            and self._engine.takes(size + PER_ENTRY * entries)
            and self._clock.monotonic() >= self._slow_until
        )

    def _waits_for_sync(self, submission: Submission) -> bool:
        return any(not ids.isdisjoint(submission.ordered) for ids in self._awaiting)

    def _take(self) -> list[Submission]:
        """Take the queue for writing; the other side keeps off until ``_appending`` falls."""
        group = list(self._queue)
        self._queue.clear()
        self._hurried = False
        self._appending = bool(group)
        return group

    def _settle(
        self, group: list[Submission], error: MillstreamError | None, position: int | None = None
    ) -> None:
        for submission in group:
            self.backlog_bytes -= len(submission.data)
            try:
                submission.committed(error)
            except Exception as failed:  # those behind it wait for their own answers
                self._supervisor.report(f"log {submission.stream_id:x}", "took no answer", failed)
        if position is not None:
            self.applied_position = position - 1
        if self._pressed and self.backlog_bytes <= self._low_water:
            self._pressed = False
            self.on_pressure(False)

    def _settle_failed(
        self, group: list[Submission], error: MillstreamError, awaited: set[int] | None = None
    ) -> None:
        """Fail the group and all that was staged behind it, so that its sequences are free again.

        Everything uncommitted goes: a later batch of the same log already has sequences above
        the failed ones, and giving back only the first would leave a hole or reuse a number. What
        is written already and waits for a sync of the thread is answered first: it may come true.
        """
        with self._lock:
            self._await_no_more(awaited)
            if self._awaiting:
                self._failures.append((group, error))
                return
            waiting = [*self._apart, *self._queue]
            self._apart.clear()  # a sync under way must not answer them again,
            self._apart = []  # nor what is written behind its beginning
            self._queue.clear()
        if isinstance(error, ShardReadOnly):
            self.read_only = self.read_only or str(error)
        self.on_failed(error)
        with self._lock:
            self._paused = False
            self._wake.notify()
        self._settle(group + waiting, error)
        self._settle_failures()

    def _settle_failures(self) -> None:
        """Tell what failed while another group waited for its sync, once none does."""
        if self._failures and not self._awaiting:
            failures, self._failures = self._failures, []
            for group, error in failures:
                self._settle_failed(group, error)

    def _settle_early(self, group: list[Submission], position: int | None) -> None:
        with self._lock:
            self._unanswered -= 1
        self._settle(group, None, position)
        if self._queue and not self._stepping:  # came meanwhile, and must not wait for a sync
            self._step_here()

    def _settle_synced(
        self, group: list[Submission], awaited: set[int] | None, position: int, synced: int
    ) -> None:
        """Answer what waited for the sync, then tell how far the log is stable."""
        with self._lock:
            self._await_no_more(awaited)
        self._settle(group, None, position)
        self.on_synced(synced)
        self._settle_failures()

    def _await_no_more(self, awaited: set[int] | None) -> None:
        self._awaiting = [each for each in self._awaiting if each is not awaited]

    # --- the thread's side

    def step(self) -> bool:
        """Commit what is queued, or sync what is dirty for long enough; False when idle."""
        with self._lock:
            self._called = False  # also when it came in vain: the next call must wake it again
            refuses, self._refusing = self._refusing, False
            if not refuses and (self._paused or self._appending):
                return False
            group = [] if refuses else self._take()
        if refuses:
            self._fail([], self._engine.refusal)
            return True
        if not group:
            return self._sync_if_due()
        self._in_hand = group
        self._commit(group)
        self._in_hand, self._in_hand_awaits = [], None
        return True

    def tick(self) -> None:
        """Let the log itself say how far it is synced, once nothing else is going on."""
        with self._lock:
            if self._paused or self._queue or self._appending:
                return
            self._appending = True
        is_news = self._marked < self._engine.synced_position == self._engine.position - 1
        if is_news:
            self._write_mark()
        self._appending = False
        if is_news:  # a look at who has nothing more to write
            self._post(partial(self.on_synced, self._engine.synced_position))

    def _commit(self, group: list[Submission]) -> None:
        written, error = self._write(group)
        early, late = _in_promise_order(written)
        awaited = {log_id for each in late for log_id in each.ordered} if late else None
        position = self._engine.position
        with self._lock:
            self._appending = False
            self._paused = self._paused or error is not None  # nothing goes behind what failed
            self._note(written)
            self._unanswered += bool(early)
            if awaited is not None:
                self._awaiting.append(awaited)
                self._in_hand_awaits = awaited
            if self._dirty_since is None:
                self._dirty_since = self._clock.monotonic()
            due = self._due(self._dirty_since)
            kept_out = bool(self._queue)
        if early:
            self._post(partial(self._settle_early, early, None if late else position))
            self._in_hand = late + group[len(written) :]
        elif kept_out:  # what came during the write need not wait for the sync
            self._post(self._step_here)
        if late or due:
            try:
                self._sync()
            except ShardReadOnly as failed:
                self._fail(late + group[len(written) :], failed, awaited)
                return
            synced = self._engine.synced_position
            self._post(partial(self._settle_synced, late, awaited, position, synced))
            self._in_hand, self._in_hand_awaits = group[len(written) :], None
        if error is not None:
            self._fail(group[len(written) :], error)

    def _sync(self) -> None:
        """Make stable what is written now; what the loop writes meanwhile is dirty again."""
        with self._lock:
            self._dirty_since = None
            self._synced_bytes = self._engine.written
            noted, self._noted = self._noted, {}
            apart, covered = self._apart, len(self._apart)
        self._engine.sync()
        if self.marks is not None:
            self.marks.write(noted)
        if covered:
            with self._lock:
                stable = apart[:covered]
                del apart[:covered]
            self._post(partial(self._settle, stable, None))

    def _write(self, group: list[Submission]) -> tuple[list[Submission], MillstreamError | None]:
        """Write the group as entries of about 1 MiB; says how much of it is in the log."""
        written: list[Submission] = []
        chunks = _chunks(group, self._entry_bytes) if len(group) > 1 else (group,)
        for chunk in chunks:
            try:
                if len(chunk) == 1 and len(chunk[0].data) > self._entry_bytes:
                    self._write_large(chunk[0])
                else:
                    runs: list[Run] = []
                    parts: list[bytes] = []
                    for submission in chunk:
                        _add_runs(runs, parts, submission)
                    self._append(runs, parts, commits=True)
            except (StorageFull, ShardReadOnly) as error:
                return written, error
            except Exception as error:  # some of it may be in the file
                name = f"write-ahead log {self._engine.shard}"
                self._supervisor.report(name, "was not written", error)
                self._engine.refuse(f"its write-ahead log was not written ({error!r})")
                return written, self._engine.refusal
            written += chunk
        return written, None

    def _note(self, written: list[Submission]) -> None:
        """Remember what a sync from now on makes stable; the lock is held."""
        for submission in written:
            if submission.first_seq:
                self._noted[SYNCED, submission.stream_id] = submission.last_seq
            if submission.tells:
                self._noted.update(submission.tells)

    def _write_large(self, submission: Submission) -> None:
        """Write a batch above the entry size as several entries; only the last one commits it."""
        entries = split_pieces(submission.pieces(), self._entry_bytes)
        for i, pieces in enumerate(entries):
            runs, parts = [run for run, _ in pieces], [data for _, data in pieces]
            self._append(runs, parts, commits=i == len(entries) - 1, continues=i > 0)

    def _append(
        self, runs: list[Run], parts: list[bytes], commits: bool, continues: bool = False
    ) -> None:
        engine = self._engine
        durable = engine.synced_position
        entry = encode_entry(
            engine.position,
            self._epoch,
            self._nonce,
            durable,
            commits,
            runs,
            parts,
            continues,
            self.ring,
        )
        outcome = engine.append_at(engine.position, entry, sync=False)
        if not isinstance(outcome, Ok):
            raise ShardReadOnly(f"another writer has taken the log: {outcome}")
        self._marked = durable

    def _fail(
        self, group: list[Submission], error: MillstreamError, awaited: set[int] | None = None
    ) -> None:
        with self._lock:
            self._paused = True
            if isinstance(error, ShardReadOnly):
                self._dirty_since = None  # a failed sync is not tried again
        self._post(partial(self._settle_failed, group, error, awaited))

    def _sync_if_due(self) -> bool:
        if self._dirty_since is None or not self._due(self._dirty_since):
            return False
        try:
            self._sync()
        except ShardReadOnly as error:
            self._fail([], error)
            return True
        self._post(partial(self.on_synced, self._engine.synced_position))
        return True

    def _write_mark(self) -> None:
        try:
            self._append([], [], commits=True)
        except StorageFull as error:
            log.warning("durable mark not written error=%s", error)
        except ShardReadOnly as error:
            self._fail([], error)

    def _due(self, since: float) -> bool:
        return self._is_much() or self._clock.monotonic() - since >= self._dirty_age

    def _leaves_work(self) -> bool:
        """Say whether the thread has something to do before its time."""
        return self._engine.wants_file or self._is_much()

    def _is_much(self) -> bool:
        """Say whether to sync for what there is, not for its age."""
        if any(map(self._hurries, self._apart)):
            return True
        dirty = self._engine.written - self._synced_bytes
        return dirty >= self._dirty_bytes or self._engine.is_behind

    def _finish(self) -> None:
        while self.step():
            pass
        if not self._paused:
            try:
                self._sync()
                self._write_mark()
                self._engine.sync()
                self._engine.give_back()
            except (StorageFull, ShardReadOnly, OSError) as error:
                log.warning("last sync failed error=%s", error)
        self._engine.close()
        if self.marks is not None:
            self.marks.close()

    def _ended(self, error: BaseException) -> None:
        """Answer for the thread, which has ended: it had no chance to say what came of its work."""
        self._engine.refuse(f"its committer thread ended ({error!r})")
        with self._lock:
            self._thread_ended = True
        self._fail(self._in_hand, self._engine.refusal, self._in_hand_awaits)

    def _close(self) -> None:
        """Close what the thread has left open; what it held is answered."""
        with suppress(OSError):
            self._engine.close()
        if self.marks is not None:
            with suppress(OSError):
                self.marks.close()

    def _run(self) -> None:
        while not self._stopping:
            self._gather()
            busy = self.step()
            self._prepare()
            if not busy and not self._wait():
                self.tick()
        self._finish()

    def _prepare(self) -> None:
        """Make the next file ahead; a disk that fails at that takes nothing more, and says so."""
        index, since = self._begun
        if self._engine.index != index:
            now = self._clock.monotonic()
            self._begun, self._is_brief = (self._engine.index, now), now - since < BRIEF
        try:
            self._engine.prepare(self._is_brief)
        except ShardReadOnly as error:
            self._fail([], error)

    def _gather(self) -> None:
        """Let more join what is queued, while the server is pressed."""
        with self._lock:
            if self.window and self._queue:
                self._wake.wait_for(lambda: self._stopping or self._hurried, self.window)

    def _wait(self) -> bool:
        """Sleep until there is work; False when nothing came for a while."""
        with self._lock:
            if self._stopping or self._called or (self._queue and not self._paused):
                return True  # a call may have come since the last look
            dirty = self._dirty_since
            age = 0.0 if dirty is None else self._clock.monotonic() - dirty
            return self._wake.wait(max(self._dirty_age - age, 0.0))


def _add_runs(runs: list[Run], parts: list[bytes], submission: Submission) -> None:
    """Name a submission in the run table; records that follow each other share a run."""
    if submission.control or submission.runs:
        for run, data in submission.pieces():
            runs.append(run)
            parts.append(data)
        return
    parts.append(submission.data)
    size = len(submission.data)
    if runs and submission.first_seq and runs[-1].first_seq:
        stream_id, first_seq, frames, before = runs[-1]
        follows = first_seq + frames == submission.first_seq
        if stream_id == submission.stream_id and follows:
            runs[-1] = Run(stream_id, first_seq, frames + submission.count, before + size)
            return
    runs.append(Run(submission.stream_id, submission.first_seq, submission.count, size))


def _chunks(group: list[Submission], target: int) -> Iterator[list[Submission]]:
    """Cut a group into entries; a submission above the size of an entry stands alone."""
    chunk: list[Submission] = []
    size = 0
    for submission in group:
        if chunk and size + submission.size > target:
            yield chunk
            chunk, size = [], 0
        chunk.append(submission)
        size += submission.size
    if chunk:
        yield chunk


def _in_promise_order(group: list[Submission]) -> tuple[list[Submission], list[Submission]]:
    """Split into (answered after the write, answered after the sync), each log's order kept."""
    if not any(submission.sync for submission in group):
        return group, []
    early: list[Submission] = []
    late: list[Submission] = []
    waiting: set[int] = set()
    for submission in group:
        if submission.sync or not waiting.isdisjoint(submission.ordered):
            waiting.update(submission.ordered)
            late.append(submission)
        else:
            early.append(submission)
    return early, late


def split_pieces(pieces: Iterable[tuple[Run, bytes]], target: int) -> list[list[tuple[Run, bytes]]]:
    """Cut runs with their frames into entries of about ``target`` bytes."""
    entries: list[list[tuple[Run, bytes]]] = []
    room = 0
    for (stream_id, first, _, _), frames in pieces:
        for start, end, count in cut(frames, target):
            data = frames[start:end]
            if len(data) > room:
                entries.append([])
                room = target
            entries[-1].append((Run(stream_id, first, count, len(data)), data))
            room -= len(data)
            first += count if first else 0
    return entries
