"""The queue's promises, in every order in which loop, thread and engine may take their turns."""

from collections import deque
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millstream.errors import MillstreamError, ShardReadOnly, StorageFull
from millstream.store.wal.commit import OK, Taken
from millstream.store.wal.commit_queue import (
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
    Syncing,
    TakeBack,
    Wake,
    Write,
    _Failed,
    _Written,
    in_promise_order,
)
from millstream.store.wal.positions import Positions, taken_error
from millstream.store.wal.submission import Submission
from support.scale import count

LIMITS = Limits(dirty_age=0.1, dirty_bytes=2000, high_water=1500, small_group=600, entry_bytes=400)
LOGS = st.integers(1, 3)
FAILURES = st.sampled_from([None] * 12 + ["full"] * 4 + ["broken"])


class Figures(NamedTuple):
    """What an engine says of itself."""

    written: int = 0
    wants_sync: bool = False
    is_prepared: bool = True


AT_REST = Figures()


def nobody(error: MillstreamError | None) -> None:
    """Want to know nothing."""


def submission(log: int = 1, sync: bool = False, size: int = 10, **more: Any) -> Submission:
    return Submission(log, 1, 1, bytes(size), sync, nobody, **more)


class Sides(RuleBasedStateMachine):
    """A loop, a thread and an engine around a queue; each does one small thing at a time.

    The machine is also the model: it knows of each submission where it was written, what is
    confirmed and what a sync has covered, and so which answers are true.
    """

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions(1, 0)
        self.queue = CommitQueue(LIMITS, self.positions)
        self.now = 0.0
        self.room = 1000
        self.ahead = 0  # positions that may be under way; 0: each is completed inside of the call
        self.synced = 0
        self.written = 0
        self.wants_sync, self.is_prepared = False, True
        self.is_broken = False
        self.loop_todo: deque[Any] = deque()
        self.posted: deque[Any] = deque()
        self.thread_todo: deque[Any] = deque()
        self.is_awake = False
        self.has_thread_ended = False
        self.syncing: tuple[Syncing, int] | None = None
        self.all: list[Submission] = []
        self.at: dict[int, int] = {}  # submission → the position that commits it
        self.answers: dict[int, MillstreamError | None] = {}
        self.doomed: set[int] = set()  # the logs have given up their sequences
        self.held = [False]
        self.stable: list[int] = []

    @initialize(ahead=st.sampled_from([0, 0, 1, 3]))
    def choose_engine(self, ahead: int) -> None:
        self.ahead = self.positions._ahead = ahead

    @property
    def confirmed(self) -> int:
        return self.positions.confirmed

    # --- the loop

    @property
    def is_loop_free(self) -> bool:
        return not self.loop_todo

    @precondition(lambda self: self.is_loop_free)
    @rule(
        log=LOGS,
        order=st.lists(LOGS, max_size=1),
        kind=st.sampled_from(["plain", "plain", "sync", "apart", "wait", "apart, wait"]),
        size=st.sampled_from([10, 10, 300, 700]),
        at_once=st.booleans(),
    )
    def submit(self, log: int, order: list[int], kind: str, size: int, at_once: bool) -> None:
        one = submission(log, kind in ("sync", "apart", "apart, wait"), size, order=tuple(order))
        one.apart, one.can_wait = kind.startswith("apart"), kind.endswith("wait")
        self.all.append(one)
        self.loop_todo += self.queue.submitted(one, at_once)

    @precondition(lambda self: self.is_loop_free and self.posted)
    @rule()
    def turn(self) -> None:
        self.take_turn()

    def take_turn(self) -> None:
        self.posted.popleft()()

    def look(self) -> None:
        self.loop_todo += self.queue.looked(self.now, self.room)

    def hear(self) -> None:
        if self.queue.reports:
            self.posted.appendleft(self.hear)
            self.loop_todo += self.queue.heard()

    @precondition(lambda self: self.loop_todo)
    @rule(fails=FAILURES, cuts=st.integers(1, 3))
    def loop_acts(self, fails: str | None, cuts: int) -> None:
        self.act_on_loop(fails, cuts)

    def act_on_loop(self, fails: str | None = None, cuts: int = 1) -> None:
        do = self.loop_todo.popleft()
        if isinstance(do, Write):
            assert do.is_here
            # The thread may come in between; the loop does nothing else meanwhile.
            self.loop_todo.appendleft(partial(self.write, do, fails, cuts))
        elif isinstance(do, LookNow):
            before = list(self.loop_todo)
            self.loop_todo.clear()
            self.look()
            self.loop_todo += before
        elif callable(do):
            self.loop_todo.extendleft(reversed(do()))
        else:
            self.carry_out(do)

    @precondition(lambda self: self.is_loop_free)
    @rule()
    def hurry(self) -> None:
        self.loop_todo += self.queue.hurried()

    # --- both

    def carry_out(self, do: Any) -> None:
        match do:
            case Wake():
                self.is_awake = not self.has_thread_ended
            case CallLoop():
                self.posted.append(self.hear)
            case LookLater():
                self.posted.append(self.look)
            case Answer():
                self.answer(do)
            case Stable():
                assert do.position <= self.synced
                self.stable.append(do.position)
            case Hold():
                assert do.is_held is not self.held[-1]
                self.held.append(do.is_held)
            case TakeBack():
                self.doomed |= {id(each) for each in self.all} - set(self.answers)
                self.loop_todo.extendleft(reversed(self.queue.taken_back()))
            case _:
                raise AssertionError(do)

    def answer(self, do: Answer) -> None:
        for one in do.group:
            assert id(one) not in self.answers, "answered twice"
            self.answers[id(one)] = do.error
            if do.error is None:
                self.check_promise(one)
        if do.applied:
            assert do.applied <= self.confirmed
            for one in self.all:  # a snapshot of now must not miss it
                if self.at.get(id(one), do.applied + 1) <= do.applied and not one.apart:
                    assert id(one) in self.answers

    def check_promise(self, one: Submission) -> None:
        assert id(one) not in self.doomed, "acknowledged, and its sequence was given back"
        assert self.at[id(one)] <= self.confirmed, "not written"
        if one.sync:
            assert self.at[id(one)] <= self.synced, "not stable"
        for other in self.all[: self.all.index(one)]:
            if not set(one.ordered).isdisjoint(other.ordered):
                assert id(other) in self.answers, "overtaken"

    def write(self, do: Write, fails: str | None, cuts: int) -> Any:
        """Hand a group to the engine in so many pieces, the last of which may fail."""
        group, chunks, error = do.group, [], None
        size = max(len(group) // cuts, 1)
        pieces = [group[at : at + size] for at in range(0, len(group), size)]
        for i, piece in enumerate(pieces):
            error = self.refusal(fails if i == len(pieces) - 1 else None)
            if error is not None:
                break
            position = self.positions.next
            for one in piece:
                self.at[id(one)] = position
            chunks.append((position, piece))
            self.written += sum(len(one.data) for one in piece)
            if self.ahead:
                self.positions.give((b"",), self.now)
            else:
                self.positions.pass_by()
        return self.queue.written(do, chunks, error, self, self.now)

    def refusal(self, fails: str | None) -> MillstreamError | None:
        if fails == "broken":
            self.is_broken = True
        if self.positions.taken is not None:
            return taken_error(self.positions.taken)
        if self.is_broken:
            return ShardReadOnly("broken")
        return StorageFull("full") if fails == "full" and not self.ahead else None

    # --- the thread

    @precondition(lambda self: self.is_awake or self.thread_todo)
    @rule(fails=FAILURES, cuts=st.integers(1, 3))
    def thread_acts(self, fails: str | None, cuts: int) -> None:
        self.act_on_thread(fails, cuts)

    def act_on_thread(self, fails: str | None = None, cuts: int = 1) -> None:
        if not self.thread_todo:
            do: Any = self.queue.came(self, self.now)
            if do is None:
                self.is_awake = self.queue.sleep(self.now) < 0
                return
            self.thread_todo.append(do)
            return
        do = self.thread_todo.popleft()
        if isinstance(do, Write):
            assert not do.is_here
            self.thread_todo.appendleft(partial(self.write, do, fails, cuts))
        elif isinstance(do, Sync):
            self.syncing = self.queue.sync_began(self.written), self.confirmed
            self.thread_todo.appendleft(partial(self.sync, fails == "broken"))
        elif isinstance(do, Refuse):
            self.thread_todo.extendleft(reversed(self.queue.failed(ShardReadOnly("refused"))))
        elif callable(do):
            self.thread_todo.extendleft(reversed(do()))
        else:
            self.carry_out(do)

    def sync(self, fails: bool) -> Any:
        assert self.syncing is not None
        (syncing, covered), self.syncing = self.syncing, None
        self.is_broken |= fails
        if self.is_broken:
            return self.queue.sync_failed(syncing, ShardReadOnly("the sync failed"))
        self.synced = max(self.synced, covered)
        return self.queue.synced(syncing, self.synced)

    @precondition(lambda self: self.is_loop_free)
    @rule(gate=st.integers(0, 19))
    def refuse(self, gate: int) -> None:
        if not gate:
            self.is_broken = True
            self.loop_todo += self.queue.refused()

    @precondition(lambda self: not self.has_thread_ended)
    @rule(gate=st.integers(0, 19))
    def thread_ends(self, gate: int) -> None:
        """End it wherever it is; what it was about to tell the loop is told by the end itself."""
        if not gate:
            self.is_broken, self.has_thread_ended, self.is_awake = True, True, False
            self.thread_todo.clear()
            self.syncing = None
            for do in self.queue.ended(ShardReadOnly("the thread ended")):
                self.carry_out(do)

    @precondition(lambda self: not self.thread_todo and not self.has_thread_ended)
    @rule()
    def thread_looks_by_itself(self) -> None:
        self.now += 0.1
        self.is_awake = True

    @precondition(lambda self: not self.thread_todo and not self.has_thread_ended)
    @rule(
        is_prepared=st.booleans(),
        wants_sync=st.booleans(),
        window=st.sampled_from([0.0, 0.0, 1.0]),
        gate=st.integers(0, 29),
    )
    def things_change(self, is_prepared: bool, wants_sync: bool, window: float, gate: int) -> None:
        self.is_prepared, self.wants_sync = is_prepared, wants_sync
        self.queue.window = window
        if not gate:
            self.is_broken = True
            self.thread_todo += self.queue.failed(ShardReadOnly("no file can be made"))

    # --- an engine that completes later

    @precondition(lambda self: self.positions.under_way and self.positions.taken is None)
    @rule(gate=st.integers(0, 19))
    def engine_answers(self, gate: int) -> None:
        self.answer_one(bool(gate))

    def answer_one(self, is_ok: bool = True) -> None:
        is_news = self.positions.answered(self.confirmed + 1, OK if is_ok else Taken(9))
        if is_news and not self.queue.is_writing:
            for do in self.queue.confirmed(self.now):
                self.carry_out(do)  # a wake or a call: nothing else may come of it

    # --- always, and in the end

    @invariant()
    def the_backlog_is_what_is_not_answered(self) -> None:
        told = [each for do in self.loop_todo if isinstance(do, Answer) for each in do.group]
        open_ids = {id(each) for each in self.all} - set(self.answers) - {id(e) for e in told}
        expected = sum(len(each.data) for each in self.all if id(each) in open_ids)
        assert self.queue.backlog_bytes == expected

    @property
    def is_answering(self) -> bool:
        is_over = self.is_broken or self.positions.taken is not None
        return bool(self.positions.under_way) and not is_over

    def teardown(self) -> None:
        """Let everybody go on without time: nothing that somebody waits for is stranded."""
        self.queue.window = 0.0
        for _ in range(10_000):
            if self.loop_todo:
                self.act_on_loop()
            elif self.posted:
                self.take_turn()
            elif self.thread_todo or self.is_awake:
                self.act_on_thread()
            elif self.is_answering:
                self.answer_one()
            else:
                break
        else:
            raise AssertionError("no end")
        left = [one for one in self.all if id(one) not in self.answers]
        assert all(one.can_wait for one in left), "stranded"
        if not left:
            assert self.queue.backlog_bytes == 0
            assert self.held[-1] is False
            assert self.queue.is_idle


TestSides = pytest.mark.timeout(1200)(Sides.TestCase)
TestSides.settings = settings(max_examples=count(100, 3000), stateful_step_count=60, deadline=None)


# --- bugs that the machine must find


class _Plant(CommitQueue):
    """A queue with a bug."""


def _found(bug: type[CommitQueue]) -> bool:
    class Planted(Sides):
        def __init__(self) -> None:
            super().__init__()
            self.queue = bug(LIMITS, self.positions)

    thorough = settings(
        max_examples=3000, stateful_step_count=60, deadline=None, database=None,
        derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    try:
        run_state_machine_as_test(Planted, settings=thorough)
    except Exception:
        return True
    return False


class AnswersLateOnesEarly(_Plant):
    """Answers what waits for a sync once it is written."""

    def _written_elsewhere(self, group: Any, now: Any) -> Any:
        self._unanswered += 1
        return self._report(_Written(group, self.positions.confirmed))


class TellsFailuresAtOnce(_Plant):
    """Takes everything back while a group waits for its sync."""

    def _heard_failed(self, report: Any) -> Any:
        awaiting, self._awaiting = self._awaiting, []
        todo = super()._heard_failed(_Failed(report.group, report.error, []))
        self._awaiting = [each for each in awaiting if each not in report.late]
        return todo


class WritesBehindAFailure(_Plant):
    """Goes on writing before the logs have taken back what failed."""

    @property
    def _untold(self) -> int:
        return 0

    @_untold.setter
    def _untold(self, value: int) -> None:
        pass


class OvertakesOnTheLoop(_Plant):
    """Lets the loop write what stands behind something that waits for a sync."""

    def _waits_for_sync(self, submission: Submission) -> bool:
        return False


class ForgetsThatTheThreadCameInVain(_Plant):
    """Does not call the thread again that came while the loop wrote."""

    def came(self, at: Any, now: Any) -> Any:
        before = self._is_thread_called
        do = super().came(at, now)
        self._is_thread_called = before if do is None else False
        return do


class AppliesTooMuch(_Plant):
    """Says that all is applied while a group waits for its sync."""

    def _heard_written(self, report: Any) -> Any:
        awaiting, self._awaiting = self._awaiting, []
        todo = super()._heard_written(report)
        self._awaiting = awaiting
        return todo


BUGS = [
    AnswersLateOnesEarly,
    ForgetsThatTheThreadCameInVain,
    AppliesTooMuch,
    OvertakesOnTheLoop,
    TellsFailuresAtOnce,
    WritesBehindAFailure,
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bug", BUGS[: count(2, 99)], ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[CommitQueue]) -> None:
    assert _found(bug)


# --- one rule at a time


def test_a_small_write_is_left_to_the_next_turn_and_a_synced_one_to_the_thread() -> None:
    assert CommitQueue(LIMITS, Positions(1, 0)).submitted(submission()) == (LookLater(),)
    assert CommitQueue(LIMITS, Positions(1, 0)).submitted(submission(sync=True)) == (Wake(),)
    assert CommitQueue(LIMITS, Positions(1, 0)).submitted(submission(size=601)) == (Wake(),)


def test_a_write_that_wants_to_be_committed_at_once_joins_what_waits_for_a_turn_already() -> None:
    queue = CommitQueue(LIMITS, Positions(1, 0))
    assert queue.submitted(submission(), at_once=True) == (LookNow(),)
    queue.submitted(submission())
    assert queue.submitted(submission(), at_once=True) == ()


def test_the_thread_is_called_once_until_it_comes() -> None:
    queue = CommitQueue(LIMITS, Positions(1, 0))
    assert queue.submitted(submission(sync=True)) == (Wake(),)
    assert queue.submitted(submission(sync=True)) == ()
    write = queue.came(AT_REST, 0.0)
    assert isinstance(write, Write)
    assert queue.submitted(submission(sync=True)) == (Wake(),)


def test_the_loop_leaves_writing_to_the_thread_for_a_while_after_a_slow_write() -> None:
    queue = CommitQueue(LIMITS, Positions(1, 0))
    queue.submitted(submission())
    (write,) = queue.looked(10.0, 1000)
    assert isinstance(write, Write)
    queue.positions.pass_by()
    queue.written(write, [(1, write.group)], None, AT_REST, 10.03)  # 30 ms
    queue.submitted(submission())
    assert queue.looked(10.14, 1000) == (Wake(),)
    assert isinstance(queue.looked(10.16, 1000)[0], Write)


def test_the_loop_writes_what_the_engine_has_room_for() -> None:
    queue = CommitQueue(LIMITS, Positions(1, 0))
    queue.submitted(submission(size=100))
    assert queue.looked(0.0, 275) == (Wake(),)  # 100 bytes, and the heads of up to two entries
    assert isinstance(queue.looked(0.0, 276)[0], Write)


def test_a_commit_window_leaves_even_small_writes_to_the_thread_until_somebody_hurries() -> None:
    queue = CommitQueue(LIMITS, Positions(1, 0))
    queue.window = 1.0
    queue.submitted(submission())
    assert queue.looked(0.0, 1000) == (Wake(),)
    assert queue.is_gathering
    assert queue.hurried() == (Wake(), LookNow())
    assert not queue.is_gathering
    assert isinstance(queue.looked(0.0, 1000)[0], Write)


def test_publishers_are_held_at_the_high_mark_and_let_go_at_half_of_it() -> None:
    queue = CommitQueue(LIMITS, Positions(1, 0))
    queue.submitted(submission(size=800, sync=True))
    assert Hold(True) in queue.submitted(submission(size=700, sync=True))
    write = queue.came(AT_REST, 0.0)
    assert isinstance(write, Write)
    queue.positions.pass_by()
    queue.written(write, [(1, write.group[:1])], StorageFull("full"), AT_REST, 0.0)
    syncing = queue.sync_began(0)
    queue.synced(syncing, 1)
    todo: list[Any] = []
    while queue.reports:
        todo += queue.heard()
    assert todo.count(Hold(False)) == 1


def test_what_stands_behind_a_synced_write_of_its_log_waits_with_it() -> None:
    synced, behind, other = submission(1, sync=True), submission(1), submission(2)
    tied = submission(3, order=(1,))
    group = [synced, behind, other, tied]
    assert in_promise_order(group, set()) == ([other], [synced, behind, tied])
    assert in_promise_order([other], {2}) == ([], [other])
    apart = submission(1, sync=True, apart=True)
    assert in_promise_order([apart, behind], set()) == ([behind], [apart])
