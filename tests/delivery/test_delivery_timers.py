from millstream.clock import ManualClock
from millstream.delivery.timers import TIDY_ABOVE, Timers
from millstream.supervisor import Supervisor


def test_deadlines_run_in_order_once_their_time_has_come():
    clock, ran = ManualClock(), []
    timers = Timers(clock)
    timers.after(2, lambda: ran.append("late"))
    timers.after(1, lambda: ran.append("early"))
    called_off = timers.after(1, lambda: ran.append("never"))
    called_off.cancel()
    assert timers.run_due() == 0
    clock.advance(3)
    assert timers.run_due() == 2
    assert ran == ["early", "late"]


def test_a_deadline_set_for_now_by_a_callback_waits_for_the_next_turn():
    clock, ran = ManualClock(), []
    timers = Timers(clock)

    def again() -> None:
        ran.append(1)
        timers.after(0, again)

    timers.after(0, again)
    assert timers.run_due() == 1
    assert timers.run_due() == 1
    assert ran == [1, 1]


def test_one_failing_callback_does_not_stop_the_others(caplog):
    clock, ran = ManualClock(), []
    timers = Timers(clock)
    timers.after(0, lambda: 1 / 0)
    timers.after(0, lambda: ran.append(1))
    timers.run_due()
    assert ran == [1]
    [record] = caplog.records
    assert record.getMessage().startswith("the timer test_one_failing_callback")
    assert "failed (ZeroDivisionError" in record.getMessage()


def test_a_repeated_call_goes_on_whatever_one_raises():
    clock, outcomes, supervisor = ManualClock(), [1, 0, 1], Supervisor()
    timers = Timers(clock, supervisor=supervisor)
    timers.every(1.0, "the tick", lambda: 1 / outcomes.pop(0) and None)
    clock.advance(1.0)
    timers.run_due()
    assert supervisor.problems() == ["the tick fails (ZeroDivisionError: division by zero)"]
    clock.advance(1.0)
    timers.run_due()
    assert (outcomes, supervisor.problems()) == ([], [])


def test_deadlines_that_were_called_off_do_not_pile_up():
    clock, ran = ManualClock(), []
    timers = Timers(clock)
    for n in range(TIDY_ABOVE):
        timers.after(n + 1, lambda n=n: ran.append(n))
    for _ in range(20 * TIDY_ABOVE):
        timers.after(3600, lambda: ran.append("never")).cancel()
    assert len(timers._queue) < 4 * TIDY_ABOVE
    clock.advance(7200)
    timers.run_due()
    assert ran == list(range(TIDY_ABOVE))
