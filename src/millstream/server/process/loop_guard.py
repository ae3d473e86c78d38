"""LoopGuard: how long each callback keeps the loop, for tests.

``MILLSTREAM_LOOP_GUARD=<directory>`` makes a server measure the CPU time of its thread (a busy
machine adds nothing to it) around each callback, reader, timer, step of a task and call of a
protocol. What is longer than ``REPORTED_MS`` is appended at once to a file in the directory, so
that a server which is killed has told it too. The start and the stop do not count, nor do garbage
collections (which are reported by themselves) and the first call of each kind, which imports and
builds what the later ones find.
"""

import asyncio
import gc
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop

VARIABLE = "MILLSTREAM_LOOP_GUARD"
REPORTED_MS = 5.0
_PROTOCOL_CALLS = ("data_received", "buffer_updated", "eof_received", "connection_lost")


class Hold(msgspec.Struct, frozen=True):
    """One callback that kept the loop."""

    what: str
    ms: float


class LoopGuard:
    """Measures calls, and tells of long ones."""

    def __init__(self, tell: Callable[[Hold], None]) -> None:
        self._tell = tell
        self._known: set[str] = set()
        self._collecting = 0.0
        self._collected = 0.0  # seconds of this thread that collections took
        self._depth = 0
        self.is_on = False

    def begin(self) -> None:
        """Count from here on: the start is over."""
        self.is_on = True
        gc.callbacks.append(self._collects)

    def end(self) -> None:
        """Count no more: the stop begins."""
        if self.is_on:
            self.is_on = False
            gc.callbacks.remove(self._collects)

    def call(self, what: object, call: Callable[..., Any], *args: Any) -> Any:
        """Call and measure; a call inside of another is part of that one."""
        if not self.is_on or self._depth:
            return call(*args)
        self._depth = 1
        collected, started = self._collected, time.thread_time()
        try:
            return call(*args)
        finally:
            self._depth = 0
            self._note(what, time.thread_time() - started - (self._collected - collected))

    def _note(self, what: object, seconds: float) -> None:
        name = named(what)
        if name not in self._known:
            self._known.add(name)
        elif seconds * 1000 >= REPORTED_MS:
            self._tell(Hold(name, seconds * 1000))

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
            return
        took = now - self._collecting
        self._collected += took
        if took * 1000 >= REPORTED_MS:
            self._tell(Hold(f"gc generation {info['generation']}", took * 1000))


def named(what: object) -> str:
    """Return what a person would call a callback: of a task, its coroutine."""
    while isinstance(what, partial):
        what = what.func
    owner = getattr(what, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '')}"
    return str(getattr(what, "__qualname__", type(what).__name__))


class GuardedLoop(uvloop.Loop):
    """A loop that has what it calls measured."""

    def __init__(self, guard: LoopGuard) -> None:
        super().__init__()
        self.guard = guard

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """Measure a callback; steps of tasks come this way too."""
        return super().call_soon(self.guard.call, callback, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """Measure a callback from another thread."""
        call = super().call_soon_threadsafe
        return call(self.guard.call, callback, callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """Measure a timer."""
        call = super().call_later
        return call(delay, self.guard.call, callback, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        """Measure a timer."""
        call = super().call_at
        return call(when, self.guard.call, callback, callback, *args, context=context)

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Any, *args: Any
    ) -> None:
        """Measure what reads; the hub is one of these."""
        super().add_reader(fd, self.guard.call, callback, callback, *args)

    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Any, *args: Any
    ) -> None:
        """Measure what writes."""
        super().add_writer(fd, self.guard.call, callback, callback, *args)

    async def connect_accepted_socket(
        self, protocol_factory: Any, sock: Any, **options: Any
    ) -> Any:
        """Measure the calls of a connection's protocol."""
        return await super().connect_accepted_socket(
            partial(self._guarded, protocol_factory), sock, **options
        )

    def _guarded(self, protocol_factory: Callable[[], Any]) -> Any:
        protocol = protocol_factory()
        for name in _PROTOCOL_CALLS:
            if hasattr(protocol, name):
                call = getattr(protocol, name)
                setattr(protocol, name, partial(self.guard.call, call, call))
        return protocol


def _append(path: Path, hold: Hold) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(hold) + b"\n")


def loop_factory() -> Callable[[], uvloop.Loop]:
    """Return what makes the server's loop: a guarded one where the environment asks for it."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return uvloop.new_event_loop
    path = Path(directory) / f"{os.getpid()}.jsonl"
    return lambda: GuardedLoop(LoopGuard(partial(_append, path)))
