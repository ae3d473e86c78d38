"""Eager tasks: work done at once as far as it goes, and by a task only from where it must wait.

Most answers are ready at once; a task and a turn of the loop would cost more than they do.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

_Task = TypeVar("_Task")
_MUCH = 16_384  # bytes of a request, whose parts are looked at in about a millisecond


def begin(work: Coroutine[Any, Any, None], spawn: Callable[[Any], _Task]) -> _Task | None:
    """Carry out ``work`` until it ends or waits; what is left then goes to ``spawn``.

    Returns what ``spawn`` did, None when nothing is left. There is no current task meanwhile.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return spawn(_resumed(work, awaited))


@types.coroutine
def _resumed(work: Coroutine[Any, Any, None], awaited: object) -> Generator[object, None, None]:
    """Go on with a coroutine that waits for ``awaited`` already."""
    try:
        while True:
            try:
                yield awaited
            except BaseException as thrown:  # its task was cancelled
                awaited = work.throw(thrown)
            else:
                awaited = work.send(None)
    except StopIteration:
        return


async def next_turn(size: int) -> None:
    """Let others have the loop before the next step of work on so many bytes, where it is much."""
    if size > _MUCH:
        await asyncio.sleep(0)
