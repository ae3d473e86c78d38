"""Work that is done at once, and by a task only from where it has to wait."""

import asyncio
from contextvars import ContextVar

import pytest

from millstream.eager_task import begin

WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_work_that_never_waits_is_done_on_return_and_needs_no_task() -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    assert begin(work(), lambda rest: pytest.fail("a task was made")) is None
    assert done == [1]


async def test_work_that_waits_goes_on_in_a_task_from_there() -> None:
    done: list[str] = []
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        done.append("begun")
        done.append(await gate)
        await asyncio.sleep(0)
        done.append("ended")

    task = begin(work(), asyncio.get_running_loop().create_task)
    assert done == ["begun"]
    assert task is not None
    gate.set_result("waited")
    await task
    assert done == ["begun", "waited", "ended"]


async def test_the_task_keeps_the_context_that_the_work_was_begun_in() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append(WHO.get())
        await asyncio.sleep(0)
        seen.append(WHO.get())

    before = WHO.set("me")
    task = begin(work(), asyncio.get_running_loop().create_task)
    WHO.reset(before)
    assert task is not None
    await task
    assert seen == ["me", "me"]


async def test_a_cancelled_task_is_heard_of_where_the_work_waits() -> None:
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    task = begin(work(), asyncio.get_running_loop().create_task)
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled"]


async def test_what_the_beginning_raises_is_raised_at_once() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin(work(), asyncio.get_running_loop().create_task)
