"""Supervisor: runs threads, tasks and repeated calls so that none of them ends unseen.

A thread that raises is simply gone, and a call that sets its own next time is never made again:
whoever waits for either would wait for ever while everything looks well. So each of them is started
through here. What it raises is logged once with its traceback, is named by every health check, and
reaches whoever depends on it, which then refuses instead of waiting.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

log = logging.getLogger(__name__)

Ended = Callable[[BaseException], None]


class Supervisor:
    """One for each server; may be told and asked from any thread."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}

    def problems(self) -> list[str]:
        """Return what has ended or fails, with its cause, in words; empty when all is well."""
        return list(self._problems.values())

    def report(self, name: str, what: str, error: BaseException) -> None:
        """Take in that something named ended or failed; repeated failures are logged once."""
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        problem = f"{name} {what} ({cause})"
        if self._problems.get(name) != problem:
            self._problems[name] = problem
            log.error("%s: see the traceback", problem, exc_info=error)

    def works(self, name: str) -> None:
        """Take in that what failed works again."""
        if self._problems and self._problems.pop(name, None) is not None:
            log.info("%s works again", name)

    # --- what it runs

    def thread(self, name: str, run: Callable[[], None], ended: Ended) -> threading.Thread:
        """Run on a thread of that name; ``ended`` is told there of whatever ``run`` raises."""
        thread = threading.Thread(
            target=self._run_thread, args=(name, run, ended), name=name, daemon=True
        )
        thread.start()
        return thread

    def task(
        self, name: str, task: "asyncio.Task[Any]", is_over: Callable[[], bool], ended: Ended
    ) -> None:
        """Have ``ended`` told when a task ends although it is not over yet, however it ends."""
        task.add_done_callback(partial(self._task_done, name, is_over, ended))

    def repeated(self, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Return a call that never raises; it is a problem from one that fails to one that works.

        Whoever makes it again and again can set its next time behind it.
        """
        return partial(self._run_repeated, name, call)

    def once(self, kind: str, call: Callable[[], object]) -> Callable[[], None]:
        """Return a call that never raises; one that fails stays a problem: nobody repeats it."""
        return partial(self.run_once, kind, call)

    def run_once(self, kind: str, call: Callable[[], object]) -> None:
        """Make a call as ``once`` would have it made, now."""
        try:
            call()
        except Exception as error:
            self.report(f"{kind} {described(call)}", "failed", error)

    def _run_thread(self, name: str, run: Callable[[], None], ended: Ended) -> None:
        try:
            run()
        except BaseException as error:  # SystemExit too, which a thread would swallow
            self.report(name, "thread ended", error)
            self._tell(name, ended, error)

    def _task_done(
        self, name: str, is_over: Callable[[], bool], ended: Ended, task: "asyncio.Task[Any]"
    ) -> None:
        error: BaseException | None = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not is_over():
            error = error or RuntimeError("it returned too early")
            self.report(name, "task ended", error)
            self._tell(name, ended, error)

    def _tell(self, name: str, ended: Ended, error: BaseException) -> None:
        try:
            ended(error)
        except Exception as failed:
            self.report(f"what depends on {name}", "could not be told", failed)

    def _run_repeated(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self.report(name, "fails", error)
        else:
            self.works(name)


def described(call: Callable[..., object]) -> str:
    """Return a call's name for people: that of the method, also behind partial arguments."""
    while isinstance(call, partial):
        call = call.func
    return str(getattr(call, "__qualname__", type(call).__name__)).replace(".<locals>", "")
