"""Committer: carries out what a ``CommitQueue`` decides, with a lock and a thread.

The queue is the one thing that the loop and the thread share; each asks it under the lock and acts
outside of it. The thread's results go back to the loop by ``post`` alone.
"""

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from millstream.clock import Clock
from millstream.errors import MillstreamError, ShardReadOnly, StorageFull
from millstream.store.disk.keys import KeyRing
from millstream.store.wal.commit import CommitEngine, Outcome, Unknown
from millstream.store.wal.commit_queue import (
    Action,
    Answer,
    CallLoop,
    CommitQueue,
    Hold,
    Limits,
    LookLater,
    LookNow,
    Refuse,
    Stable,
    Sync,
    TakeBack,
    Todo,
    Wake,
    Write,
)
from millstream.store.wal.entry_writer import EntryWriter
from millstream.store.wal.marks import Marks
from millstream.store.wal.positions import Positions
from millstream.store.wal.submission import Submission
from millstream.supervisor import Supervisor

log = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], object]

SWITCH_INTERVAL = 0.0005  # back from a sync the thread must not wait 5 ms for a busy loop
LAST_WAIT = 5.0  # seconds that a stop waits for an engine that gives no answer


class Told(Protocol):
    """Who hears of a shard, on the loop."""

    def on_synced(self, position: int) -> None:
        """Everything up to ``position`` is on stable storage."""
        ...

    def on_failed(self, error: MillstreamError) -> None:
        """Take back what is not committed."""
        ...

    def on_pressure(self, is_held: bool) -> None:
        """Hold publishers back, or let them go on."""
        ...


class CommitThread:
    """The thread of a committer: not begun, at work, or ended although nobody has stopped it."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        self.has_ended = False
        self._supervisor = supervisor
        self._name = name
        self._thread: threading.Thread | None = None

    @property
    def is_begun(self) -> bool:
        """Say whether there is a thread to wait for."""
        return self._thread is not None

    def begin(self, run: Callable[[], None], ended: Callable[[BaseException], None]) -> None:
        """Have ``run`` done on the thread; ``ended`` hears when it raises."""
        self._thread = self._supervisor.thread(self._name, run, ended)

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class Committer:
    """One shard: filled on the loop, emptied by the loop or by ``step`` on one thread.

    ``post`` takes calls of any thread to the loop, ``defer`` those of the loop to its next turn.
    """

    def __init__(
        self,
        engine: CommitEngine,
        stamp: tuple[int, int],
        clock: Clock,
        post: Post,
        defer: Post,
        told: Told,
        limits: Limits,
        ring: KeyRing | None = None,
        marks: Marks | None = None,
        shard: int = 0,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._post = post
        self._defer = defer
        self._told = told
        self._marks = marks  # where to tell what is stable, outside of the log
        self._lock = threading.RLock()  # of the queue and the positions
        self._wake = threading.Condition(self._lock)
        self.positions = Positions(engine.position, engine.ahead)
        self._queue = CommitQueue(limits, self.positions)
        self._writer = EntryWriter(
            engine, self.positions, self._completed, self._lock, stamp, limits.entry_bytes, ring
        )
        self._shard = shard
        self._supervisor = supervisor or Supervisor()
        self._thread = CommitThread(self._supervisor, f"millstream-committer-{shard}")
        self.applied_position = engine.position - 1  # the loop has seen everything up to here

    @property
    def backlog_bytes(self) -> int:
        """Return how many bytes wait for their commit."""
        return self._queue.backlog_bytes

    # --- the loop's side

    def check(self) -> None:
        """Raise what an append would end in anyway."""
        if self._queue.read_only:
            raise ShardReadOnly(self._queue.read_only)

    def submit(self, submission: Submission, at_once: bool = False) -> None:
        """Queue a submission; its ``committed`` is called on the loop, once, in order.

        That may be before this returns where ``at_once`` asks for it, and only there.
        """
        with self._lock:
            todo = self._queue.submitted(submission, at_once)
        for do in todo:
            _ACTS[type(do)](self, do)

    def gather(self, seconds: float) -> None:
        """Have commits wait so long for more to join them."""
        self._queue.window = seconds

    def hurry(self) -> None:
        """Commit what is queued without waiting for more to join it."""
        with self._lock:
            todo = self._queue.hurried()
        self._carry_out(todo)

    def begin(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Begin the log anew with these entries, before anything is submitted."""
        self._engine.begin(entries)
        with self._lock:
            self.positions.restart(self._engine.position)

    def start(self) -> None:
        """Commit on a thread of its own from now on."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        self._thread.begin(self._run, self._ended)

    def stop(self) -> None:
        """Commit and sync everything accepted, write the durable mark, end the thread."""
        with self._lock:
            todo = self._queue.stopped()
        self._carry_out(todo)
        if self._thread.is_begun:
            self._thread.join()
            if self._thread.has_ended:
                self._close()
        else:
            self._finish()

    def refuse(self, why: str) -> None:
        """Take nothing more; what is queued is answered with an error, behind what is written."""
        self._engine.refuse(why)
        with self._lock:
            todo = self._queue.refused()
        self._carry_out(todo)

    def _look(self, _: LookNow | None = None) -> None:
        """Write a small group on the loop, or leave it to the thread."""
        now, room = self._clock.monotonic(), self._engine.room
        with self._lock:
            todo = self._queue.looked(now, room)
        for do in todo:
            _ACTS[type(do)](self, do)

    def _hear(self) -> None:
        """Do about each report of the thread what is to be done."""
        queue = self._queue
        try:
            while queue.reports:
                with self._lock:
                    todo = queue.heard()
                for do in todo:
                    _ACTS[type(do)](self, do)
        except BaseException:
            self._post(self._hear)  # one who cannot bear the answer keeps nobody else from theirs
            raise

    # --- either side

    def _carry_out(self, todo: Todo) -> None:
        for do in todo:
            _ACTS[type(do)](self, do)

    def _wake_thread(self, _: Wake) -> None:
        with self._lock:
            self._wake.notify()

    def _call_loop(self, _: CallLoop) -> None:
        self._post(self._hear)

    def _look_later(self, _: LookLater) -> None:
        self._defer(self._look)

    def _tell_stable(self, do: Stable) -> None:
        self._told.on_synced(do.position)

    def _hold(self, do: Hold) -> None:
        self._told.on_pressure(do.is_held)

    def _answer(self, do: Answer) -> None:
        for submission in do.group:
            try:
                submission.committed(do.error)
            except Exception as failed:  # those behind it wait for their own answers
                self._supervisor.report(f"log {submission.stream_id:x}", "took no answer", failed)
        if do.applied:
            self.applied_position = do.applied

    def _take_back(self, do: TakeBack) -> None:
        self._told.on_failed(do.error)
        with self._lock:
            todo = self._queue.taken_back()
        self._carry_out(todo)

    def _hand_over(self, do: Write) -> None:
        chunks, problem = self._writer.write(do.group, do.began)
        error = problem if problem is None else self._known(problem)
        now = self._clock.monotonic()
        with self._lock:
            todo = self._queue.written(do, chunks, error, self._engine, now)
        for act in todo:
            _ACTS[type(act)](self, act)

    def _known(self, problem: Exception) -> MillstreamError:
        """Return what a failed write is answered with; nothing goes behind one nobody foresaw."""
        if isinstance(problem, MillstreamError):
            return problem
        self._supervisor.report(f"write-ahead log {self._shard}", "was not written", problem)
        return self._engine.refuse(f"its write-ahead log was not written ({problem!r})")

    def _completed(self, position: int, outcome: Outcome) -> None:
        """Take an answer of the engine, from whatever thread it comes."""
        with self._lock:
            if isinstance(outcome, Unknown):
                self.positions.doubted(position, self._clock.monotonic())
                self._wake.notify()  # to send it again
                return
            if not self.positions.answered(position, outcome) or self._queue.is_writing:
                return  # whoever hands over now looks at it afterwards
            todo = self._queue.confirmed(self._clock.monotonic())
        self._carry_out(todo)

    # --- the thread's side

    def step(self) -> bool:
        """Commit what is queued, or sync what is dirty for long enough; False when idle."""
        now = self._clock.monotonic()
        if self.positions.under_way:
            self._send_due(now)
        with self._lock:
            do = self._queue.came(self._engine, now)
        if do is None:
            return False
        _ACTS[type(do)](self, do)
        return True

    def tick(self) -> None:
        """Let the log itself say how far it is synced, once nothing else is going on."""
        if not self._writer.has_news:
            return
        with self._lock:
            if not self._queue.mark_begins():
                return
        self._mark()
        with self._lock:
            todo = self._queue.mark_ended(self._clock.monotonic(), self._engine.synced_position)
        self._carry_out(todo)

    def _mark(self) -> None:
        try:
            self._writer.mark(self._clock.monotonic())
        except StorageFull as error:
            log.warning("durable mark not written error=%s", error)
        except ShardReadOnly as error:
            self._fail(error)

    def _say_refused(self, _: Refuse) -> None:
        self._fail(self._engine.refuse("it takes nothing more"))

    def _sync(self, _: Sync | None = None) -> None:
        """Make stable what is written now, and have the loop tell who waited for it."""
        with self._lock:
            syncing = self._queue.sync_began(self._engine.written)
        try:
            self._engine.sync()
        except ShardReadOnly as error:
            with self._lock:
                todo = self._queue.sync_failed(syncing, error)
        else:
            if self._marks is not None:
                self._marks.write(syncing.noted)
            with self._lock:
                todo = self._queue.synced(syncing, self._engine.synced_position)
        for do in todo:
            _ACTS[type(do)](self, do)

    def _send_due(self, now: float) -> None:
        try:
            self._writer.send_due(now)
        except ShardReadOnly as error:
            self._fail(error)

    def _prepare(self) -> None:
        """Do ahead what appends would wait for; an engine that fails takes nothing more."""
        try:
            self._engine.prepare(self._clock.monotonic())
        except ShardReadOnly as error:
            self._fail(error)

    def _fail(self, error: MillstreamError) -> None:
        with self._lock:
            todo = self._queue.failed(error)
        self._carry_out(todo)

    def _run(self) -> None:
        while not self._queue.is_stopping:
            if self._queue.window:
                self._gather()
            is_busy = self.step()
            self._prepare()
            if not is_busy and not self._sleep():
                self.tick()
        self._finish()

    def _gather(self) -> None:
        """Let more join what is queued, while the server is pressed."""
        with self._lock:
            if self._queue.is_gathering:
                self._wake.wait_for(lambda: not self._queue.is_gathering, self._queue.window)

    def _sleep(self) -> bool:
        """Sleep until there is work; False when nothing came for a while."""
        with self._lock:
            now = self._clock.monotonic()
            seconds = self._queue.sleep(now)
            if seconds < 0:
                return True
            due = self.positions.next_due() if self.positions.under_way else None
            if due is not None:
                seconds = min(seconds, max(due - now, 0.0))
            return self._wake.wait(seconds)

    def _finish(self) -> None:
        """Commit and sync what was accepted, and leave the log at rest."""
        self._drain()
        if not self._queue.is_failing:
            try:
                self._sync()
                self._mark()
                self._engine.sync()
                self._engine.come_to_rest()
            except (StorageFull, ShardReadOnly, OSError) as error:
                log.warning("last sync failed error=%s", error)
        self._engine.close()
        if self._marks is not None:
            self._marks.close()

    def _ended(self, error: BaseException) -> None:
        """Answer for the thread, which has ended: it had no chance to say what came of its work."""
        refusal = self._engine.refuse(f"its committer thread ended ({error!r})")
        with self._lock:
            self._thread.has_ended = True
            todo = self._queue.ended(refusal)
        self._carry_out(todo)

    def _close(self) -> None:
        """Close what the thread has left open; what it held is answered."""
        with suppress(OSError):
            self._engine.close()
        if self._marks is not None:
            with suppress(OSError):
                self._marks.close()

    def _drain(self) -> None:
        """Write what is queued, and wait for what is under way, but not for ever."""
        until = self._clock.monotonic() + LAST_WAIT
        while True:
            while self.step():
                pass
            if self._queue.is_idle or self._queue.is_failing:
                return
            with self._lock:
                if self._clock.monotonic() >= until:
                    break
                self._wake.wait(0.01)
        self._fail(ShardReadOnly("the log gave no answer in time"))


_ACTS: dict[type[Action], Callable[[Committer, Any], None]] = {
    LookLater: Committer._look_later,
    LookNow: Committer._look,
    Wake: Committer._wake_thread,
    CallLoop: Committer._call_loop,
    Write: Committer._hand_over,
    Sync: Committer._sync,
    Refuse: Committer._say_refused,
    Answer: Committer._answer,
    TakeBack: Committer._take_back,
    Stable: Committer._tell_stable,
    Hold: Committer._hold,
}
