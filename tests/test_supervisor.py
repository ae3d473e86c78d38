"""What a supervisor runs does not end unseen: it is logged, named as a problem, and told on."""

import asyncio
import logging
from functools import partial

import pytest

from millstream.supervisor import Supervisor


class Killed(BaseException):
    """Nothing that runs in a thread expects this."""


def ends(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [OSError(5, "EIO"), ValueError("bad"), SystemExit(), Killed()])
def test_a_thread_that_ends_is_a_problem_and_reaches_who_depends_on_it(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, told = Supervisor(), []
    supervisor.thread("writer", partial(ends, error), told.append).join()
    assert told == [error]
    [problem] = supervisor.problems()
    assert problem.startswith(f"writer thread ended ({type(error).__name__}")
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_thread_that_returns_has_done_its_work() -> None:
    supervisor, told = Supervisor(), []
    supervisor.thread("writer", lambda: None, told.append).join()
    assert (told, supervisor.problems()) == ([], [])


def test_a_thread_whose_dependent_fails_too_tells_of_both() -> None:
    supervisor = Supervisor()
    supervisor.thread("writer", partial(ends, Killed()), lambda error: ends(KeyError("x"))).join()
    assert [each.split(" (")[0] for each in supervisor.problems()] == [
        "writer thread ended",
        "what depends on writer could not be told",
    ]


def test_a_repeated_call_is_a_problem_until_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor, outcomes = Supervisor(), [OSError("away"), OSError("away"), None]

    def call() -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    tick = supervisor.repeated("the tick", call)
    tick()
    tick()
    assert supervisor.problems() == ["the tick fails (OSError: away)"]
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    tick()
    assert supervisor.problems() == []


@pytest.mark.parametrize("how", ["raises", "returns", "is cancelled"])
async def test_a_task_that_ends_before_its_time_is_a_problem(how: str) -> None:
    supervisor, told, go = Supervisor(), [], asyncio.Event()

    async def work() -> None:
        await go.wait()
        if how == "raises":
            raise ValueError("bad")

    task = asyncio.get_running_loop().create_task(work())
    supervisor.task("the work", task, lambda: False, told.append)
    await asyncio.sleep(0)
    if how == "is cancelled":
        task.cancel()
    go.set()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert len(told) == 1
    assert supervisor.problems()[0].startswith("the work task ended (")


async def test_a_task_that_ends_in_its_time_is_none() -> None:
    supervisor, told = Supervisor(), []
    task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    supervisor.task("the work", task, lambda: True, told.append)
    await task
    await asyncio.sleep(0)
    assert (told, supervisor.problems()) == ([], [])
