"""CommitQueue: what is written when, by whom, and who is told; decided here, done elsewhere.

What happened goes in as calls, what to do comes out as values. There is no lock, thread, clock or
disk in here: the ``Committer`` has them, and carries out what this decides.

**What makes an answer true.** ``disk`` is answered once its entry is written, ``fsync`` and control
frames once a sync covers it that began after the write. Each log's order is kept: whatever stands
behind a submission that waits for its sync, on the same log, waits with it. One that stands
``apart`` keeps nobody waiting. After a failed sync nothing is answered but errors.

**Who writes.** A small group that waits for no sync is written by the loop itself, in the turn
after it came, because handing it to a thread and back costs more than the write, and the thread may
be in the middle of a sync. Everything else, and every sync, is the thread's. One side hands over at
a time; a sync of the thread does not keep the loop from writing, and covers only what was confirmed
before it began.

**What fails takes everything uncommitted with it.** A later batch of the same log already has
sequences above the failed ones, and giving back only the first would leave a hole or reuse a
number. Nothing is written until the loop has taken its records back. What is written and waits for
a sync of the thread is answered first: it may come true. A thread that ends has no chance to say
what came of its work: whatever it held fails in the same way, and so does all that comes later.

**Who is told what, and in which order.** Whatever the thread has to say to the loop is a report in
one list, which the loop hears from the front.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from millstream.errors import MillstreamError, ShardReadOnly
from millstream.store.disk.blocks import MOST_BYTES, OVERHEAD
from millstream.store.wal.entry import RUN, TARGET_BYTES
from millstream.store.wal.marks import SYNCED, Known
from millstream.store.wal.positions import Positions, taken_error
from millstream.store.wal.submission import Submission

SMALL_GROUP = 2 << 20  # bytes that the loop writes itself: below a millisecond in most cases
SLOW_WRITE = 0.02  # a busy machine alone makes a write take a few milliseconds
SLOW_PAUSE = 4  # the loop leaves writing to the thread for so many times a slow write's time
LONGEST_WAIT = 0.1  # of what can wait; the thread looks once in a dirty age
PER_ENTRY = 88  # header and one run

Group: TypeAlias = list[Submission]
Chunk: TypeAlias = tuple[int, Group]  # what one position commits; the last one of a large batch


class Limits(msgspec.Struct, frozen=True):
    """How long and how much."""

    dirty_age: float = 0.05  # what is written is synced after so long at the latest,
    dirty_bytes: int = 8 << 20  # or once it is so much
    high_water: int = 256 << 20  # bytes that are not committed, before publishers are held
    small_group: int = SMALL_GROUP
    entry_bytes: int = TARGET_BYTES
    seals: bool = False  # entries are sealed, which makes them longer


class Standing(Protocol):
    """What an engine says of itself now, as ``CommitEngine`` has it."""

    @property
    def written(self) -> int:
        """Return how many bytes it has taken since the start."""
        ...

    @property
    def wants_sync(self) -> bool:
        """Say whether a sync should come soon."""
        ...

    @property
    def is_prepared(self) -> bool:
        """Say whether the thread has nothing to prepare."""
        ...


# --- what to do


class LookLater(msgspec.Struct, frozen=True):
    """The loop looks at what is queued in its next turn."""


class LookNow(msgspec.Struct, frozen=True):
    """The loop looks at what is queued, before it does anything else."""


class Wake(msgspec.Struct, frozen=True):
    """The thread has something to do."""


class CallLoop(msgspec.Struct, frozen=True):
    """The loop has reports to hear."""


class Write(msgspec.Struct, frozen=True):
    """Whoever asked hands this group to the engine, then says what came of it."""

    group: Group
    is_here: bool  # the loop does
    began: float


class Sync(msgspec.Struct, frozen=True):
    """The thread syncs."""


class Refuse(msgspec.Struct, frozen=True):
    """The thread says by ``failed`` that the engine takes nothing more."""


class Answer(msgspec.Struct, frozen=True):
    """These hear what became of them; then the loop has applied everything up to a position."""

    group: Group
    error: MillstreamError | None = None
    applied: int = 0  # 0: not more than before


class TakeBack(msgspec.Struct, frozen=True):
    """The logs give up what is not committed; ``taken_back`` says that it is done."""

    error: MillstreamError


class Stable(msgspec.Struct, frozen=True):
    """The logs hear that everything up to a position is on stable storage."""

    position: int


class Hold(msgspec.Struct, frozen=True):
    """Publishers are held back, or let go on."""

    is_held: bool


Action: TypeAlias = (
    LookLater
    | LookNow
    | Wake
    | CallLoop
    | Write
    | Sync
    | Refuse
    | Answer
    | TakeBack
    | Stable
    | Hold
)
Todo: TypeAlias = Sequence[Action]

NOTHING: Todo = ()
LOOK_LATER: Todo = (LookLater(),)
LOOK_NOW: Todo = (LookNow(),)
WAKE, CALL_LOOP, SYNC, REFUSE = Wake(), CallLoop(), Sync(), Refuse()


# --- on the way


class Late(msgspec.Struct, eq=False):
    """Written submissions that wait for a sync, with all that stands behind them."""

    group: Group
    logs: set[int]
    applied: int


class Syncing(msgspec.Struct, eq=False):
    """What a sync that began now makes true."""

    late: list[Late]
    apart: Group
    noted: Known


class _Written(msgspec.Struct):
    group: Group
    applied: int

    def heard_by(self, queue: "CommitQueue") -> Todo:
        return queue._heard_written(self)


class _Synced(msgspec.Struct):
    apart: Group
    late: list[Late]
    stable: int

    def heard_by(self, queue: "CommitQueue") -> Todo:
        return queue._heard_synced(self)


class _Failed(msgspec.Struct):
    group: Group
    error: MillstreamError
    late: list[Late]

    def heard_by(self, queue: "CommitQueue") -> Todo:
        return queue._heard_failed(self)


class _KeptOut(msgspec.Struct):
    """Something came while the thread wrote."""

    def heard_by(self, queue: "CommitQueue") -> Todo:
        return LOOK_NOW


_Report: TypeAlias = _Written | _Synced | _Failed | _KeptOut


class CommitQueue:
    """One shard's submissions, from their coming to their answers."""

    def __init__(self, limits: Limits, positions: Positions) -> None:
        self._limits = limits
        self.positions = positions  # of what was handed over
        self._waiting: deque[Submission] = deque()
        self.is_writing = False  # one side is handing entries over,
        self._in_hand: Group = []  # the thread these
        self._sent: deque[Chunk] = deque()  # handed over and not confirmed, ascending
        self._late: list[Late] = []  # written, and no sync has begun since
        self._awaiting: list[Late] = []  # those, and what the loop has not heard of yet
        self._apart: Group = []  # written by the loop, answered by the next sync
        self._syncing: Syncing | None = None
        self.reports: deque[_Report] = deque()  # that the loop has not heard yet
        self._unanswered = 0  # reports of written groups among them
        self._untold = 0  # failures that the logs have not taken back
        self._ended_by: ShardReadOnly | None = None  # why nothing under way is waited for any more
        self._is_refusing = False  # the thread is to say that nothing more is taken
        self._thread_end: ShardReadOnly | None = None  # why nobody comes when the thread is called
        self._failures: list[_Failed] = []  # told behind what waits for its sync
        self._is_look_due = False
        self._is_thread_called = False
        self._is_hurried = False  # what is queued is not to wait for more
        self._is_holding = False
        self._slow_until = float("-inf")
        self._dirty_since: float | None = None
        self._synced_bytes = 0  # of what the engine had taken, when the last sync began
        self._noted: Known = {}  # marks that the next sync makes true
        self.is_stopping = False
        self.window = 0.0  # seconds that a commit waits for more to join it
        self.backlog_bytes = 0
        self.read_only = ""  # why, once it is

    @property
    def is_failing(self) -> bool:
        """Say whether nothing is written, because a failure is not told yet."""
        return self._untold > 0

    @property
    def is_gathering(self) -> bool:
        """Say whether the thread lets more join what is queued, for as long as the window is."""
        return bool(self.window and self._waiting) and not (self._is_hurried or self.is_stopping)

    @property
    def is_idle(self) -> bool:
        """Say whether everything that came is written and confirmed."""
        return not (self._waiting or self.is_writing or self._sent or self._late)

    # --- the loop's side

    def submitted(self, submission: Submission, at_once: bool = False) -> Todo:
        """Take a submission; ``at_once`` asks for its commit before the call ends, if it can be."""
        self.backlog_bytes += len(submission.data)
        self._waiting.append(submission)
        todo = LOOK_NOW
        can_wait = submission.can_wait and self._limits.dirty_age <= LONGEST_WAIT
        if can_wait and self._thread_end is None:
            todo = NOTHING
        elif (submission.sync and not can_wait) or self.backlog_bytes > self._limits.small_group:
            todo = self._call_thread()
        elif self._is_look_due:
            todo = NOTHING  # it shares that commit
        elif not at_once:
            self._is_look_due = True
            todo = LOOK_LATER
        if not self._is_holding and self.backlog_bytes >= self._limits.high_water:
            self._is_holding = True
            return (*todo, Hold(True))
        return todo

    def _hurries(self, submission: Submission) -> bool:
        """Say whether its sync should come before the next that is due by age."""
        can_wait = submission.can_wait and self._limits.dirty_age <= LONGEST_WAIT
        return submission.sync and not can_wait

    def hurried(self) -> Todo:
        """Let what is queued wait for nothing to join it."""
        if not self._waiting:
            return NOTHING
        self._is_hurried = True
        return (WAKE, *LOOK_NOW)

    def stopped(self) -> Todo:
        """Let the thread finish."""
        self.is_stopping = True
        return (WAKE,)

    def refused(self) -> Todo:
        """Have the thread say that nothing more is taken: it is in no write then."""
        self._is_refusing = True
        return self._call_thread()

    def ended(self, error: ShardReadOnly) -> Todo:
        """Fail what the thread held when it ended, and all behind it."""
        self._thread_end = error
        group, self._in_hand = self._in_hand, []
        if group:
            self.is_writing = False
        syncing, behind = self._syncing or Syncing([], [], {}), self._late
        self._late = []  # no sync will begin for them
        return self.sync_failed(Syncing(syncing.late + behind, syncing.apart, {}), error, group)

    def looked(self, now: float, room: int) -> Todo:
        """Have the loop write what is queued, where the engine has room for it, or the thread."""
        self._is_look_due = False
        if not self._waiting:
            return NOTHING
        if self._may_write_here(now, room):
            return (self._take(True, now),)
        return self._call_thread()

    def _may_write_here(self, now: float, room: int) -> bool:
        """Say whether the loop may write the queue: quickly, alone, and without overtaking."""
        if self._untold or self.is_writing or self._unanswered or self._sent or self.is_stopping:
            return False
        if (self.window and not self._is_hurried) or now < self._slow_until:
            return False
        size, most = 0, self._limits.small_group
        for submission in self._waiting:
            if submission.sync and not submission.apart:
                return False
            if self._awaiting and self._waits_for_sync(submission):
                return False
            size += len(submission.control) + len(submission.data)
            if submission.runs:
                size += RUN.size * len(submission.runs)
            if size > most:  # a long queue is not looked through to its end
                return False
        entries = len(self._waiting) + size // self._limits.entry_bytes + 1
        if self._limits.seals:
            size += OVERHEAD * (entries + size // MOST_BYTES + 1)
        return size <= most and size + PER_ENTRY * entries <= room

    def _waits_for_sync(self, submission: Submission) -> bool:
        return any(not late.logs.isdisjoint(submission.ordered) for late in self._awaiting)

    def _take(self, is_here: bool, now: float) -> Write:
        group = list(self._waiting)
        self._waiting.clear()
        self._is_hurried = False
        self.is_writing = True
        if not is_here:
            self._in_hand = group
        return Write(group, is_here, now)

    def heard(self) -> Todo:
        """Return what the loop does about the next report; there is one."""
        report = self.reports.popleft()
        return report.heard_by(self)

    def _heard_written(self, report: _Written) -> Todo:
        self._unanswered -= 1
        # While another group waits for its sync, the loop has not applied all before this one.
        todo = self._answer(report.group, None, 0 if self._awaiting else report.applied)
        if self._failures:
            self._release_failures()
        if self._waiting and not self._is_look_due:  # came meanwhile, and need not wait for a sync
            todo += LOOK_NOW
        return todo

    def _heard_synced(self, report: _Synced) -> Todo:
        """Answer what waited for the sync, then tell how far the log is stable."""
        todo = self._answer(report.apart, None) if report.apart else []
        for late in report.late:
            self._awaiting.remove(late)
            todo += self._answer(late.group, None, late.applied)
        todo.append(Stable(report.stable))
        if self._failures:
            self._release_failures()
        return todo

    def _heard_failed(self, report: _Failed) -> Todo:
        """Fail the group and all that was staged behind it, so that its sequences are free again.

        What is written already and waits for a sync of the thread is answered first.
        """
        for late in report.late:
            self._awaiting.remove(late)
        if self._awaiting or self._sent or self._unanswered:
            self._failures.append(_Failed(report.group, report.error, []))
            return NOTHING
        syncing = self._syncing.apart if self._syncing is not None else []
        group = [*report.group, *syncing, *self._apart, *self._waiting]
        syncing.clear()  # a sync under way must not answer them again
        self._apart.clear()
        self._waiting.clear()
        if isinstance(report.error, ShardReadOnly):
            self.read_only = self.read_only or str(report.error)
        self._release_failures()
        return [TakeBack(report.error), *self._answer(group, report.error)]

    def _release_failures(self) -> None:
        """Have the loop hear next what failed while another group waited for its sync."""
        if self._failures and not (self._awaiting or self._sent or self._unanswered):
            self.reports.extendleft(reversed(self._failures))
            self._failures.clear()

    def taken_back(self) -> Todo:
        """Write again, once the logs have taken back what failed."""
        self._untold -= 1
        return (WAKE,)

    def _answer(
        self, group: Group, error: MillstreamError | None, applied: int = 0
    ) -> list[Action]:
        todo: list[Action] = [Answer(group, error, applied)]
        for submission in group:
            self.backlog_bytes -= len(submission.data)
        if self._is_holding and self.backlog_bytes <= self._limits.high_water // 2:
            self._is_holding = False
            todo.append(Hold(False))
        return todo

    # --- writing, by either side

    def written(
        self,
        write: Write,
        chunks: list[Chunk],
        error: MillstreamError | None,
        at: Standing,
        now: float,
    ) -> Todo:
        """Take note of what was handed to the engine; ``error`` says why the rest was not."""
        self.is_writing = False
        self._in_hand = []
        rest: Group = []
        confirmed, taken = self.positions.confirmed, self.positions.taken
        if error is not None:
            rest = write.group[sum(len(group) for _, group in chunks) :]
        elif taken is not None:
            error = taken_error(taken)
        elif self._ended_by is not None:  # meanwhile
            error = self._ended_by
        is_confirmed = not self._sent and (not chunks or chunks[-1][0] <= confirmed)
        if is_confirmed:  # as always where the engine completes inside of the call
            if write.is_here:
                return self._written_here(write, rest, error, at, now)
            group = write.group[: len(write.group) - len(rest)] if rest else write.group
        else:
            self._sent.extend(chunks)
            group = self._take_confirmed()
        todo = self._written_elsewhere(group, now)
        if error is not None:
            todo += self._fail(rest, error)
        if self._late or self._is_sync_due(at, now):
            todo += self._call_thread() if write.is_here else (SYNC,)
        return todo

    def _written_here(
        self, write: Write, rest: Group, error: MillstreamError | None, at: Standing, now: float
    ) -> Todo:
        """Answer what the loop has written, but for what waits for a sync apart from the others."""
        if now - write.began > SLOW_WRITE:
            self._slow_until = now + SLOW_PAUSE * (now - write.began)
        group = write.group
        failing: Todo = NOTHING
        if error is not None:
            rest = rest or group
            group = group[: len(group) - len(rest)]
            failing = self._fail(rest, error)
        elif self._dirty_since is None:
            self._dirty_since = now
        self._note(group)
        if apart := [each for each in group if each.sync]:
            self._apart += apart
            group = [each for each in group if not each.sync]
        todo = self._answer(group, None, 0 if self._awaiting else self.positions.confirmed)
        if not at.is_prepared or self._is_much(at):
            todo[:0] = self._call_thread()  # also where it came in vain while this was written
        return [*failing, *todo] if failing else todo

    def _written_elsewhere(self, group: Group, now: float) -> list[Action]:
        """Have the loop answer what needs no sync, and the thread sync for the others."""
        self._note(group)
        waiting = self._unsynced_logs() if self._late or self._syncing else set()
        early, late = in_promise_order(group, waiting)
        if late:
            logs = {log_id for each in late for log_id in each.ordered}
            one = Late(late, logs, self.positions.confirmed)
            self._late.append(one)
            self._awaiting.append(one)
        if self._dirty_since is None:
            self._dirty_since = now
        if early:
            self._unanswered += 1
            return self._report(_Written(early, self.positions.confirmed))
        if self._waiting:  # what came during the write need not wait for a sync
            return self._report(_KeptOut())
        return []

    def _unsynced_logs(self) -> set[int]:
        """Return the logs that have something which no sync has made true yet."""
        syncing = self._syncing.late if self._syncing is not None else []
        return {log_id for late in (*self._late, *syncing) for log_id in late.logs}

    def confirmed(self, now: float) -> Todo:
        """Take note that the engine has answered for more, while nobody hands over."""
        todo: list[Action] = []
        if group := self._take_confirmed():
            todo += self._written_elsewhere(group, now)
        if self.positions.taken is not None and self._ended_by is None:
            todo += self._fail([], taken_error(self.positions.taken))
        return [*todo, *self._call_thread()]  # to sync, or as there is room for more

    def failed(self, error: MillstreamError) -> Todo:
        """Take note that the engine takes nothing more, as something else than a write showed."""
        return self._fail([], error)

    def _take_confirmed(self) -> Group:
        group: Group = []
        while self._sent and self._sent[0][0] <= self.positions.confirmed:
            group += self._sent.popleft()[1]
        return group

    def _note(self, group: Group) -> None:
        """Remember what a sync from now on makes stable."""
        for submission in group:
            if submission.runs:
                self._noted[SYNCED, submission.stream_id] = submission.last_seq
            elif first := submission.first_seq:
                self._noted[SYNCED, submission.stream_id] = first + submission.count - 1
            if submission.tells:
                self._noted.update(submission.tells)

    def _fail(
        self, group: Group, error: MillstreamError, late: Sequence[Late] = ()
    ) -> list[Action]:
        if isinstance(error, ShardReadOnly):
            self._ended_by = self._ended_by or error
            self._dirty_since = None  # a failed sync is not tried again
            group = [*(each for _, chunk in self._sent for each in chunk), *group]
            self._sent.clear()
        self._untold += 1
        return self._report(_Failed(group, error, list(late)))

    def _report(self, report: _Report) -> list[Action]:
        self.reports.append(report)
        return [CALL_LOOP]

    # --- the thread's side

    def _call_thread(self) -> Todo:
        if self._thread_end is not None:  # nobody would come
            return self._fail([], self._thread_end)
        if self._is_thread_called:
            return NOTHING
        self._is_thread_called = True
        return (WAKE,)

    def came(self, at: Standing, now: float) -> Write | Sync | Refuse | None:
        """Return what the thread does next; None when there is nothing."""
        self._is_thread_called = False  # also when it came in vain: the next call must wake it
        if self._is_refusing:
            self._is_refusing = False
            return REFUSE
        if self._late:
            return SYNC
        if self._untold or self.is_writing:
            return None
        if self.positions.under_way and self.positions.is_full:
            return None
        if self._waiting:
            return self._take(False, now)
        return SYNC if self._is_sync_due(at, now) else None

    def sleep(self, now: float) -> float:
        """Return for how long the thread may sleep; below 0 when it has something to do."""
        may_write = self._waiting and not self._untold and not self.positions.is_full
        if self.is_stopping or self._is_thread_called or self._late or may_write:
            return -1.0  # a call may have come since the last look
        age = 0.0 if self._dirty_since is None else now - self._dirty_since
        return max(self._limits.dirty_age - age, 0.0)

    def sync_began(self, written: int) -> Syncing:
        """Return what a sync makes true; what the loop writes meanwhile is dirty again."""
        self._dirty_since = None
        self._synced_bytes = written
        syncing = self._syncing = Syncing(self._late, self._apart, self._noted)
        self._late, self._apart, self._noted = [], [], {}
        return syncing

    def synced(self, syncing: Syncing, stable: int) -> Todo:
        """Answer what a sync has made true; everything up to ``stable`` is."""
        self._syncing = None
        return self._report(_Synced(syncing.apart, syncing.late, stable))

    def sync_failed(
        self, syncing: Syncing, error: MillstreamError, behind: Sequence[Submission] = ()
    ) -> Todo:
        """Fail what waited for the sync, and all behind it."""
        self._syncing = None
        self._apart = syncing.apart + self._apart
        waited = [each for late in syncing.late for each in late.group]
        return self._fail([*waited, *behind], error, syncing.late)

    def mark_begins(self) -> bool:
        """Say whether the thread may write a mark: nothing else is going on."""
        if self._untold or self._waiting or self.is_writing or self._sent:
            return False
        self.is_writing = True
        return True

    def mark_ended(self, now: float, stable: int) -> Todo:
        """Let others write again, and the logs look who has nothing more to write."""
        self.is_writing = False
        todo = self.confirmed(now) if self.positions.taken is not None else NOTHING
        return [*todo, *self._report(_Synced([], [], stable))]

    def _is_sync_due(self, at: Standing, now: float) -> bool:
        if self._dirty_since is None:
            return False
        return now - self._dirty_since >= self._limits.dirty_age or self._is_much(at)

    def _is_much(self, at: Standing) -> bool:
        """Say whether to sync for what there is, not for its age."""
        if self._apart and any(map(self._hurries, self._apart)):
            return True
        return at.wants_sync or at.written - self._synced_bytes >= self._limits.dirty_bytes


def in_promise_order(group: Group, waiting: set[int]) -> tuple[Group, Group]:
    """Split into (answered after the write, answered after the sync), each log's order kept.

    Of logs that are ``waiting`` something earlier is answered after a sync.
    """
    if not waiting and not any(submission.sync for submission in group):
        return group, []
    early: Group = []
    late: Group = []
    for submission in group:
        if submission.sync or not waiting.isdisjoint(submission.ordered):
            waiting.update(submission.ordered)
            late.append(submission)
        else:
            early.append(submission)
    return early, late
