"""/stacksz: what every thread and every task of the server does right now, for support."""

import asyncio
import sys
import threading
import traceback
from io import StringIO


def describe() -> bytes:
    """Return the stacks as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {ident} [{names.get(ident, 'unknown')}]:\n" + "".join(traceback.format_stack(top))
        for ident, top in sys._current_frames().items()
    ]
    parts += [_task(task) for task in asyncio.all_tasks()]
    return "\n".join(parts).encode("utf-8", "replace")


def _task(task: "asyncio.Task[object]") -> str:
    text = StringIO()
    task.print_stack(file=text)
    return f"task [{task.get_name()}]:\n{text.getvalue()}"
