"""Cold reads: reads that may have to wait for cold history, as something to await."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from millstream.errors import MillstreamError, NotHere

T = TypeVar("T")
RETRY_AFTER = 1.0  # seconds


async def once_here(read: Callable[[], T]) -> T:
    """Return what ``read`` returns, once all that it needs is here; nothing else waits for it."""
    while True:
        try:
            return read()
        except NotHere as missing:
            await arrival(missing)


async def arrival(missing: NotHere) -> None:
    """Return once the records are here; raises ``ColdUnavailable`` when they cannot be had."""
    here: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    missing.wait(partial(_settle, here))
    await here


def _settle(here: "asyncio.Future[None]", error: MillstreamError | None) -> None:
    if here.done():
        return
    if error is None:
        here.set_result(None)
    else:
        here.set_exception(error)


def look_again(ring: Callable[[], None], error: MillstreamError | None) -> None:
    """Ring when what was waited for is here; a moment later when it could not be had."""
    if error is None:
        ring()
    else:
        asyncio.get_running_loop().call_later(RETRY_AFTER, ring)
