"""What a process holds open, and what a test left behind of it."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

PATIENCE = 20.0  # threads and processes that are ending take a while on a busy machine
PIECE = 0.01
# Helpers that Python itself starts once and keeps for the life of the process.
STANDING_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
AsyncTest = Callable[..., Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Holdings:
    """Open files, living threads and child processes, each with a name to show."""

    files: frozenset[str]
    threads: frozenset[threading.Thread]
    children: frozenset[int]


def holdings() -> Holdings:
    """Return what this process holds now."""
    return Holdings(_files(), frozenset(threading.enumerate()), _children())


def left_behind(before: Holdings) -> list[str]:
    """Return a line for each thing held now that was not held before; waits for what is ending."""
    deadline = time.monotonic() + PATIENCE
    while found := _difference(before, holdings()):
        gc.collect()  # an abandoned object that closes itself is untidy, but no leak
        if time.monotonic() > deadline:
            break
        time.sleep(PIECE)
    return found


def _difference(before: Holdings, after: Holdings) -> list[str]:
    files = [f"open file {name}" for name in sorted(after.files - before.files)]
    threads = [f"thread {t.name}" for t in after.threads - before.threads if t.is_alive()]
    fresh = [(pid, _command(pid)) for pid in sorted(after.children - before.children)]
    children = [f"process {pid}: {command}" for pid, command in fresh if not _standing(command)]
    return files + threads + children


def _files() -> frozenset[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{number} → {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:
            continue  # the descriptor that listed the directory
    return frozenset(name for name in found if not name.endswith("/fd"))


def _children() -> frozenset[int]:
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            pids.update(int(pid) for pid in (task / "children").read_text().split())
        except FileNotFoundError:
            continue  # the thread ended meanwhile
    return frozenset(pids)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip() or "(ended)"
    except OSError:
        return "(gone)"


def _standing(command: str) -> bool:
    return command == "(gone)" or any(name in command for name in STANDING_PROCESSES)


def without_stray_tasks(test: AsyncTest) -> AsyncTest:
    """Return the async test, failing when it leaves tasks that its fixtures did not start."""

    @wraps(test)
    async def guarded(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        for _ in range(3):  # a task that was just cancelled needs a turn to notice
            await asyncio.sleep(0)
        stray = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert not stray, f"the test left tasks behind: {stray}"

    return guarded
