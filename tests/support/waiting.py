"""Waits for what happens elsewhere, in another thread, process or task: look until it is so."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from support.fake_disk import Crashed
from support.scale import count

_T = TypeVar("_T")
SECONDS = count(30.0, 120.0)
PAUSE = 0.005


def until(look: Callable[[], _T], seconds: float = SECONDS) -> _T:
    """Look until there is something to see, and return it; a deadline makes it a failure."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(PAUSE)
    return seen


async def eventually(look: Callable[[], _T], seconds: float = SECONDS) -> _T:
    """Do the same while the loop goes on."""
    async with asyncio.timeout(seconds):
        while not (seen := look()):  # noqa: ASYNC110 (what is watched knows no events)
            await asyncio.sleep(PAUSE)
    return seen


async def driven(work: Coroutine[Any, Any, _T], run: Callable[[], None]) -> _T:
    """Turn the loop, and ``run`` what it stands still for, until the work is done."""
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.sleep(0)
            run()
    except Crashed:  # the process is gone, and all that was under way with it
        halted = asyncio.all_tasks() - before
        for each in halted:
            each.cancel()
        await asyncio.gather(*halted, return_exceptions=True)
        raise
    return task.result()
